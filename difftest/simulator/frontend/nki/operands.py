"""What calls of this dialect share: operators by name, and operands that must go together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from difftest.simulator.core import current
from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.frontend.arguments import as_pairs, not_taken
from difftest.simulator.frontend.nki.virtual_registers import DeviceValue
from difftest.simulator.index import Index, as_integer
from difftest.simulator.instructions.alu import NKI_OPS, AluOp, alu_op, check_generation
from difftest.simulator.instructions.operands import need_tile
from difftest.simulator.instructions.rules import other_sizes
from difftest.simulator.strictness import note
from difftest.simulator.tile import Tile

MOST_AXES = 4
"""Dimensions of the pattern of iota and affine_select."""


class OperatorName(NamedTuple):
    """An operator by name: a signature's default, or one of ``nl`` that is no function."""

    nki_name: str

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise KernelError(
            f"nl.{self.nki_name} is an operator for instructions, and no function",
            happened=f"nl.{self.nki_name} was called",
            received=", ".join(f"{value!r:.60}" for value in args),
            remedy=f"pass it to an instruction that takes it: op=nl.{self.nki_name}",
        )


def operator_of(op: object, where: str) -> AluOp:
    """The operator that an ``nl`` function (or NumPy's) stands for in today's dialect."""
    operator = alu_op(op, where, NKI_OPS)
    check_generation(operator, where, current().machine)
    return operator


def beside(**operands: str) -> Callable[[dict[str, Any], str], None]:
    """What makes an operand of ``tensor_scalar`` and kin that is left out 0.

    ``operands`` are by the parameter that has their operator.
    """
    pairs = tuple(operands.items())

    def prepare(values: dict[str, Any], where: str) -> None:
        for parameter, name in pairs:
            if values[name] is None and values[parameter] is not None:
                op = operator_of(values[parameter], where)
                if not op.unary:
                    takes, got = f"{name} beside op={op.name}", f"no {name} for op={op.name}"
                    raise not_taken(where, takes, got, f"{name}=None")
                values[name] = 0

    return prepare


def affine(values: Mapping[str, Any], where: str) -> Index:
    """``offset + channel * channel_multiplier + sum(step * i)`` over dst's partitions.

    The steps are the pattern's; the offset is an integer, or a register, which is read now.
    """
    dst, pattern, offset, multiplier = (
        values[name] for name in ("dst", "pattern", "offset", "channel_multiplier")
    )
    need_tile(dst, "dst", where)
    pairs = as_pairs(pattern, where, "step", "num")
    shape = (dst._tile_shape()[0], *(n for _, n in pairs))
    if not 1 <= len(pairs) <= MOST_AXES or math.prod(shape) != dst.size:
        raise ShapeError(
            f"{where}'s pattern has up to {MOST_AXES} dimensions, and dst's elements in each "
            "partition",
            happened=f"{where} got a pattern of {len(pairs)} dimensions and {math.prod(shape)} "
            "elements",
            received=f"pattern={[list(pair) for pair in pairs]} for {dst!r}",
            limit=f"{dst.size // max(shape[0], 1)} elements",
        )
    steps = (as_integer(multiplier, "channel_multiplier"), *(s for s, _ in pairs))
    start = offset.device_value() if isinstance(offset, DeviceValue) else offset
    return Index(shape, as_integer(start, "offset"), steps)


def to_one_size(where: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Two tiles repeated along free dimensions of size 1, to the larger of each.

    The release notes have no broadcasting between tiles; AWS's simulator was seen to do it.
    """
    pair = (x, y)
    tiles = all(isinstance(tile, Tile) for tile in pair)
    if not tiles or (x.shape[0], x.size) == (y.shape[0], y.size):
        return pair
    rank, error = max(x.ndim, y.ndim), other_sizes(where, {"x": x, "y": y})
    if x.shape[0] != y.shape[0]:
        raise error
    column = (x.shape[0], *(1,) * (rank - 1))
    x, y = (tile.reshape(column) if tile.size == tile.shape[0] else tile for tile in pair)
    shape = tuple(map(max, zip(x.shape, y.shape, strict=False)))
    for tile in (x, y):
        fits = (have in (1, size) for have, size in zip(tile.shape, shape, strict=False))
        if tile.ndim != rank or not all(fits):
            raise error
    note(error)
    return x._broadcast_to(shape), y._broadcast_to(shape)
