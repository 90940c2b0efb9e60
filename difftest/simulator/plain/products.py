"""Tensor Engine: matrix products and transposes, and the Vector Engine's small transpose."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from difftest.simulator.dtypes import FLOAT32, FLOATS
from difftest.simulator.errors import DtypeError, KernelError, LimitError, not_modelled
from difftest.simulator.frontend.arguments import undocumented_argument
from difftest.simulator.plain import rules
from difftest.simulator.plain.copies import cast, copy
from difftest.simulator.plain.elementwise import copied_from_psum, copy_to_sbuf
from difftest.simulator.plain.indices import (
    PlainMask,
    PlainMaskedOperand,
    Shape,
    integers,
    mask_over,
)
from difftest.simulator.plain.meanings import means
from difftest.simulator.plain.rounding import Array, to_float32
from difftest.simulator.plain.running import current
from difftest.simulator.plain.tensors import PlainTensor
from difftest.simulator.strictness import note
from difftest.simulator.trace import Engine, Space

OPERAND = copied_from_psum("nc_matmul", dtypes=FLOATS)


def masked(role: rules.Role) -> rules.Role:
    """The role, or a tile of it with a mask between its brackets."""

    def either(value: Any, name: str, where: str) -> Any:
        if isinstance(value, PlainMaskedOperand):
            return PlainMaskedOperand(role(value.tile, name, where), value.mask)
        return role(value, name, where)

    return either


def _unmasked(operand: Any) -> tuple[PlainTensor, Array]:
    """An operand, and which of its elements take part."""
    tile = operand.tile if isinstance(operand, PlainMaskedOperand) else operand
    return tile, mask_over(operand.mask if tile is not operand else None, tile.shape)


def _mask_over_product(
    mask: Any, left: Array, right: Array, depth: int, rows: int, columns: Shape
) -> Array:
    """A mask over [contraction, rows of the result, its free axes].

    Each comparison says by its indices' shape what it limits: [K, 1] the contraction, [1, N] the
    one free axis that is so long, [1, M, 1] and [1, 1, N] those of both operands. What an operand's
    own mask leaves out takes no part.
    """
    full = (depth, rows, *columns)
    kept = left.reshape(depth, rows, *(1 for _ in columns)) & right.reshape(depth, 1, *columns)
    if not isinstance(mask, PlainMask):
        kept = kept & mask_over(mask, full)
    for part in mask.parts if isinstance(mask, PlainMask) else ():
        first, *free = part.shape
        laid = []
        if len(part.shape) == len(full):
            laid = [part.shape]
        elif free == [1]:
            laid = [(first, *(1 for _ in full[1:]))]
        elif len(free) >= 1:
            laid += [(first, rows, *(1 for _ in columns))] if free == [rows] else []
            laid += [(first, 1, *columns)] if tuple(free) == columns else []
        rules.require(len(laid) < 2, "a product's mask is ambiguous", free, error=KernelError)
        rules.require(len(laid) == 1, "a mask broadcasts to its product", part.shape, full)
        kept = kept & mask_over(PlainMask(part.reshape(laid[0])), full)
    lines = [
        kept.any(axis=tuple(k for k in range(kept.ndim) if k != at)) for at in range(len(full))
    ]
    box = functools.reduce(np.multiply.outer, lines)
    rules.require(bool((kept == box).all()), "a product's mask is a box", full, error=KernelError)
    return kept


def _product(stationary: Any, moving: Any, mask: Any) -> PlainTensor:
    """``stationary.T @ moving`` in PSUM, float32, added up from the first partition to the last."""
    stationary, taken = _unmasked(stationary)
    moving, taken_too = _unmasked(moving)
    rows, columns = stationary.rows(), moving.rows()
    where, machine = "nc_matmul", current().machine
    rules.same_partitions(where, rows, columns)
    for one, most in (
        (rows, machine.gemm_stationary_fmax),
        (columns, machine.gemm_moving_fmax),
    ):
        rule = f"{where} takes this operand of a free size of at most {most}"
        rules.require(one.shape[1] <= most, rule, one, error=LimitError)
    shape = (rows.shape[1], *moving.shape[1:])
    dst = current().allocate(shape, FLOAT32, Space.PSUM)
    dst.storage.of_matmul = True
    kept = _mask_over_product(
        mask, taken, taken_too, rows.shape[0], rows.shape[1], moving.shape[1:]
    )
    depth = kept.reshape(rows.shape[0], -1).any(axis=1)
    made = np.any(kept, axis=0)
    flat = made.reshape(rows.shape[1], -1)
    carries = bool(kept.all())
    sides = (rows, np.outer(depth, flat.any(axis=1))), (columns, np.outer(depth, flat.any(axis=0)))
    (held, holes), (other, missing) = (
        side.readable(taken, carries=carries) for side, taken in sides
    )
    left, right = to_float32(held), to_float32(other)
    for side, lacks in ((rows, holes), (columns, missing)):
        if lacks.any(axis=0).all():
            side.read()  # raises: no element of the product follows from what was written alone
    total = np.zeros((rows.shape[1], columns.shape[1]), np.float32)
    for x, y in zip(left[depth], right[depth], strict=True):
        total = total + x[:, None] * y[None, :]
    dst.put(total.reshape(shape), made)
    dst.leave_out(made)
    lost = holes.any(axis=0)[:, None] | missing.any(axis=0)[None, :]
    dst.forget(lost.reshape(shape))
    return dst


@means("nisa.nc_matmul", stationary=masked(OPERAND), moving=masked(OPERAND))
def nc_matmul(
    stationary: Any,
    moving: Any,
    tile_position: Any,
    tile_size: Any,
    mask: Any,
    perf_mode: Any = None,
    **hints: bool,
) -> PlainTensor:
    """See :func:`_product`; the hints change no value."""
    del hints
    position, size = integers(tile_position, "tile_position"), integers(tile_size, "tile_size")
    if position or size:
        _check_pe_tile(position, size, _unmasked(stationary)[0].rows().shape)
    if perf_mode is None:
        return _product(stationary, moving, mask)
    return _double_row(stationary, moving, mask, perf_mode)


def _double_row(left: Any, right: Any, mask: Any, perf_mode: Any) -> PlainTensor:
    """Two rows of the contraction in each partition: a product of each, and their sum."""
    (stationary, taken), (moving, taken_too) = _unmasked(left), _unmasked(right)
    rows = (stationary.ndim > 2, stationary.shape[1] == 2, moving.ndim > 2, moving.shape[1] == 2)
    if perf_mode != "double_row_gen3" or not all(rows):
        raise not_modelled("nc_matmul's perf_mode", f"{perf_mode!r} of {stationary} and {moving}")
    rules.require(
        stationary.dtype.itemsize == moving.dtype.itemsize == 1,
        "a double row multiplies 8-bit floats",
        stationary,
        moving,
        error=DtypeError,
    )
    undocumented_argument("nisa.nc_matmul", "perf_mode", perf_mode)
    for one in (taken, taken_too):
        both = bool((one[:, 0] == one[:, 1]).all())
        rules.require(both, "both rows of a partition take part", one.shape, error=KernelError)
    left, right = PlainMask(taken[:, 0]), PlainMask(taken_too[:, 0])
    total, second = (
        _product(
            PlainMaskedOperand(stationary[:, row].tile(), left),
            PlainMaskedOperand(moving[:, row].tile(), right),
            mask,
        )
        for row in (0, 1)
    )
    gone = total.lost() | second.lost()
    made = ~total.missing() & ~gone
    total.put(to_float32(total.read(made)) + to_float32(second.read(made)), made)
    total.forget(gone)
    return total


def _check_pe_tile(
    position: tuple[int, ...], size: tuple[int, ...], stationary: tuple[int, ...]
) -> None:
    """The documentation's requirements on ``tile_position`` and ``tile_size``."""
    machine = current().machine
    fits = (
        len(position) == len(size) == 2
        and not any(value % machine.pe_tile_step for value in (*position, *size))
        and all(s >= n for s, n in zip(size, stationary, strict=True))
        and not (size == (machine.pe_tile_step, machine.pe_tile_step) and machine.nc_version == 2)
        and all(p + s <= machine.partitions for p, s in zip(position, size, strict=True))
    )
    rules.require(fits, "nc_matmul's PE tiling", position, size, stationary, error=KernelError)


