"""``nki.isa``: functions on the Scalar Engine, with a reduction on the way."""

from __future__ import annotations

from typing import Any

from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.frontend.nki.registers import command_of
from difftest.simulator.instructions import activation as instructions
from difftest.simulator.instructions.alu import alu_op
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
    operator = None if reduce_op is None else alu_op(reduce_op, "activation")
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
