"""DMA: dma_compute, the sum of several tensors on their way (AWS ``nki.isa`` at tag v2.32.0).

Its indirect forms are a gather or a scatter that adds: ``dma_copy`` with ``dst_rmw_op``.
"""

from __future__ import annotations

from difftest.simulator.dtypes import Array, round_to, to_bits
from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.instructions.dma import DST, loaded_shape
from difftest.simulator.instructions.record import DMA_SPACES, Call, Fit, Result, Role, instruction
from difftest.simulator.instructions.values import added
from difftest.simulator.instructions.writing import check_destination, store
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

MOST_SOURCES = 16
SOURCES = tuple(
    Role(name=f"src{number}", buffers=DMA_SPACES, optional=number > 0)
    for number in range(MOST_SOURCES)
)


def _elements(call: Call) -> None:
    """All tensors have as many elements."""
    tiles = {**call.tiles, **call.destinations}
    if len({tile.size for tile in tiles.values()}) > 1:
        raise ShapeError(
            "dma_compute takes tensors of the same number of elements",
            happened="dma_compute got tensors of different sizes",
            received=", ".join(
                f"{role} {list(tile.shape)} ({tile.size} elements)" for role, tile in tiles.items()
            ),
        )


def _sums(call: Call) -> None:
    """It adds, and scales by 1 only."""
    if call["reduce_op"].name != "add":
        raise KernelError(
            "dma_compute adds",
            happened=f"dma_compute was to reduce with {call['reduce_op'].name}",
            received=f"reduce_op={call['reduce_op'].name}",
            limit="nl.add",
        )
    scales = call["scales"]
    if scales is None:
        return
    if len(scales) != len(call.tiles) or any(scale != 1.0 for scale in scales):
        raise KernelError(
            "dma_compute scales each source by 1.0",
            happened=f"dma_compute got the scales {list(scales)}",
            received=f"scales={list(scales)} for {len(call.tiles)} sources",
            limit=f"None, or {[1.0] * len(call.tiles)}",
        )


@instruction(
    Engine.DMA,
    operands=SOURCES,
    options=("reduce_op", "scales"),
    destinations=(DST,),
    rules=(_elements, _sums),
    result=lambda call: Result(
        loaded_shape(call["src0"].shape), call.wanted_dtype(call["src0"].dtype)
    ),
    fit=Fit.TOTAL,
    in_place=True,
    classic=False,
)
def dma_compute(call: Call, dst: Tile, *srcs: Tile | None, where: Array | None) -> None:
    """``dst = srcs[0] + srcs[1] + ...`` in float32, in this order, rounded once."""
    terms = [src._values().reshape(dst.shape) for src in srcs if src is not None]
    total = added(terms, dst.dtype)
    check_destination(dst)
    rounded = round_to(total, dst.dtype)
    store(dst, to_bits(rounded, dst.dtype) if dst._in_hbm else rounded, where)
