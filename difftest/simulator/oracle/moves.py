"""Copies on chip and by DMA, gathers and scatters, constants."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.oracle.operators import (
    Array,
    DType,
    constant,
    epsilon,
    rounded,
    to_float32,
)
from difftest.simulator.oracle.use import Literal, Made, Use, means
from difftest.simulator.trace import Engine

_TURNED = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def cast(elements: Array, dtype: DType | None, wanted: DType) -> Array:
    """A copy's elements: bit by bit into the same dtype, else through float32."""
    return elements if dtype == wanted else rounded(to_float32(elements), wanted)


@means("tensor_copy", "tensor_copy_dynamic_src", "tensor_copy_dynamic_dst")
def tensor_copy(use: Use) -> Made:
    """``dst = src``; the Scalar Engine always goes through float32."""
    src: Literal = use.literals["src"]
    bits = src.dtype == use.dst.dtype and use.call.engine is not Engine.SCALAR
    elements = src.read()
    return Made(elements if bits else to_float32(elements))


@means("tensor_copy_predicated")
def tensor_copy_predicated(use: Use) -> Made:
    """``dst = src`` where the predicate is true; elsewhere ``dst`` keeps its value."""
    shape = use.dst.places.shape
    chosen = (use["predicate"] != 0).reshape(shape) ^ bool(use["reverse_pred"])
    src = use["src"]
    tensor = isinstance(use.literals["src"], Literal)
    values = src.reshape(shape) if tensor else np.full(shape, constant(src, use.dst.dtype))
    return Made(values, chosen & use.over(shape))


@means("memset")
def memset(use: Use) -> Made:
    """Every element becomes a number."""
    return Made(np.full(use.shape, constant(use["value"], use.dtype)))


@means("iota")
def iota(use: Use) -> Made:
    """The values of an index expression."""
    return Made(use["expr"])


# -- DMA -------------------------------------------------------------------------------------------


@means("dma_copy")
def dma_copy(use: Use) -> Made:
    """``dst = src``, or ``dst += src``, in row-major order; what lies outside is not moved."""
    src: Literal = use.literals["src"]
    dst, places = use.dst, use.dst.places
    found = src.places.reshape(places.shape)
    kept = use.over(places.shape) & (found >= 0) & (places >= 0)
    elements = src.read().reshape(places.shape)
    if use["dst_rmw_op"] is None:
        return Made(cast(elements, src.dtype, dst.dtype), kept)
    return Made(_added(dst, places, to_float32(elements), kept), kept)


def _added(dst: Literal, places: Array, terms: Array, kept: Array) -> Array:
    """``dst`` and terms in float32, one after the other, so that repeated places add up."""
    held = dst.read()
    totals = {int(at): to_float32(one) for at, one in zip(places.flat, held.flat, strict=True)}
    for at, term, counts in zip(places.flat, terms.flat, kept.flat, strict=True):
        if counts:
            totals[int(at)] = totals[int(at)] + term
    return np.array([totals[int(at)] for at in places.flat], np.float32).reshape(places.shape)


@means("dma_transpose")
def dma_transpose(use: Use) -> Made:
    """``src`` with its dimensions in the documented order."""
    src: Literal = use.literals["src"]
    shape = use.call.operands["src"].shape
    axes = _TURNED[len(shape)]
    kept = use.over(shape) & (src.places.reshape(shape) >= 0)
    elements = cast(src.read().reshape(shape), src.dtype, use.dst.dtype)
    return Made(elements.transpose(axes), kept.transpose(axes))


@means("dma_compute")
def dma_compute(use: Use) -> Made:
    """The sum of the sources in float32, in order, rounded once."""
    sources = [one for one in use.literals.values() if isinstance(one, Literal)]
    total = to_float32(sources[0].read()).reshape(-1)
    for one in sources[1:]:
        total = total + to_float32(one.read()).reshape(-1)
    return Made(total.reshape(use.dst.places.shape))


# -- products --------------------------------------------------------------------------------------


_EPSILON = epsilon(FLOAT32)
_FLOAT8 = {"float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn, "float8_e5m2_x4": ml_dtypes.float8_e5m2}
_LARGEST_EXPONENT = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}


