"""Today's dialect in plain mode: what the engines compute, into an existing ``dst``.

The arithmetic is that of the classic part's meanings, in the dtype of ``dst``; operands go there as
partitions and one free axis, because this dialect compares counts and not shapes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import FLOAT32, FLOATS, TFLOAT32, as_dtype, is_float
from difftest.simulator.errors import DtypeError, KernelError, ShapeError, not_modelled
from difftest.simulator.frontend.arguments import engine as engines
from difftest.simulator.plain import rules
from difftest.simulator.plain.indices import common_shape, integers
from difftest.simulator.plain.meanings import means, meant
from difftest.simulator.plain.nki.moves import (
    classic_command,
    classic_engine,
    into,
    rows_of,
    tile,
)
from difftest.simulator.plain.nki.running import TODAYS
from difftest.simulator.plain.nki.tensors import PlainNkiTensor
from difftest.simulator.plain.operators import (
    ACTIVATIONS,
    ARITHMETIC,
    BITVEC,
    ENGINES,
    UNARY,
    VECTOR,
    math_operator,
)
from difftest.simulator.plain.running import current
from difftest.simulator.plain.tensors import PlainTensor
from difftest.simulator.strictness import note
from difftest.simulator.trace import Space

OPERAND = rules.number_or(tile)
IN_SBUF = rules.view(Space.SBUF, dtypes=FLOATS)


class Named:
    """A math operator by its name, as roles take one."""

    def __init__(self, name: str) -> None:
        self.nki_name = name


def same_count(*tiles: Any) -> None:
    """Tiles do not broadcast: the same partitions, and elements in each."""
    given = [one for one in tiles if isinstance(one, PlainTensor)]
    rules.same_elements("today's dialect", *given)


# -- element by element ---------------------------------------------------------------------------


@means(f"{TODAYS}nisa.tensor_tensor", dst=tile, data1=tile, data2=tile, op=math_operator)
def tensor_tensor(
    dst: PlainTensor, data1: PlainTensor, data2: PlainTensor, op: str, engine: Any
) -> None:
    """``dst = data1 <op> data2``; where PSUM takes part, the Vector Engine if it has the op."""
    same_count(data1, data2)
    in_psum = Space.PSUM in (dst.space, data1.space, data2.space)
    on_vector = in_psum and VECTOR in ENGINES.get(op, (VECTOR,))
    chosen = classic_engine(engine)
    if on_vector and chosen.name == "unknown":
        chosen = type(chosen)["vector"]
    operands = {"data1": data1.rows(), "data2": data2.rows(), "op": Named(op)}
    into(
        dst,
        meant("nisa.tensor_tensor", **operands, dtype=dst.dtype, mask=None, engine=chosen),
    )


def operand_of(op: str, operand: Any) -> Any:
    """0 beside a unary operator; an arithmetic operator's tile is float32."""
    if operand is None:
        rules.require(op in UNARY, "a binary operator has an operand", op, error=KernelError)
        return 0
    wide = not isinstance(operand, PlainTensor) or op in BITVEC or operand.dtype == FLOAT32
    rules.require(wide, "an arithmetic operator's tile is float32", operand, error=DtypeError)
    return rows_of(operand)


@means(
    f"{TODAYS}nisa.tensor_scalar",
    dst=tile,
    data=tile,
    op0=math_operator,
    operand0=rules.optional(OPERAND),
    op1=rules.optional(math_operator),
    operand1=rules.optional(OPERAND),
)
def tensor_scalar(
    dst: PlainTensor,
    data: PlainTensor,
    op0: str,
    operand0: Any,
    reverse0: Any,
    op1: str | None,
    operand1: Any,
    reverse1: Any,
    engine: Any,
) -> None:
    """``dst = (data <op0> operand0) <op1> operand1``."""
    pair = op1 is not None or operand1 is None
    rules.require(pair, "op1 and operand1 go together", operand1, error=KernelError)
    made = meant(
        "nisa.tensor_scalar",
        data=data.rows(),
        op0=Named(op0),
        operand0=operand_of(op0, operand0),
        reverse0=bool(reverse0),
        op1=None if op1 is None else Named(op1),
        operand1=None if op1 is None else operand_of(op1, operand1),
        reverse1=bool(reverse1),
        dtype=dst.dtype,
        mask=None,
        engine=classic_engine(engine),
    )
    into(dst, made)


