"""Elementwise functions: Python's operators, ``nisa.tensor_tensor``, ``nl.add``, ``nl.exp``.

For ``nl.floor`` and some others, AWS documents the result, not the instructions. They consist here
of documented instructions, are computed in float32, and are rounded to the dtype of the result
once. Source: ``nki.language`` at tag v2.26.0.
"""
# mypy: allow-untyped-defs

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import BOOL, FLOAT32, Array, DType, as_dtype
from difftest.simulator.errors import ShapeError
from difftest.simulator.frontend.arguments import LARGEST_ANGLE, engine, not_taken
from difftest.simulator.frontend.classic.calls import (
    ISA,
    LANGUAGE,
    as_mask,
    copy_written,
    issue,
    on_chip,
    written,
)
from difftest.simulator.index import Index, Shape
from difftest.simulator.instructions import activation as activations
from difftest.simulator.instructions import elementwise as vector
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.alu import ALU_OPS, AluOp
from difftest.simulator.instructions.checks import is_number, wrong_buffer
from difftest.simulator.instructions.copy import tensor_copy
from difftest.simulator.instructions.masked import Mask
from difftest.simulator.instructions.record import SBUF_ONLY, Instruction, Number
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.instructions.values import promote, quotient_dtype
from difftest.simulator.partial import elements_inside
from difftest.simulator.pattern import with_free_axes
from difftest.simulator.strictness import report_violation
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space


def tile_or_number(value: object, name: str, where: str) -> Tile | Number:
    """Return ``value`` as a number or an on-chip tile."""
    if isinstance(value, Tile) and not value._storage.in_hbm:
        return value
    if is_number(value):
        return value
    return on_chip(value, where, name)


def binary(name: str, x: Any, y: Any, dtype: object = None, mask: object = None) -> Any:
    """Compute ``x <op> y`` for tiles and numbers; partitions of size 1 broadcast."""
    where = f"nl.{name}"
    op = ALU_OPS[name]
    left = tile_or_number(x, "x", where)
    right = tile_or_number(y, "y", where)
    if not isinstance(left, Tile) and not isinstance(right, Tile):
        raise not_taken(where, "at least one tile", "no tile", f"{x!r} and {y!r}")
    if dtype is not None:
        result = as_dtype(dtype)
    elif op.comparison:
        result = BOOL
    elif name == "divide":
        result = quotient_dtype(left, right)
    else:
        result = promote(left, right)
    return _issue(op, left, right, None, result, mask)


def update(name: str, target: Tile, other: Any, *, mask: object = None) -> Tile:
    """Compute ``target <op>= other`` in place, rounded once to its dtype; return the target.

    A target may leave its tensor where a mask left ``other`` out.
    """
    left = on_chip(target, name)
    right = tile_or_number(other, "y", name)
    chosen = None if mask is not None else _inside(left, right)
    _issue(ALU_OPS[name], left, right, target, None, mask, chosen)
    return target


def _inside(target: Tile, value: Tile | Number) -> Mask | None:
    """Return a mask of the target's elements inside its tensor, if a mask left the others out.

    None if the target is inside, or if the value has no masked-out elements.

    Raises
    ------
    OutOfBoundsError : the value was written where the target is outside.
    """
    if not isinstance(target._axes, tuple) or not isinstance(value, Tile):
        return None
    tile = target._as_tile()
    value = repeated(value, tile.shape, "an assignment's value", partitions=True)
    kept = written(value)
    if kept is None:
        return None
    inside = elements_inside(tile, kept)
    return inside.reshape


def begin_or_update(
    name: str, target: Tile, other: Tile, mask: object, dtype: object = None
) -> None:
    """Update the target as :func:`update` does; set unwritten elements to ``other``.

    With a ``dtype``, the result is rounded to it on its way to the target.
    """
    missing = target._fresh()  # a lost sum stays lost
    if missing is None:
        if dtype is None:
            update(name, target, other, mask=mask)
        else:
            copy_written(
                binary(name, target, other, dtype=dtype, mask=mask), dst=target
            )
        return

    def among(
        elements: Array, record: Instruction, operands: tuple[Any, ...], *op: AluOp
    ) -> None:
        def chosen(shape: Shape) -> Array | bool:
            both: Array = elements.reshape(shape) & as_mask(mask, shape)
            if not both.all():
                return both
            return True

        if dtype is None:
            issue(record, operands, op, dst=target, chosen=chosen)
        else:
            copy_written(
                issue(record, operands, op, dtype=dtype, chosen=chosen), dst=target
            )

    value = repeated(
        other, target._tile_shape(), "nl.loop_reduce's value", partitions=True
    )
    among(missing, tensor_copy, (value,))
    if not missing.all():
        among(
            ~missing,
            vector.tensor_tensor,
            _spread_partitions(target, other),
            ALU_OPS[name],
        )


