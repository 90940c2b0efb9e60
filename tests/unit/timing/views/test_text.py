import re

import pytest
from rich.console import Console

from difftest.simulator import TRN2
from difftest.simulator.trace import Engine
from difftest.timing import predict
from difftest.timing.advice import advise
from difftest.timing.report import Report
from difftest.timing.views import text
from difftest.timing.views.text import format_findings
from tests.unit.timing.programs import Builder, whole
from tests.unit.timing.shipped import prediction_of


@pytest.fixture(scope="module")
def report():
    return Report(prediction_of("transpose.transpose_by_tiles", (256, 256), dge=True))


def printed(table):
    console = Console(width=120, record=True, quiet=True)
    with console.capture() as capture:
        console.quiet = False
        console.print(table)
    return capture.get()


def test_the_first_three_lines_have_the_answer(report):
    first, second, third, *_ = text.format_totals(report)
    assert first == (
        f"nc_latency {report.prediction.latency:,.1f} us predicted for trn2, of it the "
        f"kernel's own part {report.prediction.middle:,.1f} us"
    )
    assert second.startswith("on a device between ")
    assert second.endswith("90% of published latencies lie within such a range")
    assert (
        third
        == "not measured; compiled as classic-benchmark: DMA descriptors all from one generator"
    )
    static = Report(prediction_of("transpose.transpose_by_tiles", (256, 256)))
    assert next(text.format_totals(static)).startswith("total_time ")


def test_no_total_with_an_unknown_cost():
    build = Builder()
    tile = build.load((128, 8))
    build.emit("sort", Engine.GPSIMD, [whole(tile)])
    lines = list(text.format_totals(Report(predict(build.trace, TRN2, dge=True))))
    assert lines[0].startswith(
        "NO TOTAL (predicted for trn2): the cost of 1 sort is unknown on trn2; without them"
    )
    assert not any(line.startswith(("nc_latency", "total_time")) for line in lines)


def test_the_text_states_that_costs_are_assumed():
    build = Builder()
    tile = build.tensor((128, 4096))
    for _ in range(20):
        build.emit("rand", Engine.GPSIMD, [whole(tile)])
    build.store(tile)
    lines = list(text.format_totals(Report(predict(build.trace, TRN2, dge=True))))
    caution = next(line for line in lines if line.startswith("CAUTION: "))
    assert caution.startswith(
        "CAUTION: the largest unknown is the time of rand (assumed)"
    )
    assert not any(
        line.startswith("CAUTION") for line in text.format_totals(report_of_products())
    )


def report_of_products():
    build = Builder()
    one = build.load((128, 128))
    other = build.load((128, 512))
    for _ in range(100):
        build.matmul(build.psum((128, 512)), one, other)
    return Report(predict(build.trace, TRN2, dge=True))


def test_the_text_states_that_tensors_do_not_fit_sbuf():
    build = Builder()
    tiles = [build.load((128, 64 * 256)) for _ in range(4)]
    for tile in tiles:
        build.store(tile)
    lines = list(text.format_totals(Report(predict(build.trace, TRN2, dge=True))))
    assert any("49,152 bytes a partition do not fit SBUF" in line for line in lines)


def test_tables_name_engines_and_source_lines(report):
    assert "tensor" in printed(text.format_engines(report))
    assert re.search(
        r"transpose\.py:\d+ ",
        printed(text.format_lines("Source lines", report.by_line())),
    )


def test_findings_are_numbered_with_line_and_remedy():
    prediction = prediction_of("transpose.transpose_by_tiles", (512, 512), dge=True)
    lines = list(format_findings(advise(prediction.schedule)))
    assert lines[0].startswith(
        "1. small-dmas: 16 DMAs move 65,536 bytes each, 512 a partition"
    )
    assert lines[1].startswith("   transpose.py:")
    assert lines[1].endswith("us of work (predicted)")
    assert lines[2].startswith("   > nisa.dma_copy(")
    assert lines[3].startswith("   the DMA engines come near their full rate")
    assert lines[4].startswith("   load a larger block")
    assert list(format_findings([])) == ["nothing found"]
