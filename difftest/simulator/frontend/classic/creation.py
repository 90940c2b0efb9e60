"""``nki.language``: memories, tensors and constants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from difftest.simulator.core import current, is_running
from difftest.simulator.dtypes import FLOAT32, as_dtype
from difftest.simulator.errors import KernelError, ShapeError, not_modelled
from difftest.simulator.frontend.arguments import no_extras
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.par_dim import ParDim
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.index import Shape, as_integer
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions.operands import need_number, need_tile
from difftest.simulator.instructions.record import HBM, ON_CHIP
from difftest.simulator.machine import TRN2, Machine
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space


class Buffer:
    """A memory as kernels name it in ``buffer=``."""

    def __init__(self, space: Space) -> None:
        self.space = space

    def __repr__(self) -> str:
        return f"nl.{self.space.value}"

    def auto_alloc(self) -> Buffer:
        """``nki.compiler.sbuf.auto_alloc()``: the compiler places the tensor."""
        return self

    def alloc(self, *args: object, **kwargs: object) -> Buffer:
        """Direct allocation: not modelled."""
        raise not_modelled(f"direct allocation in {self.space.value}", "alloc(...)")

    def mod_alloc(self, *args: object, **kwargs: object) -> Buffer:
        """Modulo allocation: not modelled."""
        raise not_modelled(f"direct allocation in {self.space.value}", "mod_alloc(...)")


sbuf = Buffer(Space.SBUF)
psum = Buffer(Space.PSUM)
private_hbm = Buffer(Space.PRIVATE_HBM)
hbm = private_hbm
shared_hbm = Buffer(Space.SHARED_HBM)
par_dim = ParDim
ANYWHERE = (*HBM, *ON_CHIP)


class TileSize:
    """``nl.tile_size``: the running launch's machine, trn2 where no kernel runs."""

    @property
    def _machine(self) -> Machine:
        return current().machine if is_running() else TRN2

    @property
    def pmax(self) -> int:
        """Partitions of a tile."""
        return self._machine.partitions

    @property
    def psum_fmax(self) -> int:
        """Free size of a PSUM tile, in float32."""
        return self._machine.psum_fmax

    @property
    def gemm_stationary_fmax(self) -> int:
        """Free size of nc_matmul's stationary operand."""
        return self._machine.gemm_stationary_fmax

    @property
    def gemm_moving_fmax(self) -> int:
        """Free size of nc_matmul's moving operand."""
        return self._machine.gemm_moving_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Free size of bn_stats' input."""
        return self._machine.bn_stats_fmax

    @property
    def psum_min_align(self) -> int:
        """Alignment of PSUM addresses, in bytes."""
        return self._machine.psum_min_align

    @property
    def sbuf_min_align(self) -> int:
        """Alignment of SBUF addresses, in bytes."""
        return self._machine.sbuf_min_align

    @property
    def total_available_sbuf_size(self) -> int:
        """Bytes of an SBUF partition that a kernel can use."""
        return self._machine.sbuf_usable_bytes


tile_size = TileSize()


def _space(buffer: object, where: str) -> Space:
    if buffer is None:
        return Space.SBUF
    if isinstance(buffer, Buffer):
        return buffer.space
    raise KernelError(
        f"{where} takes buffer as one of NKI's memories",
        received=f"buffer={buffer!r}",
        limit="nl.sbuf, nl.psum, nl.hbm, nl.private_hbm, nl.shared_hbm",
    )


def _are_plain(shape: tuple[Any, ...]) -> bool:
    """Whether a shape needs no conversion: positive integers, none of them marked."""
    for size in shape:
        if type(size) is not int or size < 1:
            return False
    return bool(shape)


def as_shape(shape: object, where: str) -> tuple[Shape, int]:
    """A shape as integers, and the axis marked with ``nl.par_dim`` (0 if none is)."""
    if type(shape) is tuple and _are_plain(shape):
        return shape, 0
    given: Iterable[Any] = shape if isinstance(shape, (tuple, list)) else (shape,)
    sizes = []
    marked = []
    for axis, size in enumerate(given):
        if isinstance(size, ParDim):
            marked.append(axis)
        try:
            sizes.append(size.__index__())
        except (AttributeError, TypeError):
            raise ShapeError(
                f"{where} takes a shape of integers", received=f"{size!r} at axis {axis}"
            ) from None
    if not sizes or min(sizes) < 1 or len(marked) > 1:
        raise ShapeError(
            f"{where} takes a shape of positive sizes with at most one nl.par_dim",
            received=f"{shape!r}",
            remedy="a size of 0 often comes from M // TILE with M smaller than TILE",
        )
    return tuple(sizes), marked[0] if marked else 0


SEED_BITS = 32
HINTS = frozenset({"lazy_initialization"})
"""Arguments that AWS does not document, that public kernels pass, and that change no value."""