def repeated(tile: Tile, shape: Shape, what: str, *, partitions: bool = False) -> Tile:
    """Repeat a tile along its free dimensions of size 1; return it unchanged if sizes are equal.

    With ``partitions``, partitions repeat, too, and equal sizes may have different partitions.

    Raises
    ------
    ShapeError : the value does not fit its target; ``what`` names it.
    """
    have = tile._tile_shape()
    if have == shape:
        return tile
    rows = partitions or have[0] == shape[0]
    if rows and tile.size == math.prod(shape):
        return tile
    padded = with_free_axes(have, len(shape))
    repeats = all(
        size in (1, wanted) for size, wanted in zip(padded, shape, strict=False)
    )
    if not rows or len(padded) > len(shape) or not repeats:
        raise ShapeError(
            f"{what} has its target's shape, or repeats along "
            f"{'' if partitions else 'free '}dimensions",
            happened=f"a value {list(tile.shape)} was assigned to {list(shape)}",
            received=f"target {list(shape)}, value {list(tile.shape)}",
        )
    return tile._as_tile().reshape(padded)._broadcast_to(shape)


def unary(name: str, x: Any, *, dtype: object = None, mask: object = None) -> Any:
    """Compute ``<op> x`` for the unary operators of the Vector Engine."""
    op = ALU_OPS[name]
    data = on_chip(x, f"nl.{name}")
    if dtype is None:
        dtype = BOOL if op.comparison else data.dtype
    return issue(
        vector.tensor_scalar,
        (data, 0, None),
        (op, False, None, False),
        dtype=dtype,
        mask=mask,
    )


def _issue(
    op: AluOp,
    left: Tile | Number,
    right: Tile | Number,
    dst: Tile | None,
    dtype: DType | None,
    mask: Any,
    chosen: Mask | None = None,
) -> Any:
    """Issue tensor_tensor for two tiles, tensor_scalar for a tile and a number."""
    record = vector.tensor_tensor
    operands: tuple[Any, ...] = (left, right)
    options: tuple[Any, ...] = (op,)
    if not isinstance(left, Tile):
        record = vector.tensor_scalar
        operands = (right, left, None)
        options = (op, True, None, False)
    elif not isinstance(right, Tile):
        record = vector.tensor_scalar
        operands = (left, right, None)
        options = (op, False, None, False)
    else:
        if (left.shape, left._partition_axis) != (right.shape, right._partition_axis):
            left, right = one_rank(*_spread_partitions(left, right))
        if left._space is right._space is Space.PSUM:
            right = copy_to_sbuf(right, mask)
        operands = (left, right)
    if mask is None and chosen is None:
        return gate.issue(record, operands, options, dst, dtype)
    return issue(record, operands, options, dst, dtype, mask, chosen)


def _spread_partitions(left: Tile, right: Tile) -> tuple[Tile, Tile]:
    """Repeat an operand of one partition over the other's partitions (nl functions only)."""
    a = left._tile_shape()
    b = right._tile_shape()
    if a == b or 1 not in (a[0], b[0]):
        return left, right
    if b[0] == 1 and len(b) <= len(a):
        return left, right._broadcast_to(a[:1] + with_free_axes(b, len(a))[1:])
    if a[0] == 1 and len(a) <= len(b):
        return left._broadcast_to(b[:1] + with_free_axes(a, len(b))[1:]), right
    return left, right


