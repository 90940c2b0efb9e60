"""Each cell {record} x {view} x {read, written} x {followed plane} is known; see ``cells``."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from difftest.simulator.errors import KernelError, NkiError, OracleError, ShapeError
from difftest.simulator.frontend.nki.tensor import IndirectTensor
from difftest.simulator.instructions.record import EFFECTS, INSTRUCTIONS
from tests.every import every
from tests.kernels.budget import NIGHTLY, half
from tests.unit.simulator.cells import (
    FOLLOWED,
    MASKS,
    VIEWS,
    Plane,
    View,
    run,
    run_masked,
    where_chosen,
)
from tests.unit.simulator.effect_calls import effect_call
from tests.unit.simulator.instructions.calls.drawn import DrawnCall, Operand
from tests.unit.simulator.instructions.calls.examples import drawn

# A product adds to drawn values, not to another product.
pytestmark = pytest.mark.filterwarnings(
    "ignore::difftest.simulator.instructions.matmul.AccumulationWarning"
)

BY_INDICES = ("tensor_copy_dynamic_dst", "tensor_copy_dynamic_src")
"""Their operands are indexed by tiles already."""
BY_CHANCE = ("dropout", "rand", "rand2", "rng")
LEAST = {"permuted": 88, "broadcast": 110, "indirect": 45, "vector offset": 3}
"""The least number of compared cells; other views fit almost every role."""
SEES_ALL = ("step", "reversed", "reshaped", "dtype")
"""Views for each effect."""
REFUSED = {
    (KernelError, "NAME takes a scattered ROLE in SBUF on the Scalar Engine"),
    (KernelError, "NAME takes a tile as ROLE"),
    (KernelError, "NAME takes no indirect view as ROLE"),
    (KernelError, "the offsets of NAME are in groups of 16 partitions"),
    (KernelError, "an offset for each row is for the DMA engines"),
    (
        ShapeError,
        "reshape of a slice is a view, so its elements must be adjacent in memory",
    ),
}
"""By class and rule how an instruction refuses a view: of an index, or to move it flat."""
RECORDS = sorted({**INSTRUCTIONS, **EFFECTS}.keys() - set(BY_INDICES))


def fits(call: DrawnCall, role: str, view: View) -> bool:
    """Return whether a role of a call can be a view."""
    one = call.role(role)
    if not isinstance(one, Operand) or np.ndim(one.values) < 2:
        return False
    return (view.written or role not in call.destinations) and view.fits(one)


@functools.cache
def call_of(name: str, seed: int) -> DrawnCall:
    """A drawn call of a record."""
    if name in EFFECTS:
        return effect_call(name, seed)
    return drawn(name, random.Random(seed).choice)


@functools.cache
def literal_of(name: str, seed: int, followed: str) -> dict[str, Plane] | NkiError:
    """Return the results on plain tiles."""
    return outcome(call_of(name, seed), {}, followed)


def calls(name: str, view: View) -> Iterator[tuple[int, str]]:
    """For each role that a record has, the seed of a call whose role can be the view."""
    record = {**INSTRUCTIONS, **EFFECTS}[name]
    for role in (*record.operands, *record.destinations):
        for seed in range(2 if name in EFFECTS else 40):
            if fits(call_of(name, seed), role.name, view):
                yield seed, role.name
                break


def in_turn(number: int) -> tuple[str, ...]:
    """The followed planes of a cell: the values, in half of the cells a mask; every night all."""
    return FOLLOWED if NIGHTLY else (FOLLOWED[0], *FOLLOWED[1 + number % 4 :][:1])


def repeated(call: DrawnCall, role: str) -> DrawnCall:
    """The call with values that a broadcast of the last dimension has."""
    one = call.role(role)
    values = np.repeat(
        np.asarray(one.values)[..., :1], np.shape(one.values)[-1], axis=-1
    )
    return dataclasses.replace(
        call, operands={**call.operands, role: dataclasses.replace(one, values=values)}
    )


class Cells:
    """The cells of one view: how many are known, and those that are wrong or refused."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.known = 0
        self.judged = 0
        self.walked: set[str] = set()
        self.wrong: list[str] = []
        self.refused: list[str] = []

    def check(self, name: str, seed: int, role: str, followed: str, ends: bool) -> None:
        """Compare one cell with its result on plain tiles; the oracle judges the ``ends``."""
        call = call_of(name, seed)
        if self.view.name == "broadcast":
            call = repeated(call, role)
            literal = outcome(call, {}, followed)
        else:
            literal = literal_of(name, seed, followed)
        judge = ends and followed == "values"
        cell = f"{name}, {role}, {followed}"
        try:
            planes = outcome(call, {role: self.view}, followed, judged=judge)
        except OracleError as error:
            self.wrong.append(f"{cell}: {error}\n    {call!r}")
            return
        if isinstance(literal, NkiError):
            # Floats that a mask left out are NaN, other bits are not.
            if isinstance(planes, dict) and followed != "left out":
                self.wrong.append(
                    f"{cell}: refused, but not through the view: {literal}"
                )
        elif isinstance(planes, NkiError):
            self.refuse(cell, planes, name, role)
        else:
            self.known += 1
            self.judged += judge
            self.walked.add(name)
            but = self.doubtful(name, followed)
            self.wrong += [
                f"{cell}: {difference}\n    {call!r}"
                for difference in differences(literal, planes, but)
            ]

    def refuse(self, cell: str, error: NkiError, name: str, role: str) -> None:
        """Note a view that an instruction rejects by none of the known rules."""
        rule = error.rule.replace(name, "NAME").replace(f" {role}", " ROLE")
        if (type(error), rule) not in REFUSED:
            self.refused.append(f"{cell}: {type(error).__name__}, {rule!r}: {error}")

    def doubtful(self, name: str, followed: str) -> tuple[str, ...]:
        """Return the parts of a plane that a view of bits may change."""
        if not self.view.bits:
            return ()
        if followed == "left out" and name in EFFECTS:
            return ("exact", "error", "values")  # NaN of floats alone
        return ("exact", "error")


