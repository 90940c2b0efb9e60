"""Copies on chip, constants, and DMA: loads, stores, gathers, scatters and transposes."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import INTEGERS, is_float
from difftest.simulator.errors import (
    DtypeError,
    KernelError,
    ShapeError,
    not_modelled,
)
from difftest.simulator.frontend.arguments import dge_mode, oob_mode
from difftest.simulator.plain import rules
from difftest.simulator.plain.elementwise import copied_from_psum, each_element
from difftest.simulator.plain.indices import (
    PlainIndex,
    Shape,
    elements_of,
    integers,
    mask_over,
    walks_by_strides,
)
from difftest.simulator.plain.meanings import means
from difftest.simulator.plain.operators import operator_of
from difftest.simulator.plain.rounding import (
    Array,
    dtype_of_number,
    is_number,
    rounded,
    to_float32,
)
from difftest.simulator.plain.running import current
from difftest.simulator.plain.tensors import (
    OUTSIDE,
    Indirect,
    PlainStorage,
    PlainTensor,
)
from difftest.simulator.trace import Engine, Space

COPYING = rules.engine(Engine.UNKNOWN, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)
PREDICATES = tuple(np.dtype(name) for name in ("uint8", "uint16", "uint32", "bool"))


def cast(src: PlainTensor, dtype: np.dtype[Any], where: Array | None = None) -> Array:
    """A copy's elements: bit by bit into the same dtype, else through float32."""
    elements = src.read(where)
    return elements if src.dtype == dtype else rounded(to_float32(elements), dtype)


def constant(value: Any, dtype: np.dtype[Any]) -> Array:
    """A number to be rounded into ``dtype``; an integer for integers is exact up to 64 bits."""
    if not isinstance(value, (int, np.integer)) or is_float(dtype):
        return np.array(value).astype(np.float32)
    return np.array(np.clip(int(value), -(2**63), 2**63 - 1), np.int64)


# -- on chip --------------------------------------------------------------------------------------


def _copy(src: PlainTensor, dtype: Any, mask: Any, engine: Engine = Engine.UNKNOWN) -> PlainTensor:
    result = dtype or src.dtype
    exact = result == src.dtype and engine is not Engine.SCALAR
    return each_element(src.shape, result, (src,), lambda x: x if exact else to_float32(x), mask)


@means("nisa.tensor_copy", src=rules.tile(), dtype=rules.dtype, engine=COPYING)
def tensor_copy(src: PlainTensor, mask: Any, dtype: Any, engine: Engine) -> PlainTensor:
    """``src``, cast; the Scalar Engine always goes through float32."""
    rules.not_gpsimd_in_psum("tensor_copy", engine, src)
    return _copy(src, dtype, mask, engine)


@means("nl.copy", src=rules.tile(), dtype=rules.dtype)
def copy(src: PlainTensor, mask: Any, dtype: Any) -> PlainTensor:
    """``src``, cast."""
    return _copy(src, dtype, mask)


@means("nl.broadcast_to", src=rules.view(*rules.ON_CHIP))
def broadcast_to(src: PlainTensor, shape: Any) -> PlainTensor:
    """``src`` repeated along dimensions of size 1."""
    wanted = integers(shape, "nl.broadcast_to's shape")
    return src if src.shape == wanted else _copy(src.broadcast_to(wanted), None, None)


@means("nl.expand_dims", data=rules.view(*rules.ON_CHIP))
def expand_dims(data: PlainTensor, axis: Any) -> PlainTensor:
    """A view with dimensions of size 1 more."""
    axes = integers(axis, "nl.expand_dims' axis")
    ndim = data.ndim + len(axes)
    for at in sorted(number + ndim if number < 0 else number for number in axes):
        data = data.expand_dims(at)
    return data


def _moved(src: Indirect, name: str, where: Array) -> PlainTensor:
    """A tile indexed by a tile, which must stay inside where a mask keeps it."""
    rules.view(*rules.ON_CHIP)(src.base, name, "tensor_copy_dynamic")
    return _inside(src, where)


@means("nisa.tensor_copy_dynamic_src", dtype=rules.dtype, engine=COPYING)
def tensor_copy_dynamic_src(src: Any, mask: Any, dtype: Any, engine: Engine) -> PlainTensor:
    """A copy of a tile whose offset is held in a tile."""
    if not isinstance(src, Indirect):
        raise KernelError(
            "tensor_copy_dynamic_src takes an indirect src",
            happened="tensor_copy_dynamic_src got a src without dynamic indices",
            received=f"{src!r:.80}",
        )
    moved = _moved(src, "src", mask_over(mask, loaded_shape(src.shape))).tile()
    rules.not_gpsimd_in_psum("tensor_copy_dynamic_src", engine, moved)
    return _copy(moved, dtype, mask, engine)


