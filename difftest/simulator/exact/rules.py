"""Rules of instructions whose meaning does not run on numbers with bounds.

They are those that write ``dst`` themselves, draw random numbers, or look up places; and what makes
bits. In microscaling (MX) what a group's scale and its elements are is the machine's. A
quantization decides, as a conversion to integers does: what it makes of exact numbers is exact, and
a reference has to make the same of them. What it makes of rounded numbers is known where no
rounding can turn it into something else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.exact import bounded
from difftest.simulator.exact.bounded import LARGEST_SUM, Bounded, Float64, spread
from difftest.simulator.exact.numbers import doubtful_truth
from difftest.simulator.exact.shadow import Shadow, rule
from difftest.simulator.instructions.mx import scale_codes, spread_over_groups, unpack
from difftest.simulator.instructions.record import Call, Masked
from difftest.simulator.instructions.values import rows
from difftest.simulator.tile import Tile

# -- constants, and what no reference knows --------------------------------------------------------


@rule("iota")
def iota(run: Shadow, call: Call, expr: Any) -> Bounded:
    """Whole numbers."""
    return Bounded(expr.array().astype(np.float64), None)


@rule("rng", "rand", "rand2", "dropout")
def drawn(run: Shadow, call: Call, *operands: Any) -> None:
    """Random numbers, of which no reference knows."""
    run.doubt("random numbers", lost=True)


_LOOKED_UP = {
    "nc_find_index8": ("places of rounded values are looked up", False),
    "nc_match_replace8": ("rounded values are matched and replaced", True),
    "nonzero_with_count": ("places of rounded values are looked up", True),
    "sequence_bounds": ("rounded values name segments", True),
}
"""Of instructions whose results are the machine's: the doubt where they come of rounded values, and
whether all meaning is lost then."""


@rule(*_LOOKED_UP)
def looked_up(run: Shadow, call: Call, *operands: Any) -> None:
    """Places, which could be others if rounded values stood in another order, or were 0 or not."""
    rounded = [one for one in operands if isinstance(one, Bounded) and one.error is not None]
    if call.name == "nonzero_with_count":
        rounded = [one for one in rounded if doubtful_truth(one).any()]
    if rounded:
        reason, lost = _LOOKED_UP[call.name]
        run.doubt(reason, lost=lost)


# -- products --------------------------------------------------------------------------------------


@rule("nc_matmul")
def nc_matmul(run: Shadow, call: Call, *operands: Bounded) -> Bounded:
    """``stationary.T @ moving``; two rows of the contraction from each partition if it is so."""
    if "product" in call.operands:
        return operands[0]
    depth = 2 if call.options["perf_mode"] == "double_row" else 1
    left, right = (
        side.shaped(lambda array: array.reshape(depth * array.shape[0], -1)) for side in operands
    )
    return matrix_product(run, left, right)


def matrix_product(run: Shadow, left: Bounded, right: Bounded) -> Bounded:
    """``left.T @ right`` for [K, M] and [K, N], summed in float32 in whatever order."""
    value = left.value.T @ right.value
    depth = left.value.shape[0]
    sizes = [np.abs(left.value), np.abs(right.value)]
    errors = [spread(left), spread(right)]
    growth = run.gamma(depth, value.size)
    wide = [s if e is None else s + e for s, e in zip(sizes, errors, strict=True)]
    most = _sizes_product(*wide)
    small = errors[0] is None and errors[1] is None and most.max(initial=0.0) <= LARGEST_SUM
    if small and all(bounded.is_integral(side.value) for side in (left, right)):
        return Bounded(value, None, FLOAT32)
    error = growth * most
    if errors[0] is not None:
        error += errors[0].T @ wide[1]
    if errors[1] is not None:
        error += sizes[0].T @ errors[1]
    error += bounded.TINY * depth
    return Bounded(value, bounded.defined(value, error), FLOAT32)


def _sizes_product(left: Float64, right: Float64) -> Any:
    """``left.T @ right`` of sizes, at least: float32 is enough where it holds them."""
    peak = float(left.max(initial=0.0)) * float(right.max(initial=0.0)) * left.shape[0]
    if not peak < 1e30:
        return left.T @ right
    narrow = left.astype(np.float32).T @ right.astype(np.float32)
    return narrow.astype(np.float64) * (1 + 2 * left.shape[0] * bounded.UNIT)


# -- microscaling ---------------------------------------------------------------------------------


@rule("quantize_mx")
def quantize_mx(run: Shadow, call: Call, src: Bounded) -> tuple[None, None]:
    """Packed elements and scales, which are the machine's."""
    if src.error is not None and not _is_sure(call, src):
        run.doubt("rounded values are quantized to MX", lost=True)
    return None, None


def _is_sure(call: Call, src: Bounded) -> bool:
    """Whether the largest and the smallest magnitudes that are possible quantize alike."""
    sizes = np.abs(src.value)
    largest, smallest = (
        np.copysign(end, src.value).astype(np.float32)
        for end in (sizes + src.error, np.maximum(sizes - src.error, 0.0))
    )
    if not np.isfinite(largest).all():
        return False
    (most, scales), (least, others) = (
        call.instruction.meaning(call, values) for values in (largest, smallest)
    )
    assert isinstance(scales, Masked)
    assert isinstance(others, Masked)
    return most.tobytes() == least.tobytes() and scales.values.tobytes() == others.values.tobytes()


@rule("nc_matmul_mx", of_tiles=True)
def nc_matmul_mx(run: Shadow, call: Call, *tiles: Tile) -> Bounded:
    """``stationary.T @ moving`` of the elements times their scales."""
    stationary, moving, stationary_scale, moving_scale = tiles
    left = _scaled(run, stationary, stationary_scale, "stationary_scale")
    right = _scaled(run, moving, moving_scale, "moving_scale")
    return matrix_product(run, Bounded(left), Bounded(right))


def _scaled(run: Shadow, tile: Tile, scale: Tile, name: str) -> Float64:
    """Elements times their scales, the contraction first [4 P, F]."""
    run.sure(run.take(scale))
    packed = unpack(rows(tile._engine_values(unwritten=True)), tile.dtype).astype(np.float64)
    exponents = spread_over_groups(scale_codes(scale, len(packed), name))
    values = np.ldexp(packed, exponents[..., None])
    return values.transpose(0, 2, 1).reshape(-1, values.shape[1])
