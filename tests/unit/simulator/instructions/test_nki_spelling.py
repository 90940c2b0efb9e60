"""What today's dialect alone has: spelled in it, each drawn call does what its record does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from difftest.simulator.frontend.nki import isa as nisa
from tests.every import every
from tests.unit.simulator.instructions.calls import nki_spelling
from tests.unit.simulator.instructions.calls.drawn import difference
from tests.unit.simulator.instructions.calls.examples import drawn
from tests.unit.simulator.instructions.calls.nki_spelling import SPELLINGS, run_spelled

EXAMPLES_EACH = 8


def assert_same(call):
    """The record, issued directly, and the call in today's dialect leave the same bits."""
    for number, (one, other) in enumerate(zip(call.run("record"), run_spelled(call), strict=True)):
        found = difference(call, one, other)
        assert not found, f"{call!r}, destination {number}: {found}"


@every("name", SPELLINGS)
def test_the_dialect_issues_what_the_record_means(name):
    @settings(max_examples=EXAMPLES_EACH, deadline=None)
    @given(st.data())
    def check(data):
        assert_same(drawn(name, lambda options: data.draw(st.sampled_from(options))))

    check()


def test_a_planted_difference_is_found(monkeypatch):
    """Two operands of the call confused."""
    call = drawn("rand2", lambda options: options[-1])
    monkeypatch.setitem(
        nki_spelling.SPELLINGS, "rand2", lambda t, o: nisa.rand2(t.dst, -100.0, 100.0)
    )
    with pytest.raises(AssertionError, match="destination 0"):
        assert_same(call)