@means(
    f"{TODAYS}nisa.scalar_tensor_tensor",
    dst=tile,
    data=tile,
    op0=math_operator,
    operand0=rules.optional(OPERAND),
    op1=math_operator,
    operand1=tile,
)
def scalar_tensor_tensor(
    dst: PlainTensor,
    data: PlainTensor,
    op0: str,
    operand0: Any,
    op1: str,
    operand1: PlainTensor,
    reverse0: Any,
    reverse1: Any,
) -> None:
    """``dst = (data <op0> operand0) <op1> operand1``, arithmetic alone."""
    same_count(data, operand1)
    arithmetic = op0 in ARITHMETIC and op1 in ARITHMETIC
    rules.require(arithmetic, "scalar_tensor_tensor takes arithmetic", op0, error=KernelError)
    made = meant(
        "nisa.scalar_tensor_tensor",
        data=data.rows(),
        op0=Named(op0),
        operand0=operand_of(op0, operand0),
        op1=Named(op1),
        operand1=operand1.rows(),
        reverse0=bool(reverse0),
        reverse1=bool(reverse1),
        dtype=dst.dtype,
        mask=None,
    )
    into(dst, made)


@means(f"{TODAYS}nisa.reciprocal", dst=tile, data=tile)
def reciprocal(dst: PlainTensor, data: PlainTensor) -> None:
    """``dst = 1 / data``."""
    into(dst, meant("nisa.reciprocal", data=data.rows(), dtype=dst.dtype, mask=None))


@means(
    f"{TODAYS}nisa.activation",
    dst=tile,
    data=tile,
    bias=rules.optional(tile),
    scale=OPERAND,
    reduce_res=rules.optional(tile),
)
def activation(
    dst: PlainTensor,
    op: Any,
    data: PlainTensor,
    bias: Any,
    scale: Any,
    reduce_op: Any,
    reduce_res: Any,
    reduce_cmd: Any,
) -> None:
    """``dst = op(data * scale + bias)``, and its sum in the engine's registers."""
    if reduce_res is not None and reduce_cmd.name == "idle":
        raise not_modelled("activation that only reads registers in plain mode", f"{reduce_cmd}")
    made = meant(
        "nisa.activation",
        op=op,
        data=data.rows(),
        bias=rows_of(bias),
        scale=rows_of(scale),
        reduce_op=reduce_op,
        reduce_res=rows_of(reduce_res),
        reduce_cmd=classic_command(reduce_cmd, "activation"),
        dtype=dst.dtype,
        mask=None,
    )
    into(dst, made)


@means(f"{TODAYS}nisa.tensor_copy_predicated", dst=tile, src=OPERAND, predicate=tile)
def tensor_copy_predicated(
    dst: PlainTensor, src: Any, predicate: PlainTensor, reverse_pred: Any
) -> None:
    """``dst = src`` where the predicate is true."""
    same_count(dst, src, predicate)
    meant(
        "nisa.tensor_copy_predicated",
        dst=dst.rows(),
        src=rows_of(src),
        predicate=predicate.rows(),
        mask=None,
        reverse_pred=bool(reverse_pred),
        dtype=None,
    )


@means(f"{TODAYS}nisa.tensor_reduce", dst=tile, data=tile, op=math_operator)
def tensor_reduce(
    dst: PlainTensor, op: str, data: PlainTensor, axis: Any, negate: Any, keepdims: Any
) -> None:
    """A reduction of the last free axes."""
    made = meant(
        "nisa.tensor_reduce",
        op=Named(op),
        data=data,
        axis=axis,
        mask=None,
        dtype=dst.dtype,
        negate=bool(negate),
        keepdims=bool(keepdims),
    )
    into(dst, made)


@means(f"{TODAYS}nisa.tensor_partition_reduce", dst=tile, data=tile, op=math_operator)
def tensor_partition_reduce(dst: PlainTensor, op: str, data: PlainTensor) -> None:
    """A reduction across partitions."""
    made = meant(
        "nisa.tensor_partition_reduce", op=Named(op), data=data, mask=None, dtype=dst.dtype
    )
    into(dst, made)


