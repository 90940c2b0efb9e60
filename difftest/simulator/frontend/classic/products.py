"""Matrix products and transposes on chip: ``nisa.nc_matmul``, ``nl.matmul`` and kin."""
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import KernelError, ShapeError, not_modelled
from difftest.simulator.frontend.arguments import (
    as_flag,
    engine,
    no_extras,
    undocumented_argument,
)
from difftest.simulator.frontend.classic.accumulation import product
from difftest.simulator.frontend.classic.calls import ISA, LANGUAGE
from difftest.simulator.frontend.classic.copies import copy
from difftest.simulator.frontend.classic.indexing import MaskedOperand
from difftest.simulator.frontend.classic.issue import issue, written
from difftest.simulator.frontend.classic.masking import over_product
from difftest.simulator.frontend.classic.operators import (
    copied_from_psum,
    copy_to_sbuf,
    on_chip,
)
from difftest.simulator.index import as_integers
from difftest.simulator.instructions import matmul as instructions
from difftest.simulator.instructions.copy import tensor_copy
from difftest.simulator.trace import Space

DOUBLE_ROW = "double_row_gen3"


@ISA.by_hand  # its operands have masks of their own, and its result can be added to another
def nc_matmul(
    stationary, moving, *, is_stationary_onezero=False, is_moving_onezero=False,
    is_transpose=False, tile_position=(), tile_size=(), mask=None, **kwargs,
):  # fmt: skip
    """``stationary.T @ moving`` in PSUM, float32; [K, M] and [K, ...N] give [M, ...N].

    The three ``is_...`` arguments are hints about speed and change no value. ``perf_mode`` is not
    documented; AWS's own test of it has [K, 2, M] and [K, 2, ...N], two rows of the contraction.
    """
    mode = kwargs.pop("perf_mode", None)
    no_extras("nisa.nc_matmul", kwargs)
    (stationary, left), (moving, right) = _unmasked(stationary), _unmasked(moving)
    stationary = copied_from_psum(stationary, "nc_matmul", "stationary")
    moving = copied_from_psum(moving, "nc_matmul", "moving")
    position = _placement(tile_position, "tile_position")
    placement = (position, _placement(tile_size, "tile_size"), "double_row" if mode else "none")
    if mode is not None:
        _check_pairs(stationary, moving, mode)
        left, right = _of_pairs(left), _of_pairs(right)
    chosen = over_product(mask, left, right, pairs=mode is not None)
    return product(stationary, moving, placement, chosen)


def _placement(value: Any, name: str) -> Any:
    return value if type(value) is tuple and not value else as_integers(value, name)


def _unmasked(operand: Any) -> tuple[Any, Array | None]:
    """A product's operand, and the mask between its brackets as bools over it, if it has one."""
    if not isinstance(operand, MaskedOperand):
        return operand, None
    chosen = operand.mask.array(operand.tile.tile_shape())
    return operand.tile, chosen


def _check_pairs(stationary: Any, moving: Any, mode: object) -> None:
    """Let 8-bit floats contract with two rows in each partition."""
    tiles = (on_chip(stationary, "nc_matmul", "stationary"), on_chip(moving, "nc_matmul", "moving"))
    if mode != DOUBLE_ROW or any(tile.ndim < 3 or tile.shape[1] != 2 for tile in tiles):
        raise not_modelled(
            "nc_matmul's perf_mode",
            f"perf_mode={mode!r} of {tiles[0]!r} and {tiles[1]!r}",
            f"use {DOUBLE_ROW!r} with [K, 2, M] and [K, 2, N]",
        )
    undocumented_argument("nisa.nc_matmul", "perf_mode", mode)


def _of_pairs(chosen: Array | None) -> Array | None:
    """An operand's mask [K, 2, n] as [K, n]: both rows of a partition take part, or none."""
    if chosen is None:
        return None
    if (chosen[:, 0] != chosen[:, 1]).any():
        raise KernelError(
            "a masked operand with two rows a partition takes part with both",
            happened="a mask left out one of the two rows of a partition",
            received=f"a mask over {list(chosen.shape)}",
        )
    return chosen[:, 0]


@LANGUAGE.by_hand
def matmul(x, y, *, transpose_x=False, mask=None):
    """``x @ y`` (or ``x.T @ y``) in PSUM, float32: nc_matmul, after a transpose of x if needed."""
    (x, left), (y, right) = _unmasked(x), _unmasked(y)
    stationary, moving = on_chip(x, "nl.matmul"), on_chip(y, "nl.matmul", "y")
    if not as_flag(transpose_x, "transpose_x"):
        stationary = transpose(stationary)
        left = None if left is None else left.T
    stationary = copied_from_psum(stationary, "nl.matmul", "x")
    moving = copied_from_psum(moving, "nl.matmul", "y")
    return product(stationary, moving, ((), (), "none"), over_product(mask, left, right))


@ISA.issues(instructions.nc_transpose)
def nc_transpose(data, *, mask=None, dtype=None, engine=engine.unknown):
    """``data.T`` between partitions and the collapsed free axes.

    In PSUM on the Tensor Engine (the default for data in SBUF), in SBUF on the Vector Engine.
    """
    return locals()


@LANGUAGE.by_hand
def transpose(x, *, dtype=None, mask=None):
    """A new SBUF tile with a 2-D tile's partition and free dimensions swapped."""
    data = on_chip(x, "nl.transpose")
    if len(data.tile_shape()) != 2:
        raise ShapeError(
            "nl.transpose takes two dimensions",
            happened=f"nl.transpose got a tile of {len(data.tile_shape())} dimensions",
            received=f"{data!r}",
        )
    if data.space is Space.PSUM:
        data = copy_to_sbuf(data)
    turned = issue(instructions.nc_transpose, (data,), mask=mask)
    where = written(turned)
    if where is None:
        return copy(turned, dtype=dtype)
    return issue(tensor_copy, (turned,), dtype=dtype, chosen=lambda shape: where)
