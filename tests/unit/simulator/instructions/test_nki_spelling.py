"""Each drawn call in the current dialect's spelling gives the result of its record."""

import dataclasses
import random
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from difftest.simulator import NkiError
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.instructions.record import INSTRUCTIONS
from tests.every import every
from tests.unit.simulator.instructions.calls.drawn import difference
from tests.unit.simulator.instructions.calls.examples import drawn
from tests.unit.simulator.instructions.calls.spelling import BY_HAND

EXAMPLES_EACH = 8
SPELLED = [name for name in sorted(INSTRUCTIONS) if hasattr(nisa, name)]
IN_BOTH = [name for name in SPELLED if INSTRUCTIONS[name].classic]
ITS_OWN = [name for name in SPELLED if not INSTRUCTIONS[name].classic]
OTHERWISE = {"nc_match_replace8": (True,)}
"""Options that differ in the current dialect: of equal values the last one is replaced first."""
ELSEWHERE = {
    "gather_flattened": "nl.gather_flattened alone issues it",
    "rand": "nl.rand alone issues it",
    "where": "nl.where alone issues it",
    "tensor_copy_dynamic_src": "ended with NKI 0.4",
    "tensor_copy_dynamic_dst": "ended with NKI 0.4",
}
"""Instructions without a call of ``nisa``; test_functions and the fuzzers call their names."""


def assert_same(call):
    """Assert that the record, issued directly, and the current dialect's call agree bit by bit."""
    for number, (one, other) in enumerate(
        zip(call.run("record"), call.run("nki"), strict=True)
    ):
        found = difference(call, one, other)
        assert not found, f"{call!r}, destination {number}: {found}"


def test_each_instruction_is_spelled():
    assert {*SPELLED, *ELSEWHERE} == INSTRUCTIONS.keys()


@every("name", ITS_OWN)
def test_the_dialect_issues_what_the_record_means(name):
    @settings(max_examples=EXAMPLES_EACH, deadline=None)
    @given(st.data())
    def check(data):
        assert_same(drawn(name, lambda options: data.draw(st.sampled_from(options))))

    check()


@every("name", IN_BOTH)
def test_calls_of_both_dialects_have_equal_results(name):
    """The current dialect rejects some of the classic calls: its compiler takes fewer dtypes."""
    compared = 0
    for seed in range(80):
        call = drawn(name, random.Random(seed).choice)
        call = dataclasses.replace(call, options=OTHERWISE.get(name, call.options))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                assert_same(call)
            except NkiError:
                continue
        compared += 1
        if compared == EXAMPLES_EACH // 2:
            return
    raise AssertionError(f"{compared} calls of {name} were compared")


def test_a_planted_difference_is_found(monkeypatch):
    """Two operands of the call confused."""
    call = drawn("rand2", lambda options: options[-1])
    wrong = "nisa.rand2(dst, -100.0, 100.0)"
    monkeypatch.setitem(BY_HAND, ("nki", "rand2"), lambda call, texts, more: wrong)
    with pytest.raises(AssertionError, match="destination 0"):
        assert_same(call)
