"""Microscaling (MX): quantize_mx on the Vector Engine, nc_matmul_mx on the Tensor Engine.

32 elements share a scale, a power of two in 8 bits. They are the 4 elements of a packed element in
each of 8 partitions. The scales of a quadrant's 32 partitions are in 4 partitions of the same
quadrant of their tile. Source: AWS ``nki.isa`` and ``nki/deep-dives/mxfp-matmul.rst`` at tag
v2.32.0.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import (
    BFLOAT16,
    FLOAT4_E2M1FN_X4,
    FLOAT8_E4M3FN_X4,
    FLOAT8_E5M2_X4,
    FLOAT8_E8M0FNU,
    FLOAT16,
    FLOAT32,
    Array,
)
from difftest.simulator.errors import KernelError, ShapeError, call_error
from difftest.simulator.instructions.matmul import (
    multiplying,
    one_contraction,
    pe_tile_rule,
    put_product,
)
from difftest.simulator.instructions.products import product
from difftest.simulator.instructions.record import (
    PSUM_ONLY,
    SBUF_ONLY,
    CheckedCall,
    DType,
    MaskedValues,
    Result,
    Role,
    instruction,
)
from difftest.simulator.instructions.rules import limits, needs_generation, rule_factory
from difftest.simulator.instructions.values import rows
from difftest.simulator.lifted import made_like, step
from difftest.simulator.machine import TRN3
from difftest.simulator.pattern import Shape
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

FLOAT8 = {
    FLOAT8_E4M3FN_X4: np.dtype(ml_dtypes.float8_e4m3fn),
    FLOAT8_E5M2_X4: np.dtype(ml_dtypes.float8_e5m2),
}
LARGEST_EXPONENT = {FLOAT8_E4M3FN_X4: 8, FLOAT8_E5M2_X4: 15}
PACKED = (*FLOAT8, FLOAT4_E2M1FN_X4)
SCALES = (FLOAT8_E8M0FNU, np.dtype(np.uint8))
QUADRANT = TRN3.shuffle_quadrant
GROUP_PARTITIONS = 8
GROUP_ELEMENTS = 4
"""The elements of a group in each of its partitions: one packed element."""
SCALE_ROWS = QUADRANT // GROUP_PARTITIONS
BIAS = 127
"""The bias of an 8-bit scale's exponent; the smallest scale is 2**-127."""
NOT_A_NUMBER = 255


# -- packed elements and their scales --------------------------------------------------------------


def unpack(packed: Array, dtype: DType) -> Array:
    """Return packed elements [P, F] as float32 [P, F, 4]."""
    bits = packed.view(f"u{dtype.itemsize}")
    if dtype == FLOAT4_E2M1FN_X4:
        places = np.arange(0, 16, 4, dtype=np.uint16)
        nibbles = ((bits[..., None] >> places) & 15).astype(np.uint8)
        return np.asarray(nibbles.view(ml_dtypes.float4_e2m1fn), np.float32)
    contiguous = np.ascontiguousarray(bits)
    elements = contiguous.view(FLOAT8[dtype]).reshape(*bits.shape, GROUP_ELEMENTS)
    return np.asarray(elements, np.float32)


