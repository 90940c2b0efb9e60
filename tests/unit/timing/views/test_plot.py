import re
from importlib.util import find_spec

import numpy as np
import pytest

from difftest.simulator.trace import Space
from difftest.timing.report import ENGINES, Report, memory_usage
from difftest.timing.views.lanes import BINS, lanes_of, plot, rate_of, share_of
from tests.unit.saved_figures import saved_figures
from tests.unit.timing.shipped import prediction_of


@pytest.fixture(scope="module")
def report():
    return Report(prediction_of("transpose.transpose_by_tiles", (256, 256), dge=True))


def test_a_picture_or_the_reason_why_there_is_none(report, tmp_path, monkeypatch):
    """matplotlib is an extra: with it there is a picture, the command asks first."""
    path = tmp_path / "timeline.png"
    if find_spec("matplotlib") is None:
        with pytest.raises(ModuleNotFoundError, match="matplotlib"):
            plot(report, path, "transpose")
        assert not path.exists()
    else:
        figures = saved_figures(monkeypatch)
        plot(report, path, "transpose")
        assert path.stat().st_size > 10_000
        (figure,) = figures
        for axis in figure.axes:
            check_lane(axis, report)
        # memories
        assert len(figure.axes) == len({lane for lane, _ in drawn_by(report)}) + 2
        end = report.prediction.schedule.end / 1e3
        assert figure.axes[-1].get_xlim() == (0, end)
        assert figure.get_suptitle().startswith(
            f"transpose: {end:,.1f} us predicted for trn2"
        )


@pytest.mark.parametrize("dge", [True, False])
def test_a_lane_is_as_busy_as_the_table_says(dge):
    report = Report(prediction_of("transpose.transpose_by_tiles", (256, 256), dge=dge))
    summary = report.summary()
    shares = {
        e.value: summary[f"{e.value}_engine_active_time_percent"] for e in ENGINES
    }
    lanes = {
        lane.name: lane.value for lane in lanes_of(report, BINS) if lane.name in shares
    }
    assert lanes == {
        name: f"{share:.0%} busy" for name, share in shares.items() if share
    }


def drawn_by(report):
    """By lane and meaning when it begins and ends, and how much it is: us busy, or kilobytes."""
    found = {}
    for span in report.prediction.schedule.spans:
        step = span.instruction
        key = (span.engine.value, span.instruction.opcode)
        one = span.start, span.start + span.busy, span.busy
        if step.transfer is not None:
            key = "DMA", f"DMA {'stores' if step.is_store else 'loads'}"
            one = span.transfer_start, span.transfer_end, step.transfer.bytes
        first, last, size = found.get(key, (one[0], one[1], 0.0))
        found[key] = min(first, one[0]), max(last, one[1]), size + one[2]
    return {
        key: tuple(value / 1e3 for value in values) for key, values in found.items()
    }


def check_lane(axis, report):
    """A lane shows the data of the schedule's spans and of the memories."""
    name = re.split(r"[,\n]", axis.get_ylabel())[0]
    base = np.zeros(BINS)
    names = [text.get_text() for text in axis.get_legend().get_texts()]
    assert names == [patch.get_label() for patch in axis.patches]
    colours = [handle.get_facecolor() for handle in axis.get_legend().legend_handles]
    assert colours == [patch.get_facecolor() for patch in axis.patches]
    assert len(set(colours)) == len(colours)
    schedule = report.prediction.schedule
    summary = report.summary()
    where = drawn_by(report)
    for label, patch in zip(names, axis.patches, strict=True):
        top, edges, baseline = patch.get_data()
        assert baseline == pytest.approx(base)
        there = np.flatnonzero(top > base + 1e-9)
        size = (top - base) @ np.diff(edges)
        base = top
        if name in ("SBUF", "PSUM"):
            usage = memory_usage(schedule, Space(name.lower()))
            assert top.max() == pytest.approx(usage.peak / 1024, rel=0.01)
            times = [step.time for step in usage.steps] + [schedule.end / 1e3]
            held = np.diff(times) @ [step.bytes / 1024 for step in usage.steps]
            assert size == pytest.approx(held, rel=0.01)
        else:
            first, last, expected = where[name, label]
            assert size == pytest.approx(expected)
            shown = edges[there[0]], edges[there[-1] + 1]
            assert shown == pytest.approx((first, last), abs=schedule.end / 1e3 / BINS)
    assert base.max() <= axis.get_ylim()[1]
    limits = {
        "DMA": report.prediction.program.parameters.hbm_bandwidth.value,
        "SBUF": memory_usage(schedule, Space.SBUF).capacity / 1024,
        "PSUM": memory_usage(schedule, Space.PSUM).capacity / 1024,
    }
    assert [line.get_ydata()[0] for line in axis.lines] == [
        limit for lane, limit in limits.items() if lane == name
    ]
    share = summary["dma_active_time_percent"] if name == "DMA" else base.mean()
    if name not in ("SBUF", "PSUM"):
        assert f"\n{share:.0%} " in axis.get_ylabel()


def test_shares_are_of_each_column():
    edges = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    assert share_of([(0.5, 1.0), (1.0, 2.5)], edges) == pytest.approx(
        [0.5, 1.0, 0.5, 0.0]
    )


def test_rates_add_up_to_the_bytes(report):
    edges = np.linspace(0, report.prediction.schedule.end / 1e3, 51)
    spans = [s for s in report.prediction.schedule.spans if s.instruction.transfer]
    moved = rate_of(spans, edges) @ np.diff(edges) * 1e3
    assert moved == pytest.approx(sum(s.instruction.transfer.bytes for s in spans))
