"""Matrix products and transposes on chip: ``nisa.nc_matmul``, ``nl.matmul`` and others."""
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any, NamedTuple

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import not_modelled
from difftest.simulator.frontend.arguments import (
    as_flag,
    need_two,
    no_extras,
    undocumented_argument,
)
from difftest.simulator.frontend.classic.calls import (
    ISA,
    LANGUAGE,
    copy_written,
    issue,
    on_chip,
    over_product,
    written,
)
from difftest.simulator.frontend.classic.indexing import MaskedOperand
from difftest.simulator.frontend.classic.operators import (
    copied_from_psum,
    copy_to_sbuf,
    update,
)
from difftest.simulator.index import as_integers
from difftest.simulator.instructions import gate
from difftest.simulator.instructions import matmul as instructions
from difftest.simulator.instructions.masked import Mask
from difftest.simulator.misuses import MASK_OF_ONE_ROW
from difftest.simulator.partial import kept_inside
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space

DOUBLE_ROW = "double_row_gen3"


@ISA.by_hand  # by hand: operands have masks of their own, and products are accumulated elsewhere
def nc_matmul(
    stationary, moving, *, is_stationary_onezero=False, is_moving_onezero=False,
    is_transpose=False, tile_position=(), tile_size=(), mask=None, **kwargs,
):  # fmt: skip
    """Multiply ``stationary.T @ moving`` in PSUM, float32; [K, M] and [K, ...N] give [M, ...N].

    The three ``is_...`` arguments are hints about speed and change no value. ``perf_mode`` is not
    documented. AWS's own test passes [K, 2, M] and [K, 2, ...N], two rows of the contraction.
    """
    mode = kwargs.pop("perf_mode", None)
    if kwargs:
        no_extras("nisa.nc_matmul", kwargs)
    stationary, left = _in_sbuf(stationary, "nc_matmul", "stationary")
    moving, right = _in_sbuf(moving, "nc_matmul", "moving")
    position = _placement(tile_position, "tile_position")
    placement = (
        position,
        _placement(tile_size, "tile_size"),
        "double_row" if mode else "none",
    )
    if mode is not None:
        _check_pairs(stationary, moving, mode)
        left = _of_pairs(left)
        right = _of_pairs(right)
    if mask is left is right is None:
        return product(stationary, moving, placement)
    chosen = over_product(mask, left, right, pairs=mode is not None)
    return product(stationary, moving, placement, chosen)


def _placement(value: Any, name: str) -> Any:
    if type(value) is tuple and not value:
        return value
    return as_integers(value, name)


def _unmasked(operand: Any) -> tuple[Any, Array | None]:
    """Return a product's operand, and its mask as bools over it, or None."""
    if not isinstance(operand, MaskedOperand):
        return operand, None
    return operand.tile, operand.mask.array(operand.tile._tile_shape())


def _in_sbuf(operand: Any, where: str, name: str) -> tuple[Any, Array | None]:
    """Return :func:`_unmasked`, with an operand in PSUM copied."""
    if isinstance(operand, Tile) and operand._storage.allocation.space is Space.SBUF:
        return operand, None
    tile, chosen = _unmasked(operand)
    return copied_from_psum(tile, where, name), chosen


def _check_pairs(stationary: Any, moving: Any, mode: object) -> None:
    """Raise unless 8-bit floats contract with two rows in each partition."""
    tiles = (
        on_chip(stationary, "nc_matmul", "stationary"),
        on_chip(moving, "nc_matmul", "moving"),
    )
    if mode != DOUBLE_ROW or any(tile.ndim < 3 or tile.shape[1] != 2 for tile in tiles):
        raise not_modelled(
            "nc_matmul's perf_mode",
            f"perf_mode={mode!r} of {tiles[0]!r} and {tiles[1]!r}",
            f"use {DOUBLE_ROW!r} with [K, 2, M] and [K, 2, N]",
        )
    undocumented_argument("nisa.nc_matmul", "perf_mode", mode)


