"""Copies on chip and by DMA, gathers and scatters, constants."""

from __future__ import annotations

import numpy as np

from difftest.simulator.oracle.numbers import (
    Array,
    DType,
    constant,
    rounded,
    to_float32,
)
from difftest.simulator.oracle.places import Literal
from difftest.simulator.oracle.use import Made, Use, means
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


# -- DMA ------------------------------------------------------------------------------------------


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
