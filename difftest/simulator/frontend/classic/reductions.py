"""Reductions along axes (``nl.sum``, ``nisa.tensor_reduce``), and functions based on them."""
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

from difftest.simulator.core import current
from difftest.simulator.dtypes import BOOL, FLOAT32, as_dtype, is_float
from difftest.simulator.errors import not_modelled
from difftest.simulator.frontend.arguments import (
    as_flag,
    ascending,
    not_last,
    not_taken,
)
from difftest.simulator.frontend.classic.calls import ISA, LANGUAGE, issue, on_chip
from difftest.simulator.frontend.classic.copies import copy
from difftest.simulator.frontend.classic.operators import (
    activate,
    begin_or_update,
    binary,
    invert_number,
)
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.frontend.loops import (
    AwaitsTarget,
    assignment_target,
    check_axis,
)
from difftest.simulator.index import as_integers
from difftest.simulator.instructions import reduce as instructions
from difftest.simulator.instructions.alu import ALU_OPS, alu_op
from difftest.simulator.instructions.checks import is_number
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.strictness import report_violation
from difftest.simulator.tile import Tile


def reduce(
    where: str,
    operator: str,
    x: Any,
    axis: Any,
    dtype: object,
    mask: object,
    keepdims: bool,
) -> Any:
    """Reduce ``x`` by ``operator`` along free axes, as ``nl.sum`` and others do."""
    data = on_chip(x, where)
    axes = ascending(axis, data, where)
    options = (ALU_OPS[operator], axes, False, as_flag(keepdims, "keepdims"))
    return issue(instructions.tensor_reduce, (data,), options, dtype=dtype, mask=mask)


def _reduction(name: str, operator: str) -> None:
    """Add a reduction along axes."""

    def function(
        x: Any,
        axis: Any,
        *,
        dtype: object = None,
        mask: object = None,
        keepdims: bool = False,
    ) -> Any:
        return reduce(f"nl.{name}", operator, x, axis, dtype, mask, keepdims)

    LANGUAGE.add(
        name,
        function,
        f"Compute the {name} along free axes; the result is at least [P, 1].",
    )


for _name, _operator in (
    ("max", "maximum"),
    ("min", "minimum"),
    ("sum", "add"),
    ("prod", "multiply"),
):
    _reduction(_name, _operator)


@LANGUAGE.by_hand  # its dtype is bool
def all(x, axis, *, dtype=bool, mask=None):
    """Return whether all elements along free axes are true, as bool."""
    wanted = BOOL if dtype is bool or dtype is None else dtype
    return reduce("nl.all", "logical_and", x, axis, wanted, mask, False)


@LANGUAGE.by_hand  # its destination is on the left of the call
def loop_reduce(x, op, loop_indices, *, dtype=None, mask=None):
    """Reduce in place: ``b = nl.loop_reduce(x, op, loop_indices=[i])`` is ``b = b <op> x``.

    The destination is the variable (or tile) on the left of the ``=``, as in NKI, where the
    compiler finds it. Here it is found in the kernel's source line. If ``dtype`` differs from the
    destination's, the result is first rounded to ``dtype``.
    """
    name = alu_op(op, "nl.loop_reduce").name
    data = on_chip(x, "nl.loop_reduce")

    def into(target: Tensor) -> Tensor:
        between = None if dtype is None or as_dtype(dtype) == target.dtype else dtype
        core = current()
        before = core.instructions
        begin_or_update(name, on_chip(target, "nl.loop_reduce"), data, mask, between)
        core.amend(core.instructions - before, loop_indices=True)
        return target

    target = assignment_target("nl.loop_reduce", Tensor)
    if target is None:
        return AwaitsTarget("nl.loop_reduce", into)
    return into(target)


@ISA.issues(instructions.tensor_reduce)
def tensor_reduce(
    op, data, axis, *, mask=None, dtype=None, negate=False, keepdims=False
):
    """Reduce the last free axes on the Vector Engine; the result is at least [P, 1]."""
    data = on_chip(data, "tensor_reduce", "data")
    axis = ascending(axis, data, "tensor_reduce")
    error = not_last(axis, data, "tensor_reduce")
    if error is not None:
        report_violation(error)
    return locals()


@ISA.issues(
    instructions.tensor_scalar_reduce,
    reduce_init=None,
    reduce_cmd=Accumulate.RESET_REDUCE,
    reduce_res_negate=False,
)
def tensor_scalar_reduce(
    *, data, op0, operand0, reduce_op, reduce_res, reverse0=False, dtype=None, mask=None
):
    """Compute ``data <op0> operand0``, and reduce it along the free axes into ``reduce_res``."""
    if reverse0:
        raise not_modelled("tensor_scalar_reduce's reverse0", f"{reverse0}")
    reduce_res = on_chip(reduce_res, "tensor_scalar_reduce", "reduce_res")
    return locals()


