"""An instruction under a mask: the smaller instruction that the compiler issues instead.

The hardware does no work for a mask: "All APIs accept an optional mask", and the compiler skips the
instruction or issues it on a smaller tile (AWS ``nki.api.shared.rst`` at tag v2.26.0, "NKI API
Masking"). So the operands are cut to the smallest box around the mask. For another shape than a
box, the compiler would need several instructions. Here it is one, and the record gives the
dependences of its result (:class:`~difftest.simulator.instructions.record.DependenceClass`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from difftest.simulator.core import Core, entry
from difftest.simulator.dtypes import Array
from difftest.simulator.errors import ShapeError
from difftest.simulator.index import Index
from difftest.simulator.indexing import adjacent, indexed_view
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.gate import immutable
from difftest.simulator.instructions.irregular_masks import registers_of
from difftest.simulator.instructions.record import (
    CheckedCall,
    DependenceClass,
    Instruction,
    InstructionUse,
    IterationSpace,
)
from difftest.simulator.partial import kept_inside
from difftest.simulator.pattern import Shape
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

T = TypeVar("T", bound=Tile)
Axes = tuple[int | None, ...]
Box = tuple[slice, ...]
Mask = Callable[[Shape], "Array | bool"]
"""A mask's bools over a shape; a single True or False if they are all equal."""


class MaskedPart(NamedTuple):
    """The box of an instruction's iterations that a mask leaves, and the mask in it."""

    walk: IterationSpace
    box: Box
    inner: Array
    result: Shape


@entry("masked")
def issue_masked(
    core: Core,
    instruction: Instruction,
    operands: tuple[Any, ...],
    options: tuple[Any, ...] = (),
    *,
    mask: Mask,
    **how: Any,
) -> Any:
    """Run an instruction under a mask, and return its whole first destination.

    The parameters are those of :func:`difftest.simulator.instructions.gate.issue`. The rules of the
    record are checked even if the mask leaves no element.

    Raises
    ------
    NkiError : a rule of the record is broken, or the mask does not fit; nothing is written.
    """
    issued = InstructionUse(instruction, operands, options, **how)
    dst = issued.dst
    others = issued.others
    call = gate.checked_call(core, issued)
    walk = _iterations_of(call, dst, operands)
    chosen = mask(walk.shape)
    if chosen is True:
        return gate.run_instruction(core, issued)
    whole = gate.new_tile(core, call) if dst is None else dst
    for target in (whole, *others):
        _note_masked(target)
    if isinstance(chosen, bool) or not chosen.any():
        return whole
    engine = issued.engine if issued.engine is Engine.UNKNOWN else call.engine
    inside = replace(issued, dst=whole, dtype=None, engine=engine, left_of=issued)
    _issue_inside(core, call, inside, (walk, chosen.reshape(walk.walked)))
    for tell in core.followers.whole:
        tell(call, replace(issued, dst=whole), chosen)
    return whole


def _issue_inside(
    core: Core,
    call: CheckedCall,
    issued: InstructionUse,
    left: tuple[IterationSpace, Array],
) -> None:
    """Issue the instruction for the iterations that a mask leaves: bools over its axes."""
    walk, chosen = left
    instruction = call.instruction
    dst = issued.dst
    operands = issued.operands
    others = issued.others
    anywhere = instruction.reach(call) is DependenceClass.TILE
    if anywhere or any(isinstance(access, IndirectTile) for access in (dst, *operands)):
        issued.where = chosen
        issued.dst = _restrict_access(dst, chosen)
        issued.operands = tuple(
            _restrict_access(operand, chosen) for operand in operands
        )
        gate.run_instruction(core, issued)
        return
    part = _part(call, operands, walk, chosen)
    issued.dst = _cut(dst, "dst", part)
    issued.operands = tuple(
        _cut(operand, role.name, part, whole_rows=role.whole_rows)
        for role, operand in zip(instruction.operands, operands, strict=True)
    )
    issued.others = tuple(
        _cut(other, role.name, part, whole_rows=True)
        for role, other in zip(instruction.destinations[1:], others, strict=False)
    )
    rows = np.arange(walk.walked[0])[part.box[0]]
    with registers_of(core, rows if others else None):
        if not part.inner.all():
            _need_box(call, part)
            issued.where = _project(part.inner, part.walk.axes.get("dst"))
            issued.inner = None if instruction.in_place else part.inner
        gate.run_instruction(core, issued)


