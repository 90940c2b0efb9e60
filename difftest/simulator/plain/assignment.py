"""``tile[...] = value``, ``tile += value`` and what else is a method of tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import as_dtype
from difftest.simulator.errors import BufferError, KernelError, LimitError, ShapeError
from difftest.simulator.frontend.classic.destination import AwaitsTarget
from difftest.simulator.plain import rules
from difftest.simulator.plain.copies import cast, constant
from difftest.simulator.plain.elementwise import OPERAND, binary, each_element
from difftest.simulator.plain.indices import PlainIndex, PlainMask, bytes_of, mask_over
from difftest.simulator.plain.meanings import means
from difftest.simulator.plain.rounding import Array, is_number, to_float32
from difftest.simulator.plain.running import current
from difftest.simulator.plain.tensors import Indirect, PlainTensor
from difftest.simulator.trace import Space


@means("assignment")
def assign(target: Any, value: Any) -> None:
    """``target[...] = value``: an instruction's result is moved, a tile copied, a number filled."""
    if isinstance(value, AwaitsTarget):
        value.go_on(target)
        return
    if (
        not isinstance(target, PlainTensor)
        or target.in_hbm
        or isinstance(value, (PlainIndex, Indirect))
    ):
        raise KernelError(
            "engines assign tiles to tiles on chip",
            happened="something else than a tile on chip was in an assignment",
            received=f"{target} = {value}",
        )
    if isinstance(value, PlainTensor) and _is_same_place(target, value):
        return  # tile[...] += value has already written it
    if is_number(value):
        target.put(np.full(target.shape, constant(value, target.dtype)))
        return
    source = rules.tile()(value, "the value", "assignment")
    destination = target.tile()
    if source.shape != destination.shape:
        source = _fit(source, destination)
    where = _written(source)
    destination.leave_out(where)
    masked = destination.storage.masked
    gone = np.zeros(source.shape, dtype=np.bool_) if masked else source.holes(where)
    destination.write(cast(source, destination.dtype, where & ~gone), where & ~gone)
    destination.forget(gone)


def _is_same_place(a: PlainTensor, b: PlainTensor) -> bool:
    same = a.storage is b.storage and a.shape == b.shape and a.dtype == b.dtype
    return same and bool((a.positions == b.positions).all())


def _fit(source: PlainTensor, target: PlainTensor) -> PlainTensor:
    """The value repeated along free dimensions, or its elements in row-major order."""
    if source.shape[0] == target.shape[0] and source.size == target.size:
        return source.at(source.positions.reshape(target.shape), 0)
    if source.shape[0] != target.shape[0] or source.ndim > target.ndim:
        raise ShapeError(
            "an assignment's value has its target's shape",
            happened=f"a value {list(source.shape)} was assigned to {list(target.shape)}",
            received=f"{source}",
        )
    return source.spread(target.shape)


def _written(source: PlainTensor) -> Array:
    """Where a value counts: all of it, less what a mask left out."""
    source.check_bounds()
    return ~source.missing() if source.storage.masked else np.ones(source.shape, dtype=np.bool_)


@means("in place", target=rules.view(*rules.ON_CHIP), other=OPERAND)
def update(
    target: PlainTensor,
    op: str,
    other: Any,
    mask: Any = None,
    *,
    begins: bool = False,
    dtype: np.dtype[Any] | None = None,
) -> PlainTensor:
    """``target <op>= other``; the Tensor Engine adds a product to PSUM in float32.

    With ``begins`` what nothing has written yet becomes ``other``. The result is rounded into
    ``dtype`` on its way, if that is another one.
    """
    product = isinstance(other, PlainTensor) and _is_product(other)
    if op == "add" and product and target.space is Space.PSUM:
        _accumulate(target.tile(), other)
    else:
        tile = target.tile()
        held, kept = ~tile.missing() | tile.lost(), mask_over(mask, tile.shape)
        if dtype not in (None, tile.dtype):
            return _update_through(dtype, tile, op, other, held, kept)
        if begins and not held.all():
            first = PlainMask(~held & kept)
            source = other if other.shape == tile.shape else _fit(other, tile)
            exact = source.dtype == tile.dtype
            copied = (lambda x: x) if exact else to_float32
            each_element(tile.shape, tile.dtype, (source,), copied, first, dst=tile)
            mask = PlainMask(held & kept)
            if not (held & kept).any():
                return target
        binary(op, tile, other, tile.dtype, mask, dst=tile)
    return target


