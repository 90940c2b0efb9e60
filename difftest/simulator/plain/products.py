"""Tensor Engine: matrix products and transposes, and the Vector Engine's small transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import FLOAT32, FLOATS
from difftest.simulator.errors import KernelError, LimitError, not_modelled
from difftest.simulator.plain import rules
from difftest.simulator.plain.copies import cast, copy
from difftest.simulator.plain.elementwise import copy_to_sbuf
from difftest.simulator.plain.indices import integers
from difftest.simulator.plain.meanings import means
from difftest.simulator.plain.rounding import to_float32
from difftest.simulator.plain.running import current
from difftest.simulator.plain.tensors import PlainTensor
from difftest.simulator.trace import Engine, Space

OPERAND = rules.tile(Space.SBUF, dtypes=FLOATS)


def mask_of_product(value: Any, name: str, where: str) -> bool:
    """A role: whether the product is made; a mask over its axes is ambiguous."""
    if value is not None and not isinstance(value, (bool, np.bool_)):
        raise not_modelled(f"{where}'s mask over index expressions", f"{value!r:.80}")
    return value is None or bool(value)


def _product(stationary: PlainTensor, moving: PlainTensor, made: bool) -> PlainTensor:
    """``stationary.T @ moving`` in PSUM, float32, added up from the first partition to the last."""
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
    if not made:
        dst.leave_out(np.zeros(shape, dtype=np.bool_))
        return dst
    total = np.zeros((rows.shape[1], columns.shape[1]), np.float32)
    for x, y in zip(to_float32(rows.read()), to_float32(columns.read()), strict=True):
        total = total + x[:, None] * y[None, :]
    dst.put(total.reshape(shape))
    return dst


@means("nisa.nc_matmul", stationary=OPERAND, moving=OPERAND, mask=mask_of_product)
def nc_matmul(
    stationary: PlainTensor,
    moving: PlainTensor,
    tile_position: Any,
    tile_size: Any,
    mask: bool,
    **hints: bool,
) -> PlainTensor:
    """See :func:`_product`; the hints change no value."""
    del hints
    position, size = integers(tile_position, "tile_position"), integers(tile_size, "tile_size")
    if position or size:
        _check_pe_tile(position, size, stationary.rows().shape)
    return _product(stationary, moving, mask)


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
    data: PlainTensor, dtype: np.dtype[Any], wanted: Engine, made: bool = True
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
    rules.require(max(rows.shape) <= most, f"at most {most} x {most}", data, error=LimitError)
    dst = current().allocate(rows.shape[::-1], dtype, Space.PSUM if on_tensor else Space.SBUF)
    if made:
        kept = ~rows.holes(np.ones(rows.shape, dtype=np.bool_))
        dst.write(cast(rows, dtype, kept).T, kept.T)
    else:
        dst.leave_out(np.zeros(dst.shape, dtype=np.bool_))
    return dst


@means(
    "nisa.nc_transpose",
    data=rules.tile(),
    mask=mask_of_product,
    dtype=rules.dtype,
    engine=rules.any_engine,
)
def nc_transpose(data: PlainTensor, mask: bool, dtype: Any, engine: Engine) -> PlainTensor:
    """See :func:`_transpose`."""
    return _transpose(data, dtype or data.dtype, engine, mask)


@means("nl.transpose", x=rules.tile(), dtype=rules.dtype, mask=rules.no_mask)
def transpose(x: PlainTensor, dtype: Any, mask: None) -> PlainTensor:
    """A 2-D tile transposed, in SBUF."""
    rules.require(x.ndim == 2, "nl.transpose takes two dimensions", x)
    source = copy_to_sbuf(x) if x.space is Space.PSUM else x
    return copy(_transpose(source, x.dtype, Engine.UNKNOWN), None, dtype)


@means("nl.matmul", x=rules.tile(), y=OPERAND, mask=mask_of_product)
def matmul(x: PlainTensor, y: PlainTensor, transpose_x: bool, mask: bool) -> PlainTensor:
    """``x @ y``, or ``x.T @ y``, in PSUM."""
    stationary = x if transpose_x else transpose(x, None, None)
    return _product(OPERAND(stationary, "x", "nl.matmul"), y, mask)