def one_rank(left: Tile, right: Tile) -> tuple[Tile, Tile]:
    """Return operands of one rank, if their ranks differ by free dimensions of size 1.

    An operand with one element a partition takes the other's rank. If sizes are equal, the shorter
    one takes the longer's shape. A device ran such a kernel, but the documentation only covers
    operands of one rank.
    """
    a = left._tile_shape()
    b = right._tile_shape()
    if len(a) == len(b) or a[0] != b[0]:
        return left, right
    short, shape = (left, b) if len(a) < len(b) else (right, a)
    if _wide_sizes(a) != _wide_sizes(b):
        short, other = (left, b) if left.size == a[0] else (right, a)
        if short.size != a[0]:
            return left, right
        shape = (a[0], *(1,) * len(other[1:]))
    error = ShapeError(
        "the operands of an instruction have the same number of dimensions",
        happened=f"operands of {len(a)} and {len(b)} dimensions met",
        received=f"{left!r} and {right!r}",
        remedy="insert dimensions of size 1 behind the partitions: tile[:, :, None]",
    )
    report_violation(error)
    longer: Tile = short._as_tile().reshape(shape)
    if short is left:
        return (longer, right)
    return (left, longer)


def _wide_sizes(shape: Shape) -> list[int]:
    """Return the sizes of the free dimensions with more than one element."""
    return [size for size in shape[1:] if size > 1]


def copied_from_psum(
    tile: Any,
    where: str,
    name: str,
    spaces: tuple[Space, ...] = SBUF_ONLY,
    mask: object = None,
) -> Any:
    """Return an operand in PSUM copied to SBUF, as the compiler does if the kernel does not.

    ``spaces`` are the memories that AWS's page names; ``mask`` is that of :func:`copy_to_sbuf`.
    """
    if not isinstance(tile, Tile) or tile._space is not Space.PSUM:
        return tile
    report_violation(wrong_buffer(tile, name, where, spaces))
    return copy_to_sbuf(tile, mask)


def copy_to_sbuf(tile: Tile, mask: object = None) -> Any:
    """Return a copy in SBUF, of the same dtype.

    For a tile that leaves its tensor, the copy has the elements that ``mask``, the instruction's
    own, keeps.
    """
    leaves = isinstance(tile._axes, tuple)
    return issue(tensor_copy, (tile,), mask=mask if leaves else None)


# -- nki.isa ---------------------------------------------------------------------------------------


@ISA.issues(vector.tensor_tensor)
def tensor_tensor(data1, data2, op, *, dtype=None, mask=None, engine=engine.unknown):
    """Compute ``data1 <op> data2``; partitions must agree, free dimensions broadcast."""
    if isinstance(data1, Tile) and isinstance(data2, Tile):
        axis = data1._partition_axis
        other = data2._partition_axis
        if not (axis == other == 0 and len(data1.shape) == len(data2.shape)):
            data1, data2 = one_rank(data1, data2)
    return locals()


# -- nki.language ----------------------------------------------------------------------------------

Compute = Callable[[Any, Any, Any], Any]
"""Computes a result from an on-chip tile, the requested dtype or None, and its mask."""


def _of_tile(
    name: str, doc: str, compute: Compute, *, keeps_dtype: bool = False
) -> None:
    """Add a function of one on-chip tile."""
    where = f"nl.{name}"

    def function(x: Any, *, dtype: object = None, mask: object = None) -> Any:
        data = on_chip(x, where)
        return compute(
            data, data.dtype if keeps_dtype and dtype is None else dtype, mask
        )

    LANGUAGE.add(name, function, doc)


_OF_INDICES = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul}
"""The functions that keep index expressions affine, and Python's operators for them."""


def _of_indices(name: str, x: Any, y: Any) -> Any:
    """Return Python's operator on an index expression and a number, with a note."""
    where = f"nl.{name}"
    got = "an index expression"
    received = f"{x!r:.60} and {y!r:.60}"
    remedy = "use Python's operator: i + 1"
    report_violation(
        not_taken(where, "tiles and numbers", got, received, remedy=remedy)
    )
    return _OF_INDICES[name](x, y)


