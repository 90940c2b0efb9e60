"""Instructions that compute element by element, and Python's operators on tiles."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32
from difftest.simulator.errors import BufferError, KernelError
from difftest.simulator.frontend.arguments import reduce_cmd
from difftest.simulator.plain import rules
from difftest.simulator.plain.indices import Shape, common_shape, mask_over
from difftest.simulator.plain.meanings import means
from difftest.simulator.plain.operators import (
    ACTIVATIONS,
    ARITHMETIC,
    BITVEC,
    COMPARING,
    ENGINES,
    GPSIMD,
    REDUCING,
    SCALAR,
    UNARY,
    VECTOR,
    WRAPPING,
    activate,
    activation_function,
    apply,
    bit_pattern,
    is_bitvec,
    math_operator,
    number_as_float32,
    operator_of,
    vector_operator,
)
from difftest.simulator.plain.registers import accumulate_lanes
from difftest.simulator.plain.rounding import (
    WIDE,
    Array,
    dtype_of_number,
    promoted,
    to_float32,
    wrapped,
)
from difftest.simulator.plain.running import current
from difftest.simulator.plain.tensors import PlainTensor
from difftest.simulator.strictness import note
from difftest.simulator.trace import Engine, Space

OPERAND = rules.number_or(rules.tile())


def each_element(
    shape: Shape,
    dtype: np.dtype[Any],
    operands: tuple[PlainTensor, ...],
    compute: Callable[..., Array],
    mask: Any = None,
    *,
    space: Space = Space.SBUF,
    dst: PlainTensor | None = None,
    lost: Callable[..., Array] | None = None,
) -> PlainTensor:
    """A new tile (or ``dst``) with ``compute`` of the operands' elements where the mask is true.

    ``compute`` gets one flat array of elements for each operand and gives what is written, in the
    dtype's own bits or to be rounded into it. Where an operand has an element that nothing wrote,
    so has the result; or where ``lost`` says, of each operand's such elements.
    """
    result = current().allocate(shape, dtype, space) if dst is None else dst
    where = mask_over(mask, shape)
    result.leave_out(where)
    spread = [operand.spread(shape) for operand in operands]
    none = np.zeros(shape, dtype=np.bool_)
    holes = [none if result.storage.masked else operand.holes(where) for operand in spread]
    gone = functools.reduce(np.logical_or, holes, none) if lost is None else lost(*holes)
    kept = where & ~gone
    read = zip(spread, holes, strict=True)
    values = [operand.read(kept & ~hole)[kept] for operand, hole in read]
    whole = np.zeros(shape, result.dtype if result.dtype.kind != "V" else FLOAT32)
    if kept.any():
        computed = np.broadcast_to(compute(*values), (int(kept.sum()),))
        whole = np.zeros(shape, computed.dtype)
        whole[kept] = computed
    result.put(whole, kept)
    result.forget(gone)
    return result


# -- tensor_tensor --------------------------------------------------------------------------------


def _tensor_tensor(
    where: str,
    left: PlainTensor,
    right: PlainTensor,
    op: str,
    wanted: Engine,
    dtype: np.dtype[Any],
    mask: Any,
    dst: PlainTensor | None = None,
) -> PlainTensor:
    rules.require(op not in UNARY, f"{where} takes a binary operator", op, error=KernelError)
    wide = all(one in WIDE for one in (left.dtype, right.dtype, dtype)) and op in WRAPPING
    integer = wide and wanted is not VECTOR
    engines = (GPSIMD,) if integer or op == "power" else (VECTOR, GPSIMD)
    engine = rules.choose(wanted, where, *engines)
    rules.not_gpsimd_in_psum(where, engine, left, right)
    rules.not_both_in_psum(where, left, right)
    rules.same_partitions(where, left, right)
    rules.require(left.ndim == right.ndim, f"{where}: operands have one rank", left, right)
    shape = common_shape(left.shape, right.shape)
    if op in BITVEC:
        rules.integers_only(where, left.dtype, right.dtype, dtype)

    def compute(x: Array, y: Array) -> Array:
        if integer:
            return wrapped(ARITHMETIC[op](x.astype(np.int64), y.astype(np.int64)), dtype)
        result = apply(op, x, y)
        return wrapped(result, dtype) if op in BITVEC else result

    if dst is not None:
        rules.require(shape == dst.shape, f"{where} in place keeps the shape", left, right)
    return each_element(shape, dtype, (left, right), compute, mask, dst=dst)


@means(
    "nisa.tensor_tensor",
    data1=rules.tile(),
    data2=rules.tile(),
    op=math_operator,
    dtype=rules.dtype,
    engine=rules.any_engine,
)
def tensor_tensor(
    data1: PlainTensor, data2: PlainTensor, op: str, dtype: Any, mask: Any, engine: Engine
) -> PlainTensor:
    """``data1 <op> data2``; tiles of 32-bit integers add, subtract and multiply exactly on GpSimd.

    So v2.32.0 has it: all of them, the result too, are int32 or uint32; else float32 math is used.
    """
    result = dtype or promoted(data1.dtype, data2.dtype)
    data1, data2 = rules.one_rank(data1, data2)
    return _tensor_tensor("tensor_tensor", data1, data2, op, engine, result, mask)


# -- tensor_scalar --------------------------------------------------------------------------------

Step = tuple[str, Any, bool]
"""An operator, its number or [P, 1] tile, and whether that is the left operand."""


def _steps(where: str, data: PlainTensor, *given: tuple[Any, Any, bool]) -> list[Step]:
    steps = []
    for op, operand, reverse in given:
        if op is None and operand is None:
            continue
        if op is None or operand is None:
            raise KernelError(
                f"{where} takes an operator and its operand",
                happened=f"{where} got an operator without its operand, or the reverse",
                received=f"{op}",
            )
        steps.append((op, rules.one_element_each(operand, data, where), reverse))
    return steps


def _take_steps(steps: list[Step], x: Array, vectors: list[Array], dtype: np.dtype[Any]) -> Array:
    """The steps on a flat array of elements; ``vectors`` are spread over it already."""
    spread = iter(vectors)
    for op, operand, reverse in steps:
        if isinstance(operand, PlainTensor):
            y = next(spread)
        else:
            y = bit_pattern(operand, op, x.dtype) if op in BITVEC else number_as_float32(operand)
        x = apply(op, y, x) if reverse else apply(op, x, y)
    return wrapped(x, dtype) if steps[-1][0] in BITVEC else x


def _vectors(steps: list[Step]) -> tuple[PlainTensor, ...]:
    return tuple(operand for _, operand, _ in steps if isinstance(operand, PlainTensor))


def _check_bitvec(where: str, steps: list[Step], *dtypes: np.dtype[Any]) -> None:
    """All operators of one kind; bitvec ones take and give integers."""
    if is_bitvec(*(op for op, _, _ in steps)):
        rules.integers_only(where, *dtypes, *(vector.dtype for vector in _vectors(steps)))


_SCALAR_ENGINE = (["multiply", "add"], ["multiply"], ["add"])


def _tensor_scalar(
    where: str,
    data: PlainTensor,
    steps: list[Step],
    wanted: Engine,
    dtype: np.dtype[Any],
    mask: Any,
    dst: PlainTensor | None = None,
) -> PlainTensor:
    ops = [op for op, _, _ in steps]
    on_vector = all(VECTOR in ENGINES.get(op, (VECTOR,)) for op in ops)
    engines = (VECTOR, SCALAR, GPSIMD) if on_vector else (GPSIMD, SCALAR)
    engine = rules.choose(wanted, where, *((VECTOR,) if set(ops) & set(BITVEC) else engines))
    _check_bitvec(where, steps, data.dtype, dtype)
    rules.require(
        engine is not SCALAR or ops in _SCALAR_ENGINE,
        f"{where} on the Scalar Engine multiplies, adds, or multiplies then adds",
        *ops,
        error=KernelError,
    )
    rules.not_gpsimd_in_psum(where, engine, data, *_vectors(steps))
    return each_element(
        data.shape,
        dtype,
        (data, *_vectors(steps)),
        lambda x, *vectors: _take_steps(steps, x, list(vectors), dtype),
        mask,
        dst=dst,
    )


@means(
    "nisa.tensor_scalar",
    data=rules.tile(),
    op0=math_operator,
    operand0=OPERAND,
    op1=rules.optional(math_operator),
    operand1=rules.optional(OPERAND),
    dtype=rules.dtype,
    engine=rules.any_engine,
)
def tensor_scalar(
    data: PlainTensor,
    op0: str,
    operand0: Any,
    reverse0: bool,
    op1: str | None,
    operand1: Any,
    reverse1: bool,
    dtype: Any,
    mask: Any,
    engine: Engine,
) -> PlainTensor:
    """``(data <op0> operand0) <op1> operand1``."""
    where = "tensor_scalar"
    steps = _steps(where, data, (op0, operand0, reverse0), (op1, operand1, reverse1))
    return _tensor_scalar(where, data, steps, engine, dtype or data.dtype, mask)


@means(
    "nisa.scalar_tensor_tensor",
    data=rules.tile(),
    op0=vector_operator,
    operand0=OPERAND,
    op1=vector_operator,
    operand1=rules.tile(),
    dtype=rules.dtype,
)
def scalar_tensor_tensor(
    data: PlainTensor,
    op0: str,
    operand0: Any,
    op1: str,
    operand1: PlainTensor,
    reverse0: bool,
    reverse1: bool,
    dtype: Any,
    mask: Any,
) -> PlainTensor:
    """``(data <op0> operand0) <op1> operand1``, operand1 of the data's shape."""
    where = "scalar_tensor_tensor"
    first = _steps(where, data, (op0, operand0, reverse0))
    result = dtype or data.dtype
    rules.not_both_in_psum(where, data, operand1)
    rules.require(operand1.shape == data.shape, f"{where}: operand1 has data's shape", operand1)
    _check_bitvec(where, [*first, (op1, operand1, reverse1)], data.dtype, result)

    def compute(x: Array, *others: Array) -> Array:
        *vectors, y = others
        partial = _take_steps(first, x, vectors, x.dtype)
        value = apply(op1, y, partial) if reverse1 else apply(op1, partial, y)
        return wrapped(value, result) if op1 in BITVEC else value

    operands = (data, *_vectors(first), operand1)
    return each_element(data.shape, result, operands, compute, mask)


