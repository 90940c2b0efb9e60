"""Whether the outputs of a kernel follow, in the data flow of its trace, from the inputs.

A tape that is replayed computes by instructions alone, so a wrong answer shows by its values. What
shows here is why: an output that no instruction made of an input, or that is an input as it was.
Of each element of a tensor it is known whether it may follow from an input. Where an instruction
goes by place, so does that; else its results follow from all elements that it reads. So too many
elements may be taken to follow from one, never too few.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from difftest.harness.case import Case
from difftest.harness.reference import ReferenceDefect, ReferenceRefusal, call_reference
from difftest.harness.spec import KernelSpec
from difftest.simulator.dtypes import Array
from difftest.simulator.instructions.record import EFFECTS
from difftest.simulator.pattern import Pattern
from difftest.simulator.tape import Tape, TileForm
from difftest.simulator.trace import Allocation, Event, Region, Trace
from difftest.verdict.decoys import Shown, decoys, near

Founded = NDArray[np.bool_]
_MEETINGS = frozenset(name for name, one in EFFECTS.items() if one.exchange is not None)
"""Instructions that write what another program or rank has read."""
_BY_PLACE = frozenset(
    ("activation", "dma_copy", "reciprocal", "tensor_copy", "tensor_scalar", "tensor_tensor")
)
"""Instructions of which an element follows from the operands' elements at its place alone."""


class Gap(NamedTuple):
    """Elements of an output that have no evidence.

    Attributes
    ----------
    output : its number among what the kernel gives back.
    what : why, in words.
    elements, of : how many of its elements. first : the first of them.
    whole : whether no element of the output has any.
    """

    output: int
    what: str
    elements: int
    of: int
    first: tuple[int, ...]
    whole: bool

    def __str__(self) -> str:
        return f"output {self.output} {self.what}, in {self.elements} of {self.of} elements"