def _operator(name: str) -> None:
    """Add a function of two operands, which may be index expressions."""

    def function(x: Any, y: Any, dtype: object = None, mask: object = None) -> Any:
        is_index = isinstance(x, Index) or isinstance(y, Index)
        if is_index and name in _OF_INDICES and dtype is None and mask is None:
            return _of_indices(name, x, y)
        return binary(name, x, y, dtype, mask)

    LANGUAGE.add(
        name, function, f"Compute ``x {name} y``, element by element; shapes broadcast."
    )


def _unary_operator(name: str) -> None:
    def function(x: Any, dtype: object = None, mask: object = None) -> Any:
        return unary(name, x, dtype=dtype, mask=mask)

    LANGUAGE.add(name, function, f"Compute ``{name} x``, element by element.")


def activate(name: str) -> Compute:
    """Return the function of an activation, such as ``nl.exp``, on an on-chip tile."""

    def compute(x: Any, dtype: Any, mask: Any) -> Any:
        options = (name, None, Accumulate.IDLE)
        how = {"dtype": dtype, "mask": mask}
        return issue(
            activations.activation, (x, 1.0, None), options, others=(None,), **how
        )

    return compute


for _name, _op in ALU_OPS.items():
    if not _op.unary:
        _operator(_name)
for _name in ("invert", "logical_not"):
    _unary_operator(_name)
for _name in (
    "abs",
    "arctan",
    "erf",
    "erf_dx",
    "exp",
    "gelu",
    "gelu_apprx_sigmoid",
    "gelu_apprx_tanh",
    "gelu_dx",
    "log",
    "mish",
    "relu",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "silu_dx",
    "sin",
    "softplus",
    "sqrt",
    "square",
    "tanh",
):
    _of_tile(
        _name,
        f"Compute ``{_name}(x)``, element by element, on the Scalar Engine.",
        activate(_name),
    )


def invert_number(x: Any, dtype: Any, mask: Any) -> Any:
    """Compute ``1 / x``."""
    return issue(vector.reciprocal, (x,), dtype=dtype, mask=mask)


_sin = activate("sin")


def _floor(x: Any, dtype: Any, mask: Any) -> Any:
    """Compute ``x - x mod 1``, exact for finite numbers."""
    part = binary("mod", x, 1.0, dtype=FLOAT32, mask=mask)
    return binary("subtract", x, part, dtype=dtype, mask=mask)


def _ceil(x: Any, dtype: Any, mask: Any) -> Any:
    """Compute ``-floor(-x)``."""
    return _negative(_floor(_negative(x, FLOAT32, mask), FLOAT32, mask), dtype, mask)


def _trunc(x: Any, dtype: Any, mask: Any) -> Any:
    """Compute ``x - fmod(x, 1)``."""
    part = binary("fmod", x, 1.0, dtype=FLOAT32, mask=mask)
    return binary("subtract", x, part, dtype=dtype, mask=mask)


def _sine(x: Any, shift: float, dtype: Any, mask: Any) -> Any:
    """Compute ``sin(x + shift)``, with the angle reduced to the Scalar Engine's range."""
    angle: Any = x
    for op, number in (
        ("add", shift + np.pi),
        ("mod", 2 * np.pi),
        ("subtract", np.pi),
        ("minimum", LARGEST_ANGLE),
        ("maximum", -LARGEST_ANGLE),
    ):
        angle = binary(op, angle, float(number), dtype=FLOAT32, mask=mask)
    return _sin(angle, dtype, mask)


def _cos(x: Any, dtype: Any, mask: Any) -> Any:
    return _sine(x, np.pi / 2, dtype, mask)


def _tan(x: Any, dtype: Any, mask: Any) -> Any:
    inverse = invert_number(_cos(x, FLOAT32, mask), FLOAT32, mask)
    return binary(
        "multiply", _sine(x, 0.0, FLOAT32, mask), inverse, dtype=dtype, mask=mask
    )


def _negative(x: Any, dtype: Any, mask: Any) -> Any:
    return binary("multiply", x, -1.0, dtype=dtype, mask=mask)


for _compute in (_floor, _ceil, _trunc, _cos, _tan, _negative):
    _name = _compute.__name__[1:]
    _of_tile(
        _name,
        f"Compute ``{_name}(x)``, element by element.",
        _compute,
        keeps_dtype=True,
    )
_of_tile("reciprocal", "Compute ``1 / x``, on the Vector Engine.", invert_number)