@means(f"{TODAYS}nisa.max8", dst=tile, src=tile)
def max8(dst: PlainTensor, src: PlainTensor) -> None:
    """The 8 largest values of each partition."""
    into(dst, meant("nisa.max8", src=src.rows(), mask=None, dtype=dst.dtype))


# -- Tensor Engine --------------------------------------------------------------------------------


@means(
    f"{TODAYS}nisa.nc_matmul",
    dst=rules.view(Space.PSUM),
    stationary=IN_SBUF,
    moving=IN_SBUF,
)
def nc_matmul(
    dst: PlainNkiTensor,
    stationary: PlainTensor,
    moving: PlainTensor,
    accumulate: Any,
    tile_position: Any,
    tile_size: Any,
    perf_mode: Any,
    is_transpose: Any,
    **hints: Any,
) -> None:
    """``dst = stationary.T @ moving``, or ``dst +=`` where a matmul was the last to write.

    ``accumulate`` None asks each element; True and False say it.
    """
    if perf_mode.name != "none" or is_transpose:
        raise not_modelled("nc_matmul's modes in plain mode", f"{perf_mode}")
    wide = [side.dtype in (FLOAT32, TFLOAT32) for side in (stationary, moving)]
    rules.require(wide[0] == wide[1], "float32 goes with float32", moving, error=DtypeError)
    rules.require(dst.dtype == FLOAT32, "a product's dst is float32", dst, error=DtypeError)
    known = accumulate is None or isinstance(accumulate, (bool, np.bool_))
    rules.require(known, "accumulate is True, False or None", accumulate, error=KernelError)
    started = dst.of_matmuls()
    adds = started if accumulate is None else np.full(dst.shape, bool(accumulate))
    if accumulate:
        rest = (dst.missing() & ~dst.lost()).any()
        rules.require(not rest, "accumulate=True adds to something", dst, error=KernelError)
    made = meant(
        "nisa.nc_matmul",
        stationary=stationary.rows(),
        moving=moving.rows(),
        tile_position=integers(tile_position or (), "tile_position"),
        tile_size=integers(tile_size or (), "tile_size"),
        mask=None,
    )
    _check_bank(dst)
    fits = dst.shape[:1] == made.shape[:1] and dst.size == made.size
    rules.require(fits, "dst has the product's partitions and elements", dst, made)
    gone = made.missing().reshape(dst.shape) | (dst.lost() & adds)
    product = made.read(~made.missing()).reshape(dst.shape)
    if adds.any():
        old = dst.read(adds & ~dst.lost())
        product = np.where(adds, old + product, product)
    dst.write_product(product.astype(np.float32))
    dst.forget(gone)


def _check_bank(dst: PlainTensor) -> None:
    """A product lies in one PSUM bank of each partition, of which tensors begin at the first."""
    row = dst.storage.bytes.size // dst.storage.shape[0]
    banks = dst.positions * dst.itemsize % row // current().machine.psum_bank_bytes
    rules.require(bool((banks == banks.reshape(-1)[0]).all()), "a matmul writes one bank", dst)


@means(f"{TODAYS}nisa.nc_transpose", dst=tile, data=tile)
def nc_transpose(dst: PlainTensor, data: PlainTensor, engine: Any) -> None:
    """``dst = data.T``: on the Tensor Engine from SBUF to PSUM, else on the Vector Engine."""
    chosen = classic_engine(engine)
    if dst.dtype != data.dtype:
        error = DtypeError(
            "nc_transpose does not cast", happened="nc_transpose was to cast", received=f"{dst}"
        )
        floats = dst.dtype == FLOAT32 and is_float(data.dtype)
        if not floats or dst.space is not Space.PSUM or chosen.name == "vector":
            raise error
        note(error)
    if chosen.name == "unknown":
        by_tensor = data.space is Space.SBUF and dst.space is Space.PSUM
        chosen = type(chosen)["tensor" if by_tensor else "vector"]
    in_psum = chosen.name != "tensor" or dst.space is Space.PSUM
    rules.require(in_psum, "a transpose on the Tensor Engine writes PSUM", dst)
    made = meant("nisa.nc_transpose", data=data.rows(), mask=None, dtype=dst.dtype, engine=chosen)
    into(dst, made)


