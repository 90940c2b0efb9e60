"""Memories and tensors in ``nki.language``: new, filled, constant, and in tiles (NKI 0.7)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.core import current, is_running
from difftest.simulator.dtypes import Array, as_nki_dtype, round_to, to_bits
from difftest.simulator.errors import (
    KernelError,
    LimitError,
    ShapeError,
    missing_name,
    not_modelled,
)
from difftest.simulator.frontend.arguments import SliceOrNone, as_name, not_taken
from difftest.simulator.frontend.launchable import TARGET_VARIABLE, machine_of
from difftest.simulator.frontend.levels import check_level, check_name, named, public
from difftest.simulator.frontend.nki.constants import MemoryRegion, region_of, space_of
from difftest.simulator.frontend.nki.grids import (
    Backing,
    NkiBlockGrid,
    NkiGrid,
    NkiTileGrid,
    TiledBacking,
    whole,
)
from difftest.simulator.frontend.nki.tensor import NkiTensor
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.checks import wrong_kind
from difftest.simulator.machine import Machine
from difftest.simulator.memory import Shape
from difftest.simulator.pattern import Pattern
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space

SBUF = MemoryRegion.sbuf
UINT8 = np.dtype(np.uint8)


def new_tensor(
    shape: Any,
    dtype: object,
    buffer: object,
    name: str,
    where: str,
    address: Any = None,
) -> NkiTensor:
    """Return an unwritten tensor; on chip the first dimension is the partition dimension."""
    core = current()
    space = space_of(buffer, where)
    sizes = as_integers(shape, f"{where} with shape")
    if not sizes or min(sizes) < 1:
        got = f"shape {list(sizes)}"
        raise not_taken(
            where, "a shape of positive sizes", f"the {got}", got, error=ShapeError
        )
    if not space.is_hbm and sizes[0] > core.machine.partitions:
        raise LimitError(
            f"a tensor on chip has at most {core.machine.partitions} partitions",
            happened=f"{where} was to make a tile of {sizes[0]} partitions",
            received=f"{where}({list(sizes)}) in {space.value}: partition dimension {sizes[0]} "
            f"exceeds maximum {core.machine.partitions}",
            limit=f"{core.machine.partitions} (nl.tile_size.pmax)",
            remedy="loop over the first dimension in tiles of nl.tile_size.pmax",
        )
    place = None if address is None else _address(address, space)
    storage = core.allocate(  # verdict leaves a name out, by its keyword, of what two runs ask
        sizes, as_nki_dtype(dtype, where), space, name=as_name(name), address=place
    )
    tensor: NkiTensor = core.tile._whole(storage)
    return tensor


def _address(address: Any, space: Space) -> tuple[int, ...]:
    """Return an address: (partition, byte) on chip, in PSUM the start of a bank; (byte,) in HBM."""
    place = as_integers(address, "nl.ndarray with address")
    bank = current().machine.psum_bank_bytes
    count = 1 if space.is_hbm else 2
    if space.is_hbm:
        check_level("nl.ndarray with an address in HBM")
    if len(place) == count and min(place) >= 0:
        is_inside_bank = space is Space.PSUM and place[1] % bank
        if not is_inside_bank:
            return place
    rule = "an address in HBM is (byte,)"
    limit = None
    if not space.is_hbm:
        rule = "an address is (partition, byte in each partition), in PSUM the first of a bank"
        limit = f"multiples of {bank} bytes in PSUM"
    raise KernelError(
        rule,
        happened=f"a tensor was to lie at address {address!r:.40}",
        received=f"address={address!r} in {space.value}",
        limit=limit,
    )


def _filled(tensor: NkiTensor, value: Any) -> NkiTensor:
    """Fill ``tensor`` with ``value``: on chip by memset, in HBM as the host does."""
    if not tensor._in_hbm:
        gate.issue(copies.memset, (value,), dst=tensor)
        return tensor
    storage = tensor._storage
    constant = round_to(np.asarray(value, dtype=np.float32), storage.dtype)
    storage.data[...] = to_bits(constant, storage.dtype)
    tensor._mark()
    current().wrote(tensor)
    return tensor


@public
def ndarray(shape, dtype, buffer=SBUF, name="", address=None):
    """Create a tensor; its contents are undefined until they are written.

    ``address`` places it: the first partition, and the first byte in each; in HBM (since NKI 0.7)
    the first byte alone. Tensors on chip that overlap share their bytes.
    """
    return new_tensor(shape, dtype, buffer, name, "nl.ndarray", address)


@public
def zeros(shape, dtype, buffer=SBUF, name=""):
    """Create a tensor of zeros."""
    return _filled(new_tensor(shape, dtype, buffer, name, "nl.zeros"), 0)


@public
def ones(shape, dtype, buffer=SBUF, name=""):
    """Create a tensor of ones."""
    return _filled(new_tensor(shape, dtype, buffer, name, "nl.ones"), 1)


@public
def full(shape, fill_value, dtype, buffer=SBUF, name=""):
    """Create a tensor of one value."""
    return _filled(new_tensor(shape, dtype, buffer, name, "nl.full"), fill_value)


@public
def zeros_like(x, dtype=None, buffer=None, name=""):
    """Create zeros in the shape of ``x``, by default in its dtype and memory."""
    return _filled(_like(x, dtype, buffer, name, "nl.zeros_like"), 0)


@public
def empty_like(x, dtype=None, buffer=None, name=""):
    """Create a tensor in the shape of ``x``, by default in its dtype and memory."""
    return _like(x, dtype, buffer, name, "nl.empty_like")


def _like(x: Any, dtype: object, buffer: Any, name: str, where: str) -> NkiTensor:
    if not isinstance(x, Tile):
        raise wrong_kind(x, "a tensor", where)
    place = region_of(x._space) if buffer is None else buffer
    return new_tensor(x.shape, x.dtype if dtype is None else dtype, place, name, where)


@public
def rand(shape, dtype, buffer=SBUF, name=""):
    """Create a tensor of uniform random numbers in [0, 1).

    The generator is NumPy's, with a seed of the launch.
    """
    tensor = new_tensor(shape, dtype, buffer, name, "nl.rand")
    if tensor._in_hbm:
        raise not_modelled(
            "nl.rand in HBM", repr(tensor), "make it in SBUF and copy it"
        )
    gate.issue(copies.rand, (), dst=tensor)
    return tensor


@public
def shared_constant(constant):
    """Create a tensor in shared HBM from a NumPy array or a ``.npy`` file."""
    where = "nl.shared_constant"
    takes = "a NumPy array or the path of a .npy file"
    if isinstance(constant, (str, os.PathLike)):
        try:
            constant = np.load(constant)
        except (OSError, ValueError) as error:
            raise not_taken(
                where, takes, "a file that it could not read", f"{constant!r}: {error}"
            ) from None
    if not isinstance(constant, np.ndarray):
        raise wrong_kind(constant, takes, where)
    as_nki_dtype(constant.dtype, where)
    array: Array = np.ascontiguousarray(constant).reshape(constant.shape)
    tile: NkiTensor = current().tile._whole(
        current().adopt(array, name="constant", mutable=False)
    )
    return tile


@public
def shared_identity_matrix(n, dtype=UINT8, dst=None):
    """Create the identity matrix [n, n] in SBUF, in ``dst`` if it is given."""
    n = as_integer(n, "nl.shared_identity_matrix's n")
    if dst is None:
        tensor = new_tensor(
            (n, n), dtype, SBUF, "identity", "nl.shared_identity_matrix"
        )
    elif isinstance(dst, NkiTensor) and dst.shape == (n, n):
        tensor = dst
    else:
        raise not_taken(
            "nl.shared_identity_matrix",
            "a dst of shape (n, n)",
            "a dst of another shape",
            f"{dst!r} for n={n}",
            error=ShapeError,
        )
    gate.issue(copies.memset, (0,), dst=tensor)
    step = tensor._storage.allocation.partition_step
    diagonal = Pattern(tensor.offset, (n,), (step + tensor.strides[-1],))
    NkiTensor(tensor._storage, diagonal, 0)._elements()[...] = 1
    current().wrote(tensor)
    return tensor


@public
def par_dim(size):
    """Return ``size``, which marked the partition dimension before NKI 0.2."""
    return as_integer(size, "nl.par_dim of")


@public
def ds(start, size):
    """Return a slice of ``size`` elements from ``start``; size 0 gives a view without uses."""
    return SliceOrNone(start, size)


_SIZES: dict[str, Callable[[Machine], int]] = {
    "pmax": lambda machine: machine.partitions,
    # psum_bank_fmax under its name before 0.4
    "psum_fmax": lambda machine: machine.psum_fmax,
    "psum_bank_fmax": lambda machine: machine.psum_fmax,
    "psum_bank_fmax_bytes": lambda machine: machine.psum_bank_bytes,
    "psum_num_banks": lambda machine: machine.psum_banks,
    "gemm_stationary_fmax": lambda machine: machine.gemm_stationary_fmax,
    "gemm_moving_fmax": lambda machine: machine.gemm_moving_fmax,
    "bn_stats_fmax": lambda machine: machine.bn_stats_fmax,
    "psum_min_align": lambda machine: machine.psum_min_align,
    "sbuf_min_align": lambda machine: machine.sbuf_min_align,
    "sbuf_size_bytes": lambda machine: (
        machine.sbuf_partition_bytes * machine.partitions
    ),
    "sbuf_fmax": lambda machine: machine.sbuf_usable_bytes // 4,
    "sbuf_fmax_bytes": lambda machine: machine.sbuf_usable_bytes,
    # before 0.4
    "total_available_sbuf_size": lambda machine: machine.sbuf_usable_bytes,
}
"""Sizes of a partition, in float32 elements unless the name says bytes; sbuf_size_bytes is the sum
over all partitions.
"""


class TileSizes:
    """The machine's limits: ``nl.tile_size``."""

    __slots__ = ()

    def __getattr__(self, name: str) -> int:
        if name not in _SIZES:
            raise missing_name("nki.language.tile_size", name, _SIZES)
        check_name(f"nl.tile_size.{name}")
        if is_running():
            return _SIZES[name](current().machine)
        return _SIZES[name](machine_of(os.environ.get(TARGET_VARIABLE)))

    def __dir__(self) -> list[str]:
        return list(_SIZES)


