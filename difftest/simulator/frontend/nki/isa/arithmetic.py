"""``nki.isa``: element by element on the Vector, Scalar and GpSimd Engines, and reductions."""

from __future__ import annotations

from difftest.simulator.errors import not_modelled
from difftest.simulator.frontend.arguments import last_axes
from difftest.simulator.frontend.nki.calls import (
    average,
    beside,
    call,
    command,
    commands,
    function,
    function_or_prelu,
    stage,
)
from difftest.simulator.frontend.nki.constants import UNKNOWN
from difftest.simulator.frontend.nki.constants import reduce_cmd as registers
from difftest.simulator.frontend.nki.levels import check_level
from difftest.simulator.instructions import accumulate, elementwise, reduce, scan
from difftest.simulator.instructions import activation as scalar_engine
from difftest.simulator.instructions.operands import need_tile
from difftest.simulator.instructions.registers import Accumulate


@call(elementwise.tensor_tensor)
def tensor_tensor(dst, data1, data2, op, engine=UNKNOWN, name=None):
    """``dst = data1 <op> data2``."""


@call(elementwise.tensor_scalar, prepare=beside(op0="operand0", op1="operand1"))
def tensor_scalar(
    dst,
    data,
    op0,
    operand0,
    reverse0=False,
    op1=None,
    operand1=None,
    reverse1=False,
    engine=UNKNOWN,
    name=None,
):
    """``dst = (data <op0> operand0) <op1> operand1``, operands numbers or [P, 1] tiles."""


@call(elementwise.scalar_tensor_tensor, prepare=beside(op0="operand0"))
def scalar_tensor_tensor(
    dst, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, name=None
):
    """``dst = (data <op0> operand0) <op1> operand1``, operand1 of as many elements as data."""


@call(elementwise.reciprocal)
def reciprocal(dst, data, name=None):
    """``dst = 1 / data`` on the Vector Engine."""


@call(scan.tensor_tensor_scan)
def tensor_tensor_scan(
    dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False, name=None
):
    """``r[i] = (data0[i] <op0> r[i-1]) <op1> data1[i]`` along the free axis."""


@call(scan.dropout)
def dropout(dst, data, prob, name=None):
    """``dst = data`` with elements replaced by 0 at the given probability."""


@call(scan.bn_stats)
def bn_stats(dst, data, name=None):
    """Count, mean and variance * count of even, then odd, elements: six in each partition."""


@call(scan.bn_aggr)
def bn_aggr(dst, data, name=None):
    """Mean and variance from bn_stats' tuples: two in each partition."""


@call(scalar_engine.activation, prepare=commands("scalar"), op=function)
def activation(
    dst,
    op,
    data,
    bias=None,
    scale=1.0,
    reduce_op=None,
    reduce_res=None,
    reduce_cmd=registers.idle,
    name=None,
):
    """``dst = op(data * scale + bias)``, and a sum of it in the engine's registers."""


@call(scalar_engine.activation, op=function, reduce_cmd=Accumulate.RESET_REDUCE)
def activation_reduce(dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0, name=None):
    """:func:`activation` with ``reduce_cmd.reset_reduce``."""


@call(
    scalar_engine.activate2,
    prepare=commands("scalar"),
    op=function_or_prelu,
    op0=stage,
    op1=stage,
)
def activate2(
    dst,
    op,
    data,
    imm0,
    imm1,
    op0,
    op1,
    relu_param=0.0,
    reverse0=False,
    reverse1=False,
    reduce_op=None,
    reduce_res=None,
    reduce_cmd=registers.idle,
    name=None,
):
    """``dst = op((data <op0> imm0) <op1> imm1)``, and a reduction of it in the registers."""


def _last_axes(values, where):
    data = need_tile(values["data"], "data", where)
    values["axis"] = last_axes(values["axis"], data, where)


def _with_registers(values, where):
    if values["reduce_res"] is None:
        check_level("nisa.tensor_scalar_reduce without reduce_res")
    if values["reverse0"]:
        raise not_modelled(f"{where}'s reverse0 (AWS: not supported yet)", "reverse0=True")
    beside(op0="operand0")(values, where)


@call(reduce.tensor_reduce, prepare=_last_axes)
def tensor_reduce(dst, op, data, axis, negate=False, keepdims=False, name=None):
    """``dst = op-reduction of data`` over its last free axes, times -1 if ``negate``."""


@call(reduce.tensor_partition_reduce, op=average)
def tensor_partition_reduce(dst, op, data, name=None):
    """``dst = op-reduction of data`` across partitions."""


@call(reduce.tensor_scalar_reduce, prepare=_with_registers, reduce_cmd=command)
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
