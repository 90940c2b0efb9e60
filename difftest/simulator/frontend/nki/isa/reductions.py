"""``nki.isa``: reductions along the free axes, and across partitions."""

from __future__ import annotations

from difftest.simulator.errors import not_modelled
from difftest.simulator.frontend.axes import last_axes
from difftest.simulator.frontend.nki.calls import average, call, command, commands
from difftest.simulator.frontend.nki.constants import reduce_cmd as registers
from difftest.simulator.frontend.nki.levels import check_level
from difftest.simulator.frontend.nki.operands import beside
from difftest.simulator.instructions import accumulate
from difftest.simulator.instructions import reduce as instructions
from difftest.simulator.instructions.operands import need_tile


def _last_axes(values, where):
    data = need_tile(values["data"], "data", where)
    values["axis"] = last_axes(values["axis"], data, where)


def _with_registers(values, where):
    if values["reduce_res"] is None:
        check_level("nisa.tensor_scalar_reduce without reduce_res")
    if values["reverse0"]:
        raise not_modelled(f"{where}'s reverse0 (AWS: not supported yet)", "reverse0=True")
    beside(op0="operand0")(values, where)


@call(instructions.tensor_reduce, prepare=_last_axes)
def tensor_reduce(dst, op, data, axis, negate=False, keepdims=False, name=None):
    """``dst = op-reduction of data`` over its last free axes, times -1 if ``negate``."""


@call(instructions.tensor_partition_reduce, op=average)
def tensor_partition_reduce(dst, op, data, name=None):
    """``dst = op-reduction of data`` across partitions."""


@call(instructions.tensor_scalar_reduce, prepare=_with_registers, reduce_cmd=command)
def tensor_scalar_reduce(
    dst,
    data,
    op0,
    operand0,
    reduce_op,
    reduce_res=None,
    reverse0=False,
    reduce_cmd=registers.reset_reduce,
    reduce_init=None,
    reduce_res_negate=False,
    name=None,
):
    """``dst = data <op0> operand0``, and its reduction in the Vector Engine's registers."""


@call(accumulate.tensor_scalar_cumulative, prepare=beside(op0="imm0"), reduce_cmd=command)
def tensor_scalar_cumulative(
    dst, src, op0, op1, imm0, imm1=None, reduce_cmd=registers.reset_reduce, name=None
):
    """``dst[i] = reg = (src[i] <op0> imm0) <op1> reg``, reg of the Vector Engine."""


@call(accumulate.exponential, prepare=commands("vector"))
def exponential(
    dst, src, max_value=0.0, reduce_res=None, reduce_cmd=registers.idle, reduce_init=0.0, name=None
):
    """``dst = exp(src - max_value)``, and its sum in the Vector Engine's registers."""