def _add_predicate(name: str, summary: str, *regions: MemoryRegion) -> None:
    def function(buffer: Any) -> bool:
        return any(buffer is region for region in regions)

    named(function, name, summary)


_add_predicate(
    "is_hbm",
    "Return whether a memory is HBM of either kind.",
    MemoryRegion.private_hbm,
    MemoryRegion.shared_hbm,
)
_add_predicate("is_sbuf", "Return whether a memory is SBUF.", MemoryRegion.sbuf)
_add_predicate("is_psum", "Return whether a memory is PSUM.", MemoryRegion.psum)
_add_predicate(
    "is_on_chip",
    "Return whether a memory is SBUF or PSUM.",
    MemoryRegion.sbuf,
    MemoryRegion.psum,
)


GRIDS = {"NkiGrid": NkiGrid, "NkiTileGrid": NkiTileGrid, "NkiBlockGrid": NkiBlockGrid}
"""The classes, for annotations and ``isinstance``."""


@public
def tiles(source, *, tile_shape=None):
    """Divide a tensor, or a grid's selection, into tiles; the last ones may be smaller.

    ``tile_shape`` counts elements of the last dimensions. Dimensions before it, only in HBM, have a
    coordinate for each element. Without ``tile_shape``, a grid keeps its tiles.
    """
    return _cut("nl.tiles", source, tile_shape)


