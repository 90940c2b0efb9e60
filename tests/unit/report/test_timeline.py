import re

import numpy as np
import pytest

from difftest.report.timeline import BINS, LANE, LEFT, WIDTH, colours_in, timeline_svg
from difftest.simulator import TRN2, launch
from difftest.simulator.frontend.install import embedded
from difftest.timing import predict
from difftest.timing.report import Report

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl


@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.fixture(scope="module")
def report():
    trace = launch(doubled, [np.ones((128, 512), np.float32)]).trace
    return Report(predict(trace, TRN2, dge=True))


def columns(svg, title):
    """(left, right, height) of each rectangle of the area of this title."""
    (path,) = re.findall(rf'<path d="([^"]*)" [^>]*><title>{title}</title>', svg)
    numbers = re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)H([\d.]+)V[\d.]+Z", path)
    return [(float(a), float(d), float(b) - float(c)) for a, b, c, d in numbers]


def test_what_is_drawn_is_what_the_schedule_says(report):
    svg = timeline_svg(report)
    schedule = report.prediction.schedule
    (span,) = (one for one in schedule.spans if one.instruction.opcode == "tensor_scalar")
    drawn = columns(svg, "tensor_scalar")
    area = sum((right - left) * height for left, right, height in drawn)
    assert area / (WIDTH * LANE) == pytest.approx(span.busy / schedule.end, abs=0.01)
    middle = LEFT + WIDTH * (span.start + span.busy / 2) / schedule.end
    assert any(left - WIDTH / BINS <= middle <= right for left, right, _ in drawn)


def test_loads_come_before_stores_and_both_keep_in_their_lane(report):
    svg = timeline_svg(report)
    loads, stores = columns(svg, "loads"), columns(svg, "stores")
    assert max(right for _, right, _ in loads) <= min(left for left, *_ in stores)
    assert all(0 < height <= LANE + 0.1 for *_, height in loads + stores)


def test_it_says_what_it_shows(report):
    svg = timeline_svg(report)
    (title,) = re.findall(r"^<svg[^>]*><title>(.*?)</title>", svg)
    assert title.startswith("Predicted timeline of ")
    assert "vector: " in title
    assert "DMA: " in title
    assert "SBUF: 2.0 KiB" in title
    meanings = [meaning for _, meaning in colours_in(svg)]
    assert meanings[-4:] == ["tensor_scalar", "loads", "stores", "SBUF in use"]  # PSUM has none
    assert colours_in('<path d="M1" fill="#123"><title>a &lt; b</title>') == [("#123", "a < b")]
    assert len(svg) < 20_000