@means("nisa.tensor_copy_dynamic_dst", src=rules.tile(), engine=COPYING, dtype=rules.dtype)
def tensor_copy_dynamic_dst(
    dst: Any, src: PlainTensor, mask: Any, dtype: Any, engine: Engine
) -> None:
    """A copy into a tile whose offset is held in a tile."""
    if not isinstance(dst, Indirect):
        raise KernelError(
            "tensor_copy_dynamic_dst takes an indirect dst",
            happened="tensor_copy_dynamic_dst got a dst without dynamic indices",
            received=f"{dst!r:.80}",
        )
    rules.dtype_of(dst.base, dtype, "tensor_copy_dynamic_dst")
    where = mask_over(mask, loaded_shape(dst.shape))
    target = _moved(dst, "dst", where)
    rules.not_gpsimd_in_psum("tensor_copy_dynamic_dst", engine, src, target)
    exact = src.dtype == target.dtype and engine is not Engine.SCALAR
    rules.require(src.shape == target.shape, "src has dst's shape", src, target)
    elements = src.read(where)
    values = elements if exact else rounded(to_float32(elements), target.dtype)
    target.write(values, where)
    dst.base.leave_out(where)


@means(
    "nisa.tensor_copy_predicated",
    src=rules.number_or(rules.tile()),
    dst=rules.tile(),
    predicate=rules.tile(dtypes=PREDICATES),
    dtype=rules.dtype,
)
def tensor_copy_predicated(
    src: Any, dst: PlainTensor, predicate: PlainTensor, reverse_pred: bool, mask: Any, dtype: Any
) -> None:
    """``dst = src`` where the predicate is true; elsewhere ``dst`` keeps its value."""
    where = "tensor_copy_predicated"
    rules.dtype_of(dst, dtype, where)
    rules.same_elements(where, dst, predicate)
    kept = mask_over(mask, dst.shape)
    dst.leave_out(kept)
    carries = not dst.storage.masked
    decided, unknown = predicate.readable(kept.reshape(predicate.shape), carries=carries)
    unknown = unknown.reshape(dst.shape)
    chosen = (decided != 0).reshape(dst.shape)
    chosen = (~chosen if reverse_pred else chosen) & kept & ~unknown
    if not isinstance(src, PlainTensor):
        dst.put(np.full(dst.shape, constant(src, dst.dtype)), chosen)
        dst.forget(unknown)
        return
    rules.not_both_in_psum(where, src, predicate)
    rules.same_elements(where, dst, src)
    rules.require(src.dtype == dst.dtype, f"{where}: one dtype", src, dst, error=DtypeError)
    held, holes = src.readable(kept.reshape(src.shape), carries=carries)
    dst.write(held.reshape(dst.shape), chosen)
    dst.forget(unknown | (holes.reshape(dst.shape) & chosen))


# -- DMA ------------------------------------------------------------------------------------------


def loaded_shape(shape: Shape) -> Shape:
    """The shape in SBUF of what has ``shape`` in HBM: at least two dimensions."""
    return shape if len(shape) > 1 else (*shape, 1) if shape else (1, 1)


def _transfer(dst: PlainTensor, src: PlainTensor, mask: Any = None, *, add: bool = False) -> None:
    """``dst = src``, or ``dst += src``, one element after the other in row-major order."""
    rules.require(dst.size == src.size, "a DMA moves as many elements as both have", src, dst)
    shape = loaded_shape(dst.shape)
    where = mask_over(mask, shape).reshape(dst.shape)
    source = src.at(src.positions.reshape(dst.shape), None)
    if where.any() and not where.all() and _squeezed(src.shape) != _squeezed(dst.shape):
        src.check_bounds()
        adjacent = walks_by_strides(source.positions)
        rules.require(adjacent, "a masked DMA's source is a view of its destination's shape", src)
    gone = lost_on_the_way(dst, source, where)
    values = cast(source, dst.dtype, where & ~gone)
    if add:
        added = to_float32(source.read(where & ~gone))
        values = rounded(to_float32(dst.read(where)) + added, dst.dtype)
    dst.write(values, where)
    dst.forget(gone)
    dst.leave_out(where)


def lost_on_the_way(dst: PlainTensor, source: PlainTensor, where: Array) -> Array:
    """What a DMA brings of elements that nothing wrote.

    Raises
    ------
    UnwrittenError : it is all, or goes to an array of the host's, or to what a mask leaves out.
    """
    gone = source.holes(where)
    is_argument = dst.in_hbm and dst.storage.location is None
    left_out = not where.all() and not dst.in_hbm and not dst.storage.written.all()
    if gone.any() and (is_argument or dst.storage.masked or left_out):
        source.read(where)  # raises
        return np.zeros_like(gone)
    return gone


