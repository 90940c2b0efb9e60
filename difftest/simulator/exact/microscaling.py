"""Error rules of microscaling (MX): what a group's scale and its elements are is the machine's.

A quantization decides, as a conversion to integers does: what it makes of exact numbers is exact,
and a reference has to make the same of them. What it makes of rounded numbers is known where no
rounding can turn it into something else.
"""

from __future__ import annotations

import numpy as np

from difftest.simulator.exact.bounded import Bounded, Float64
from difftest.simulator.exact.shadow import Shadow, rule
from difftest.simulator.exact.sums import accumulated, matrix_product
from difftest.simulator.instructions.mx import scale_codes, spread_over_groups, unpack
from difftest.simulator.instructions.record import Call, Masked
from difftest.simulator.instructions.values import rows
from difftest.simulator.tile import Tile


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
def nc_matmul_mx(
    run: Shadow,
    call: Call,
    stationary: Tile,
    moving: Tile,
    stationary_scale: Tile,
    moving_scale: Tile,
    dst: Tile | None = None,
) -> Bounded:
    """``stationary.T @ moving`` of the elements times their scales."""
    left = _scaled(run, stationary, stationary_scale, "stationary_scale")
    right = _scaled(run, moving, moving_scale, "moving_scale")
    return accumulated(run, call, matrix_product(run, Bounded(left), Bounded(right)), dst)


def _scaled(run: Shadow, tile: Tile, scale: Tile, name: str) -> Float64:
    """Elements times their scales, the contraction first [4 P, F]."""
    run.sure(run.take(scale))
    packed = unpack(rows(tile.engine_values(unwritten=True)), tile.dtype).astype(np.float64)
    exponents = spread_over_groups(scale_codes(scale, len(packed), name))
    values = np.ldexp(packed, exponents[..., None])
    return values.transpose(0, 2, 1).reshape(-1, values.shape[1])
