"""``nki.isa``: the Vector, Scalar and GpSimd Engines' arithmetic, reductions and scans."""

from __future__ import annotations

from typing import Any

from difftest.simulator.errors import KernelError, ShapeError, not_modelled
from difftest.simulator.frontend.arguments import (
    as_accumulate,
    as_engine,
    engine,
    no_extras,
    reduce_cmd,
)
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.operators import on_chip
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.instructions import activation as scalar_engine
from difftest.simulator.instructions import elementwise, scan
from difftest.simulator.instructions import reduce as reductions
from difftest.simulator.instructions.alu import alu_op, reduction_op
from difftest.simulator.instructions.functions import activation_name
from difftest.simulator.instructions.record import Instruction
from difftest.simulator.instructions.registers import Accumulate


def tensor_tensor(
    data1: Any,
    data2: Any,
    op: object,
    *,
    dtype: object = None,
    mask: object = None,
    engine: engine = engine.unknown,
    **kwargs: object,
) -> Tensor:
    """``data1 <op> data2``; the same partitions, free dimensions broadcast."""
    if kwargs:
        no_extras("nisa.tensor_tensor", kwargs)
    result: Tensor = issue(
        elementwise.tensor_tensor,
        (data1, data2),
        (alu_op(op, "tensor_tensor"),),
        dtype=dtype,
        engine=as_engine(engine, "tensor_tensor"),
        mask=mask,
    )
    return result


def tensor_scalar(
    data: Any,
    op0: object,
    operand0: Any,
    reverse0: bool = False,
    op1: object = None,
    operand1: Any = None,
    reverse1: bool = False,
    *,
    dtype: object = None,
    mask: object = None,
    engine: engine = engine.unknown,
    **kwargs: object,
) -> Tensor:
    """``(data <op0> operand0) <op1> operand1``, operands numbers or [P, 1] vectors."""
    if kwargs:
        no_extras("nisa.tensor_scalar", kwargs)
    if (op1 is None) != (operand1 is None):
        raise KernelError(
            "tensor_scalar takes op1 and operand1 together",
            received=f"op1={op1!r}, operand1={operand1!r}",
        )
    second = None if op1 is None else alu_op(op1, "tensor_scalar")
    result: Tensor = issue(
        elementwise.tensor_scalar,
        (data, operand0, operand1),
        (alu_op(op0, "tensor_scalar"), bool(reverse0), second, bool(reverse1)),
        dtype=dtype,
        engine=as_engine(engine, "tensor_scalar"),
        mask=mask,
    )
    return result


def scalar_tensor_tensor(
    *,
    data: Any,
    op0: object,
    operand0: Any,
    op1: object,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    dtype: object = None,
    mask: object = None,
    **kwargs: object,
) -> Tensor:
    """``(data <op0> operand0) <op1> operand1``, operand1 of the data's shape."""
    no_extras("nisa.scalar_tensor_tensor", kwargs)
    ops = (alu_op(op0, "scalar_tensor_tensor"), alu_op(op1, "scalar_tensor_tensor"))
    result: Tensor = issue(
        elementwise.scalar_tensor_tensor,
        (data, operand0, operand1),
        (ops[0], bool(reverse0), ops[1], bool(reverse1)),
        dtype=dtype,
        mask=mask,
    )
    return result


