"""``nki.isa``: the Vector, Scalar and GpSimd Engines' arithmetic, reductions and scans."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import as_dtype, is_integer
from difftest.simulator.errors import DtypeError, KernelError, ShapeError, not_modelled
from difftest.simulator.frontend.arguments import (
    as_accumulate,
    as_engine,
    engine,
    no_extras,
    reduce_cmd,
)
from difftest.simulator.frontend.tensor import Tensor, issue, issue_reduction, on_chip
from difftest.simulator.instructions import activation as scalar_engine
from difftest.simulator.instructions import elementwise, scan
from difftest.simulator.instructions import reduce as reductions
from difftest.simulator.instructions.alu import alu_op, reduction_op
from difftest.simulator.instructions.elementwise import Operand, vector_or_scalar
from difftest.simulator.instructions.promotion import promote
from difftest.simulator.instructions.reduce import Accumulate
from difftest.simulator.tile import Tile


def _dtype(dtype: object, default: np.dtype[Any]) -> np.dtype[Any]:
    return default if dtype is None else as_dtype(dtype)


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
    left = on_chip(data1, "tensor_tensor", "data1")
    right = on_chip(data2, "tensor_tensor", "data2")
    operator = alu_op(op, "tensor_tensor")
    result = _dtype(dtype, promote(left, right))
    chosen = elementwise.tensor_tensor_engine(
        left, right, operator, as_engine(engine, "tensor_tensor"), result
    )
    return issue(
        lambda dst, a, b, where: elementwise.tensor_tensor(
            dst, a, b, operator, chosen, where=where
        ),
        elementwise.tensor_tensor_shape(left, right),
        result,
        (left, right),
        mask,
        producer="tensor_tensor",
    )


def _steps(data: Tile, where: str, *given: tuple[object, object, bool]) -> list[Operand]:
    steps = []
    for number, (op, operand, reverse) in enumerate(given):
        if op is None and operand is None:
            continue
        if op is None or operand is None:
            raise KernelError(
                f"{where} takes op{number} and operand{number} together",
                received=f"op{number}={op!r}, operand{number}={operand!r}",
            )
        value = vector_or_scalar(operand, f"operand{number}", where, data)
        steps.append(Operand(alu_op(op, where), value, reverse))
    return steps


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
    no_extras("nisa.tensor_scalar", kwargs)
    tile = on_chip(data, "tensor_scalar", "data")
    steps = _steps(tile, "tensor_scalar", (op0, operand0, reverse0), (op1, operand1, reverse1))
    chosen = elementwise.tensor_scalar_engine(steps, as_engine(engine, "tensor_scalar"))
    return _with_vectors(
        tile,
        steps,
        lambda dst, a, parts, where: elementwise.tensor_scalar(dst, a, parts, chosen, where=where),
        _dtype(dtype, tile.dtype),
        mask,
        "tensor_scalar",
    )


def _with_vectors(
    data: Tile,
    steps: list[Operand],
    execute: Any,
    dtype: np.dtype[Any],
    mask: object,
    producer: str,
    others: tuple[Tile, ...] = (),
) -> Tensor:
    """Issue with the vector operands (and ``others``) cut by the mask as the data are."""
    vectors = tuple(step.value for step in steps if isinstance(step.value, Tile))

    def run(dst: Tile, tile: Tile, *rest: Any) -> None:
        *cut, where = rest
        parts = iter(cut)
        rebuilt = [
            step._replace(value=next(parts)) if isinstance(step.value, Tile) else step
            for step in steps
        ]
        execute(dst, tile, [*rebuilt, *parts], where)

    return issue(run, data.tile_shape(), dtype, (data, *vectors, *others), mask, producer=producer)


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
    tile = on_chip(data, "scalar_tensor_tensor", "data")
    other = on_chip(operand1, "scalar_tensor_tensor", "operand1")
    first = _steps(tile, "scalar_tensor_tensor", (op0, operand0, reverse0))
    second = alu_op(op1, "scalar_tensor_tensor")
    if other.tile_shape() != tile.tile_shape():
        raise ShapeError(
            "scalar_tensor_tensor takes operand1 of the data's shape",
            received=f"data {list(tile.shape)}, operand1 {list(other.shape)}",
        )
    return _with_vectors(
        tile,
        first,
        lambda dst, a, parts, where: elementwise.scalar_tensor_tensor(
            dst, a, parts[0], second, parts[1], reverse1, where=where
        ),
        _dtype(dtype, tile.dtype),
        mask,
        "scalar_tensor_tensor",
        (other,),
    )


def reciprocal(data: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Tensor:
    """``1 / data`` on the Vector Engine."""
    no_extras("nisa.reciprocal", kwargs)
    tile = on_chip(data, "reciprocal", "data")
    return issue(
        lambda dst, a, where: elementwise.reciprocal(dst, a, where=where),
        tile.tile_shape(),
        _dtype(dtype, tile.dtype),
        (tile,),
        mask,
        producer="reciprocal",
    )


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
    tile = on_chip(data, "activation", "data")
    name = scalar_engine.activation_name(op)
    factor = vector_or_scalar(scale, "scale", "activation", tile)
    shift = None if bias is None else vector_or_scalar(bias, "bias", "activation", tile)
    if shift is not None and not isinstance(shift, Tile):
        raise KernelError(
            "activation takes bias as a vector",
            received=f"bias={bias!r}",
            remedy="make one: nisa.memset((P, 1), value, dtype=nl.float32)",
        )
    scalar_engine.check_scale_and_bias(factor, shift)
    operator = None if reduce_op is None else reduction_op(reduce_op, "activation")
    into = None if reduce_res is None else on_chip(reduce_res, "activation", "reduce_res")
    command = as_accumulate(reduce_cmd, "activation", into)
    operands = tuple(value for value in (factor, shift) if isinstance(value, Tile))
    if mask is not None and (into is not None or command is not Accumulate.IDLE):
        raise not_modelled("activation's mask beside a reduction", f"{mask!r}", "slice the data")

    def run(dst: Tile, source: Tile, *rest: Any) -> None:
        *cut, where = rest
        parts = iter(cut)
        scalar_engine.activation(
            dst,
            source,
            name,
            scale=next(parts) if isinstance(factor, Tile) else factor,
            bias=next(parts) if shift is not None else None,
            reduce_op=operator,
            reduce_into=into,
            command=command,
            where=where,
        )

    return issue(
        run,
        tile.tile_shape(),
        _dtype(dtype, tile.dtype),
        (tile, *operands),
        mask,
        producer="activation",
    )


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
    tile = on_chip(data, "tensor_reduce", "data")
    operator = reduction_op(op, "tensor_reduce")
    axes = reductions.reduction_axes(axis, tile, "tensor_reduce", trailing=True)
    return issue_reduction(
        lambda dst, source: reductions.tensor_reduce(dst, source, operator, axes, negate=negate),
        reductions.reduced_shape(tile, axes, keepdims=keepdims),
        _dtype(dtype, tile.dtype),
        (tile,),
        axes,
        mask,
        producer="tensor_reduce",
    )


def tensor_partition_reduce(
    op: object, data: Any, *, mask: object = None, dtype: object = None, **kwargs: object
) -> Tensor:
    """A reduction across partitions on the GpSimd Engine; [1, ...]."""
    no_extras("nisa.tensor_partition_reduce", kwargs)
    tile = on_chip(data, "tensor_partition_reduce", "data")
    operator = alu_op(op, "tensor_partition_reduce")
    if operator.name not in ("add", "maximum", "bitwise_or", "bitwise_and"):
        raise KernelError(
            "tensor_partition_reduce takes few operators",
            received=operator.name,
            limit="add, max, bitwise_or, bitwise_and",
        )
    return issue_reduction(
        lambda dst, source: reductions.tensor_partition_reduce(dst, source, operator),
        (1, *tile.tile_shape()[1:]),
        _dtype(dtype, tile.dtype),
        (tile,),
        (0,),
        mask,
        producer="tensor_partition_reduce",
    )


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
    tile = on_chip(data, "tensor_scalar_reduce", "data")
    into = on_chip(reduce_res, "tensor_scalar_reduce", "reduce_res")
    (step,) = _steps(tile, "tensor_scalar_reduce", (op0, operand0, False))
    operator = reduction_op(reduce_op, "tensor_scalar_reduce")
    return issue(
        lambda dst, source, where: reductions.tensor_scalar_reduce(
            dst, source, step, operator, into, where=where
        ),
        tile.tile_shape(),
        _dtype(dtype, tile.dtype),
        (tile,),
        producer="tensor_scalar_reduce",
    )


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
    left = on_chip(data0, "tensor_tensor_scan", "data0")
    right = on_chip(data1, "tensor_tensor_scan", "data1")
    start = vector_or_scalar(initial, "initial", "tensor_tensor_scan", left)
    ops = (alu_op(op0, "tensor_tensor_scan"), alu_op(op1, "tensor_tensor_scan"))
    starts = (start,) if isinstance(start, Tile) else ()
    return issue_reduction(
        lambda dst, a, b, *given: scan.tensor_tensor_scan(
            dst, a, b, given[0] if given else start, ops, (reverse0, reverse1)
        ),
        left.tile_shape(),
        _dtype(dtype, promote(left, right)),
        (left, right, *starts),
        (),
        mask,
        producer="tensor_tensor_scan",
    )


def bn_stats(data: Any, *, mask: object = None, dtype: object = None, **kwargs: object) -> Tensor:
    """Count, mean and variance * count of even, then odd, elements: [P, 6]."""
    no_extras("nisa.bn_stats", kwargs)
    return _statistics(data, scan.bn_stats, scan.BN_STATS_FIELDS, mask, dtype, "bn_stats")


def bn_aggr(data: Any, *, mask: object = None, dtype: object = None, **kwargs: object) -> Tensor:
    """Mean and variance from bn_stats' tuples: [P, 2]."""
    no_extras("nisa.bn_aggr", kwargs)
    return _statistics(data, scan.bn_aggr, scan.BN_AGGR_FIELDS, mask, dtype, "bn_aggr")


