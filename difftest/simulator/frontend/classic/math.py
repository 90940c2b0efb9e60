"""``nki.language``: element-wise functions, reductions and composites.

The functions are also the operators that ``nki.isa`` instructions take as ``op``; the attribute
``nki_name`` says which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from difftest.simulator.dtypes import FLOAT32, as_dtype, is_float
from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.arguments import no_extras
from difftest.simulator.frontend.classic.destination import assignment_target
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.operators import (
    binary,
    on_chip,
    tile_or_number,
    unary,
    update,
)
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.instructions import reduce as reductions
from difftest.simulator.instructions.activation import activation
from difftest.simulator.instructions.alu import ALU_OPS, alu_op
from difftest.simulator.instructions.elementwise import reciprocal as vector_reciprocal
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.instructions.select import where as select_where

NkiFunction = Callable[..., Any]


def _binary_function(name: str) -> NkiFunction:
    def function(
        x: Any, y: Any, dtype: object = None, mask: object = None, **kwargs: object
    ) -> Any:
        no_extras(f"nl.{name}", kwargs)
        return binary(name, x, y, dtype=dtype, mask=mask)

    return _named(function, name, f"``x {name} y``, element by element; shapes broadcast.")


def _unary_alu_function(name: str) -> NkiFunction:
    def function(x: Any, dtype: object = None, mask: object = None, **kwargs: object) -> Any:
        no_extras(f"nl.{name}", kwargs)
        return unary(name, x, dtype=dtype, mask=mask)

    return _named(function, name, f"``{name} x``, element by element.")


def _activation_function(name: str) -> NkiFunction:
    def function(x: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Any:
        no_extras(f"nl.{name}", kwargs)
        options = (name, None, Accumulate.IDLE)
        operands = (on_chip(x, f"nl.{name}"), 1.0, None)
        return issue(activation, operands, options, others=(None,), dtype=dtype, mask=mask)

    return _named(function, name, f"``{name}(x)``, element by element, on the Scalar Engine.")


def _reduction_function(name: str, operator: str) -> NkiFunction:
    def function(
        x: Any,
        axis: Any,
        *,
        dtype: object = None,
        mask: object = None,
        keepdims: bool = False,
        **kwargs: object,
    ) -> Any:
        no_extras(f"nl.{name}", kwargs)
        return _reduce(f"nl.{name}", operator, x, axis, dtype, mask, keepdims)

    return _named(function, name, f"The {name} along free axes; at least [P, 1].")


def _reduce(
    where: str, operator: str, x: Any, axis: Any, dtype: object, mask: object, keepdims: bool
) -> Any:
    data = on_chip(x, where)
    axes = reductions.free_axes(axis, data, where)
    options = (ALU_OPS[operator], axes, False, bool(keepdims))
    return issue(reductions.tensor_reduce, (data,), options, dtype=dtype, mask=mask)


def _named(function: NkiFunction, name: str, doc: str) -> NkiFunction:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.nki_name = name  # type: ignore[attr-defined]
    return function


BINARY = {name: _binary_function(name) for name, op in ALU_OPS.items() if not op.unary}
UNARY = {name: _unary_alu_function(name) for name in ("invert", "logical_not")}
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
REDUCTION = {
    name: _reduction_function(name, operator)
    for name, operator in (
        ("max", "maximum"),
        ("min", "minimum"),
        ("sum", "add"),
        ("prod", "multiply"),
    )
}


def reciprocal(x: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Any:
    """``1 / x``, on the Vector Engine."""
    no_extras("nl.reciprocal", kwargs)
    return issue(vector_reciprocal, (on_chip(x, "nl.reciprocal"),), dtype=dtype, mask=mask)


reciprocal.nki_name = "reciprocal"  # type: ignore[attr-defined]


def negative(x: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Any:
    """``-x``."""
    no_extras("nl.negative", kwargs)
    data = on_chip(x, "nl.negative")
    return binary("multiply", data, -1.0, dtype=data.dtype if dtype is None else dtype, mask=mask)


def mean(
    x: Any,
    axis: Any,
    *,
    dtype: object = None,
    mask: object = None,
    keepdims: bool = False,
    **kwargs: object,
) -> Any:
    """The mean along free axes: a float32 sum, scaled and rounded once."""
    no_extras("nl.mean", kwargs)
    data = on_chip(x, "nl.mean")
    total = _reduce("nl.mean", "add", data, axis, FLOAT32, mask, keepdims)
    count = data.size // total.size
    plain = data.dtype if is_float(data.dtype) else FLOAT32
    return binary("multiply", total, 1.0 / count, dtype=plain if dtype is None else dtype)


def var(x: Any, axis: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Any:
    """The variance along free axes, in float32."""
    no_extras("nl.var", kwargs)
    data = on_chip(x, "nl.var")
    centred = binary("subtract", data, mean(data, axis, dtype=FLOAT32, mask=mask, keepdims=True))
    squared = binary("multiply", centred, centred, dtype=FLOAT32)
    return mean(squared, axis, dtype=data.dtype if dtype is None else dtype)


def softmax(
    x: Any,
    axis: Any,
    *,
    dtype: object = None,
    compute_dtype: object = None,
    mask: object = None,
    **kwargs: object,
) -> Any:
    """``exp(x - max) / sum(exp(x - max))`` along free axes, in float32."""
    no_extras("nl.softmax", kwargs)
    data = on_chip(x, "nl.softmax")
    result = dtype if dtype is not None else compute_dtype
    peak = _reduce("nl.softmax", "maximum", data, axis, FLOAT32, mask, True)
    shifted = binary("subtract", data, peak, dtype=FLOAT32)
    exponent = ACTIVATION["exp"](shifted, dtype=FLOAT32)
    total = _reduce("nl.softmax", "add", exponent, axis, FLOAT32, None, True)
    scale = reciprocal(total)
    return binary("multiply", exponent, scale, dtype=data.dtype if result is None else result)


def where(
    condition: Any, x: Any, y: Any, *, dtype: object = None, mask: object = None, **kwargs: object
) -> Any:
    """``condition ? x : y``, element by element."""
    no_extras("nl.where", kwargs)
    test = on_chip(condition, "nl.where", "condition")
    sides = (tile_or_number(x, "x", "nl.where"), tile_or_number(y, "y", "nl.where"))
    return issue(select_where, (test, *sides), dtype=dtype, mask=mask)


def loop_reduce(
    x: Any,
    op: object,
    loop_indices: Any,
    *,
    dtype: object = None,
    mask: object = None,
    **kwargs: object,
) -> Any:
    """``b = nl.loop_reduce(x, op, loop_indices=[i])``: ``b = b <op> x``, in place.

    The destination is the variable (or tile) on the left of the ``=``, as in NKI, where the
    compiler finds it; here it is found in the kernel's source line.
    """
    no_extras("nl.loop_reduce", kwargs)
    if mask is not None:
        raise KernelError("nl.loop_reduce takes no mask here", received=f"mask={mask!r}")
    target = assignment_target("nl.loop_reduce", Tensor)
    if dtype is not None and as_dtype(dtype) != target.dtype:
        raise KernelError(
            "nl.loop_reduce reduces into its destination's dtype",
            received=f"dtype={dtype!r} for {target!r}",
        )
    update(alu_op(op, "nl.loop_reduce").name, target, on_chip(x, "nl.loop_reduce"))
    return target