def unfounded(spec: KernelSpec, case: Case, tape: Tape, trace: Trace) -> tuple[Gap, ...]:
    """The outputs of a case that follow from no input, though the reference's do."""
    inputs, parameters = spec.inputs_of(case), spec.parameters_of(case.values)

    def reference(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        given = dict(zip(spec.inputs, arrays, strict=True))
        return call_reference(spec.reference, given, parameters)

    try:
        others = [near(inputs, 1), near(inputs, 2), decoys(inputs, Shown.NOTHING, 3)]
        needed = dependence(reference, inputs, others)
    except (ReferenceRefusal, ReferenceDefect):
        return ()
    return gaps(tape, trace, needed, spec.outputs)


def gaps(
    tape: Tape, trace: Trace, needed: Sequence[Array | None], outputs: Collection[str] = ()
) -> tuple[Gap, ...]:
    """The elements of outputs that follow from no input, where they are needed to.

    Parameters
    ----------
    needed : for each output where the reference depends on an input, as :func:`dependence` gives
        it; None where that is not known: then nothing is said.
    outputs : the parameters that are outputs, of a kernel that returns none.
    """
    written = [n for one in tape.parameters if one.name in outputs for n in one.tensors]
    flow = Flow(tape, trace, written)
    forms = tape.returned or [_whole(number, tape) for number in written]
    found = []
    for number, (form, where) in enumerate(zip(forms, needed, strict=False)):
        founded = flow.of(form)
        if where is None or where.size != founded.size or not where.any():
            continue
        missing = ~founded & where.reshape(founded.shape)
        if missing.any():
            count, first = int(missing.sum()), tuple(map(int, np.argwhere(missing)[0]))
            whole = not founded.any()
            found.append(Gap(number, "follows from no input", count, missing.size, first, whole))
        elif form.tensor in tape.inputs and not flow.touched(form.tensor):
            size, first = founded.size, (0,) * founded.ndim
            found.append(Gap(number, "is an input as it was given", size, size, first, True))
    return tuple(found)


def _whole(number: int, tape: Tape) -> TileForm:
    shape, dtype = tape.inputs[number]
    return TileForm(number, Pattern.whole(shape), 0, dtype)


class Flow:
    """Which elements of each tensor of a trace may follow from an input."""

    def __init__(self, tape: Tape, trace: Trace, outputs: Collection[int] = ()) -> None:
        self._known = {one.id: one for one in trace.allocations}
        self._founded: dict[int, Founded] = {}
        self._written: set[int] = set()
        self._shared = _placed(trace.allocations)
        self._registers = False
        for tensor in tape.inputs:
            if tensor in self._known and tensor not in outputs:
                self._of(self._known[tensor])[...] = True
        for event in trace:
            self._follow(event)

    def of(self, form: TileForm) -> Founded:
        """Whether a tile's elements follow from an input, in its shape."""
        held = self._known.get(form.tensor)
        if held is None:
            return np.zeros(form.pattern.shape, bool)
        region = Region(held, *form.pattern, view=None if form.dtype == held.dtype else form.dtype)
        return self._of(held)[_elements(region)].reshape(form.pattern.shape)

    def touched(self, tensor: int) -> bool:
        """Whether an instruction wrote to a tensor."""
        return tensor in self._written

    def _of(self, allocation: Allocation) -> Founded:
        number = self._shared.get(allocation.id, allocation.id)
        size = int(np.prod(allocation.shape))
        known = self._founded.get(number, np.zeros(0, bool))
        if known.size < size:
            known = self._founded[number] = np.append(known, np.zeros(size - known.size, bool))
        return known[:size]

    def _follow(self, event: Event) -> None:
        """Let what an instruction writes follow from what it reads."""
        found: Any = event.opcode in _MEETINGS
        if event.opcode in ("register_store", "scalar_store"):
            found = found or self._registers
        size = _elements(event.writes[0]).size if event.writes else 0
        by_place = event.opcode in _BY_PLACE and len(event.writes) == 1
        for region in event.reads:
            known = self._of(region.allocation)
            if region.allocation.id not in self._shared:
                known = known[_elements(region)]
            if by_place and known.size == size and region.whole and region.role != "index":
                found = found | known
            else:
                found = found | known.any()
        if event.opcode in ("register_load", "scalar_load"):
            self._registers |= bool(np.any(found))
        for region in event.writes:
            known = self._of(region.allocation)
            self._written.add(region.allocation.id)
            if region.allocation.id in self._shared:
                known |= np.any(found)
            else:
                known[_elements(region)] = found


def _placed(allocations: Sequence[Allocation]) -> dict[int, int]:
    """By tensors that the kernel placed in one memory: one of them, for they may share bytes."""
    first: dict[object, int] = {}
    return {
        one.id: first.setdefault(one.space, -1 - len(first)) for one in allocations if one.areas
    }


def _elements(region: Region) -> NDArray[np.int64]:
    """The numbers of the tensor's own elements that a region touches."""
    if region.places is not None:
        numbers = region.places.elements
    else:
        numbers = region.pattern.elements().reshape(-1)
    own, seen = region.allocation.dtype.itemsize, region.dtype.itemsize
    if seen == own:
        return numbers
    if seen < own:
        return numbers * seen // own
    return (numbers[:, None] * (seen // own) + np.arange(seen // own)).reshape(-1)


def dependence(
    reference: Callable[[tuple[Array, ...]], tuple[Array, ...]],
    inputs: tuple[Array, ...],
    others: Sequence[tuple[Array, ...]],
) -> tuple[Array | None, ...]:
    """Where the outputs of a reference depend on its inputs: where they change with them.

    Parameters
    ----------
    others : inputs of the same shapes and dtypes; what refuses them says nothing.
    """
    before = reference(inputs)
    needed: list[Array | None] = [None] * len(before)
    for changed in others:
        try:
            after = reference(changed)
        except (ReferenceRefusal, ReferenceDefect):
            continue
        for number, (one, two) in enumerate(zip(before, after, strict=True)):
            if one.shape != two.shape:
                continue
            moved = np.asarray((one != two) & ~(np.isnan(one) & np.isnan(two)))
            known = needed[number]
            needed[number] = moved if known is None else known | moved
    return tuple(needed)
