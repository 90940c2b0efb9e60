"""Tensors as kernels use them: indexing, Python operators, assignment to a tile."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from difftest.simulator.dtypes import BOOL, as_dtype
from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.frontend.arguments import AnyTensor, no_attribute, not_taken
from difftest.simulator.frontend.classic import indexing
from difftest.simulator.frontend.classic.calls import issue, written
from difftest.simulator.frontend.classic.memories import whole
from difftest.simulator.frontend.classic.operators import (
    binary,
    copy_to_sbuf,
    repeated,
    unary,
    update,
)
from difftest.simulator.frontend.classic.products import Product, accumulate_product
from difftest.simulator.frontend.dispatch import entering
from difftest.simulator.frontend.loops import AwaitsTarget
from difftest.simulator.index import Index, as_integer, as_integers
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.checks import is_number, need_tile
from difftest.simulator.instructions.copy import memset, tensor_copy
from difftest.simulator.instructions.matmul import nc_transpose
from difftest.simulator.instructions.record import ON_CHIP
from difftest.simulator.misuses import ASSIGNMENT_TO_HBM, POWER_WITH_MODULUS
from difftest.simulator.strictness import report_violation
from difftest.simulator.tile import COMPARISONS, OPERATORS, Tile
from difftest.simulator.trace import Space


class Tensor(Tile, AnyTensor):
    """A tensor or a part of it, with ``nki.tensor``'s methods and Python's operators."""

    __slots__ = ()
    __getattr__ = no_attribute

    def __iter__(self) -> Iterator[Tensor]:
        return (self[k] for k in range(len(self)))

    def _indexed(self, items: tuple[Any, ...]) -> Any:
        """Index also by ``nl.ds``, index expressions, tiles of indices, and a mask."""
        named = indexing.advanced(self, items)
        if named is None:
            return super()._indexed(indexing.basic(self, items))
        if isinstance(named, (IndirectTile, indexing.MaskedOperand)):
            return named
        pattern, partition, axes = named
        return self._derive(pattern, partition, axes=axes)

    @entering
    def __setitem__(self, key: Any, value: Any) -> None:
        target: Any = self[key]
        if not isinstance(target, Tile):
            _check_side(target)
        if isinstance(value, AwaitsTarget):
            value.go_on(target)
            return
        if isinstance(value, Tile) and _same_place(target, value):
            return  # tile[...] += value has already written it
        assign(target, value)

    def astype(self, dtype: object) -> Tensor:
        """Return a copy cast to ``dtype``."""
        copied: Tensor = issue(tensor_copy, (self,), dtype=dtype)
        return copied

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def T(self) -> Any:
        """The tile transposed, as by ``nl.transpose``."""
        remedy = "nl.transpose(tile)"
        if self._in_hbm:
            remedy = "nl.load_transpose2d(tensor)"
        error = KernelError(
            "a tile is transposed by nl.transpose or nisa.nc_transpose",
            happened="a kernel read .T of a tensor",
            received=f"{self!r}.T",
            remedy=remedy,
        )
        if self._in_hbm or self.ndim != 2:
            raise error
        report_violation(error)
        source = copy_to_sbuf(self) if self._space is Space.PSUM else self
        return copy_to_sbuf(issue(nc_transpose, (source,)))

    def reshape(self, shape: Any) -> Tensor:
        """Return a view of the same elements in another shape."""
        sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
        return super().reshape(
            tuple(whole(size, f"{sizes!r}", "reshape") for size in sizes)
        )

    def broadcast_to(self, shape: Any) -> Tensor:
        """Return a view that repeats the dimensions of size 1 (stride 0); it cannot be written."""
        return self._broadcast_to(shape)

    def expand_dims(self, axis: int) -> Tensor:
        """Return a view with a dimension of size 1 inserted at ``axis`` (a free dimension)."""
        number = as_integer(axis, "expand_dims' axis")
        at = number + self.ndim + 1 if number < 0 else number
        first = 0 if self._in_hbm else 1
        if not first <= at <= self.ndim:
            raise not_taken(
                "expand_dims",
                f"an axis of {first} to {self.ndim}",
                f"axis {axis}",
                f"axis={axis} of {self!r}",
                error=ShapeError,
            )
        return self._derive(self._pattern.expand(at), self._partition_axis)

    def assert_shape(self, shape: Any) -> Tensor:
        """Return the tile itself if it has this shape; raise :class:`ShapeError` if not."""
        expected = as_integers(shape, "assert_shape")
        if self.shape != expected:
            raise not_taken(
                "assert_shape",
                f"the shape {list(expected)}",
                f"the shape {list(self.shape)}",
                f"{self!r}",
                error=ShapeError,
            )
        return self

    def view(self, dtype: object) -> Tensor:
        """Return a view of the same bits as another dtype. The last dimension is scaled."""
        return self._reinterpret(as_dtype(dtype))

    @entering
    def __iadd__(self, other: Any) -> Tensor:
        """Add ``self += other`` in place; a matmul's result accumulates in PSUM."""
        is_tile = isinstance(other, Tile)
        if (
            is_tile
            and self._space is Space.PSUM
            and isinstance(other._storage.producer, Product)
        ):
            accumulate_product(self, other)
        else:
            update("add", self, other)
        return self

    @entering
    def __add__(self, other: Any) -> Any:
        if isinstance(other, Index):
            return indexing.DynamicIndex(self, other)
        return binary("add", self, other)

    @entering
    def __radd__(self, other: Any) -> Any:
        if isinstance(other, Index):
            return self + other
        return binary("add", other, self)

    @entering
    def __pow__(self, exponent: Any, modulus: Any = None) -> Any:
        _check_no_modulus(self, exponent, modulus)
        return binary("power", self, exponent)

    @entering
    def __rpow__(self, base: Any, modulus: Any = None) -> Any:
        _check_no_modulus(self, base, modulus)
        return binary("power", base, self)

    @entering
    def __neg__(self) -> Any:
        return binary("multiply", self, -1.0, dtype=self.dtype)

    @entering
    def __invert__(self) -> Any:
        return unary("logical_not" if self.dtype == BOOL else "invert", self)


