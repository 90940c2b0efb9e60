"""``nki.isa``: reductions along the free axes, and across partitions."""

from __future__ import annotations

from typing import Any

from difftest.simulator.errors import KernelError, not_modelled
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.isa.elementwise import scalar_operand
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.levels import check_level
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.frontend.nki.operands import operator_of
from difftest.simulator.frontend.nki.registers import command_of, plain_command
from difftest.simulator.index import as_integers
from difftest.simulator.instructions import accumulate
from difftest.simulator.instructions import reduce as instructions
from difftest.simulator.instructions.operands import need_tile
from difftest.simulator.tile import Tile

_CMD = constants.reduce_cmd
_WITH_REGISTERS = ("add", "multiply", "maximum", "minimum")
"""The reductions of tensor_scalar_reduce (its stub, v2.32.0)."""


def ascending(axis: Any, data: Tile, where: str) -> tuple[int, ...]:
    """``axis`` as axis numbers from the front, ascending."""
    ndim = len(data.tile_shape())
    axes = as_integers(axis, f"{where} with axis")
    return tuple(sorted(axis + ndim if axis < 0 else axis for axis in axes))


@public
def tensor_reduce(
    dst: Any,
    op: Any,
    data: Any,
    axis: Any,
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = op-reduction of data`` over its last free axes, times -1 if ``negate``."""
    axes = ascending(axis, need_tile(data, "data", "tensor_reduce"), "tensor_reduce")
    options = (operator_of(op, "tensor_reduce"), axes, bool(negate), bool(keepdims), False)
    return issue(instructions.tensor_reduce, dst, (data,), options)


@public
def tensor_partition_reduce(
    dst: Any, op: Any, data: Any, name: str | None = None
) -> NkiInstruction:
    """``dst = op-reduction of data`` across partitions."""
    averages = getattr(op, "nki_name", None) == "average"
    operator = instructions.AVERAGE if averages else operator_of(op, "tensor_partition_reduce")
    return issue(instructions.tensor_partition_reduce, dst, (data,), (operator,))


@public
def tensor_scalar_reduce(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any = None,
    reverse0: bool = False,
    reduce_cmd: Any = _CMD.reset_reduce,
    reduce_init: Any = None,
    reduce_res_negate: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = data <op0> operand0``, and its reduction in the Vector Engine's registers."""
    where = "tensor_scalar_reduce"
    if reduce_res is None:
        check_level("nisa.tensor_scalar_reduce without reduce_res")
    if reverse0:
        raise not_modelled(f"{where}'s reverse0 (AWS: not supported yet)", "reverse0=True")
    operator, reduction = operator_of(op0, where), operator_of(reduce_op, where)
    if reduction.name not in _WITH_REGISTERS:
        raise KernelError(
            f"{where} takes few reductions",
            happened=f"{where} was to reduce by {reduction.name}",
            received=f"reduce_op={reduction.name}",
            limit=", ".join(_WITH_REGISTERS),
        )
    command = plain_command(reduce_cmd, where)
    operands = (data, scalar_operand(operator, operand0, where, "operand0"), reduce_init)
    options = (operator, reduction, command, bool(reduce_res_negate))
    return issue(instructions.tensor_scalar_reduce, dst, operands, options, others=(reduce_res,))


@public
def tensor_scalar_cumulative(
    dst: Any,
    src: Any,
    op0: Any,
    op1: Any,
    imm0: Any,
    imm1: Any = None,
    reduce_cmd: Any = _CMD.reset_reduce,
    name: str | None = None,
) -> NkiInstruction:
    """``dst[i] = reg = (src[i] <op0> imm0) <op1> reg``, reg of the Vector Engine."""
    where = "tensor_scalar_cumulative"
    first, second = operator_of(op0, where), operator_of(op1, where)
    operands = (src, scalar_operand(first, imm0, where, "imm0"), imm1)
    options = (first, second, plain_command(reduce_cmd, where))
    return issue(accumulate.tensor_scalar_cumulative, dst, operands, options)


@public
def exponential(
    dst: Any,
    src: Any,
    max_value: Any = 0.0,
    reduce_res: Any = None,
    reduce_cmd: Any = _CMD.idle,
    reduce_init: Any = 0.0,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = exp(src - max_value)``, and its sum in the Vector Engine's registers."""
    command = command_of(reduce_cmd, "exponential", "vector", reduce_res)
    operands = (src, max_value, reduce_init)
    return issue(accumulate.exponential, dst, operands, (command,), others=(reduce_res,))
