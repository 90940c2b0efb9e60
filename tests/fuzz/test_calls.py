"""No drawn call of the API, legal or not, ends in an error of Python or NumPy from inside.

A few calls of each function of both dialects in every run; under ``--hypothesis-profile=nightly``
some hundreds.
"""

import sys

import pytest

from tests.fuzz import calls
from tests.fuzz.calls import DIALECTS, crashes
from tests.fuzz.test_modes import NIGHTLY

COUNT = 300 if NIGHTLY else 4


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_no_drawn_call_crashes(dialect):
    found = list(crashes(dialect, COUNT, seed=sys.version_info.minor))
    assert not found, "\n".join(found)


def test_every_function_of_the_classic_dialect_is_called():
    called = {name for name, _ in DIALECTS[0].functions()}
    assert {
        "nl.load",
        "nl.rms_norm",
        "nl.program_id",
        "nisa.max8",
        "nisa.dma_copy",
    } <= called
    assert len(called) > 120


def test_a_crash_is_found(monkeypatch):
    """A function that trips over one kind of argument."""

    def trips(x, y=None):
        return x.shape if y is None else x + len(y)

    monkeypatch.setattr(calls.Dialect, "functions", lambda self: [("nl.trips", trips)])
    found = list(crashes(DIALECTS[0], 20, seed=0))
    assert found
    assert any(
        "nl.trips" in text and "Error" in text and "test_calls.py" in text
        for text in found
    )