@means("nc_matmul")
def nc_matmul(use: Use) -> Made:
    """``stationary.T @ moving`` in float32, or added to what ``dst`` holds.

    In double_row each partition has two rows of the contraction. A product that was computed
    before is put where nothing was written.
    """
    if "product" in use.literals:
        held = np.where(use.dst.touched(), to_float32(use.dst.read()), np.float32(0))
        return Made(to_float32(use["product"]).reshape(held.shape) + held)
    left, right = (to_float32(use.rows(name)) for name in ("stationary", "moving"))
    if use["perf_mode"] == "double_row":
        left, right = (one.reshape(2 * len(one), -1) for one in (left, right))
    return _product(use, left, right)


def _product(use: Use, left: Array, right: Array) -> Made:
    """A sum over the contraction, whose order nobody documents.

    Where the sizes of its terms add up to more than float32 has, the order decides what overflows.
    """
    taken = use.over((len(left), left.shape[1], right.shape[1]))
    depth, made = taken.any(axis=(1, 2)), taken.any(axis=0)
    left, right = left[depth].astype(np.float64), right[depth].astype(np.float64)
    shape = use.dst.places.shape
    total, size, made = (
        np.reshape(one, shape) for one in (left.T @ right, np.abs(left).T @ np.abs(right), made)
    )
    slack, adds = size * _EPSILON * (len(left) + 1), use.asked
    if adds is not False:
        held = to_float32(use.dst.read())
        held = np.where(use.dst.products(), held, 0) if adds is None else held
        total, size = held + total, size + np.abs(held)
        slack = slack + (np.abs(held) + np.abs(total)) * _EPSILON
    slack = np.where(size > np.finfo(np.float32).max, np.inf, slack)
    return Made(total.astype(np.float32), made, slack)


@means("nc_transpose")
def nc_transpose(use: Use) -> Made:
    """The partitions and the collapsed free axes swapped."""
    rows = use.rows("data")
    return Made(rows.T, use.over(rows.shape).T)


# -- microscaling ----------------------------------------------------------------------------------


@means("nc_matmul_mx")
def nc_matmul_mx(use: Use) -> Made:
    """The product of packed elements times the powers of two that groups of 32 share."""
    sides = [_scaled(use, name) for name in ("stationary", "moving")]
    return _product(use, *sides)


def _scaled(use: Use, name: str) -> Array:
    """Elements times their scales: [4 P, F]."""
    bits, dtype = use.rows(name), use.dtype_of(name)
    assert dtype is not None
    assert dtype.names is not None
    codes = use.rows(f"{name}_scale").view(np.uint8).astype(np.float64)
    elements: Any = np.ascontiguousarray(bits).view(np.uint8).reshape(*bits.shape, -1)
    if dtype.names[0] in _FLOAT8:
        elements = elements.view(_FLOAT8[dtype.names[0]])
    else:
        nibbles = np.stack([elements & 15, elements >> 4], axis=-1).reshape(*bits.shape, 4)
        elements = nibbles.view(ml_dtypes.float4_e2m1fn)
    rows = [p // 32 * 32 + p % 32 // 8 for p in range(len(bits))]
    scales = 2.0 ** (codes[rows] - 127)
    values: Array = elements.astype(np.float64) * scales[..., None]
    return values.transpose(0, 2, 1).reshape(-1, bits.shape[1])


@means("quantize_mx")
def quantize_mx(use: Use) -> tuple[Any, Any]:
    """Each 32 elements, 4 in each of 8 partitions, over a power of two; and those powers."""
    rows, name = to_float32(use.rows("src")).astype(np.float64), str((use.dtype.names or [0])[0])
    partitions, columns = len(rows), rows.shape[1] // 4
    scale = use.call.destinations["dst_scale"]
    codes = np.zeros((scale.shape[0], columns), np.uint8)
    chosen = np.zeros(codes.shape, np.bool_)
    quotient = np.zeros((partitions, columns, 4), _FLOAT8[name])
    for p in range(0, partitions, 8):
        for column in range(columns):
            group = rows[p : p + 8, 4 * column : 4 * column + 4]
            largest = np.abs(group).max()
            exponent = -127 if largest == 0 else int(np.floor(np.log2(largest)))
            exponent = max(exponent - (_LARGEST_EXPONENT[name] - 1) * (largest != 0), -127)
            quotient[p : p + 8, column] = np.ldexp(group, -exponent).astype(_FLOAT8[name])
            at = p // 32 * 32 + p % 32 // 8
            codes[at, column], chosen[at, column] = exponent + 127, True
    packed = quotient.view(np.uint32).reshape(partitions, columns)
    shape = scale.shape
    scales = codes.reshape(shape).view(scale.dtype)
    return Made(packed), Made(scales, chosen.reshape(shape))
