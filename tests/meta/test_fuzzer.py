"""The fuzzer finds planted bugs of the fast mode; the simulator once had many of them.

The two modes are compared on drawn kernels, in the same order each time, until they disagree. The
failure is a few lines and names the statement.
"""

from __future__ import annotations

import re
from dataclasses import replace

import hypothesis
import numpy as np
import pytest
from hypothesis import Phase, settings

from difftest.simulator.dtypes import Array, DType
from difftest.simulator.instructions import reduce as reductions
from difftest.simulator.memory import Storage
from difftest.simulator.pattern import Pattern
from tests.fuzz import comparison
from tests.fuzz.campaign import Campaign
from tests.fuzz.comparison import MODES, Disagreement, check
from tests.fuzz.program import Input, Line, Output, Program
from tests.fuzz.strategies import programs

ELEMENTS = Storage.elements
ENOUGH = 3000
"""Programs after which a bug counts as not found; these are found in far fewer."""


def smallest_failure(pattern: str, seed: int = 0):
    """The first drawn failure whose signature matches, shrunk; others are passed over."""
    campaign = Campaign(modes=("fast", "plain"), longest=4)
    while campaign.statistics.programs < ENOUGH * 3:
        failure = campaign.search(seed, ENOUGH)
        assert failure is not None, f"{ENOUGH} programs and no failure like {pattern!r}"
        if re.search(pattern, failure.signature):
            return failure
    pytest.fail(
        f"no failure like {pattern!r} among {list(campaign.statistics.failures)}"
    )


def kernel_lines(program: Program) -> int:
    return sum(1 for statement in program.body for _ in statement.lines())


def as_they_lie(storage: Storage, pattern: Pattern, dtype: DType) -> Array:
    """Return the result of a shortcut that uses the size and ignores the strides."""
    is_whole = dtype == storage.dtype and pattern.size == storage.data.size
    return (
        storage.data.reshape(pattern.shape)
        if is_whole
        else ELEMENTS(storage, pattern, dtype)
    )


def test_a_whole_array_taken_over_for_a_permuted_destination(monkeypatch):
    monkeypatch.setattr(Storage, "elements", as_they_lie)
    failure = smallest_failure("^value ", seed=3)
    assert kernel_lines(failure.program) <= 8
    assert "elements differ" in str(failure)


def test_a_raw_error_of_the_simulator_shrinks_to_a_short_kernel(monkeypatch):
    def reduce(*arguments, **options):
        raise TypeError("no such loop")

    monkeypatch.setattr(reductions, "reduce_array", reduce)
    failure = smallest_failure("^fast: raw TypeError", seed=5)
    assert kernel_lines(failure.program) <= 8
    assert "raw TypeError in" in failure.signature


WHOLE = Program(
    (Input("a", (2, 3), "float32", "np.arange(6)"),),
    (
        Line("h = nl.ndarray((2, 4), nl.float32, buffer=nl.shared_hbm)", "nl.ndarray"),
        Line("nl.store(h[:, 0:3], nl.load(a))", "nl.store"),
    ),
    (Output("h", "nl.store"),),
)
"""A kernel whose output has holes."""


def test_elements_that_count_as_written_are_compared(monkeypatch):
    check(WHOLE)
    monkeypatch.setitem(MODES, "plain", {})
    check(WHOLE)
    monkeypatch.setattr(Storage, "codes", lambda self, *pattern: None)
    monkeypatch.setitem(MODES, "plain", {"plain": True})
    with pytest.raises(AssertionError, match="unwritten in fast"):
        check(WHOLE)


SEEN_AS_BITS = Program(
    (Input("a", (2, 4), "bfloat16", "np.arange(8) - 3"),),
    (
        Line("t = nl.load(a)", "nl.load"),
        Line("t[:, 0:1].view(nl.uint8)[...] = nl.full((2, 2), 64, nl.uint8)", "view"),
        Line("h = nl.ndarray((2, 4), nl.uint16, buffer=nl.shared_hbm)", "nl.ndarray"),
        Line("nl.store(h, t.view(nl.uint16))", "nl.store"),
    ),
    (Output("h", "nl.store"),),
)
"""A kernel that writes and reads the bits of a narrow float on chip."""


def test_the_bits_of_a_view_are_compared(monkeypatch):
    check(SEEN_AS_BITS)
    original = Storage.bits
    monkeypatch.setattr(Storage, "bits", lambda self: np.zeros_like(original(self)))
    with pytest.raises(AssertionError, match="5 of 8 elements differ"):
        check(SEEN_AS_BITS)


MUTABLE = Program(
    (Input("m", (2, 4), "float32", "np.arange(8)", mutable=True),),
    (Line("nl.store(m[:, 0:3], 9)", "nl.store"),),
    (),
    (Output("m", "nl.store"),),
)
"""A kernel that returns nothing and writes to its argument."""


def test_mutable_arguments_are_compared(monkeypatch):
    check(MUTABLE)
    launched = comparison.launch

    def forgets(kernel, arrays, *, plain=False, **options):
        copies = [array.copy() for array in arrays]
        return launched(kernel, copies if plain else arrays, plain=plain, **options)

    monkeypatch.setattr(comparison, "launch", forgets)
    with pytest.raises(
        AssertionError, match=r"m \(last written by nl\.store\): 6 of 8"
    ):
        check(MUTABLE)


def test_a_refused_launch_leaves_its_arguments_alone(monkeypatch):
    refused = replace(
        MUTABLE, body=(*MUTABLE.body, Line("nl.zeros((129, 1), nl.int8)", "nl.zeros"))
    )
    check(refused)
    launched = comparison.launch

    def spoils(kernel, arrays, **options):
        arrays[0][...] = 7
        return launched(kernel, arrays, **options)

    monkeypatch.setattr(comparison, "launch", spoils)
    with pytest.raises(Disagreement) as found:
        check(refused)
    assert found.value.signature == "fast changed an argument"


def test_mutable_arguments_are_drawn():
    """From ten seeds: programs of one seed resemble each other, most of all in Hypothesis 6.140."""
    drawn = []
    for seed in range(10):

        @settings(max_examples=25, database=None, phases=[Phase.generate])
        @hypothesis.seed(seed)
        @hypothesis.given(programs())
        def draw(program):
            drawn.append(program)

        draw()
    assert sum(bool(program.mutated) for program in drawn) > 3
    assert sum(bool(program.grid) for program in drawn) > 3
