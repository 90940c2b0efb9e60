import dataclasses
import re

import numpy as np
import pytest

from difftest.simulator import TRN2, launch
from difftest.simulator.entry.install import embedded
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Random
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.report import performance
from difftest.testing.report.performance import BINS, LANE, WIDTH, performance_document
from difftest.timing import predict
from difftest.timing.report import Report
from difftest.timing.views.lanes import lanes_of

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl


@nki.jit
def product(left, right):
    out = nl.ndarray((128, 512), dtype=left.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 128), dtype=left.dtype, buffer=nl.sbuf)
    b = nl.ndarray((128, 512), dtype=left.dtype, buffer=nl.sbuf)
    total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.dma_copy(dst=a, src=left)
    nisa.dma_copy(dst=b, src=right)
    nisa.nc_matmul(dst=total, stationary=a, moving=b)
    held = nl.ndarray((128, 512), dtype=left.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=held, src=total)
    nisa.dma_copy(dst=out, src=held)
    return out


SPEC = KernelSpec(
    kernel=product,
    reference=lambda left, right: left.T.astype(np.float64) @ right,
    domain={"n": (128, 129)},
    inputs={"left": "n 128", "right": "128 512"},
)


def case(n):
    return Case({"n": n}, "bfloat16", {"left": Random(0), "right": Random(1)})


def test_the_bounds_match_the_roofline():
    said = performance_document(SPEC, case(128))
    assert said["kernel"] == "product"
    assert said["title"] == "n=128, bfloat16"
    assert said["case"].startswith("n=128, bfloat16, left=Random(")
    times = said["microseconds"]
    bytes_moved = 2 * (128 * 128 + 128 * 512 + 128 * 512)
    assert said["intensity"] == pytest.approx(2 * 128 * 128 * 512 / bytes_moved)
    assert (
        0 < times["bound by arithmetic"] < times["bound by memory"] < times["predicted"]
    )
    assert said["limit"] == "memory"
    lanes = ["tensor", "scalar", "gpsimd", "DMA", "SBUF", "PSUM"]
    assert [lane["name"] for lane in said["lanes"]] == lanes
    assert said["memory"].startswith("sbuf: ")
    assert all("test_performance.py" in line[0] for line in said["lines"])
    assert "us predicted for trn2" in said["totals"][0]


def test_a_page_does_not_wait_for_a_long_kernel(monkeypatch):
    monkeypatch.setattr(performance, "MOST", 3)
    said = performance_document(SPEC, case(128))
    assert "lanes" not in said
    assert said["why_not"] == "5 instructions: difftest profile says how long they take"


def test_a_case_is_predicted_up_to_where_it_stops():
    """The second copy, of an array that is too long, is refused: there is the first alone."""
    wide = dataclasses.replace(case(128), shapes={"right": (129, 512)})
    said = performance_document(SPEC, wide)
    assert said["stopped"] == "ShapeError"
    assert [count for _, count, *_ in said["lines"]] == [1]


def test_nothing_is_predicted_of_a_case_that_does_nothing():
    assert performance_document(SPEC, case(129)) is None
    idle = dataclasses.replace(SPEC, kernel=lambda left, right: 1 / 0)
    assert performance_document(idle, case(1)) is None


def columns(report, meaning):
    """(left, right, height) of each rectangle of the area of this meaning."""
    lanes = map(performance._lane, lanes_of(report, BINS))
    (path,) = (
        path for lane in lanes for _, said, path in lane["areas"] if said == meaning
    )
    numbers = re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)H([\d.]+)V[\d.]+Z", path)
    return [(float(a), float(d), float(b) - float(c)) for a, b, c, d in numbers]


def test_the_picture_has_the_times_of_the_schedule():
    trace = launch(
        product, [np.ones((128, 128), np.float32), np.ones((128, 512), np.float32)]
    ).trace
    report = Report(predict(trace, TRN2))
    schedule = report.prediction.schedule
    (span,) = (one for one in schedule.spans if one.instruction.opcode == "nc_matmul")
    drawn = columns(report, "nc_matmul")
    area = sum((right - left) * height for left, right, height in drawn)
    assert area / (WIDTH * LANE) == pytest.approx(span.busy / schedule.end, abs=0.01)
    middle = WIDTH * (span.start + span.busy / 2) / schedule.end
    assert any(left - WIDTH / BINS <= middle <= right for left, right, _ in drawn)
    loads, stores = columns(report, "DMA loads"), columns(report, "DMA stores")
    assert max(right for _, right, _ in loads) <= min(left for left, *_ in stores)
    assert all(0 < height <= LANE + 0.1 for *_, height in loads + stores)
