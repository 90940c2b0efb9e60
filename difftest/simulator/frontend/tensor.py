"""Tensors as kernels handle them: indexing, Python operators, assignment to a tile.

The classic API returns tiles. :func:`issue` allocates an instruction's result, applies the mask
and lets the instruction write to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import BOOL, as_dtype
from difftest.simulator.errors import KernelError, ShapeError, not_modelled
from difftest.simulator.frontend.arguments import AnyTensor
from difftest.simulator.index import DynamicIndex, Index, Shape
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions.alu import ALU_OPS, AluOp
from difftest.simulator.instructions.elementwise import (
    Operand,
    need_operand,
    tensor_scalar,
    tensor_scalar_engine,
    tensor_tensor,
    tensor_tensor_engine,
    tensor_tensor_shape,
)
from difftest.simulator.instructions.matmul import check_bank
from difftest.simulator.instructions.operands import (
    ON_CHIP,
    Scalar,
    as_float,
    is_number,
    need_tile,
    write,
)
from difftest.simulator.instructions.promotion import promote, quotient_dtype
from difftest.simulator.masking import as_mask, mask_box, restrict
from difftest.simulator.memory import repeats
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

Dst = TypeVar("Dst", bound=Tile)


class Tensor(Tile, AnyTensor):
    """A tensor or a part of it, with ``nki.tensor``'s methods and Python's operators."""

    __slots__ = ()

    __array_ufunc__ = None
    """NumPy scalars leave ``np.float32(2) * tile`` to the tile."""

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        raise KernelError(
            "a tile is not an array: its values exist when the kernel runs, not when it is traced",
            received=f"{self!r} used as a NumPy array",
            remedy="use the functions of nki.language; return a tensor to see its values",
        )

    def __iter__(self) -> Iterator[Tensor]:
        return (self[k] for k in range(len(self)))

    def _indirect(self, items: tuple[Any, ...]) -> Any:
        return IndirectTile(self, items)

    def __setitem__(self, key: Any, value: Any) -> None:
        target = self[key]
        if isinstance(target, IndirectTile):
            raise KernelError(
                "a tile of indices on the left of '=' is not a copy that the engines make",
                received=f"assignment to {target!r}",
                remedy="use nisa.tensor_copy_dynamic_dst, nisa.dma_copy or nl.store",
            )
        if isinstance(value, Tile) and _same_place(target, value):
            return  # tile[...] += value has already written it
        assign(target, value)

    def astype(self, dtype: object) -> Tensor:
        """A copy cast to ``dtype``."""
        source = on_chip(self, "astype")
        return issue(
            lambda dst, src, where: copies.tensor_copy(dst, src, Engine.UNKNOWN, where=where),
            source.tile_shape(),
            as_dtype(dtype),
            (source,),
        )

    def view(self, dtype: object) -> Tensor:
        """The bits of a whole HBM tensor as another dtype of the same size: no copy."""
        wanted = as_dtype(dtype)
        storage = self.storage
        whole = self.shape == storage.data.shape and self.is_whole()
        if not self.in_hbm or not whole or storage.unwritten:
            raise not_modelled(
                "tensor.view of anything but a whole, written HBM tensor", f"{self!r}"
            )
        if wanted.itemsize != self.itemsize:
            raise ShapeError("view keeps the size of an element", received=f"{self!r} as {dtype!r}")
        data = storage.data.view(wanted)
        name = storage.allocation.name
        return Tensor.whole(current().adopt(data, name=name, mutable=storage.mutable))

    def _iadd(self, other: Any) -> Tensor:
        """``self += other`` in place; a matmul's result accumulates in PSUM."""
        if (
            isinstance(other, Tile)
            and self.space is Space.PSUM
            and other.storage.producer == "nc_matmul"
        ):
            accumulate_matmul(self, other)
        else:
            update(self, "add", other)
        return self

    def __iadd__(self, other: Any) -> Tensor:
        return self._iadd(other)

    def __isub__(self, other: Any) -> Tensor:
        return update(self, "subtract", other)

    def __imul__(self, other: Any) -> Tensor:
        return update(self, "multiply", other)

    def __itruediv__(self, other: Any) -> Tensor:
        return update(self, "divide", other)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Index):
            return DynamicIndex(self, other)
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Any:
        if isinstance(other, Index):
            return DynamicIndex(self, other)
        return binary("add", other, self)

    def __neg__(self) -> Tensor:
        return binary("multiply", self, -1.0, dtype=self.dtype)

    def __invert__(self) -> Tensor:
        name = "logical_not" if self.dtype == BOOL else "invert"
        return unary_alu(name, self)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return binary("equal", self, other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return binary("not_equal", self, other)

    __hash__ = Tile.__hash__


def _operator(name: str, *, reverse: bool = False) -> Callable[[Tensor, Any], Tensor]:
    if reverse:
        return lambda self, other: binary(name, other, self)
    return lambda self, other: binary(name, self, other)


for _python, _name in {
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "pow": "power",
    "mod": "mod",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}.items():
    setattr(Tensor, f"__{_python}__", _operator(_name))
    setattr(Tensor, f"__r{_python}__", _operator(_name, reverse=True))
for _python, _name in {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}.items():
    setattr(Tensor, f"__{_python}__", _operator(_name))


def _same_place(a: Tile, b: Tile) -> bool:
    return (
        a.storage is b.storage
        and a.offset == b.offset
        and a.shape == b.shape
        and a.strides == b.strides
    )


def new_tensor(
    shape: Shape, dtype: np.dtype[Any], space: Space = Space.SBUF, producer: str = ""
) -> Tensor:
    """A tile for an instruction's result."""
    storage = current().allocate(shape, dtype, space)
    storage.producer = producer
    return Tensor.whole(storage)


def on_chip(value: object, where: str, name: str = "x") -> Tile:
    """``value`` as a tile in SBUF or PSUM."""
    return need_tile(value, name, where, ON_CHIP)


def issue(
    execute: Callable[..., None],
    shape: Shape,
    dtype: np.dtype[Any],
    operands: tuple[Tile, ...],
    mask: object = None,
    space: Space = Space.SBUF,
    producer: str = "",
) -> Tensor:
    """Run ``execute(dst, *operands, where)`` for a new ``dst`` and return it.

    A rectangular mask makes the instruction smaller; any other one also limits what is written.
    """
    dst = new_tensor(shape, dtype, space, producer)
    if mask is None:
        execute(dst, *operands, None)
    else:
        issue_into(execute, dst, operands, mask, shape)
    return dst


def issue_into(
    execute: Callable[..., None],
    dst: Tile,
    operands: tuple[Tile, ...],
    mask: object,
    shape: Shape,
) -> None:
    """:func:`issue` for a destination that exists; ``shape`` is what the mask covers."""
    chosen = as_mask(mask, shape)
    if chosen is True:
        execute(dst, *operands, None)
        return
    if not dst.in_hbm:
        dst.storage.leave_out()
    box = None if isinstance(chosen, bool) else mask_box(chosen)
    if box is None or isinstance(chosen, bool):
        return
    inner = chosen[box]
    parts = [restrict(tile, box, shape) for tile in operands]
    execute(restrict(dst, box, shape), *parts, None if inner.all() else inner)


def issue_reduction(
    execute: Callable[..., None],
    shape: Shape,
    dtype: np.dtype[Any],
    operands: tuple[Tile, ...],
    axes: tuple[int, ...],
    mask: object = None,
    producer: str = "",
) -> Tensor:
    """:func:`issue` for instructions whose result lacks ``axes`` of the first operand.

    The mask covers the operand; only a rectangular one makes a smaller instruction.
    """
    dst = new_tensor(shape, dtype, producer=producer)
    over = operands[0].tile_shape()
    chosen = as_mask(mask, over)
    if chosen is True:
        execute(dst, *operands)
        return dst
    dst.storage.leave_out()
    box = None if isinstance(chosen, bool) else mask_box(chosen)
    if box is None or isinstance(chosen, bool):
        return dst
    if not chosen[box].all():
        raise not_modelled("a reduction's mask that is not a rectangle", f"{mask!r}")
    kept = [cut for axis, cut in enumerate(box) if axis not in axes]
    if len(shape) == len(over):
        kept = [slice(0, size) if axis in axes else box[axis] for axis, size in enumerate(shape)]
    kept += [slice(0, size) for size in shape[len(kept) :]]
    parts = [restrict(tile, box, over) for tile in operands]
    execute(restrict(dst, tuple(kept), shape), *parts)
    return dst


def assign(target: Tile, value: Any) -> None:
    """``target[...] = value``: move an instruction's result, copy a tile, or fill with a number."""
    if target.in_hbm:
        raise KernelError(
            "tensors in HBM are written by DMA",
            received=f"assignment to {target!r}",
            remedy="use nl.store(dst, value) or nisa.dma_copy(dst=..., src=...)",
        )
    if is_number(value):
        copies.memset(target, value, Engine.VECTOR)
        return
    if isinstance(value, Index):
        raise KernelError(
            "an index is not a tile",
            received=f"assignment of {value!r}",
            remedy="make a tile of it: nisa.iota(index, dtype=nl.int32)",
        )
    if isinstance(value, IndirectTile):
        raise KernelError(
            "a tile of indices on the right of '=' is not a copy that the engines make",
            received=f"{value!r}",
            remedy="use nisa.tensor_copy_dynamic_src",
        )
    source = on_chip(value, "assignment", "its value")
    where = _masked_out(source)
    _check_assignment(target, source)
    if where is not None:
        target.storage.leave_out()
    if where is None:
        whole = source.size == target.size and source.is_whole()
        copies.tensor_copy(target, source, Engine.UNKNOWN, move=whole)
        return
    write(target, source.elements().reshape(target.shape), where.reshape(target.shape))
    current().emit("tensor_copy", Engine.UNKNOWN, (target,), (source,), moved=source)


def _masked_out(source: Tile) -> Any:
    """Where a masked instruction's result was written; None if everywhere."""
    if not source.storage.masked:
        return None
    missing = source.storage.unwritten_in(source.offset, source.shape, source.strides)
    return None if missing is None else ~missing


def _check_assignment(target: Tile, source: Tile) -> None:
    have, want = source.tile_shape(), target.tile_shape()
    if have == want or (have[0] == want[0] and source.size == target.size):
        return
    padded = (*have[:1], *(1,) * (len(want) - len(have)), *have[1:])
    fits = len(padded) == len(want) and all(
        h in (1, w) for h, w in zip(padded[1:], want[1:], strict=True)
    )
    if have[0] != want[0] or not fits:
        raise ShapeError(
            "an assignment's value has its target's shape, or repeats along free dimensions",
            received=f"target {list(target.shape)}, value {list(source.shape)}",
        )


def accumulate_matmul(target: Tile, product: Tile) -> None:
    """``psum += nisa.nc_matmul(...)``: the Tensor Engine adds in PSUM, in float32."""
    check_bank(target)
    held, added = target.read(), as_float(product.read())
    where = _masked_out(product)
    if product.size != target.size or product.tile_shape()[0] != target.tile_shape()[0]:
        raise ShapeError(
            "a matmul accumulates into a tile of its result's shape",
            received=f"target {list(target.shape)}, product {list(product.shape)}",
        )
    if added.shape != held.shape:
        added = added.reshape(held.shape)
    if (
        where is None
        and held.dtype == added.dtype == target.dtype
        and not repeats(held.shape, target.strides)
    ):
        np.add(held, added, out=held)
    else:
        write(target, held + added, where)
    current().emit(
        "tensor_tensor",
        Engine.VECTOR,
        (target,),
        (target, product),
        moved=product,
        accumulate=True,
        op="add",
    )


def update(target: Tensor, name: str, other: Any) -> Tensor:
    """``target <op>= other`` in place, rounded once into the target's dtype."""
    _binary_into(target, ALU_OPS[name], on_chip(target, name), need_operand(other, "y", name))
    return target


def binary(name: str, x: Any, y: Any, *, dtype: object = None, mask: object = None) -> Tensor:
    """``x <op> y`` for tiles and numbers (``nl.add`` and kin); partitions of size 1 broadcast."""
    op = ALU_OPS[name]
    where = f"nl.{name}"
    left, right = need_operand(x, "x", where), need_operand(y, "y", where)
    if op.comparison:
        result = BOOL
    else:
        result = (quotient_dtype if name == "divide" else promote)(left, right)
    if dtype is not None:
        result = as_dtype(dtype)
    if not isinstance(left, Tile) and not isinstance(right, Tile):
        raise KernelError(f"{where} takes at least one tile", received=f"{x!r} and {y!r}")
    if isinstance(left, Tile) and isinstance(right, Tile):
        left, right = _spread_partitions(left, right)
        if left.space is right.space is Space.PSUM:
            right = copy_to_sbuf(right)
        engine = tensor_tensor_engine(left, right, op, Engine.UNKNOWN, result)
        return issue(
            lambda dst, a, b, where: tensor_tensor(dst, a, b, op, engine, where=where),
            tensor_tensor_shape(left, right, where),
            result,
            (left, right),
            mask,
        )
    data, steps = _scalar_steps(op, left, right)
    engine = tensor_scalar_engine(steps, Engine.UNKNOWN)
    return issue(
        lambda dst, a, where: tensor_scalar(dst, a, steps, engine, where=where),
        data.tile_shape(),
        result,
        (data,),
        mask,
    )


def _scalar_steps(
    op: AluOp, left: Tile | Scalar, right: Tile | Scalar
) -> tuple[Tile, list[Operand]]:
    if isinstance(left, Tile):
        return left, [Operand(op, right)]
    assert isinstance(right, Tile)
    return right, [Operand(op, left, reverse=True)]


def _binary_into(target: Tile, op: AluOp, left: Tile, right: Tile | Scalar) -> None:
    if isinstance(right, Tile):
        tile = right
        if left.space is tile.space is Space.PSUM:
            tile = copy_to_sbuf(tile)
        left, tile = _spread_partitions(left, tile)
        engine = tensor_tensor_engine(left, tile, op, Engine.UNKNOWN, target.dtype)
        if tensor_tensor_shape(left, tile, op.name) != target.tile_shape():
            raise ShapeError(
                "an update in place keeps its target's shape",
                received=f"target {list(target.shape)}, the other operand {list(right.shape)}",
                remedy=f"make a new tile: nl.{op.name}(target, other)",
            )
        tensor_tensor(target, left, tile, op, engine)
    else:
        steps = [Operand(op, right)]
        tensor_scalar(target, left, steps, tensor_scalar_engine(steps, Engine.UNKNOWN))


def _spread_partitions(left: Tile, right: Tile) -> tuple[Tile, Tile]:
    """Repeat an operand of one partition over the other's partitions (nl functions only)."""
    a, b = left.tile_shape(), right.tile_shape()
    if a == b or 1 not in (a[0], b[0]):
        return left, right
    if b[0] == 1 and len(b) <= len(a):
        return left, right.broadcast_to((a[0], *(1,) * (len(a) - len(b)), *b[1:]))
    if a[0] == 1 and len(a) <= len(b):
        return left.broadcast_to((b[0], *(1,) * (len(b) - len(a)), *a[1:])), right
    return left, right


def copy_to_sbuf(tile: Tile) -> Tensor:
    """A copy in SBUF, of the same dtype."""
    return issue(
        lambda dst, src, where: copies.tensor_copy(dst, src, Engine.UNKNOWN, where=where),
        tile.tile_shape(),
        tile.dtype,
        (tile,),
        producer="tensor_copy",
    )


def unary_alu(name: str, x: Any, *, dtype: object = None, mask: object = None) -> Tensor:
    """``<op> x`` for the unary operators of the Vector Engine."""
    op = ALU_OPS[name]
    data = on_chip(x, f"nl.{name}")
    steps = [Operand(op, 0)]
    result = BOOL if op.comparison else data.dtype
    engine = tensor_scalar_engine(steps, Engine.UNKNOWN)
    return issue(
        lambda dst, a, where: tensor_scalar(dst, a, steps, engine, where=where),
        data.tile_shape(),
        result if dtype is None else as_dtype(dtype),
        (data,),
        mask,
    )
