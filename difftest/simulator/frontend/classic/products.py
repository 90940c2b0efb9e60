"""Matrix products and transposes on chip: ``nisa.nc_matmul``, ``nl.matmul`` and kin."""

from __future__ import annotations

from typing import Any

from difftest.simulator.errors import BufferError, ShapeError
from difftest.simulator.frontend.arguments import as_engine, engine, no_extras
from difftest.simulator.frontend.classic.accumulation import product
from difftest.simulator.frontend.classic.copies import copy
from difftest.simulator.frontend.classic.issue import issue, written
from difftest.simulator.frontend.classic.operators import copy_to_sbuf, on_chip
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.index import as_integers
from difftest.simulator.instructions import matmul as instructions
from difftest.simulator.instructions.copy import tensor_copy
from difftest.simulator.trace import Space


def nc_matmul(
    stationary: Any,
    moving: Any,
    *,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    tile_position: Any = (),
    tile_size: Any = (),
    mask: object = None,
    **kwargs: object,
) -> Tensor:
    """``stationary.T @ moving`` in PSUM, float32; [K, M] and [K, ...N] give [M, ...N].

    The three ``is_...`` arguments are hints about speed and change no value.
    """
    if kwargs:
        no_extras("nisa.nc_matmul", kwargs)
    if type(tile_position) is type(tile_size) is tuple and not tile_position + tile_size:
        placement: tuple[Any, ...] = ((), ())
    else:
        placement = (
            as_integers(tile_position, "tile_position"),
            as_integers(tile_size, "tile_size"),
        )
    result: Tensor = product(stationary, moving, placement, mask)
    return result


def matmul(
    x: Any, y: Any, *, transpose_x: bool = False, mask: object = None, **kwargs: object
) -> Tensor:
    """``x @ y`` (or ``x.T @ y``) in PSUM, float32: nc_matmul, after a transpose of x if needed."""
    no_extras("nl.matmul", kwargs)
    stationary = on_chip(x, "nl.matmul")
    moving = on_chip(y, "nl.matmul", "y")
    if not transpose_x:
        stationary = transpose(stationary)
    if moving.space is Space.PSUM:
        raise BufferError(
            "nl.matmul reads its operands from SBUF",
            happened="nl.matmul got y in psum",
            received=f"y = {moving!r}",
            remedy="copy it first (nl.copy)",
        )
    tile: Tensor = product(stationary, moving, ((), ()), mask)
    return tile


def nc_transpose(
    data: Any,
    *,
    mask: object = None,
    dtype: object = None,
    engine: engine = engine.unknown,
    **kwargs: object,
) -> Tensor:
    """``data.T`` between partitions and the collapsed free axes.

    In PSUM on the Tensor Engine (the default for data in SBUF), in SBUF on the Vector Engine.
    """
    no_extras("nisa.nc_transpose", kwargs)
    chosen = as_engine(engine, "nc_transpose")
    result: Tensor = issue(
        instructions.nc_transpose, (data,), dtype=dtype, engine=chosen, mask=mask
    )
    return result


def transpose(x: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Tensor:
    """A new SBUF tile with a 2-D tile's partition and free dimensions swapped."""
    no_extras("nl.transpose", kwargs)
    data = on_chip(x, "nl.transpose")
    if len(data.tile_shape()) != 2:
        raise ShapeError(
            "nl.transpose takes two dimensions",
            happened=f"nl.transpose got a tile of {len(data.tile_shape())} dimensions",
            received=f"{data!r}",
        )
    if data.space is Space.PSUM:
        data = copy_to_sbuf(data)
    turned: Tensor = issue(instructions.nc_transpose, (data,), mask=mask)
    where = written(turned)
    if where is None:
        return copy(turned, dtype=dtype)
    tile: Tensor = issue(tensor_copy, (turned,), dtype=dtype, chosen=lambda shape: where)
    return tile