def _transpose(
    data: PlainTensor, dtype: np.dtype[Any], wanted: Engine, mask: Any = None
) -> PlainTensor:
    """The partitions and the collapsed free axes swapped."""
    if wanted is Engine.UNKNOWN and data.space is Space.PSUM:
        wanted = Engine.VECTOR
    engine = rules.choose(wanted, "nc_transpose", Engine.TENSOR, Engine.VECTOR)
    on_tensor = engine is Engine.TENSOR
    if on_tensor:
        rules.tile(Space.SBUF)(data, "data", "nc_transpose on the Tensor Engine")
    machine = current().machine
    most = machine.partitions if on_tensor else machine.vector_transpose_max
    rows = data.rows()
    large = max(rows.shape)
    fits = large <= machine.partitions
    rules.require(fits, f"at most {most} x {most}", data, error=LimitError)
    if large > most:
        error = LimitError(
            f"at most {most} x {most}", happened=f"a transpose of {large}", received=repr(data)
        )
        note(error)
    dst = current().allocate(rows.shape[::-1], dtype, Space.PSUM if on_tensor else Space.SBUF)
    where = mask_over(mask, data.shape).reshape(rows.shape)
    dst.leave_out(where.T)
    gone = np.zeros_like(where) if dst.storage.masked else rows.holes(where)
    kept = where & ~gone
    dst.write(cast(rows, dtype, kept).T, kept.T)
    dst.forget(gone.T)
    return dst