def ndarray(
    shape: Any, dtype: object, *, buffer: object = None, name: str = "", **kwargs: object
) -> Tensor:
    """A new tensor in a memory (SBUF by default); nothing of it is written yet."""
    if kwargs:
        no_extras("nl.ndarray", {name: kwargs[name] for name in kwargs if name not in HINTS})
    space = buffer.space if isinstance(buffer, Buffer) else _space(buffer, "nl.ndarray")
    sizes, axis = as_shape(shape, "nl.ndarray")
    storage = current().allocate(
        sizes, as_dtype(dtype), space, partition_axis=0 if space.is_hbm else axis, name=name
    )
    return Tensor.whole(storage)


def full(
    shape: Any,
    fill_value: Any,
    dtype: object,
    *,
    buffer: object = None,
    name: str = "",
    **kwargs: object,
) -> Tensor:
    """A new on-chip tensor filled with a constant."""
    if _space(buffer, "nl.full").is_hbm:
        raise KernelError(
            "a tensor in HBM cannot be created with a value",
            received=f"buffer={buffer!r}",
            remedy="create it with nl.ndarray and write it with nl.store",
        )
    constant = need_number(fill_value, "fill_value", "nl.full")
    tensor = ndarray(shape, dtype, buffer=buffer, name=name, **kwargs)
    issue(copies.memset, (constant,), (None,), dst=tensor)
    return tensor


def zeros(
    shape: Any, dtype: object, *, buffer: object = None, name: str = "", **kwargs: object
) -> Tensor:
    """A new on-chip tensor of zeros."""
    return full(shape, 0, dtype, buffer=buffer, name=name, **kwargs)


def ones(
    shape: Any, dtype: object, *, buffer: object = None, name: str = "", **kwargs: object
) -> Tensor:
    """A new on-chip tensor of ones."""
    return full(shape, 1, dtype, buffer=buffer, name=name, **kwargs)


def empty_like(
    a: Tile, dtype: object = None, *, buffer: object = None, name: str = "", **kwargs: object
) -> Tensor:
    """A new tensor of ``a``'s shape and dtype; nothing of it is written yet."""
    like = need_tile(a, "a", "nl.empty_like", ANYWHERE)
    return ndarray(
        like.shape, like.dtype if dtype is None else dtype, buffer=buffer, name=name, **kwargs
    )


def zeros_like(
    a: Tile, dtype: object = None, *, buffer: object = None, name: str = "", **kwargs: object
) -> Tensor:
    """A new on-chip tensor of zeros, of ``a``'s shape and dtype."""
    like = need_tile(a, "a", "nl.zeros_like", ANYWHERE)
    return zeros(
        like.shape, like.dtype if dtype is None else dtype, buffer=buffer, name=name, **kwargs
    )


def shared_constant(constant: Any, dtype: object = None, **kwargs: object) -> Tensor:
    """A constant array in HBM, there when the kernel starts; it cannot be written."""
    no_extras("nl.shared_constant", kwargs)
    array = np.array(constant)
    if not array.size:
        raise ShapeError(
            "nl.shared_constant has at least one element", received=f"shape {array.shape}"
        )
    if array.dtype.kind not in "biuf" or dtype is None:
        as_dtype(array.dtype, "nl.shared_constant")
    array = array.astype(array.dtype if dtype is None else as_dtype(dtype))
    return Tensor.whole(current().adopt(array, name="shared_constant", mutable=False))


def shared_identity_matrix(n: int, dtype: object = np.uint8, **kwargs: object) -> Tensor:
    """An identity matrix in HBM, there when the kernel starts."""
    size = as_integer(n, "nl.shared_identity_matrix of")
    if size < 1:
        raise ShapeError("nl.shared_identity_matrix has at least one row", received=f"n={size}")
    return shared_constant(np.identity(size, dtype=np.float32), dtype, **kwargs)


def rand(shape: Any, dtype: object = FLOAT32, **kwargs: object) -> Tensor:
    """A tile of uniform random values in [0, 1); the launch's own seed makes it repeatable."""
    no_extras("nl.rand", kwargs)
    sizes, _ = as_shape(shape, "nl.rand")
    tile: Tensor = issue(copies.rand, (), (sizes,), dtype=dtype)
    return tile


def random_seed(seed: Any, *, mask: object = None, **kwargs: object) -> None:
    """Seed the launch's random generator."""
    no_extras("nl.random_seed", kwargs)
    if mask is not None:
        raise not_modelled("nl.random_seed's argument 'mask'", f"{mask!r}")
    value = _seed_held(seed) if isinstance(seed, Tile) else as_integer(seed, "seed")
    if not 0 <= value < 2**SEED_BITS:
        raise KernelError(
            f"a seed has {SEED_BITS} bits and no sign",
            received=f"{value}",
            limit=f"0 to {2**SEED_BITS - 1}",
        )
    current().random = np.random.default_rng(value)


def _seed_held(seed: Tile) -> int:
    """A seed that lies in a tile."""
    values = seed.values()
    if values.size != 1 or not float(values.item()).is_integer():
        raise KernelError(
            "a seed is one integer",
            received=f"{seed!r}" + (f" with {values.item()!r}" if values.size == 1 else ""),
        )
    return int(values.item())
