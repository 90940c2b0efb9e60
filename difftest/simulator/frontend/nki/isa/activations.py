"""``nki.isa``: functions on the Scalar Engine, with a reduction on the way."""

from __future__ import annotations

from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.calls import call, commands, function, function_or_prelu, stage
from difftest.simulator.frontend.nki.constants import reduce_cmd as registers
from difftest.simulator.instructions import activation as instructions


@call(instructions.activation, prepare=commands("scalar"), op=function)
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


@public  # by hand: another name of activation
def activation_reduce(dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0, name=None):
    """:func:`activation` with ``reduce_cmd.reset_reduce``."""
    return activation(dst, op, data, bias, scale, reduce_op, reduce_res, registers.reset_reduce)


@call(
    instructions.activate2,
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
