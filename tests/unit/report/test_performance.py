import numpy as np
import pytest

from difftest.harness.case import Case
from difftest.harness.recipes import Random
from difftest.harness.spec import KernelSpec
from difftest.report import performance
from difftest.report.performance import performance_document
from difftest.simulator.frontend.install import embedded

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


def test_the_bounds_are_those_of_the_roofline():
    said = performance_document(SPEC, case(128))
    assert said["kernel"] == "product"
    assert said["case"].startswith("n=128, bfloat16, left=Random(")
    times = said["microseconds"]
    bytes_moved = 2 * (128 * 128 + 128 * 512 + 128 * 512)
    assert said["intensity"] == pytest.approx(2 * 128 * 128 * 512 / bytes_moved)
    assert 0 < times["bound by arithmetic"] < times["bound by memory"] < times["predicted"]
    assert said["limit"] == "memory"
    assert said["timeline"].startswith("<svg")
    assert said["memory"].startswith("sbuf: ")
    assert all("test_performance.py" in line[0] for line in said["lines"])
    assert "not measured" in said["totals"][0]


def test_a_page_does_not_wait_for_a_long_kernel(monkeypatch):
    monkeypatch.setattr(performance, "MOST", 3)
    said = performance_document(SPEC, case(128))
    assert "timeline" not in said
    assert said["why_not"] == "5 instructions: difftest profile says how long they take"


def test_nothing_is_predicted_of_a_case_that_does_not_run():
    assert performance_document(SPEC, case(129)) is None