@public
def blocks(source, *, tile_shape=None, block_shape):
    """Divide a tensor, or a grid's selection, into blocks; ``block_shape`` counts tiles."""
    return _cut("nl.blocks", source, tile_shape, block_shape=block_shape)


@public
def alloc_tiles(*, tile_shape, element_shape, buffer, dtype, address=None, name=""):
    """Create a tensor of ``element_shape`` as a grid of tiles; on chip the tiles are adjacent."""
    return _allocated("nl.alloc_tiles", **locals())


@public
def alloc_blocks(
    *, tile_shape, block_shape, element_shape, buffer, dtype, address=None, name=""
):
    """Create a tensor as :func:`alloc_tiles` does, as blocks; ``block_shape`` counts tiles."""
    return _allocated("nl.alloc_blocks", **locals())


def _cut(where: str, source: Any, tile_shape: Any, **blocks: Any) -> NkiGrid:
    """Return a tensor or a grid in tiles, or in blocks if ``block_shape`` is given."""
    block = _sizes(where, **blocks) if blocks else None
    tile = None if tile_shape is None else _sizes(where, tile_shape=tile_shape)
    if isinstance(source, NkiGrid):
        _check_ranks(tile or source.tile_shape, block, source.element_shape, where)
        return source.cut(tile, block, where)
    if not isinstance(source, NkiTensor):
        raise wrong_kind(source, "a tensor or a grid", where)
    if tile is None:
        raise not_taken(
            where, "tile_shape for a tensor", "a tensor and no tile_shape", repr(source)
        )
    _check_ranks(tile, block, source.shape, where)
    if not source._in_hbm and len(tile) != len(source.shape):
        raise not_taken(
            where,
            "a tile_shape with all dimensions of a tensor on chip",
            f"{len(source.shape)} dimensions on chip to cut into tiles of {len(tile)}",
            f"tile_shape={tile} for {source!r}",
            error=ShapeError,
            remedy="name the partitions in tile_shape too; dimensions without tiles are for HBM",
        )
    return whole(Backing(source), tile, block)