def reciprocal(data: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Tensor:
    """``1 / data`` on the Vector Engine."""
    no_extras("nisa.reciprocal", kwargs)
    return _of_data(elementwise.reciprocal, data, dtype, mask)


def _of_data(instruction: Instruction, data: Any, dtype: object, mask: object) -> Tensor:
    """Issue an instruction that takes data and nothing else."""
    result: Tensor = issue(instruction, (data,), dtype=dtype, mask=mask)
    return result


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
    command = as_accumulate(reduce_cmd, "activation", reduce_res)
    if mask is not None and (reduce_res is not None or command.value):
        raise not_modelled("activation's mask beside a reduction", f"{mask!r}", "slice the data")
    operator = None if reduce_op is None else reduction_op(reduce_op, "activation")
    result: Tensor = issue(
        scalar_engine.activation,
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


def tensor_reduce(
    op: object,
    data: Any,
    axis: Any,
    *,
    mask: object = None,
    dtype: object = None,
    negate: bool = False,
    keepdims: bool = False,
    **kwargs: object,
) -> Tensor:
    """A reduction of the last free axes on the Vector Engine; at least [P, 1]."""
    no_extras("nisa.tensor_reduce", kwargs)
    operator = reduction_op(op, "tensor_reduce")
    tile = on_chip(data, "tensor_reduce", "data")
    ndim = len(tile.tile_shape())
    axes = reductions.free_axes(axis, tile, "tensor_reduce")
    if axes != tuple(range(ndim - len(axes), ndim)):
        raise ShapeError(
            "tensor_reduce reduces the last consecutive axes of the tile",
            received=f"axis={axis} of {data!r}",
            limit=f"{[list(range(k, ndim)) for k in range(ndim - 1, 0, -1)]}",
            remedy="index the tile with nl.mgrid so that the axes to reduce come last",
        )
    result: Tensor = issue(
        reductions.tensor_reduce,
        (data,),
        (operator, axes, bool(negate), bool(keepdims)),
        dtype=dtype,
        mask=mask,
    )
    return result


def tensor_partition_reduce(
    op: object, data: Any, *, mask: object = None, dtype: object = None, **kwargs: object
) -> Tensor:
    """A reduction across partitions on the GpSimd Engine; [1, ...]."""
    no_extras("nisa.tensor_partition_reduce", kwargs)
    result: Tensor = issue(
        reductions.tensor_partition_reduce,
        (data,),
        (alu_op(op, "tensor_partition_reduce"),),
        dtype=dtype,
        mask=mask,
    )
    return result


def tensor_scalar_reduce(
    *,
    data: Any,
    op0: object,
    operand0: Any,
    reduce_op: object,
    reduce_res: Any,
    reverse0: bool = False,
    dtype: object = None,
    mask: object = None,
    **kwargs: object,
) -> Tensor:
    """``data <op0> operand0``, and its reduction along the free axes into ``reduce_res``."""
    no_extras("nisa.tensor_scalar_reduce", kwargs)
    if reverse0 or mask is not None:
        raise not_modelled("tensor_scalar_reduce's reverse0 and mask", f"{reverse0}, {mask!r}")
    into = on_chip(reduce_res, "tensor_scalar_reduce", "reduce_res")
    result: Tensor = issue(
        reductions.tensor_scalar_reduce,
        (data, operand0, None),
        (
            alu_op(op0, "tensor_scalar_reduce"),
            reduction_op(reduce_op, "tensor_scalar_reduce"),
            Accumulate.RESET_REDUCE,
            False,
        ),
        others=(into,),
        dtype=dtype,
    )
    return result


def tensor_tensor_scan(
    data0: Any,
    data1: Any,
    initial: Any,
    op0: object,
    op1: object,
    reverse0: bool = False,
    reverse1: bool = False,
    *,
    dtype: object = None,
    mask: object = None,
    **kwargs: object,
) -> Tensor:
    """``r[i] = (data0[i] <op0> r[i-1]) <op1> data1[i]`` along the free axis."""
    no_extras("nisa.tensor_tensor_scan", kwargs)
    ops = (alu_op(op0, "tensor_tensor_scan"), alu_op(op1, "tensor_tensor_scan"))
    result: Tensor = issue(
        scan.tensor_tensor_scan,
        (data0, data1, initial),
        (*ops, bool(reverse0), bool(reverse1)),
        dtype=dtype,
        mask=mask,
    )
    return result


def bn_stats(data: Any, *, mask: object = None, dtype: object = None, **kwargs: object) -> Tensor:
    """Count, mean and variance * count of even, then odd, elements: [P, 6]."""
    no_extras("nisa.bn_stats", kwargs)
    return _of_data(scan.bn_stats, data, dtype, mask)


def bn_aggr(data: Any, *, mask: object = None, dtype: object = None, **kwargs: object) -> Tensor:
    """Mean and variance from bn_stats' tuples: [P, 2]."""
    no_extras("nisa.bn_aggr", kwargs)
    return _of_data(scan.bn_aggr, data, dtype, mask)


def dropout(
    data: Any, prob: Any, *, mask: object = None, dtype: object = None, **kwargs: object
) -> Tensor:
    """``data`` with elements replaced by 0 at the given probability."""
    no_extras("nisa.dropout", kwargs)
    result: Tensor = issue(scan.dropout, (data, prob), dtype=dtype, mask=mask)
    return result