# -- nl.add and kin -------------------------------------------------------------------------------


def _of_one_size(x: PlainTensor, y: PlainTensor) -> tuple[PlainTensor, PlainTensor]:
    """Two tiles, one of which may repeat along free dimensions of size 1."""
    if x.shape[:1] != y.shape[:1] or x.size == y.size:
        same_count(x, y)
        return x, y
    rank = max(x.ndim, y.ndim)
    column = any(side.size == side.shape[0] for side in (x, y))
    rules.require(x.ndim == y.ndim or column, "tiles of one rank broadcast", x, y)
    left, right = (side.rows() if side.size == side.shape[0] else side for side in (x, y))
    sides = [(side.shape[0], *(1,) * (rank - side.ndim), *side.shape[1:]) for side in (left, right)]
    shape = common_shape(*sides)
    error = ShapeError(
        "tiles do not broadcast", happened="tiles of two sizes met", received=f"{x} and {y}"
    )
    note(error)
    return left.spread(shape), right.spread(shape)


def _binary(name: str) -> Any:
    def meaning(x: Any, y: Any, dtype: Any) -> PlainTensor:
        tiles = [side for side in (x, y) if isinstance(side, PlainTensor)]
        rules.require(bool(tiles), f"nl.{name} takes a tile", x, y, error=KernelError)
        wanted = tiles[0].dtype if dtype is None else as_dtype(dtype)
        if len(tiles) == 2:
            x, y = _of_one_size(x, y)
            made = current().allocate(x.shape, wanted)
            wide = all(one.dtype.kind in "iu" and one.itemsize == 4 for one in tiles)
            vector = wide and any(one.space is Space.PSUM for one in tiles)
            chosen = engines["vector" if vector else "unknown"]
            into(
                made,
                meant(
                    "nisa.tensor_tensor",
                    data1=x,
                    data2=y,
                    op=Named(name),
                    dtype=wanted,
                    mask=None,
                    engine=chosen,
                ),
            )
            return made
        data, number = (x, y) if tiles[0] is x else (y, x)
        if name == "power" and data is x:
            raise not_modelled("nl.power(tile, number)", f"{number!r}")
        result: PlainTensor = meant(
            "nisa.tensor_scalar",
            data=data,
            op0=Named(name),
            operand0=number,
            reverse0=data is y,
            op1=None,
            operand1=None,
            reverse1=False,
            dtype=wanted,
            mask=None,
            engine=engines["unknown"],
        )
        return result

    return meaning


def _activation(name: str) -> Any:
    def meaning(x: PlainTensor, dtype: Any) -> PlainTensor:
        wanted = x.dtype if dtype is None else as_dtype(dtype)
        result: PlainTensor = meant(f"nl.{name}", x=x, dtype=wanted, mask=None)
        return result

    return meaning


for _name in (set(BITVEC) | set(ARITHMETIC)) - set(UNARY):
    means(f"{TODAYS}nl.{_name}", x=OPERAND, y=OPERAND)(_binary(_name))
for _name in set(ACTIVATIONS) - {"copy", "sin"}:
    means(f"{TODAYS}nl.{_name}", x=tile)(_activation(_name))


def _reduction(op: str) -> Any:
    def meaning(x: PlainTensor, axis: Any, dtype: Any, keepdims: Any) -> PlainTensor:
        wanted = x.dtype if dtype is None else as_dtype(dtype)
        result: PlainTensor = meant(
            "nisa.tensor_reduce",
            op=Named(op),
            data=x,
            axis=axis,
            mask=None,
            dtype=wanted,
            negate=False,
            keepdims=bool(keepdims),
        )
        return result

    return meaning


for _name, _op in (("max", "maximum"), ("min", "minimum"), ("sum", "add"), ("prod", "multiply")):
    means(f"{TODAYS}nl.{_name}", x=tile)(_reduction(_op))
