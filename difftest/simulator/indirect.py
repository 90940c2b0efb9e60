"""Indirect access: the accessed elements depend on indices in memory when the kernel runs.

DMA descriptors are made this way from a vector of offsets. The dialects spell the indices
differently: see ``frontend/classic/indexing.py`` and ``frontend/nki/dynamic.py``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import Array, DType
from difftest.simulator.elements import Elements
from difftest.simulator.errors import OutOfBoundsError
from difftest.simulator.index import left_tensor
from difftest.simulator.pattern import Pattern, Shape
from difftest.simulator.tile import Tile


class IndirectTile(Elements):
    """Elements of ``base``, in ``shape``, at indices that tiles hold.

    Only the DMA engines and ``tensor_copy_dynamic_*`` accept it.
    """

    __slots__ = ("_base", "_literal", "_resolved", "_storage", "dtype", "shape")
    _strided = False
    _whole = False
    """True if one offset moves the whole pattern; otherwise each row has an index."""

    def __init__(self, base: Tile, shape: Shape) -> None:
        base._check_bounds()
        self._base = base
        self._storage = base._storage
        self.dtype = base.dtype
        self._resolved: tuple[tuple[Array, ...], Array] | None = None
        """The resolved indices of an instruction."""
        self.shape = shape

    def __repr__(self) -> str:
        return f"{self._base!r} indexed by a tile, shape {list(self.shape)}"

    def _named(self) -> tuple[Pattern, DType]:
        return self._base._named()

    def _signature(self) -> tuple[object, ...]:
        """Return the signature, as :meth:`Tile._signature` does."""
        return ("indirect", self._whole, self._base._signature(), self.shape)

    def _descriptor(self, role: str = "", *, blocks: bool = False) -> Descriptor:
        """Return the descriptor of the indexed elements, as :meth:`Tile._descriptor` does."""
        shape = self.shape if self._in_hbm or len(self.shape) > 1 else (*self.shape, 1)
        indirect = "whole" if self._whole else "rows"
        return Descriptor(self._space, self.dtype, shape, 0, None, role, indirect)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def _index_tiles(self) -> tuple[Tile, ...]:
        """The tiles that hold indices. An instruction reads them, too."""
        raise NotImplementedError

    @property
    def _reach(self) -> Tile:
        """The part of the base that any indices can select."""
        return self._base

    def _locate(self, where: Array | None = None) -> tuple[tuple[Array, ...], Array]:
        """Return index arrays for every dimension of the base, and which elements are in bounds.

        Only the elements of index tiles that ``where`` keeps must have been written.
        """
        raise NotImplementedError

    def _resolve(
        self, *, skip: bool, where: Array | None = None
    ) -> tuple[tuple[Array, ...], Array]:
        """Return the result of :meth:`_locate`; unless ``skip``, an index out of bounds raises.

        ``where``, a mask's bools, excludes elements as if they were out of bounds.
        """
        kept = None if where is None else where.reshape(self.shape)
        arrays, inside = self._locate(kept)
        outside = ~inside if kept is None else ~inside & kept
        if not skip and outside.any():
            raise self._left(arrays, tuple(int(i) for i in np.argwhere(outside)[0]))
        self._resolved = arrays, inside if kept is None else inside & kept
        return self._resolved

    def _left(self, arrays: tuple[Array, ...], at: Shape) -> OutOfBoundsError:
        """Return the error for the element ``at``, whose index is out of bounds."""
        index = [int(array[at]) for array in arrays]
        return left_tensor(
            "an index held in a tile",
            f"{index}",
            f"index {index} into {self._base!r}, at element {list(at)}",
            f"{[size - 1 for size in self._base.shape]}",
            "correct the indices, or pass oob_mode=nisa.oob_mode.skip",
        )

    def _take(self, region: Array) -> Array:
        """Return the indexed elements of the base's ``region``; 0 for indices out of bounds."""
        arrays, inside = self._located()
        if inside.all():
            return region[arrays]
        taken = np.zeros(self.shape, region.dtype)
        taken[inside] = region[tuple(array[inside] for array in arrays)]
        return taken

    def _give(self, region: Array, values: Any, where: Array | None = None) -> None:
        """Write values to the elements of :meth:`_take`, or to those where ``where`` is true."""
        arrays, inside = self._located()
        chosen = inside if where is None else inside & where
        place = tuple(array[chosen] for array in arrays)
        region[place] = np.broadcast_to(values, self.shape)[chosen]

    @property
    def _inside(self) -> Array:
        """Which elements are in bounds, once the indices are resolved."""
        return self._located()[1]

    def _located(self) -> tuple[tuple[Array, ...], Array]:
        assert self._resolved is not None, "an instruction resolves the indices first"
        return self._resolved

    def _numbers(self) -> Array | None:
        """Return the numbers of the accessed elements of the tensor; None before resolution."""
        if self._resolved is None:
            return None
        arrays, inside = self._resolved
        total: Any = np.int64(self._base.offset)
        for array, stride in zip(arrays, self._base.strides, strict=True):
            spread = tuple(
                [slice(None) if step else slice(1) for step in array.strides]
            )
            total = total + array[spread].astype(np.int64) * stride
        numbers = np.broadcast_to(total, inside.shape)
        if inside.all():
            return numbers.reshape(-1)
        return numbers[inside]

    def _check_bounds(self) -> None:
        """Do nothing: an index out of bounds is an error when it is resolved."""
