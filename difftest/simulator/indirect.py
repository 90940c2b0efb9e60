"""Indirect access: what is accessed depends on indices that lie in memory when the kernel runs.

DMA descriptors are made so, from a vector of offsets. How a kernel spells the indices is a matter
of its dialect: ``frontend/classic/indexing.py`` and ``frontend/nki/dynamic.py`` have a kind each.
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
    """Elements of ``base``, in ``shape``, at places that tiles hold.

    Only the DMA engines and ``tensor_copy_dynamic_*`` take it.
    """

    __slots__ = ("_base", "_literal", "_resolved", "_storage", "dtype", "shape")
    _strided = False
    _whole = False
    """Whether one offset moves all of it; else each row has an index."""

    def __init__(self, base: Tile, shape: Shape) -> None:
        base._check_bounds()
        self._base = base
        self._storage = base._storage
        self.dtype = base.dtype
        self._resolved: tuple[tuple[Array, ...], Array] | None = None
        """What an instruction got when it resolved the indices."""
        self.shape = shape

    def __repr__(self) -> str:
        return f"{self._base!r} indexed by a tile, shape {list(self.shape)}"

    def _named(self) -> tuple[Pattern, DType]:
        return self._base._named()

    def _signature(self) -> tuple[object, ...]:
        """As :meth:`Tile._signature`."""
        return ("indirect", self._whole, self._base._signature(), self.shape)

    def _descriptor(self, role: str = "", *, blocks: bool = False) -> Descriptor:
        """As :meth:`Tile._descriptor`, of the elements that are indexed."""
        shape = self.shape if self._in_hbm or len(self.shape) > 1 else (*self.shape, 1)
        indirect = "whole" if self._whole else "rows"
        return Descriptor(self._space, self.dtype, shape, 0, None, role, indirect)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def _index_tiles(self) -> tuple[Tile, ...]:
        """The tiles that hold indices: an instruction reads them too."""
        raise NotImplementedError

    @property
    def _reach(self) -> Tile:
        """The part of the base that indices can name, whatever they are."""
        return self._base

    def _locate(self, where: Array | None = None) -> tuple[tuple[Array, ...], Array]:
        """Index arrays for every dimension of the base, and which elements they keep in bounds.

        Of index tiles only the elements that ``where`` keeps must have been written.
        """
        raise NotImplementedError

    def _resolve(
        self, *, skip: bool, where: Array | None = None
    ) -> tuple[tuple[Array, ...], Array]:
        """:meth:`_locate`; unless ``skip``, an index out of bounds raises.

        ``where``, a mask's bools, takes elements out as if they were out of bounds.
        """
        kept = None if where is None else where.reshape(self.shape)
        arrays, inside = self._locate(kept)
        outside = ~inside if kept is None else ~inside & kept
        if not skip and outside.any():
            raise self._left(arrays, tuple(int(i) for i in np.argwhere(outside)[0]))
        self._resolved = arrays, inside if kept is None else inside & kept
        return self._resolved

    def _left(self, arrays: tuple[Array, ...], at: Shape) -> OutOfBoundsError:
        """The error for the element ``at``, whose index is out of bounds."""
        index = [int(array[at]) for array in arrays]
        return left_tensor(
            "an index held in a tile",
            f"{index}",
            f"index {index} into {self._base!r}, at element {list(at)}",
            f"{[size - 1 for size in self._base.shape]}",
            "correct the indices, or pass oob_mode=nisa.oob_mode.skip",
        )

    def _take(self, region: Array) -> Array:
        """Of what the base names what the indices name; 0 where they lead out of it."""
        arrays, inside = self._located()
        if inside.all():
            return region[arrays]
        taken = np.zeros(self.shape, region.dtype)
        taken[inside] = region[tuple(array[inside] for array in arrays)]
        return taken

    def _give(self, region: Array, values: Any, where: Array | None = None) -> None:
        """Put values where :meth:`_take` takes them, or where ``where`` chooses of that."""
        arrays, inside = self._located()
        chosen = inside if where is None else inside & where
        place = tuple(array[chosen] for array in arrays)
        region[place] = np.broadcast_to(values, self.shape)[chosen]

    @property
    def _inside(self) -> Array:
        """Which of its elements are there, once the indices are resolved."""
        return self._located()[1]

    def _located(self) -> tuple[tuple[Array, ...], Array]:
        assert self._resolved is not None, "an instruction resolves the indices first"
        return self._resolved

    def _numbers(self) -> Array | None:
        """The elements of the tensor that an instruction touched by the indices, by number."""
        if self._resolved is None:
            return None
        arrays, inside = self._resolved
        total: Any = np.int64(self._base.offset)
        for array, stride in zip(arrays, self._base.strides, strict=True):
            spread = tuple([slice(None) if step else slice(1) for step in array.strides])
            total = total + array[spread].astype(np.int64) * stride
        numbers = np.broadcast_to(total, inside.shape)
        return numbers.reshape(-1) if inside.all() else numbers[inside]

    def _check_bounds(self) -> None:
        """Nothing: an index that leads out is an error when it is resolved."""
