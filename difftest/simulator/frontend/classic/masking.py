"""Masks on instructions: the box they leave, and the operands' parts inside it.

A mask does no work on the hardware: the compiler issues a smaller instruction (AWS
``nki.api.shared.rst`` at tag v2.26.0, "NKI API Masking").
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.frontend.classic.expressions import Mask
from difftest.simulator.index import Shape
from difftest.simulator.pattern import Pattern
from difftest.simulator.tile import Tile, padded
from difftest.simulator.views import adjacent
from difftest.simulator.walk import Axis, leaves

T = TypeVar("T", bound=Tile)


def restrict(tile: T, box: tuple[slice, ...], full: Shape) -> T:
    """The part of an operand that an instruction of shape ``full``, cut to ``box``, touches.

    Dimensions of size 1 broadcast and stay whole. A tile that left its tensor may be inside now.

    Raises
    ------
    ShapeError : the operand has as many elements as the instruction in another shape, in which
        they are not adjacent.
    """
    shape = tile.tile_shape() if not tile.in_hbm else tile.shape
    axes_there = _aligned(len(shape), len(full))
    fits = len(axes_there) == len(shape) and all(
        extent in (1, full[k]) for extent, k in zip(shape, axes_there, strict=True)
    )
    if not fits and math.prod(shape) == math.prod(full):
        # The mask names elements by their place in the instruction's shape.
        tile.check_bounds()
        tile = tile.derive(adjacent(tile, full), 0)
        shape, axes_there = full, tuple(range(len(full)))
    elif len(axes_there) < len(shape):
        raise ShapeError(
            "a masked instruction's operands have its shape, or repeat in it",
            happened=f"an operand does not fit the mask of an instruction of shape {list(full)}",
            received=f"{tile!r} in an instruction of shape {list(full)}",
        )
    strides = padded(tile, tile.strides, len(shape))
    box, full = tuple(box[k] for k in axes_there), tuple(full[k] for k in axes_there)
    offset = tile.offset
    lows = []
    extents = []
    for extent, stride, cut, whole in zip(shape, strides, box, full, strict=True):
        low, high = (cut.start, cut.stop) if extent == whole else (0, extent)
        lows.append(low)
        extents.append(high - low)
        offset += low * stride
    axes = None
    if tile.axes is not None:
        axes = tuple(_moved(axis, padded(tile, axis.steps, len(shape)), lows) for axis in tile.axes)
        if not any(leaves(axis, tuple(extents)) for axis in axes):
            axes = None
    partition = tile.partition_axis if tile.in_hbm else 0
    pattern = Pattern(offset, tuple(extents), strides)
    return type(tile)(tile.storage, pattern, partition, tile.dtype, axes)


def _aligned(ndim: int, of: int) -> tuple[int, ...]:
    """The instruction's axes that an operand's are: the partitions first, the others last."""
    return (0, *range(of - ndim + 1, of))[:ndim] if ndim <= of else tuple(range(of))


def _moved(axis: Axis, steps: Shape, lows: list[int]) -> Axis:
    start = axis.start + sum(step * low for step, low in zip(steps, lows, strict=True))
    return Axis(axis.size, start, steps)


def mask_box(mask: Array) -> tuple[slice, ...] | None:
    """The smallest box that holds a mask's true elements; None if there are none."""
    if not mask.any():
        return None
    box = []
    for axis in range(mask.ndim):
        others = tuple(k for k in range(mask.ndim) if k != axis)
        true = np.flatnonzero(mask.any(axis=others))
        box.append(slice(int(true[0]), int(true[-1]) + 1))
    return tuple(box)


def as_mask(mask: object, shape: Shape) -> Array | bool:
    """An instruction's ``mask`` argument as bools over ``shape``; True where there is none."""
    if mask is None:
        return True
    if isinstance(mask, (bool, np.bool_)):
        return bool(mask)
    if isinstance(mask, Mask):
        array = mask.array(shape)
        return True if array.all() else array
    raise KernelError(
        "a mask is made of comparisons of nl.arange, loop and program indices",
        happened=f"a {type(mask).__name__} was given as a mask",
        received=f"{type(mask).__name__}",
        remedy="for a condition held in a tile use nl.where or nisa.tensor_copy_predicated",
    )


def no_mask(mask: object, where: str) -> None:
    """Raise :class:`KernelError` if a call that takes no mask is given one."""
    if mask is not None and mask is not True:
        raise KernelError(
            f"{where} takes no mask here",
            happened=f"{where} got a mask",
            received=f"mask={mask!r}",
            remedy="use nisa.dma_copy with oob_mode=nisa.oob_mode.skip",
        )