def _squeezed(shape: Shape) -> Shape:
    return tuple(size for size in shape if size > 1)


@means("nl.load", dtype=rules.dtype)
def load(src: Any, mask: Any, dtype: Any) -> PlainTensor:
    """A new SBUF tile with elements of HBM."""
    where = "nl.load"
    base = rules.view(*rules.HBM)(src.base if isinstance(src, Indirect) else src, "src", where)
    if isinstance(src, Indirect):
        base = _inside(src, mask_over(mask, loaded_shape(src.shape)))
    dst = current().allocate(loaded_shape(base.shape), dtype or base.dtype)
    _transfer(dst, base, mask)
    return dst


def _inside(src: Indirect, where: Array) -> PlainTensor:
    kept = where.reshape(src.shape)
    tile = src.resolve(kept)
    tile.check_bounds(kept)
    return tile


@means("nl.store")
def store(dst: Any, value: Any, mask: Any) -> None:
    """Elements of a tile, or a number, into HBM."""
    where = "nl.store"
    rules.view(*rules.HBM)(dst.base if isinstance(dst, Indirect) else dst, "dst", where)
    target = dst
    if isinstance(dst, Indirect):
        target = _inside(dst, mask_over(mask, loaded_shape(dst.shape)))
    _transfer(target, _storable(value, loaded_shape(target.shape), where), mask)


def _storable(value: Any, shape: Shape, where: str) -> PlainTensor:
    """A tile's elements, or a number's, as many as ``shape`` has."""
    if is_number(value):
        current().check_partitions(shape[0], f"{where} of a number into {list(shape)}")
        dtype = dtype_of_number(value)
        filled = PlainStorage(shape, dtype, Space.SBUF).tensor()
        filled.put(np.full(shape, constant(value, dtype)))
        return filled
    tile: PlainTensor = rules.tile()(value, "value", where)
    if tile.size == elements_of(shape):
        return tile
    if tile.shape[0] not in (1, shape[0]) or tile.ndim > len(shape):
        raise ShapeError(
            f"{where}'s value has its destination's shape",
            happened=f"{where} got {tile.shape[0]} partitions for a destination of {shape[0]}",
            received=repr(tile),
        )
    return tile.spread(shape)


@means(
    "nisa.dma_copy",
    dst_rmw_op=rules.optional(operator_of("add")),
    oob_mode=rules.member(oob_mode),
    dge_mode=rules.member(dge_mode),
)
def dma_copy(dst: Any, src: Any, mask: Any, dst_rmw_op: Any, oob_mode: Any, dge_mode: Any) -> None:
    """``dst = src`` between HBM and SBUF; a side indexed by a tile gathers or scatters."""
    _check_descriptors(dge_mode)
    if not isinstance(src, Indirect):
        src = copied_from_psum("a DMA", *rules.DMA)(src, "src", "a DMA")
    adds, skips = dst_rmw_op is not None, oob_mode == 1
    indirect = [side for side in (dst, src) if isinstance(side, Indirect)]
    for name, side in (("dst", dst), ("src", src)):
        base = side.base if isinstance(side, Indirect) else side
        _dma_side(base, name)
    if not indirect:
        _transfer(dst, src, mask, add=adds)
        return
    if isinstance(src, Indirect) and (adds or isinstance(dst, Indirect)):
        raise not_modelled("a dma_copy that gathers and scatters or adds", f"{src!r:.80}")
    rules.require(
        not (adds and skips), "dst_rmw_op goes with oob_mode.error", "skip", error=KernelError
    )
    where = mask_over(mask, loaded_shape(dst.shape))
    moved = indirect[0].resolve(where) if skips else _inside(indirect[0], where)
    here, there = (moved, src) if isinstance(dst, Indirect) else (dst, moved)
    dst_base = dst.base if isinstance(dst, Indirect) else dst
    dst_base.leave_out(where)
    if adds:
        scatter_add(here, there, where)
    else:
        kept = where.reshape(moved.shape) & (moved.positions != OUTSIDE)
        _transfer_inside(here, there, kept)


def _transfer_inside(dst: PlainTensor, src: PlainTensor, inside: Array) -> None:
    """``dst = src`` where the indices are inside; elsewhere ``dst`` keeps its value."""
    rules.require(dst.size == src.size, "a DMA moves as many elements as both have", src, dst)
    where = inside.reshape(dst.shape)
    source = src.at(src.positions.reshape(dst.shape), None)
    dst.write(cast(source, dst.dtype, where), where)