# -- Scalar Engine --------------------------------------------------------------------------------

_ACTIVATION = {
    "op": activation_function,
    "data": rules.tile(),
    "bias": rules.optional(rules.tile(dtypes=(FLOAT32, FLOAT16, BFLOAT16))),
    "scale": rules.number_or(rules.tile(dtypes=(FLOAT32,))),
    "reduce_op": rules.optional(operator_of(*REDUCING)),
    "reduce_res": rules.optional(rules.tile()),
    "dtype": rules.dtype,
}


@means("nisa.activation", reduce_cmd=rules.member(reduce_cmd), **_ACTIVATION)
def activation(
    op: str,
    data: PlainTensor,
    bias: PlainTensor | None,
    scale: Any,
    reduce_op: str | None,
    reduce_res: PlainTensor | None,
    reduce_cmd: Any,
    mask: Any,
    dtype: Any,
) -> PlainTensor:
    """``op(data * scale + bias)``, and its sum along the free axes into the registers."""
    where = "activation"
    operands = [rules.one_element_each(scale, data, where), bias]
    operands[1] = rules.one_element_each(bias, data, where)
    tiles = tuple(operand for operand in operands if isinstance(operand, PlainTensor))
    computed: list[Array] = []

    def compute(x: Array, *vectors: Array) -> Array:
        given = iter(vectors)
        factor = next(given) if isinstance(scale, PlainTensor) else number_as_float32(scale)
        shifted = to_float32(x).astype(np.float64) * factor
        if bias is not None:
            shifted = shifted + to_float32(next(given))
        computed.append(activate(op, shifted.astype(np.float32)))
        return computed[0]

    accumulates = reduce_cmd != 0 or reduce_res is not None
    if accumulates:
        rules.require(
            reduce_cmd != 0, f"{where} reads registers that it uses", reduce_res, error=KernelError
        )
        rules.absent(reduce_op not in (None, "add"), "reduce_op other than add", where)
    into = dtype or data.dtype
    result = each_element(data.shape, into, (data, *tiles), compute, mask)
    if accumulates:
        accumulate_lanes(
            "scalar", data.shape, computed, "add", reduce_cmd, reduce_res, mask, result
        )
    return result