def _allocated(
    where: str,
    *,
    tile_shape: Any,
    element_shape: Any,
    buffer: Any,
    dtype: object,
    address: Any,
    name: str,
    **blocks: Any,
) -> NkiGrid:
    block = _sizes(where, **blocks) if blocks else None
    tile = _sizes(where, tile_shape=tile_shape)
    shape = _sizes(where, element_shape=element_shape)
    _check_ranks(tile, block, shape, where)
    if space_of(buffer, where).is_hbm:
        tensor = new_tensor(shape, dtype, buffer, name, where, address)
        return whole(Backing(tensor), tile, block)
    head = len(shape) - len(tile)
    counts = (-(-size // step) for size, step in zip(shape[head:], tile, strict=True))
    columns = math.prod(shape[:head]) * math.prod(counts) * math.prod(tile[1:])
    tensor = new_tensor((tile[0], columns), dtype, buffer, name, where, address)
    return whole(TiledBacking(tensor, shape, tile), tile, block)


def _sizes(where: str, **shapes: Any) -> Shape:
    """Check a shape, given by its parameter's name: a tuple of positive Python integers."""
    ((name, shape),) = shapes.items()
    got = f"{name}={shape!r:.60}"
    if not isinstance(shape, tuple) or any(type(size) is not int for size in shape):
        raise not_taken(where, f"{name} as a tuple of integers", got, got)
    if any(size < 1 for size in shape):
        raise not_taken(
            where, f"a {name} of positive sizes", got, got, error=ShapeError
        )
    if name == "tile_shape" and len(shape) < 2:
        raise not_taken(
            where, "a tile_shape of two dimensions at least", got, got, error=ShapeError
        )
    return shape


def _check_ranks(tile: Shape, block: Shape | None, shape: Shape, where: str) -> None:
    if len(tile) > len(shape):
        raise not_taken(
            where,
            "a tile_shape of no more dimensions than the tensor",
            f"{len(shape)} dimensions to cut into tiles of {len(tile)}",
            f"tile_shape={tile} for {list(shape)} elements",
            error=ShapeError,
        )
    if block is not None and len(block) != len(tile):
        raise not_taken(
            where,
            "a block_shape with the dimensions of tile_shape",
            f"block_shape={block} for tiles of {len(tile)} dimensions",
            f"block_shape={block}, tile_shape={tile}",
            error=ShapeError,
        )
