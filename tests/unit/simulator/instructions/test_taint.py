"""Marks of undefined elements include all dependences that a second run with other values shows."""

import contextlib
import random

import numpy as np
import pytest

from difftest.simulator import NkiError
from difftest.simulator.core import current
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.record import INSTRUCTIONS, MaskedValues
from difftest.simulator.instructions.taint import (
    MASKED_BITS,
    TAINT_DTYPE,
    TaintedArray,
    taint_bit,
)
from difftest.simulator.strictness import muted
from difftest.simulator.tile import Tile
from tests.every import every
from tests.unit.simulator.instructions.calls.examples import drawn

SEEDS = 4
UNMARKED = {"iota", "memset", "nc_matmul_mx", "rand", "rng"}
"""Instructions without tiles, and MX products: their elements and scales lack separate values.
"""


class Reads:
    named = decided = 0


def others(values, generator):
    """Other values of an operand: the largest, the smallest, and its own ones elsewhere."""
    if values.dtype.kind in "iu":
        info = np.iinfo(values.dtype)
        ends = (info.max, info.min)
    else:
        ends = (True, False) if values.dtype == bool else (3e38, -3e38)
    for end in ends:
        yield np.full_like(values, end)
    yield generator.permutation(values.reshape(-1)).reshape(values.shape)


def apart(made):
    """The values, and the marks, of each destination."""
    for one in made if isinstance(made, tuple) else (made,):
        if isinstance(one, MaskedValues):
            (values,), (chosen,) = apart(one.values), apart(one.chosen)
            plane = np.where(chosen[0], values[1], 0) | chosen[1]
            yield np.where(chosen[0], bits(values[0]), 0), plane
        elif isinstance(one, TaintedArray):
            yield bits(one.values), one.taint
        elif one is not None:
            yield bits(np.asarray(one)), np.zeros(np.shape(one), TAINT_DTYPE)


def bits(values):
    """Return packed elements, which are not numbers, as their bits."""
    return (
        values
        if values.dtype.kind in "biuf"
        else values.view(f"u{values.dtype.itemsize}")
    )


def again(compute, values):
    """Return the results for other values, without a trace; None if they break a rule."""
    registers = current().registers
    before = {name: held.copy() for name, held in registers.accumulators.items()}
    if any(isinstance(one, TaintedArray) for one in values):
        for name, held in before.items():
            registers.accumulators[name] = TaintedArray(
                Reads(), held, np.zeros(held.shape, TAINT_DTYPE)
            )
    try:
        with muted(), np.errstate(all="ignore"):
            return list(apart(compute(values)))
    except NkiError:
        return None
    finally:
        registers.accumulators = before


def look(compute, values, generator, seen, *, computes=True):
    """Mark some of the operands' elements, and compare with what depends on their values."""
    masks = [
        generator.random(one.shape) < generator.choice([0.02, 0.3])
        if isinstance(one, np.ndarray)
        else None
        for one in values
    ]
    reads = Reads()
    marked = [
        one
        if mask is None
        else TaintedArray(reads, one, np.where(mask, taint_bit(at, MASKED_BITS), 0))
        for at, (one, mask) in enumerate(zip(values, masks, strict=True))
    ]
    plain = again(compute, values)
    followed = again(compute, marked)
    if plain is None or followed is None:
        return
    for (value, _), (same, _) in zip(
        plain, followed if computes else plain, strict=True
    ):
        np.testing.assert_array_equal(value, same)
    for at, mask in enumerate(masks):
        for stand_in in others(values[at], generator) if mask is not None else ():
            changed = list(values)
            changed[at] = np.where(mask, stand_in, values[at])
            made = again(compute, changed)
            for (value, _), (other, _), (_, plane) in zip(
                plain, made or (), followed, strict=False
            ):
                differs = (value != other) & ~((value != value) & (other != other))
                follows = (plane & taint_bit(at, MASKED_BITS)) != 0
                if not reads.decided & taint_bit(at, MASKED_BITS):
                    assert not (
                        differs & ~np.broadcast_to(follows, differs.shape)
                    ).any()
                seen.append(follows.any() or reads.decided)


@every("name", sorted(INSTRUCTIONS.keys() - UNMARKED))
def test_taint_contains_the_elements_that_other_values_change(name, monkeypatch):
    generator = np.random.default_rng(0)
    seen = []
    compute = gate._run_on_values
    let_move = gate._run_in_place

    def looked_at(core, call, issued):
        if call.name == name:
            meaning = call.instruction.meaning
            tiles = issued.operands
            values = [
                one._engine_values() if isinstance(one, Tile) else one for one in tiles
            ]
            look(lambda values: meaning(call, *values), values, generator, seen)
        return compute(core, call, issued)

    def moved(core, call, issued):
        tiles = issued.operands
        if call.name == name and all(
            one is None or isinstance(one, Tile) for one in tiles
        ):
            values = [
                None if one is None else one._engine_values(unwritten=True)
                for one in tiles
            ]
            moves = call.instruction.moves
            look(
                lambda values: moves(call, *values),
                values,
                generator,
                seen,
                computes=False,
            )
        return let_move(core, call, issued)

    with monkeypatch.context() as patched:
        patched.setattr(gate, "_run_on_values", looked_at)
        patched.setattr(gate, "_run_in_place", moved)
        for seed in range(SEEDS):
            with contextlib.suppress(NkiError):  # the data left an operator's range
                drawn(name, random.Random(seed).choice).launched("record")
    assert any(seen) or name.startswith("tensor_copy_dynamic")


DECIDED = {
    np.logical_and: ([True, True], [True, False], [True, False]),
    np.logical_or: ([False, False], [True, False], [False, True]),
    np.bitwise_and: ([1, 1], [-1, 0], [True, False]),
    np.bitwise_or: ([1, 1], [-1, 0], [False, True]),
}
"""Unknown values, known values, and the undefined elements of the result."""


@every("ufunc", DECIDED)
def test_a_side_that_decides_needs_no_other(ufunc):
    """Such sides are rare in drawn calls, but a kernel's masks consist of them."""
    unknown, known, follows = map(np.array, DECIDED[ufunc])
    unknown = TaintedArray(Reads(), unknown, np.full(2, taint_bit(0, MASKED_BITS)))
    for made in (ufunc(unknown, known), ufunc(known, unknown)):
        assert (made.taint != 0).tolist() == follows.tolist()
    sides = TaintedArray(
        Reads(), np.stack([unknown.values, known]), np.array([[1, 1], [0, 0]])
    )
    assert (ufunc.reduce(sides, axis=0).taint != 0).tolist() == follows.tolist()


def test_a_function_without_a_rule_is_loud():
    marks = TaintedArray(Reads(), np.zeros(3), np.zeros(3, TAINT_DTYPE))
    with pytest.raises(TypeError, match="median has no rule for TaintedArray"):
        np.median(marks)