# -- functions of several instructions -------------------------------------------------------------
# AWS documents their results, not their instructions. They consist here of documented instructions,
# are computed in float32, and are rounded to the result's dtype once (nki.language at v2.26.0).

_exp = activate("exp")
_rsqrt = activate("rsqrt")


@LANGUAGE.by_hand  # of several instructions
def mean(x, axis, *, dtype=None, mask=None, keepdims=False):
    """Compute the mean along free axes: a float32 sum, scaled and rounded once."""
    data = on_chip(x, "nl.mean")
    total = reduce("nl.mean", "add", data, axis, FLOAT32, mask, keepdims)
    count = data.size // total.size
    plain = data.dtype if is_float(data.dtype) else FLOAT32
    return binary(
        "multiply", total, 1.0 / count, dtype=plain if dtype is None else dtype
    )


@LANGUAGE.by_hand  # of several instructions
def var(x, axis, *, dtype=None, mask=None):
    """Compute the variance along free axes, in float32."""
    data = on_chip(x, "nl.var")
    centred = binary(
        "subtract", data, mean(data, axis, dtype=FLOAT32, mask=mask, keepdims=True)
    )
    squared = binary("multiply", centred, centred, dtype=FLOAT32)
    return mean(squared, axis, dtype=data.dtype if dtype is None else dtype)


@LANGUAGE.by_hand  # of several instructions
def softmax(x, axis, *, dtype=None, compute_dtype=None, mask=None):
    """Compute ``exp(x - max) / sum(exp(x - max))`` along free axes, in float32."""
    data = on_chip(x, "nl.softmax")
    result = dtype if dtype is not None else compute_dtype
    peak = reduce("nl.softmax", "maximum", data, axis, FLOAT32, mask, True)
    shifted = binary("subtract", data, peak, dtype=FLOAT32)
    exponent = _exp(shifted, FLOAT32, None)
    total = reduce("nl.softmax", "add", exponent, axis, FLOAT32, None, True)
    scale = invert_number(total, None, None)
    return binary(
        "multiply", exponent, scale, dtype=data.dtype if result is None else result
    )


@LANGUAGE.by_hand  # of several instructions
def rms_norm(
    x, w, axis, n, epsilon=1e-06, *, dtype=None, compute_dtype=None, mask=None
):
    """Compute ``x / sqrt(sum(x ** 2) / n + epsilon) * w`` along free axes, in float32."""
    data = on_chip(x, "nl.rms_norm")
    weight = on_chip(w, "nl.rms_norm", "w")
    if not is_number(n) or not is_number(epsilon) or not float(n):
        raise not_taken(
            "nl.rms_norm",
            "n and epsilon as numbers, n not 0",
            "another n or epsilon",
            f"n={n!r:.40}, epsilon={epsilon!r:.40}",
        )
    wanted = dtype if dtype is not None else compute_dtype
    result = data.dtype if wanted is None else wanted
    axes = ascending(axis, data, "nl.rms_norm")
    squared = binary("multiply", data, data, dtype=FLOAT32, mask=mask)
    total = reduce("nl.rms_norm", "add", squared, axes, FLOAT32, mask, True)
    scaled = binary("multiply", total, 1.0 / float(n), dtype=FLOAT32)
    shifted = binary("add", scaled, float(epsilon), dtype=FLOAT32)
    inverse = _rsqrt(shifted, FLOAT32, None)
    normed = binary("multiply", data, inverse, dtype=FLOAT32, mask=mask)
    return binary("multiply", normed, weight, dtype=result, mask=mask)


@LANGUAGE.issues(instructions.dropout)
def dropout(x, rate, *, dtype=None, mask=None):
    """Replace elements of ``x`` by 0 at a rate, a number or a tile of one element."""
    data = on_chip(x, "nl.dropout")
    prob = rate
    if isinstance(rate, Tile) and rate.size == 1:
        prob = copy(rate._broadcast_to((data._tile_shape()[0], 1)))
    return locals()


@LANGUAGE.by_hand  # of the grid, and a copy
def all_reduce(
    x,
    op,
    program_axes,
    *,
    dtype=None,
    mask=None,
    parallel_reduce=True,
    asynchronous=False,
):
    """Reduce over the programs of a grid; with one program, return the tile itself."""
    del parallel_reduce, asynchronous
    data = on_chip(x, "nl.all_reduce")
    operator = alu_op(op, "nl.all_reduce")
    axes, grid = (
        as_integers(program_axes, "nl.all_reduce's program_axes"),
        current().grid,
    )
    for axis in axes:
        check_axis(axis, grid or (1,), "nl.all_reduce")
    if any(grid[axis] > 1 for axis in axes if axis < len(grid)):
        raise not_modelled(
            "nl.all_reduce over several instances of a grid",
            f"{operator.name} over {axes}",
        )
    return copy(data, dtype=dtype, mask=mask)
