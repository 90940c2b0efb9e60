"""``nki.isa``: functions on the Scalar Engine, with a reduction on the way."""

from __future__ import annotations

from typing import Any

from difftest.simulator.frontend.arguments import as_flag
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.frontend.nki.operands import operator_of
from difftest.simulator.frontend.nki.registers import command_of
from difftest.simulator.instructions import activation as instructions
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.functions import activation_name

_CMD = constants.reduce_cmd


@public
def activation(
    dst: Any,
    op: Any,
    data: Any,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = _CMD.idle,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = op(data * scale + bias)``, and a sum of it in the engine's registers."""
    command = command_of(reduce_cmd, "activation", "scalar", reduce_res)
    operator = None if reduce_op is None else operator_of(reduce_op, "activation")
    return issue(
        instructions.activation,
        dst,
        (data, scale, bias),
        (activation_name(op), operator, command),
        others=(reduce_res,),
    )


@public
def activation_reduce(
    dst: Any,
    op: Any,
    data: Any,
    reduce_op: Any,
    reduce_res: Any,
    bias: Any = None,
    scale: Any = 1.0,
    name: str | None = None,
) -> NkiInstruction:
    """:func:`activation` with ``reduce_cmd.reset_reduce``."""
    return activation(dst, op, data, bias, scale, reduce_op, reduce_res, _CMD.reset_reduce)


@public
def activate2(
    dst: Any,
    op: Any,
    data: Any,
    imm0: Any,
    imm1: Any,
    op0: Any,
    op1: Any,
    relu_param: Any = 0.0,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = _CMD.idle,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = op((data <op0> imm0) <op1> imm1)``, and a reduction of it in the registers."""
    where = "activate2"
    command = command_of(reduce_cmd, where, "scalar", reduce_res)
    function = (
        instructions.PRELU
        if getattr(op, "nki_name", None) == instructions.PRELU
        else activation_name(op)
    )
    options = (
        function,
        _stage(op0, where),
        _stage(op1, where),
        as_flag(reverse0, "reverse0"),
        as_flag(reverse1, "reverse1"),
        None if reduce_op is None else operator_of(reduce_op, where),
        command,
    )
    operands = (data, imm0, imm1, relu_param)
    return issue(instructions.activate2, dst, operands, options, others=(reduce_res,))


def _stage(op: Any, where: str) -> AluOp | None:
    """An operator of activate2's first stage; None for ``nl.bypass``."""
    return None if getattr(op, "nki_name", None) == "bypass" else operator_of(op, where)