def _statistics(
    data: Any, execute: Any, fields: int, mask: object, dtype: object, name: str
) -> Tensor:
    tile = on_chip(data, name, "data")
    shape = tile.tile_shape()
    return issue_reduction(
        execute,
        (shape[0], fields),
        _dtype(dtype, tile.dtype),
        (tile,),
        tuple(range(1, len(shape))),
        mask,
        producer=name,
    )


def dropout(
    data: Any, prob: Any, *, mask: object = None, dtype: object = None, **kwargs: object
) -> Tensor:
    """``data`` with elements replaced by 0 at the given probability."""
    no_extras("nisa.dropout", kwargs)
    tile = on_chip(data, "dropout", "data")
    chance = vector_or_scalar(prob, "prob", "dropout", tile)
    if is_integer(tile.dtype) and dtype is not None and as_dtype(dtype) != tile.dtype:
        raise DtypeError(
            "dropout of integers keeps their dtype", received=f"dtype={dtype!r} for {tile!r}"
        )
    chances = (chance,) if isinstance(chance, Tile) else ()

    def run(dst: Tile, source: Tile, *rest: Any) -> None:
        *cut, where = rest
        scan.dropout(dst, source, cut[0] if cut else chance, where=where)

    return issue(
        run,
        tile.tile_shape(),
        _dtype(dtype, tile.dtype),
        (tile, *chances),
        mask,
        producer="dropout",
    )