def scatter_add(dst: PlainTensor, src: PlainTensor, where: Array) -> None:
    """``dst += src`` one element after the other, in float32, so that repeated places add up."""
    rules.require(dst.size == src.size, "a DMA moves as many elements as both have", src, dst)
    rules.require(
        dst.storage.mutable, "a kernel does not write to its parameters", dst, error=KernelError
    )
    kept = where.reshape(dst.shape)
    dst.read(kept)
    totals = to_float32(dst.storage.elements(dst.dtype))
    added = to_float32(src.read(where.reshape(src.shape))).reshape(-1)
    for position, value, counts in zip(
        dst.positions.reshape(-1), added, where.reshape(-1), strict=True
    ):
        if counts:
            totals[position] += value
    dst.write(rounded(totals[dst.positions], dst.dtype), kept)


@means("nl.atomic_rmw", op=operator_of("add"))
def atomic_rmw(dst: Any, value: Any, op: str, mask: Any) -> None:
    """``dst += value`` in HBM at places that a tile of indices names."""
    if not isinstance(dst, Indirect):
        raise KernelError(
            "nl.atomic_rmw takes an indirect dst",
            happened="nl.atomic_rmw got a destination that no tile indexes",
            received=f"{dst!r:.80}",
        )
    where = mask_over(mask, loaded_shape(dst.shape))
    target = _inside(dst, where)
    stored = _storable(value, loaded_shape(target.shape), "nl.atomic_rmw")
    scatter_add(target, stored, where)


def _dma_side(value: Any, name: str) -> PlainTensor:
    checked: PlainTensor = rules.view(*rules.DMA)(value, name, "a DMA")
    return checked.tile()


def _check_descriptors(mode: Any) -> None:
    hardware = mode == dge_mode.hwdge and current().machine.nc_version < 3
    rules.require(not hardware, "hwdge needs NeuronCore-v3", "hwdge", error=KernelError)


_PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def _dma_transpose(src: PlainTensor, dtype: Any, mask: Any) -> PlainTensor:
    axes = _PERMUTATIONS[src.ndim]
    turned, where = src.positions.transpose(axes), mask_over(mask, src.shape).transpose(axes)
    dst = current().allocate(turned.shape, dtype or src.dtype)
    source = src.at(turned, None)
    gone = lost_on_the_way(dst, source, where)
    dst.write(cast(source, dst.dtype, where & ~gone), where)
    dst.forget(gone)
    dst.leave_out(where)
    return dst


@means(
    "nisa.dma_transpose",
    dtype=rules.dtype,
    dge_mode=rules.member(dge_mode),
)
def dma_transpose(src: Any, axes: Any, mask: Any, dtype: Any, dge_mode: Any) -> PlainTensor:
    """``src`` with its axes permuted as the documentation's three rules say."""
    _check_descriptors(dge_mode)
    source = _dma_side(src, "src")
    rules.require(source.ndim in _PERMUTATIONS, "dma_transpose takes 2 to 4 dimensions", source)
    if axes is not None and integers(axes, "axes") != _PERMUTATIONS[source.ndim]:
        raise not_modelled("another permutation of dma_transpose", f"{axes!r}")
    return _dma_transpose(source, dtype, mask)


@means("nl.load_transpose2d", src=rules.view(*rules.HBM), dtype=rules.dtype)
def load_transpose2d(src: PlainTensor, mask: Any, dtype: Any) -> PlainTensor:
    """A new SBUF tile with a 2-D HBM tensor's elements transposed."""
    rules.require(src.ndim == 2, "nl.load_transpose2d takes two dimensions", src)
    return _dma_transpose(src, dtype, mask)


@means("nisa.iota", dtype=rules.needed_dtype)
def iota(expr: Any, dtype: Any, mask: Any) -> PlainTensor:
    """The values of an index expression, computed in 32-bit integers."""
    if not isinstance(expr, PlainIndex) or expr.ndim < 2:
        raise ShapeError(
            "iota takes an index of two dimensions or more",
            happened="iota got no index of two dimensions",
            received=f"{expr!r:.80}",
        )
    limits = np.iinfo(np.int32)
    if expr.values.min() < limits.min or expr.values.max() > limits.max:
        raise KernelError(
            "iota computes in 32-bit integers",
            happened="iota was to make numbers of more than 32 bits",
            received=f"{expr.values.max()}",
        )
    dst = current().allocate(expr.shape, dtype)
    where = mask_over(mask, expr.shape)
    dst.put(expr.values if dtype in INTEGERS else to_float32(expr.values), where)
    dst.leave_out(where)
    return dst


@means("nl.device_print")
def device_print(prefix: str, x: Any, mask: Any) -> None:
    """Print a tile's values, those that a mask leaves."""
    where = mask_over(mask, x.shape if isinstance(x, PlainTensor) else ())
    if where.all():
        print(prefix, x.read() if isinstance(x, PlainTensor) else x)
    elif where.any():
        masked: Any = np.ma.masked_array  # without types before NumPy 2.3
        print(prefix, masked(x.read(where), ~where))