def scale_places(partitions: int) -> Array:
    """Return the row of the scales in their tile, for each group of 8 partitions."""
    groups = np.arange(partitions // GROUP_PARTITIONS)
    places: Array = groups // SCALE_ROWS * QUADRANT + groups % SCALE_ROWS
    return places


def scale_codes(tile: Tile, partitions: int, name: str) -> Array:
    """Return the exponents of the scales [P / 8, F], whole numbers; only used rows are read."""
    codes = rows(tile._engine_values(unwritten=True)).view(np.uint8)
    missing = tile._unwritten()
    if missing is not None:  # 2**0 for unwritten scales
        codes = np.where(rows(missing), np.uint8(BIAS), codes)
    scales = codes[scale_places(partitions)]
    if (scales == NOT_A_NUMBER).any():
        raise KernelError(
            "a scale of an MX group is a power of two",
            happened=f"{name} holds a scale that is NaN",
            received=f"the code {NOT_A_NUMBER} (NaN) in {name} = {tile!r}",
        )
    exponents: Array = scales.astype(np.int32) - BIAS
    return exponents


def spread_over_groups(of_groups: Array) -> Array:
    """Return values of groups [P / 8, F] for each of their partitions: [P, F]."""
    return np.repeat(of_groups, GROUP_PARTITIONS, axis=0)


@rule_factory
def _whole_quadrants(call: CheckedCall, *roles: str) -> None:
    for role in roles:
        tile: Descriptor = call[role]
        if tile.partitions % QUADRANT:
            raise call.refused(
                f"takes {role} with a multiple of {QUADRANT} partitions",
                f"got {role} of {tile.partitions} partitions",
                f"{role} {list(tile.shape)}",
                error=ShapeError,
                limit=", ".join(
                    map(str, range(QUADRANT, call.machine.partitions + 1, QUADRANT))
                ),
            )


def _check_scale(
    call: CheckedCall, role: str, scale: Descriptor, partitions: int, free: int
) -> None:
    """Require scales in each quadrant of the data, one for each packed element."""
    last = int(scale_places(partitions)[-1]) + 1
    if scale.partitions < last or scale.free_size != free:
        raise ShapeError(
            f"{call.name}: the scales of {partitions} partitions lie in "
            f"{SCALE_ROWS} partitions of each quadrant",
            happened=f"{call.name} got {role} {list(scale.shape)} for {partitions} partitions",
            received=f"{role} {list(scale.shape)}",
            limit=f"at least {last} partitions, {free} elements each",
            remedy=f"give {role} the shape {[last if last == SCALE_ROWS else partitions, free]}",
        )


# -- quantize_mx -----------------------------------------------------------------------------------


def _fours(call: CheckedCall) -> None:
    src: Descriptor = call["src"]
    if src.free_size % GROUP_ELEMENTS:
        raise call.refused(
            f"takes a multiple of {GROUP_ELEMENTS} elements a partition",
            f"got {src.free_size} elements a partition",
            f"src {list(src.shape)}: {src.free_size}",
            error=ShapeError,
        )


def _scale_fits(call: CheckedCall) -> None:
    src = call["src"]
    scale = call.destinations["dst_scale"]
    _check_scale(
        call, "dst_scale", scale, src.partitions, src.free_size // GROUP_ELEMENTS
    )


def _packed(call: CheckedCall) -> Result:
    src: Descriptor = call["src"]
    shape = (src.partitions, src.free_size // GROUP_ELEMENTS)
    return Result(shape, call.wanted_dtype(FLOAT8_E4M3FN_X4))


@instruction(
    Engine.VECTOR,
    operands=(Role("src", buffers=SBUF_ONLY, dtypes=(FLOAT16, BFLOAT16)),),
    destinations=(
        Role("dst", buffers=SBUF_ONLY, dtypes=tuple(FLOAT8)),
        Role(
            "dst_scale",
            buffers=SBUF_ONLY,
            dtypes=SCALES,
            shape=lambda call: call.destinations["dst_scale"].shape,
        ),
    ),
    limits=("partitions",),
    rules=(needs_generation(4), _whole_quadrants("src"), _fours, _scale_fits),
    result=_packed,
    classic=False,
)
def quantize_mx(call: CheckedCall, src: Array) -> tuple[Array, MaskedValues]:
    """``dst`` = src over its groups' scales, in packed float8; ``dst_scale`` = the scales.

    A scale is ``2**(floor(log2(largest magnitude)) - (largest exponent - 1))``, at least 2**-127.
    NeuronCore-v4 on.
    """
    dtype = call.result.dtype
    partitions = src.shape[0]
    groups = rows(src).reshape(
        partitions // GROUP_PARTITIONS, GROUP_PARTITIONS, -1, GROUP_ELEMENTS
    )
    packed, exponent = quantized(groups, dtype)
    scale = call.destinations["dst_scale"]
    codes = made_like(exponent, (scale.partitions, exponent.shape[1]))
    chosen = np.zeros(codes.shape, np.bool_)
    places = scale_places(partitions)
    shape = scale.shape
    codes[places] = exponent + BIAS
    chosen[places] = True
    codes = codes.astype(np.uint8).view(scale.dtype).reshape(shape)
    return packed.reshape(partitions, -1), MaskedValues(codes, chosen.reshape(shape))


@step
def quantized(groups: Array, dtype: DType) -> tuple[Array, Array]:
    """Return groups [G, 8, F, 4] as packed elements [G, 8, F], and the scales' exponents [G, F]."""
    largest = np.abs(groups).max(axis=(1, 3))
    if not np.isfinite(largest).all():
        raise call_error(
            "quantize_mx",
            "is documented for finite values",
            "got an infinity or NaN",
            "an infinity or NaN in src",
            remedy="clamp it first: nisa.tensor_scalar with nl.minimum and nl.maximum",
        )
    exponent = np.frexp(largest)[1] - 1 - (LARGEST_EXPONENT[dtype] - 1)
    exponent = np.where(largest == 0, -BIAS, np.maximum(exponent, -BIAS))
    quotient = np.ldexp(groups, -exponent[:, None, :, None]).astype(FLOAT8[dtype])
    return quotient.view(dtype)[..., 0], exponent


# -- nc_matmul_mx ----------------------------------------------------------------------------------


def _sizes(call: CheckedCall) -> None:
    stationary = call["stationary"]
    moving = call["moving"]
    machine = call.machine
    columns = stationary.free_size
    widest = machine.gemm_stationary_fmax
    most = machine.psum_partition_bytes // call.wanted_dtype(FLOAT32).itemsize
    limits(
        call,
        (
            columns % 2 or columns > widest,
            f"stationary has an even number of elements a partition, up to {widest}",
            f"stationary of {columns} elements a partition",
        ),
        (
            moving.free_size > most,
            f"moving has up to {most} elements a partition, which fill PSUM",
            f"moving of {moving.free_size} elements a partition",
        ),
    )


def _both_scales(call: CheckedCall) -> None:
    for role in ("stationary", "moving"):
        data: Descriptor = call[role]
        name = f"{role}_scale"
        _check_scale(call, name, call[name], data.partitions, data.free_size)


@pe_tile_rule
def _row_tile(call: CheckedCall, position: Shape, size: Shape) -> str | None:
    """Require row tiling: tiles of some rows and all columns."""
    partitions = call.machine.partitions
    sizes = call.machine.pe_tile_sizes
    if size[1] != partitions or position[1] != 0:
        return f"it tiles rows only: column 0 of size {partitions}"
    if size[0] not in sizes or position[0] % size[0]:
        return f"a tile has {' or '.join(map(str, sizes))} rows and starts at a multiple of them"
    if position[0] + size[0] > partitions:
        return "the tile is inside the PE array"
    if call["stationary"].partitions > size[0]:
        return "tile_size is at least the stationary tile's size"
    return None


def _multiplied(call: CheckedCall, left: Any, right: Any, *scales: Any) -> Any:
    """Return the product of elements times the scales of their groups."""
    sides = []
    for side, scale in zip(map(rows, (left, right)), scales, strict=True):
        of_group = np.repeat(np.arange(len(side) // GROUP_PARTITIONS), GROUP_PARTITIONS)
        sides.append(side * rows(scale)[scale_places(len(side))[of_group]])
    return np.matmul(sides[0].T, sides[1])


@multiplying(
    operands=(
        Role("stationary", by_offsets=True, buffers=SBUF_ONLY, dtypes=PACKED),
        Role("moving", by_offsets=True, buffers=SBUF_ONLY, dtypes=PACKED),
        Role("stationary_scale", by_offsets=True, buffers=SBUF_ONLY, dtypes=SCALES),
        Role("moving_scale", by_offsets=True, buffers=SBUF_ONLY, dtypes=SCALES),
    ),
    options=("accumulate", "tile_position", "tile_size"),
    destinations=(Role("dst", buffers=PSUM_ONLY, dtypes=(FLOAT32, BFLOAT16)),),
    limits=(
        "partitions",
        "psum_partition_bytes",
        "gemm_stationary_fmax",
        "pe_tile_sizes",
    ),
    rules=(
        needs_generation(4),
        _whole_quadrants("stationary", "moving"),
        one_contraction,
        _sizes,
        _both_scales,
        _row_tile,
    ),
    result=lambda call: Result(
        (call["stationary"].free_size, *call["moving"].shape[1:]),
        call.wanted_dtype(FLOAT32),
        Space.PSUM,
    ),
    moves=_multiplied,
    classic=False,
)
def nc_matmul_mx(
    call: CheckedCall,
    dst: Tile,
    stationary: Tile,
    moving: Tile,
    stationary_scale: Tile,
    moving_scale: Tile,
    *,
    where: Array | None,
) -> None:
    """``dst = stationary.T @ moving`` of scaled MX operands, over 4 elements a partition, float32.

    NeuronCore-v4 on.
    """
    left = _scaled(stationary, stationary_scale, "stationary_scale")
    right = _scaled(moving, moving_scale, "moving_scale")
    put_product(call, dst, product(left, right).reshape(call.result.shape), where)


def _scaled(tile: Tile, scale: Tile, name: str) -> Array:
    """Return operand elements times their scales, the contraction first: float32 [4 P, F]."""
    values = unpack(rows(tile._engine_values(unwritten=True)), tile.dtype)
    factors = np.ldexp(np.float32(1), scale_codes(scale, len(values), name)).astype(
        np.float32
    )
    values *= spread_over_groups(factors)[..., None]
    return values.transpose(0, 2, 1).reshape(-1, values.shape[1])
