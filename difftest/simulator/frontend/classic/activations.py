"""The Scalar Engine: ``nl.exp`` and kin, ``nisa.activation``."""

from __future__ import annotations

from typing import Any

from difftest.simulator.frontend.arguments import as_accumulate, no_extras, reduce_cmd
from difftest.simulator.frontend.classic.functions import NkiFunction, named
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.operators import on_chip
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.instructions import activation as instructions
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.functions import activation_name
from difftest.simulator.instructions.registers import Accumulate


def _activation_function(name: str) -> NkiFunction:
    def function(x: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Any:
        no_extras(f"nl.{name}", kwargs)
        options = (name, None, Accumulate.IDLE)
        operands = (on_chip(x, f"nl.{name}"), 1.0, None)
        return issue(
            instructions.activation, operands, options, others=(None,), dtype=dtype, mask=mask
        )

    return named(function, name, f"``{name}(x)``, element by element, on the Scalar Engine.")


ACTIVATION = {
    name: _activation_function(name)
    for name in (
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
    )
}


def activation(
    op: object,
    data: Any,
    *,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: object = None,
    reduce_res: Any = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    mask: object = None,
    dtype: object = None,
    **kwargs: object,
) -> Tensor:
    """``op(data * scale + bias)`` on the Scalar Engine, with an optional reduction of it."""
    no_extras("nisa.activation", kwargs)
    command = as_accumulate(reduce_cmd, "activation")
    operator = None if reduce_op is None else alu_op(reduce_op, "activation")
    result: Tensor = issue(
        instructions.activation,
        (data, scale, bias),
        (activation_name(op), operator, command),
        others=(reduce_res,),
        dtype=dtype,
        mask=mask,
    )
    return result


def activation_reduce(
    op: object,
    data: Any,
    *,
    reduce_op: object,
    reduce_res: Any,
    bias: Any = None,
    scale: Any = 1.0,
    mask: object = None,
    dtype: object = None,
    **kwargs: object,
) -> Tensor:
    """:func:`activation` with ``reduce_cmd.reset_reduce``."""
    no_extras("nisa.activation_reduce", kwargs)
    return activation(
        op,
        data,
        bias=bias,
        scale=scale,
        reduce_op=reduce_op,
        reduce_res=reduce_res,
        reduce_cmd=reduce_cmd.reset_reduce,
        mask=mask,
        dtype=dtype,
    )
