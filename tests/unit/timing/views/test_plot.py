from importlib.util import find_spec

import numpy as np
import pytest

from difftest import choices
from difftest.timing.report import Report
from difftest.timing.views.lanes import PlottingError, plot, rate_of, share_of
from tests.unit.timing.shipped import prediction_of


@pytest.fixture(scope="module")
def report():
    return Report(prediction_of("transpose.transpose_by_tiles", (256, 256), dge=True))


def test_a_picture_or_the_reason_why_there_is_none(report, tmp_path):
    """matplotlib is an extra: with it there is a picture, without it a clear error."""
    path = tmp_path / "timeline.png"
    if find_spec("matplotlib") is None:
        with pytest.raises(PlottingError, match=r"pip install .*nki-difftest\[plot\]'"):
            plot(report, path, "transpose")
        assert not path.exists()
    else:
        plot(report, path, "transpose")
        assert path.stat().st_size > 10_000


def test_without_matplotlib_it_says_what_to_install(report, tmp_path, monkeypatch):
    monkeypatch.setattr(choices, "find_spec", lambda name: None)
    with pytest.raises(PlottingError, match="a picture needs matplotlib"):
        plot(report, tmp_path / "timeline.png", "transpose")


def test_shares_are_of_each_column():
    edges = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    assert share_of([(0.5, 1.0), (1.0, 2.5)], edges) == pytest.approx([0.5, 1.0, 0.5, 0.0])


def test_rates_add_up_to_the_bytes(report):
    edges = np.linspace(0, report.prediction.schedule.end / 1e3, 51)
    spans = [s for s in report.prediction.schedule.spans if s.instruction.transfer]
    moved = rate_of(spans, edges) @ np.diff(edges) * 1e3
    assert moved == pytest.approx(sum(s.instruction.transfer.bytes for s in spans))