@means("nisa.activation_reduce", **_ACTIVATION)
def activation_reduce(reduce_res: Any, mask: Any, **arguments: Any) -> PlainTensor:
    """:func:`activation` with ``reduce_cmd.reset_reduce``."""
    into = rules.tile()(reduce_res, "reduce_res", "activation_reduce")
    return activation(reduce_res=into, reduce_cmd=reduce_cmd.reset_reduce, mask=mask, **arguments)


def _unary(compute: Callable[[Array], Array]) -> Callable[[PlainTensor, Any, Any], PlainTensor]:
    def meaning(x: PlainTensor, dtype: Any, mask: Any) -> PlainTensor:
        return each_element(x.shape, dtype or x.dtype, (x,), compute, mask)

    return meaning


def _activation_meaning(name: str) -> Callable[[PlainTensor, Any, Any], PlainTensor]:
    return _unary(lambda x: activate(name, to_float32(x)))


for _name in set(ACTIVATIONS) - {"copy", "reciprocal"}:
    means(f"nl.{_name}", x=rules.tile(), dtype=rules.dtype)(_activation_meaning(_name))
_reciprocal = _unary(lambda x: np.float32(1) / to_float32(x))
means("nl.reciprocal", x=rules.tile(), dtype=rules.dtype)(_reciprocal)