def _need_box(call: CheckedCall, part: MaskedPart) -> None:
    """Require a box if the mask ranges over the axes of several instructions."""
    if call.instruction.walk and len(part.walk.axes["dst"]) < len(part.walk.walked):
        raise call.refused(
            "takes a mask that is a box over its axes",
            "got a mask that is not a box",
            f"a mask over {list(part.walk.walked)} that is none",
            limit="comparisons that each limit one axis",
            remedy="issue the instruction once for each part",
        )


# -- the range of a mask ---------------------------------------------------------------------------


def _iterations_of(
    call: CheckedCall, dst: Any, operands: tuple[Any, ...]
) -> IterationSpace:
    """Return the iterations: the record's, a reduction operand's shape, or the result's."""
    instruction = call.instruction
    if instruction.walk is not None:
        return instruction.walk(call)
    if instruction.reduced is not None:
        return _reduced_iterations(call, operands[0], instruction.reduced(call))
    if dst is None:
        shape = call.result.shape
    elif isinstance(dst, IndirectTile) or dst._in_hbm:
        shape = dst.shape if len(dst.shape) > 1 else (*dst.shape, 1, 1)[:2]
    else:
        shape = dst._tile_shape()
    return IterationSpace(shape, shape, {})


def _reduced_iterations(
    call: CheckedCall, data: Tile, gone: tuple[int, ...]
) -> IterationSpace:
    """Return the iterations of a reduction: its operand's shape, without some axes in ``dst``."""
    shape = data._tile_shape()
    ndim = len(call.result.shape)
    axes = [None if k in gone else k for k in range(len(shape))]
    if ndim != len(shape):
        kept = [k for k in axes if k is not None]
        axes = kept + [None] * (ndim - len(kept))
    return IterationSpace(shape, shape, {"dst": tuple(axes)})


def _part(
    call: CheckedCall, operands: tuple[Any, ...], walk: IterationSpace, chosen: Array
) -> MaskedPart:
    """Return the box of a mask, extended to all axes along which the operands cannot be cut."""
    box = mask_box(chosen)
    whole = tuple(slice(0, size) for size in walk.walked)
    assert box is not None
    instruction = call.instruction
    if not instruction.in_place and any(
        isinstance(operand, Tile) and _is_scattered(operand, role.name, walk)
        for role, operand in zip(instruction.operands, operands, strict=True)
    ):
        box = whole
    elif instruction.counts_places:
        box = (box[0], *whole[1:])
    return MaskedPart(walk, box, chosen[box], call.result.shape)


def _is_scattered(tile: Tile, role: str, walk: IterationSpace) -> bool:
    """Return whether a tile has the iterations' elements in a shape that patterns do not reach."""
    axes = walk.axes.get(role)
    full = (
        walk.walked
        if axes is None
        else tuple(walk.walked[k] for k in axes if k is not None)
    )
    shape = tile.shape if tile._in_hbm else tile._tile_shape()
    if shape == full or math.prod(shape) != math.prod(full):
        return False
    return tile._pattern.reshape(full) is None


def mask_box(mask: Array) -> Box | None:
    """Return the smallest box around a mask's true elements; None if there are none."""
    if not mask.any():
        return None
    box: list[slice] = []
    for axis in range(mask.ndim):
        others = tuple(k for k in range(mask.ndim) if k != axis)
        true = np.flatnonzero(mask.any(axis=others))
        box.append(slice(int(true[0]), int(true[-1]) + 1))
    return tuple(box)


def _note_masked(target: Any) -> None:
    """Note that a mask leaves out elements of a destination."""
    if target is None:
        return
    tile: Tile = target._base if isinstance(target, IndirectTile) else target
    if not tile._storage.mutable:
        raise immutable(tile)  # also if the mask leaves nothing to write
    if not tile._in_hbm:
        tile._storage.leave_out()


def _project(inner: Array, axes: Axes | None) -> Array:
    """Return a mask over the first destination's axes; 1 for axes outside the iterations."""
    if axes is None:
        return inner
    there = [k for k in axes if k is not None]
    kept: Array = inner.any(axis=tuple(k for k in range(inner.ndim) if k not in there))
    kept = kept.transpose(np.argsort(np.argsort(there)))
    return kept.reshape([1 if k is None else inner.shape[k] for k in axes])


# -- operands and destinations inside the box ------------------------------------------------------