def _of_pairs(chosen: Array | None) -> Array | None:
    """Return an operand's mask [K, 2, n] as [K, n]; both rows of a partition must agree."""
    if chosen is None:
        return None
    if (chosen[:, 0] != chosen[:, 1]).any():
        raise MASK_OF_ONE_ROW(f"a mask over {list(chosen.shape)}")
    return chosen[:, 0]


@LANGUAGE.by_hand  # a product, and a transpose if needed
def matmul(x, y, *, transpose_x=False, mask=None):
    """Multiply ``x @ y`` (or ``x.T @ y``) in PSUM, float32: nc_matmul, after a transpose of x."""
    x, left = _unmasked(x)
    y, right = _unmasked(y)
    stationary = on_chip(x, "nl.matmul")
    moving = on_chip(y, "nl.matmul", "y")
    if not as_flag(transpose_x, "transpose_x"):
        stationary = transpose(stationary)
        left = None if left is None else left.T
    stationary = copied_from_psum(stationary, "nl.matmul", "x")
    moving = copied_from_psum(moving, "nl.matmul", "y")
    return product(
        stationary, moving, ((), (), "none"), over_product(mask, left, right)
    )


@LANGUAGE.by_hand  # a transpose and a copy
def transpose(x, *, dtype=None, mask=None):
    """Swap the partition and free dimensions of a 2-D tile, in a new SBUF tile."""
    data = on_chip(x, "nl.transpose")
    need_two(data, "nl.transpose")
    if data._space is Space.PSUM:
        data = copy_to_sbuf(data)
    return copy_written(
        issue(instructions.nc_transpose, (data,), mask=mask), dtype=dtype
    )


# -- psum += nisa.nc_matmul(...) -------------------------------------------------------------------
# In the classic API the product is a tile of its own until it is added to another. The hardware's
# instruction accumulates at its destination. The addition is therefore issued as the product again,
# into the target tile. The product itself stays in the trace only if other instructions read it
# (see simulator/recording.py).


class Product(NamedTuple):
    """The inputs of a matmul, as the origin of a tile in PSUM."""

    stationary: Tile
    moving: Tile
    placement: tuple[Any, ...]
    writes: tuple[int, int]
    """The number of writes to each operand's tensor so far."""


def _writes(stationary: Tile, moving: Tile) -> tuple[int, int]:
    return stationary._storage.allocation.writes, moving._storage.allocation.writes


def product(
    stationary: Any, moving: Any, placement: tuple[Any, ...], chosen: Mask | None = None
) -> Any:
    """Compute ``stationary.T @ moving`` as a new tile in PSUM that another can accumulate."""
    operands = (stationary, moving)
    options = (False, *placement)
    if chosen is None:
        tile = gate.issue(instructions.nc_matmul, operands, options)
    else:
        tile = issue(instructions.nc_matmul, operands, options, chosen=chosen)
    tile._storage.producer = Product(
        stationary, moving, placement, _writes(stationary, moving)
    )
    return tile


def accumulate_product(target: Tile, added: Tile) -> None:
    """Add a matmul's result to ``target``, in float32, as the matmul's own accumulation.

    Raises
    ------
    ShapeError : the target has another shape.
    LimitError : the target exceeds one PSUM bank.
    OutOfBoundsError : the target leaves its tensor where the product was written.
    """
    source = added._storage.producer
    dtype = added._storage.dtype
    whole = added.dtype is dtype and added._is_whole()
    if not (
        isinstance(source, Product) and whole and source.writes == _writes(*source[:2])
    ):
        # a part, a view of another dtype, or an operand that has changed
        update("add", target, added)
        return
    where = written(added)
    record = instructions.added_product
    sources = {"stationary": source.stationary, "moving": source.moving}
    how: dict[str, Any] = {"dst": target, "sources": sources}
    if where is None or not isinstance(target._axes, tuple):
        options = (_was_begun(target), *source.placement)
        gate.issue(record, (added,), options, **how, where=where)
        return
    part = kept_inside(target._as_tile(), where)
    options = (_was_begun(part), *source.placement)
    issue(record, (added,), options, **how, chosen=where.reshape)


def _was_begun(target: Tile) -> bool:
    """Return whether an instruction has written any element of a target."""
    fresh = target._fresh()
    return fresh is None or not fresh.all()