@means("nisa.reciprocal", data=rules.tile(), dtype=rules.dtype)
def reciprocal(data: PlainTensor, dtype: Any, mask: Any) -> PlainTensor:
    """``1 / data`` on the Vector Engine."""
    return _reciprocal(data, dtype, mask)


# -- nl.add and kin, and Python's operators -------------------------------------------------------


def dtype_of(value: Any) -> np.dtype[Any]:
    """The dtype of a tile, or of a number."""
    return value.dtype if isinstance(value, PlainTensor) else dtype_of_number(value)


def _default_dtype(op: str, x: Any, y: Any) -> np.dtype[Any]:
    """Bool for comparisons, float32 for a quotient of integers, else the promoted dtype."""
    if op in COMPARING:
        return BOOL
    result = promoted(dtype_of(x), dtype_of(y))
    return FLOAT32 if op == "divide" and result.kind in "iub" else result


def binary(
    op: str, x: Any, y: Any, dtype: Any = None, mask: Any = None, dst: PlainTensor | None = None
) -> PlainTensor:
    """``x <op> y`` of tiles and numbers; one partition repeats over the other's partitions."""
    where = f"nl.{op}"
    result = dtype or _default_dtype(op, x, y)
    if isinstance(x, PlainTensor) and isinstance(y, PlainTensor):
        if x.ndim >= y.ndim and y.shape[0] == 1:
            y = y.spread((x.shape[0], *(1,) * (x.ndim - y.ndim), *y.shape[1:]))
        elif y.ndim >= x.ndim and x.shape[0] == 1:
            x = x.spread((y.shape[0], *(1,) * (y.ndim - x.ndim), *x.shape[1:]))
        x, y = rules.one_rank(x, y)
        if x.space is y.space is Space.PSUM:
            y = copy_to_sbuf(y)
        return _tensor_tensor(where, x, y, op, Engine.UNKNOWN, result, mask, dst)
    rules.require(
        isinstance(x, PlainTensor) or isinstance(y, PlainTensor),
        f"{where} takes a tile",
        x,
        y,
        error=KernelError,
    )
    data, step = (x, (op, y, False)) if isinstance(x, PlainTensor) else (y, (op, x, True))
    return _tensor_scalar(where, data, [step], Engine.UNKNOWN, result, mask, dst)


def copied_from_psum(where: str, *spaces: Space, dtypes: Any = ()) -> rules.Role:
    """A role: a tile in SBUF, or a copy there of one in PSUM, as the compiler makes it."""
    checked = rules.tile(*(spaces or (Space.SBUF,)), dtypes=dtypes)

    def role(value: Any, name: str, called: str) -> PlainTensor:
        if isinstance(value, PlainTensor) and value.space is Space.PSUM:
            error = BufferError(
                f"{where} takes {name} in sbuf",
                happened=f"{where} got {name} in psum",
                received=repr(value),
            )
            note(error)
            value = copy_to_sbuf(value.tile())
        tile: PlainTensor = checked(value, name, called)
        return tile

    return role


def copy_to_sbuf(tile: PlainTensor) -> PlainTensor:
    """A bit-accurate copy in SBUF."""
    return each_element(tile.shape, tile.dtype, (tile,), lambda elements: elements)


def _binary_meaning(op: str) -> Callable[[Any, Any, Any, Any], PlainTensor]:
    return lambda x, y, dtype, mask: binary(op, x, y, dtype, mask)


for _name in set(BITVEC) | set(ARITHMETIC):
    if _name not in UNARY:
        means(f"nl.{_name}", x=OPERAND, y=OPERAND, dtype=rules.dtype)(_binary_meaning(_name))


def unary(op: str, x: PlainTensor, dtype: Any = None, mask: Any = None) -> PlainTensor:
    """``<op> x`` on the Vector Engine."""
    result = dtype or (BOOL if op in COMPARING else x.dtype)
    return _tensor_scalar(f"nl.{op}", x, [(op, 0, False)], Engine.UNKNOWN, result, mask)


@means("nl.invert", x=rules.tile(), dtype=rules.dtype)
def invert(x: PlainTensor, dtype: Any, mask: Any) -> PlainTensor:
    """``~x``, bit by bit."""
    return unary("invert", x, dtype, mask)


@means("nl.logical_not", x=rules.tile(), dtype=rules.dtype)
def logical_not(x: PlainTensor, dtype: Any, mask: Any) -> PlainTensor:
    """1 where ``x`` is 0, else 0."""
    return unary("logical_not", x, dtype, mask)


@means("nl.negative", x=rules.tile(), dtype=rules.dtype)
def negative(x: PlainTensor, dtype: Any, mask: Any) -> PlainTensor:
    """``-x``: a product with -1."""
    return binary("multiply", x, -1.0, dtype or x.dtype, mask)