def _cut(operand: Any, role: str, part: MaskedPart, *, whole_rows: bool = False) -> Any:
    """Return the part of an operand or a destination inside the mask's box."""
    box = part.box
    covered = part.walk.walked
    kept = part.inner
    if isinstance(operand, Index):
        return _cut_index(operand, box, covered)
    if not isinstance(operand, Tile):
        return operand
    shape = part.result if role == "dst" else operand._tile_shape()
    axes = part.walk.axes.get(role)
    if axes is None and whole_rows:
        axes = (0, *[None] * (len(shape) - 1))
    if axes is not None:
        covered = _along(axes, covered, shape)
        box = _along(axes, box, [slice(0, size) for size in shape])
        if isinstance(operand._axes, tuple):
            sizes = [cut.stop - cut.start for cut in box]
            kept = np.broadcast_to(_project(kept, axes), sizes)
    return restrict(operand, box, covered, kept)


def _along(axes: Axes, of_walk: Sequence[Any], own: Sequence[Any]) -> tuple[Any, ...]:
    """Return an entry of the iterations for each axis; an axis of its own keeps its entry."""
    return tuple([own[at] if k is None else of_walk[k] for at, k in enumerate(axes)])


def _cut_index(index: Index, box: Box, covered: Shape) -> Index:
    """Return the part of an affine expression over the instruction's last axes."""
    box = box[len(box) - index.ndim :]
    covered = covered[len(covered) - index.ndim :]
    start = index.start
    shape = []
    for cut, size, have, step in zip(
        box, covered, index.shape, index.steps, strict=True
    ):
        low, high = (cut.start, cut.stop) if have == size else (0, have)
        start += low * step
        shape.append(high - low)
    return type(index)(tuple(shape), start, index.steps)


def _restrict_access(access: Any, chosen: Array) -> Any:
    """Restrict an out-of-bounds access to the mask; return another access unchanged."""
    if not isinstance(access, Tile) or not isinstance(access._axes, tuple):
        return access
    if access.size != chosen.size:
        return access
    tile = access._as_tile()
    return kept_inside(tile, chosen.reshape(tile.shape))


def restrict(tile: Tile, box: Box, full: Shape, kept: Array) -> Tile:
    """Return the part of an operand for an instruction of shape ``full``, cut to ``box``.

    Dimensions of size 1 broadcast and stay whole. A tile that exceeds its tensor is now inside, if
    ``kept``, the mask's bools over the box, leaves out the elements outside.

    Raises
    ------
    ShapeError : the operand has the instruction's number of elements in another shape, in which
        they are not adjacent.
    OutOfBoundsError : the mask keeps an element outside the tensor.
    """
    shape = tile.shape if tile._in_hbm else tile._tile_shape()
    leaves = isinstance(tile._axes, tuple)
    if leaves and math.prod(shape) == math.prod(full) and shape != full:
        whole = np.zeros(full, np.bool_)
        whole[box] = kept
        return kept_inside(tile, whole, box)
    part = _restricted(tile, shape, box, full)
    if not isinstance(part._axes, tuple) or not kept.size:
        return part
    axes = _aligned(len(shape), len(full))
    sizes = dict(zip(axes, shape, strict=False))
    repeats = tuple([k for k in range(len(full)) if sizes.get(k, 1) == 1])
    there = kept.any(axis=repeats, keepdims=True)
    return kept_inside(part._as_tile(), there.reshape([there.shape[k] for k in axes]))


def _restricted(tile: T, shape: Shape, box: Box, full: Shape) -> T:
    """Return the box of an operand of this shape, whether or not it exceeds its tensor."""
    if all(cut == slice(0, size) for cut, size in zip(box, full, strict=True)):
        return tile
    axes_there = _aligned(len(shape), len(full))
    fits = len(axes_there) == len(shape) and all(
        extent in (1, full[k]) for extent, k in zip(shape, axes_there, strict=True)
    )
    if not fits and math.prod(shape) == math.prod(full):
        # The mask names elements by their place in the instruction's shape.
        tile._check_bounds()
        tile = tile._derive(adjacent(tile, full), 0)
        shape = full
        axes_there = tuple(range(len(full)))
    elif len(axes_there) < len(shape):
        raise ShapeError(
            "a masked instruction's operands have its shape, or repeat in it",
            happened=f"an operand does not fit the mask of an instruction of shape {list(full)}",
            received=f"{tile!r} in an instruction of shape {list(full)}",
        )
    pairs = zip(shape, axes_there, strict=True)
    cuts = tuple([box[k] if extent == full[k] else slice(None) for extent, k in pairs])
    part = indexed_view(tile._as_tile(), cuts)
    assert part is not None
    return tile._part(part)


def _aligned(ndim: int, of: int) -> tuple[int, ...]:
    """Return the instruction's axes of an operand: the partitions first, the others last."""
    if ndim <= of:
        return (0, *range(of - ndim + 1, of))[:ndim]
    return tuple(range(of))