@means(
    "nisa.nc_transpose",
    data=rules.tile(),
    dtype=rules.dtype,
    engine=rules.any_engine,
)
def nc_transpose(data: PlainTensor, mask: Any, dtype: Any, engine: Engine) -> PlainTensor:
    """See :func:`_transpose`."""
    return _transpose(data, dtype or data.dtype, engine, mask)


@means("nl.transpose", x=rules.tile(), dtype=rules.dtype)
def transpose(x: PlainTensor, dtype: Any, mask: Any) -> PlainTensor:
    """A 2-D tile transposed, in SBUF."""
    rules.require(x.ndim == 2, "nl.transpose takes two dimensions", x)
    source = copy_to_sbuf(x) if x.space is Space.PSUM else x
    turned = _transpose(source, x.dtype, Engine.UNKNOWN, mask)
    return copy(turned, PlainMask(mask_over(mask, x.shape).T), dtype)


@means(".T")
def transposed(x: PlainTensor) -> PlainTensor:
    """``x.T``, which is ``nl.transpose`` of a tile on chip."""
    error = KernelError(
        "a tile is transposed by nl.transpose or nisa.nc_transpose",
        happened="a tensor was asked for .T",
        received=repr(x),
    )
    if x.in_hbm or x.ndim != 2:
        raise error
    note(error)
    return transpose(x.tile(), None, None)


@means("nl.matmul", x=masked(rules.tile()), y=masked(OPERAND))
def matmul(x: Any, y: Any, transpose_x: bool, mask: Any) -> PlainTensor:
    """``x @ y``, or ``x.T @ y``, in PSUM."""
    stationary, taken = _unmasked(x)
    if not transpose_x:
        stationary, taken = transpose(stationary, None, None), taken.T
    operand = OPERAND(stationary, "x", "nl.matmul")
    return _product(PlainMaskedOperand(operand, PlainMask(taken)), y, mask)