def _update_through(
    dtype: Any, tile: PlainTensor, op: str, other: PlainTensor, held: Array, kept: Array
) -> PlainTensor:
    """``tile <op>= other`` by way of a tile of another dtype."""
    between = current().allocate(tile.shape, dtype)
    source = other if other.shape == tile.shape else _fit(other, tile)
    copied = (lambda x: x) if source.dtype == dtype else to_float32
    new, old = PlainMask(~held & kept), PlainMask(held & kept)
    each_element(tile.shape, dtype, (source,), copied, new, dst=between)
    if old.values.any():
        binary(op, tile, other, dtype, old, dst=between)
    return each_element(tile.shape, tile.dtype, (between,), to_float32, PlainMask(kept), dst=tile)


def _is_product(value: PlainTensor) -> bool:
    """A matmul's result, as the float32 that it is."""
    return value.storage.of_matmul and value.dtype == value.storage.dtype


def _accumulate(target: PlainTensor, product: PlainTensor) -> None:
    _check_bank(target)
    rules.same_elements("accumulation", target, product)
    added = product.at(product.positions.reshape(target.shape), 0)
    where, before = _written(added), target.lost()
    held = ~target.missing() | before
    if not held.all():
        target.leave_out(where)
    masked = target.storage.masked
    values, gone = added.readable(where, carries=not masked)
    total = to_float32(target.read(held & ~before)) + to_float32(values)
    target.put(np.where(held, total, to_float32(values)), where)
    if not masked:
        target.forget(before | gone)


def _check_bank(target: PlainTensor) -> None:
    """A matmul accumulates in PSUM, inside one bank of each partition."""
    if target.space is not Space.PSUM:
        raise BufferError(
            "the Tensor Engine writes to PSUM",
            happened=f"a matmul was to write to {target.space.value}",
            received=repr(target),
        )
    shape, own = target.storage.shape, target.storage.dtype.itemsize
    row = int(np.prod(shape[target.storage.partition + 1 :])) * own // target.itemsize
    blocks = target.positions // (row * shape[target.storage.partition])
    offsets = (blocks * row + target.positions % row) * target.itemsize
    banks = offsets // current().machine.psum_bank_bytes
    if banks.min() != banks.max():
        raise LimitError(
            "a matmul accumulates inside one PSUM bank",
            happened="a matmul's destination crosses PSUM banks",
            received=repr(target),
        )


@means("astype", src=rules.tile())
def astype(src: PlainTensor, dtype: Any) -> PlainTensor:
    """A copy cast to ``dtype``."""
    wanted = as_dtype(dtype)
    exact = wanted == src.dtype
    return each_element(src.shape, wanted, (src,), lambda x: x if exact else to_float32(x))


@means("view", src=rules.view(*rules.HBM, *rules.ON_CHIP))
def view(src: PlainTensor, dtype: Any) -> PlainTensor:
    """The same bytes as another dtype; the last dimension is scaled."""
    wanted, old = as_dtype(dtype), src.itemsize
    src.check_bounds()
    if wanted.itemsize == old:
        return PlainTensor(src.storage, src.positions, src.partition, wanted)
    rule = "a view of another element size scales the last dimension"
    rules.require(src.ndim > 0 and (src.in_hbm or src.partition != src.ndim - 1), rule, src)
    adjacent = bool((np.diff(src.positions, axis=-1) == 1).all())
    places = bytes_of(src.positions, old).reshape(*src.shape[:-1], -1)
    rules.require(adjacent and places.shape[-1] % wanted.itemsize == 0, rule, src)
    first = places[..., :: wanted.itemsize]
    rules.require(bool((first % wanted.itemsize == 0).all()), rule, src)
    return PlainTensor(src.storage, first // wanted.itemsize, src.partition, wanted)
