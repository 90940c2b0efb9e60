"""``nki.isa``: MX tensors, of which 32 elements share a scale (NeuronCore-v4)."""

from __future__ import annotations

from typing import Any

from difftest.simulator.errors import not_modelled
from difftest.simulator.frontend.nki import accumulation
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.indirect_products import check_pair, for_products
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.levels import is_before
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.index import as_integers
from difftest.simulator.instructions import mx
from difftest.simulator.tile import Tile


@public
def quantize_mx(dst: Any, src: Any, dst_scale: Any, name: str | None = None) -> NkiInstruction:
    """``dst`` = src over the scales of its groups, in packed float8; ``dst_scale`` = the scales."""
    if is_before("0.5"):
        raise not_modelled(
            "quantize_mx before NKI 0.5, whose scales were half as large", f"dst = {dst!r}"
        )
    return issue(mx.quantize_mx, dst, (src,), others=(dst_scale,))


@public
def nc_matmul_mx(
    dst: Any,
    stationary: Any,
    moving: Any,
    stationary_scale: Any,
    moving_scale: Any,
    tile_position: Any = None,
    tile_size: Any = None,
    accumulate: bool | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = stationary.T @ moving`` of MX operands, or ``dst +=`` where a matmul wrote before."""
    check_pair(stationary, stationary_scale, "stationary")
    check_pair(moving, moving_scale, "moving")
    position = as_integers(tile_position, "tile_position") if tile_position else ()
    size = as_integers(tile_size, "tile_size") if tile_size else ()
    given = (dst, stationary, moving, stationary_scale, moving_scale)
    dst, *operands = for_products("nc_matmul_mx", given, tiles=bool(position or size))
    adds = accumulation.resolve(dst, accumulate) if isinstance(dst, Tile) else False
    done = issue(mx.nc_matmul_mx, dst, tuple(operands), (adds, position, size))
    accumulation.mark(dst, accumulate)
    return done