def differences(
    literal: dict[str, Plane], planes: dict[str, Plane], but: tuple[str, ...]
) -> Iterator[str]:
    for name, plane in planes.items():
        difference = literal[name].difference(plane, but)
        if difference:
            yield f"{name}: {difference}"


@every("view", half(VIEWS))
def test_a_view_is_the_elements_that_it_names(view):
    """For each record, role and followed plane: as on a plain tile, or rejected.

    The oracle follows where the view is read first and where it is written, and finds no fault.
    """
    cells = Cells(view)
    for name in RECORDS:
        roles = list(calls(name, view))
        for number, (seed, role) in enumerate(roles):
            ends = name in INSTRUCTIONS and number in (0, len(roles) - 1)
            for followed in in_turn(len(name) + len(view.name) + number):
                cells.check(name, seed, role, followed, ends)
    assert not cells.wrong, "\n".join(cells.wrong)
    assert not cells.refused, "\n".join(cells.refused)
    assert cells.known >= LEAST.get(view.name, 155)
    assert cells.judged >= LEAST.get(view.name, 155) // 5
    assert view.name not in SEES_ALL or cells.walked >= EFFECTS.keys()


@every("kind", MASKS)
def test_a_mask_keeps_its_elements(kind):
    """Where it is true a destination has the result without a mask, elsewhere the old values."""
    known = 0
    wrong = []
    for name in sorted(INSTRUCTIONS.keys() - set(BY_INDICES) - set(BY_CHANCE)):
        record = INSTRUCTIONS[name]
        call = call_of(name, 1)
        if (
            not record.classic
            or record.walk is not None
            or call.destinations["dst"] is None
        ):
            continue
        for followed in FOLLOWED:
            try:
                expected = where_chosen(call, kind, followed)
            except NkiError:
                continue  # for its data, without a mask
            try:
                planes = run_masked(call, kind, followed)
            except NkiError as error:
                wrong.append(f"{name}, {followed}: {error}\n    {call!r}")
                continue
            known += bool(planes)
            for one, plane in planes.items():
                difference = expected[one].difference(plane)
                if difference:
                    wrong.append(
                        f"{name}, {followed}: {one}: {difference}\n    {call!r}"
                    )
    assert not wrong, "\n".join(wrong)
    assert known >= 30


def outcome(
    call: DrawnCall, views: dict[str, View], followed: str, *, judged: bool = False
) -> dict[str, Plane] | NkiError:
    """Return the results of a call, or the error that rejects it."""
    try:
        return run(call, views, followed, judged=judged)
    except NkiError as error:
        return error


def only_the_first(tensor: Any, shape: tuple[int, ...]) -> Any:
    """Not each second element of the last dimension, as the view is to be."""
    return tensor[..., 0:1].broadcast(len(shape) - 1, shape[-1])


def test_a_planted_view_is_found(monkeypatch):
    """A view of other elements than it says, and a write that leaves the errors behind."""
    seed, role = next(calls("tensor_copy", VIEWS[0]))
    call = call_of("tensor_copy", seed)
    planted = dataclasses.replace(VIEWS[0], of=lambda tensor, shape: tensor[..., 1::2])
    with pytest.raises(AssertionError, match="names others"):
        run(call, {role: planted}, "values")
    planted = dataclasses.replace(VIEWS[0], of=only_the_first)
    literal = run(call, {}, "values")
    planes = run(call, {role: planted}, "values")
    assert literal["dst"].difference(planes["dst"]).startswith("values at")
    monkeypatch.setattr(
        IndirectTensor, "_give", lambda self, region, values, where=None: None
    )
    indirect = next(view for view in VIEWS if view.name == "indirect")
    seed, role = list(calls("tensor_copy", indirect))[-1]
    call = call_of("tensor_copy", seed)
    literal = run(call, {}, "values")
    planes = run(call, {role: indirect}, "values")
    assert literal["dst"].difference(planes["dst"])
