"""The classic dialect's functions as data, the function that issues instructions, and masks.

A stub has AWS's signature, and its record has the rest
(:mod:`difftest.simulator.frontend.dispatch`). For instructions under a mask, see
:mod:`difftest.simulator.instructions.masked`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import Array, as_dtype
from difftest.simulator.frontend.arguments import (
    as_accumulate,
    as_engine,
    as_member,
    dge_mode,
    not_taken,
    note_registers,
    reduce_cmd,
    resets_registers,
    same_dtype,
)
from difftest.simulator.frontend.classic.expressions import Mask
from difftest.simulator.frontend.dispatch import Binder, Converter
from difftest.simulator.index import Shape, as_integer
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.checks import need_number, need_tile
from difftest.simulator.instructions.copy import tensor_copy
from difftest.simulator.instructions.masked import Mask as Masks
from difftest.simulator.instructions.masked import issue_masked
from difftest.simulator.instructions.record import ON_CHIP, Instruction, OperandKind
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.misuses import MASK_OF_TWO_AXES, SHAPE_OF_MASK
from difftest.simulator.tile import Tile

_CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("op", "op0", "op1", "comp_op0", "comp_op1"), alu_op),
    **dict.fromkeys(("reduce_op", "dst_rmw_op"), alu_op),
    "reduce_cmd": as_accumulate,
    "range_start": lambda value, where: as_integer(value, f"{where}'s range_start"),
    "on_false_value": lambda value, where: float(
        need_number(value, "on_false_value", where)
    ),
    "dge_mode": lambda value, where: as_member(dge_mode, value, "a DMA").name,
    "engine": as_engine,
    "dtype": lambda value, where: None if value is None else as_dtype(value),
}


class Functions(dict[str, Callable[..., Any]]):
    """The functions of a module by name."""

    def by_hand(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Add a function that is not a call of a single record.

        Examples are functions of several records, views, memory and the launch.
        """
        self[function.__name__] = function
        return function

    def add(
        self, name: str, function: Callable[..., Any], doc: str
    ) -> Callable[..., Any]:
        """Add a function of a table, under its name in the module."""
        function.__name__ = function.__qualname__ = name
        function.__doc__ = doc
        return self.by_hand(function)

    def issues(
        self,
        record: Instruction,
        *,
        prepare: Callable[[dict[str, Any], str], None] | None = None,
        **settings: Any,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Make a function that issues ``record`` from a stub.

        For the parameters, see :class:`Binder`.
        """
        return lambda stub: self.by_hand(
            Binder(stub, record, settings, _CONVERTERS, prepare).compiled(_expression)
        )


ISA = Functions()
LANGUAGE = Functions()


def _expression(binder: Binder) -> str:
    """Return the expression of a call: with a ``dst`` it gives None, otherwise a new tile."""
    how = []
    writes = "dst" in binder.parameters
    if binder.further:
        how.append(f"others={binder.each(binder.further, binder.text)}")
    if "engine" in binder.parameters:
        how.append(f"engine={binder.value('engine')}")
    dtype = binder.value("dtype") if "dtype" in binder.known else None
    if writes:
        how.append(f"dst=_into({binder.text('dst')}, {dtype}, _where)")
    elif dtype is not None:
        how.append(f"dtype={dtype}")
    options = binder.each(binder.record.options, binder.value)
    taken = ", ".join(
        ["_record", binder.each(binder.roles, binder.text), options, *how]
    )
    expression = f"_bare({taken})"
    if "mask" in binder.parameters:
        mask = binder.text("mask")
        expression += f" if {mask} is None else _issue({taken}, mask={mask})"
    if writes:
        expression = f"({expression}, None)[1]"
    into = (
        _into if binder.record.destinations[0].takes is OperandKind.TILE else _indexed
    )
    binder.scope.update(_bare=gate.issue, _issue=issue, _into=into)
    return expression


def _into(dst: Any, dtype: Any, where: str) -> Any:
    """Return a ``dst`` on chip, after checking a call's dtype."""
    return _indexed(on_chip(dst, where, "dst"), dtype, where)


def _indexed(dst: Any, dtype: Any, where: str) -> Any:
    """Return a ``dst`` as :func:`_into` does; a tile may index it."""
    if dst is None:
        on_chip(dst, where, "dst")
    same_dtype(dtype, dst, where)
    return dst


def on_chip(value: object, where: str, name: str = "x") -> Tile:
    """Return ``value`` as a tile in SBUF or PSUM."""
    return need_tile(value, name, where, ON_CHIP)


def issue(
    instruction: Instruction,
    operands: tuple[Any, ...],
    options: tuple[Any, ...] = (),
    dst: Any = None,
    dtype: object = None,
    mask: object = None,
    chosen: Masks | None = None,
    **how: Any,
) -> Any:
    """Issue an instruction under a mask; see :func:`difftest.simulator.instructions.gate.issue`.

    ``dtype`` and ``mask`` are the kernel's own arguments. ``chosen`` replaces ``mask`` in calls
    that lay out the mask themselves: a function of a shape that returns bools.
    """
    named = None if dtype is None else as_dtype(dtype)
    if mask is None and chosen is None:
        return gate.issue(instruction, operands, options, dst, named, **how)
    chosen = chosen or (lambda shape: as_mask(mask, shape))
    how.update(dst=dst, dtype=named)
    return issue_masked(instruction, operands, options, mask=chosen, **how)


def with_registers(values: dict[str, Any], where: str) -> None:
    """Resolve the register command of a Scalar Engine call."""
    into = values["reduce_res"]
    idle = as_accumulate(values["reduce_cmd"], where) is Accumulate.IDLE
    if idle and resets_registers(where, "scalar", values["reduce_op"], into):
        values["reduce_cmd"] = reduce_cmd.reset_reduce
    note_registers("scalar", as_accumulate(values["reduce_cmd"], where), into)


# -- masks ----------------------------------------------------------------------------------------


def as_mask(mask: object, shape: Shape) -> Array | bool:
    """Return an instruction's ``mask`` argument as bools over ``shape``; True without a mask."""
    if mask is None:
        return True
    if isinstance(mask, (bool, np.bool_)):
        return bool(mask)
    if isinstance(mask, Mask):
        array = mask.array(shape)
        if array.all():
            return True
        return array
    raise not_taken(
        "a mask",
        "comparisons of nl.arange, loop and program indices",
        f"a {type(mask).__name__}",
        type(mask).__name__,
        remedy="for a condition held in a tile use nl.where or nisa.tensor_copy_predicated",
    )


def over_product(
    mask: object, stationary: Array | None, moving: Array | None, *, pairs: bool = False
) -> Masks | None:
    """Return a product's mask as bools over [K, M, ...N]; None without a mask.

    ``stationary`` is over [K, M], ``moving`` over [K, ...N], each bools or None: the masks of the
    operands. The mask itself is over the contraction, the result's partitions and its free axes.
    The shape of a comparison's indices determines its axis: [K, 1] is the contraction, [1, N] the
    free axis of the operand of that length, and [1, M, 1] and [1, 1, N] those of both operands.
    With ``pairs`` the shape is [K, 2, M, ...N], for two rows of the contraction in each partition.

    Raises
    ------
    KernelError, ShapeError : a comparison fits no axis, or two axes.
    """
    if mask is stationary is moving is None:
        return None

    def over(walked: Shape) -> Array | bool:
        shape = (walked[0], *walked[2:]) if pairs else walked
        result = _own_mask(mask, shape)
        columns = shape[2:]
        if stationary is not None:
            ones = (1,) * len(columns)
            result = result & stationary.reshape(*shape[:2], *ones)
        if moving is not None:
            result = result & moving.reshape(shape[0], 1, *columns)
        if result.all():
            return True
        if pairs:
            result = np.broadcast_to(result[:, None], walked)
        return np.ascontiguousarray(result)

    return over


def _own_mask(mask: object, shape: Shape) -> Array:
    """Return a product's own mask over [K, M, ...N]."""
    if not isinstance(mask, Mask):
        return np.full(shape, as_mask(mask, shape) is True)
    result = np.ones(shape, dtype=np.bool_)
    for term in mask.terms:
        result = result & _over_product(term.array() >= 0, shape)
    return result


def _over_product(chosen: Array, shape: Shape) -> Array:
    """Lay out one comparison along the axes [K, M, ...N] of a product."""
    mask_shape = chosen.shape
    layouts = _layouts(mask_shape, shape)
    if len(layouts) > 1:
        raise MASK_OF_TWO_AXES(
            f"indices of shape {list(mask_shape)}; "
            f"both operands have {shape[1]} elements a partition"
        )
    if not layouts or any(
        n not in (1, size) for n, size in zip(layouts[0], shape, strict=True)
    ):
        raise SHAPE_OF_MASK(
            f"mask of shape {mask_shape}, product over [K, M, N] = {list(shape)}"
        )
    return chosen.reshape(layouts[0])


def _layouts(mask: Shape, shape: Shape) -> list[Shape]:
    """Return the shapes over a product's axes that the shape of a comparison may mean."""
    if len(mask) == len(shape):
        return [mask]
    if len(mask) < 2:
        return []
    depth, *free = mask
    rows, *columns = shape[1:]
    ones = (1,) * len(columns)
    if free == [1]:
        return [(depth, 1, *ones)]
    found: list[Shape] = []
    if free == [rows]:
        found.append((depth, rows, *ones))
    if free == columns:
        found.append((depth, 1, *columns))
    return found


def as_truth(mask: object, where: str) -> bool:
    """Return whether an instruction without a tile is issued under a ``mask``.

    Raises
    ------
    KernelError : the mask is made of index expressions.
    """
    if isinstance(mask, Mask):
        got = f"a mask over indices of shape {list(mask.shape)}"
        raise not_taken(
            where,
            "loop and program indices in a mask, and has no tile that a mask could range over",
            got,
            got,
        )
    return as_mask(mask, ()) is True


def written(tile: Tile) -> Array | None:
    """Return where a masked instruction's result was written; None if everywhere."""
    if not tile._storage.masked:
        return None
    missing = tile._unwritten()
    if missing is None:
        return None
    return np.logical_not(missing)


def copy_written(tile: Tile, *, dst: Tile | None = None, dtype: object = None) -> Any:
    """Copy the written elements of a new tile to ``dst``, by default to a new tile."""
    where = written(tile)
    chosen = None if where is None else lambda shape: where
    return issue(tensor_copy, (tile,), dst=dst, dtype=dtype, chosen=chosen)