_IN_PLACE = {"sub": "subtract", "mul": "multiply", "truediv": "divide"}
_BY_HAND = ("add", "pow")
_BOTH_WAYS = {
    symbol: name for symbol, name in OPERATORS.items() if symbol not in _BY_HAND
}
for _kind, _operate, _names in (
    ("", binary, _BOTH_WAYS | COMPARISONS | {"eq": "equal", "ne": "not_equal"}),
    ("r", lambda name, tile, other: binary(name, other, tile), _BOTH_WAYS),
    ("i", update, _IN_PLACE),
):
    for _python, _name in _names.items():
        _operator: Any = functools.partial(_operate, _name)
        _operator.__name__ = f"__{_kind}{_python}__"
        setattr(Tensor, _operator.__name__, entering(_operator))


def _check_no_modulus(tile: Tensor, other: Any, modulus: Any) -> None:
    """Raise for :func:`pow` with a modulus, which no engine has."""
    if modulus is not None:
        raise POWER_WITH_MODULUS(f"{tile!r:.60}, {other!r:.60}, {modulus!r:.60}")


def _same_place(a: Tile, b: Tile) -> bool:
    return a._storage is b._storage and a._pattern == b._pattern and a.dtype == b.dtype


_REFUSED = {
    indexing.MaskedOperand: (
        "a mask between brackets is for the operands of a matrix product",
        "a value was assigned to a tile under a mask",
        "give the instruction that makes the value a mask argument",
    ),
    Index: (
        "an index is not a tile",
        "an index expression was assigned to a tile",
        "make a tile of it: nisa.iota(index, dtype=nl.int32)",
    ),
    IndirectTile: (
        "a tile of indices on a side of '=' is not a copy that the engines make",
        "a side of '=' had elements that a tile of indices names",
        "use nisa.tensor_copy_dynamic_src, tensor_copy_dynamic_dst, nisa.dma_copy or nl.store",
    ),
}
"""Invalid sides of an assignment: the rule, the violation, and the remedy."""


def _check_side(side: Any) -> None:
    for kind, (rule, happened, remedy) in _REFUSED.items():
        if isinstance(side, kind):
            raise KernelError(
                rule, happened=happened, received=repr(side), remedy=remedy
            )


def assign(target: Tile, value: Any) -> None:
    """Assign ``target[...] = value``: move a result, copy a tile, or fill with a number."""
    if target._in_hbm:
        raise ASSIGNMENT_TO_HBM(f"assignment to {target!r}")
    if is_number(value):
        issue(memset, (value,), dst=target)
        return
    if not isinstance(value, Tile):
        _check_side(value)
    tile = need_tile(value, "its value", "assignment", ON_CHIP)
    source = repeated(tile, target._tile_shape(), "an assignment's value")
    where = written(source)
    moved = source is tile and (where is not None or source._is_whole())
    moved = moved and source.dtype is source._storage.dtype
    chosen = None if where is None else lambda shape: where
    issue(
        tensor_copy,
        (source,),
        dst=target,
        chosen=chosen,
        moved=source if moved else None,
    )
