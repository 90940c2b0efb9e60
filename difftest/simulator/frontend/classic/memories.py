"""Memories and shapes: ``buffer=``, direct allocation, ``nl.tile_size``.

Sources: ``nki_direct_allocation_guide.rst`` and ``nki.compiler`` at tag v2.26.0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from difftest.simulator.core import Core, current, is_running
from difftest.simulator.errors import (
    KernelError,
    LimitError,
    ShapeError,
    call_error,
    missing_name,
)
from difftest.simulator.frontend.arguments import nc_version, not_taken
from difftest.simulator.frontend.classic.calls import ISA
from difftest.simulator.frontend.dispatch import fitting
from difftest.simulator.frontend.launchable import as_launchable
from difftest.simulator.index import Shape, as_integer, as_integers
from difftest.simulator.instructions.checks import wrong_kind
from difftest.simulator.machine import TRN2, Machine
from difftest.simulator.misuses import BLOCK_INSIDE_BANK
from difftest.simulator.strictness import report_violation
from difftest.simulator.trace import Allocation, Space
from difftest.support.annotations import signature_shown

Place = tuple[int, int]
"""The first partition of a block, and its first byte in each."""


class Buffer:
    """A memory as kernels name it in ``buffer=``."""

    def __init__(self, space: Space) -> None:
        self.space = space
        if not space.is_hbm:
            where = f"nki.compiler.{space.value}"
            modulo = self._in_psum if space is Space.PSUM else self._in_sbuf
            # the compiler places the tensor
            self.auto_alloc = fitting(f"{where}.auto_alloc", lambda: self)
            self.alloc = fitting(f"{where}.alloc", self._alloc)
            self.mod_alloc = fitting(f"{where}.mod_alloc", modulo)

    def __repr__(self) -> str:
        return f"nl.{self.space.value}"

    def _alloc(self, func: Any) -> Placed:
        """Place each block of a tensor by ``func``: ``nki.compiler.sbuf.alloc(func)``."""
        if not callable(func):
            raise wrong_kind(
                func,
                "a function of a block's index, its partitions and its bytes",
                f"{self.space.value}.alloc",
            )
        return Placed(self.space, func)

    def _in_sbuf(
        self, *, base_addr: int, base_partition: int = 0, num_par_tiles: Any = (),
        num_free_tiles: Any = (),
    ) -> Placed:  # fmt: skip
        """Allocate modulo in SBUF: the blocks take a number of physical tiles in turn."""
        return Placed(self.space, _in_turn(locals()))

    def _in_psum(
        self, *, base_bank: int, base_addr: int = 0, base_partition: int = 0,
        num_bank_tiles: Any = (), num_par_tiles: Any = (), num_free_tiles: Any = (),
    ) -> Placed:  # fmt: skip
        """Allocate modulo in PSUM, with banks."""
        return Placed(self.space, _in_turn(locals()))


_STARTS = ("base_bank", "base_partition", "base_addr")
_TILES = ("num_bank_tiles", "num_par_tiles", "num_free_tiles")


def _in_turn(given: Mapping[str, Any]) -> Callable[..., tuple[int, ...]]:
    """Return a function that places blocks in physical tiles in turn.

    It gives the bank in PSUM, the partition and the byte.
    """
    first = [as_integer(given[name], name) for name in _STARTS if name in given]
    turns = [as_integers(given[name], name) for name in _TILES if name in given]

    def place(index: Shape, partitions: int, size: int) -> tuple[int, ...]:
        steps = (1, partitions, size)[-len(first) :]
        return tuple(
            start + _turn(index, turn) * step
            for start, turn, step in zip(first, turns, steps, strict=True)
        )

    return place


def _call_place(
    func: Callable[..., Any], index: Shape, partitions: int, size: int
) -> Any:
    """Call a kernel's function by AWS's parameter names if it has them, else by position.

    Source of the names: ``nki.compiler.psum.alloc`` at tag v2.26.0.
    """
    named = {"idx": index, "pdim_size": partitions, "fdim_size": size}
    try:
        signature_shown(func).bind(**named)
    except (TypeError, ValueError):  # other names, or a callable without a signature
        return func(index, partitions, size)
    return func(**named)


def _turn(index: Shape, tiles: Shape) -> int:
    """Return the number of a block's physical tile, in row-major order of the tiles."""
    shape = tiles or (1,) * len(index)
    if len(shape) != len(index) or min(shape, default=1) < 1:
        takes = f"{len(index)} numbers of tiles, one for each block dimension"
        got = f"{len(shape)} numbers of tiles"
        remedy = None if index else "leave them out: the tensor is one tile"
        error = not_taken(
            "modulo allocation", takes, got, got, error=ShapeError, remedy=remedy
        )
        if index:
            raise error
        report_violation(error)
        return 0
    number = 0
    for place, size in zip(index, shape, strict=True):
        number = number * size + place % size
    return number


class Placed(Buffer):
    """A memory in which the kernel places the blocks of a tensor itself.

    Blocks at the same place share no data here: a correct kernel has finished with one before it
    writes the next.
    """

    def __init__(self, space: Space, func: Callable[..., Any]) -> None:
        super().__init__(space)
        self.func = func

    def addresses(
        self, shape: Shape, axis: int, itemsize: int, machine: Machine
    ) -> list[Place]:
        """Return the first partition and byte of each block of a tensor.

        Raises
        ------
        KernelError, LimitError : the function gives no place, or one outside the memory.
        """
        partitions = shape[axis]
        size = math.prod(shape[axis + 1 :]) * itemsize
        return [
            self._address(index, partitions, size, machine)
            for index in itertools.product(*(range(extent) for extent in shape[:axis]))
        ]

    def _address(
        self, index: Shape, partitions: int, size: int, machine: Machine
    ) -> Place:
        """Return the place of a block, from the kernel's function."""
        place = as_integers(_call_place(self.func, index, partitions, size), "a place")
        in_psum = self.space is Space.PSUM
        if len(place) != (3 if in_psum else 2):
            raise not_taken(
                f"{self.space.value}.alloc",
                "(bank, partition, byte) in PSUM, (partition, byte) in SBUF, from its function",
                f"{len(place)} numbers",
                f"{place} for block {index}",
            )
        bank, low, byte = place if in_psum else (0, *place)
        received = f"{place} for {partitions} partitions of {size} bytes"
        starts, most = self._starts(partitions, size, machine)
        if not (0 <= bank < machine.psum_banks and low in starts and 0 <= byte <= most):
            raise LimitError(
                "a placed block fits its memory, and begins at a partition for its size",
                happened=f"a block was placed outside {self.space.value}",
                received=received,
                limit=f"partitions {', '.join(map(str, starts))}; bytes 0 to {most}",
            )
        if in_psum and (low or byte):
            report_violation(BLOCK_INSIDE_BANK(received))
        return low, bank * machine.psum_bank_bytes + byte

    def _starts(
        self, partitions: int, size: int, machine: Machine
    ) -> tuple[range, int]:
        """Return the partitions where a block may begin, and its last first byte."""
        step = machine.start_partition_step
        rows = next(n for n in (step, 2 * step, machine.partitions) if partitions <= n)
        most = machine.sbuf_usable_bytes
        if self.space is Space.PSUM:
            most = machine.psum_bank_bytes
        return range(0, machine.partitions, rows), most - size


sbuf = Buffer(Space.SBUF)
psum = Buffer(Space.PSUM)
private_hbm = Buffer(Space.PRIVATE_HBM)
hbm = private_hbm
shared_hbm = Buffer(Space.SHARED_HBM)


def memory_of(buffer: object, where: str) -> Space:
    """Return the memory of a ``buffer`` argument; SBUF by default."""
    if buffer is None:
        return Space.SBUF
    if not isinstance(buffer, Buffer):
        raise wrong_kind(
            buffer, "one of NKI's memories", where, "buffer", remedy=_MEMORIES
        )
    return buffer.space


_MEMORIES = "use nl.sbuf, nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm"


# -- shapes ----------------------------------------------------------------------------------------


class ParDim(int):
    """A dimension marked as the partition dimension by ``nl.par_dim``."""

    def __repr__(self) -> str:
        return f"par_dim({int(self)})"


_INTEGERS = "a shape of integers"


def whole(size: Any, received: str, where: str) -> Any:
    """Return a size; an integral float, which compilers accept, becomes an integer."""
    if not isinstance(size, float) or not size.is_integer():
        return size
    got = "a whole number as a float"
    remedy = "use // instead of /"
    report_violation(
        not_taken(where, _INTEGERS, got, received, error=ShapeError, remedy=remedy)
    )
    return int(size)


def as_shape(shape: object, where: str) -> tuple[Shape, int]:
    """Return a shape as integers, and the axis marked with ``nl.par_dim`` (0 if none is)."""
    if (
        type(shape) is tuple
        and shape
        and all(type(size) is int and size > 0 for size in shape)
    ):
        return shape, 0
    return _checked_shape(shape, where)


def _checked_shape(shape: object, where: str) -> tuple[Shape, int]:
    """Return a shape as integers and its partition axis; raise for other shapes."""
    dims: Iterable[Any] = shape if isinstance(shape, (tuple, list)) else (shape,)
    marked = [axis for axis, size in enumerate(dims) if isinstance(size, ParDim)]
    sizes = []
    for axis, size in enumerate(dims):
        received = f"{size!r} at axis {axis}"
        try:
            sizes.append(whole(size, received, where).__index__())
        except (AttributeError, TypeError):
            raise not_taken(
                where,
                _INTEGERS,
                f"a shape with the size {size!r:.40}",
                received,
                error=ShapeError,
            ) from None
    if not sizes or min(sizes) < 1 or len(marked) > 1:
        raise not_taken(
            where,
            "a shape of positive sizes with at most one nl.par_dim",
            f"the shape {shape!r:.40}",
            f"{shape!r}",
            error=ShapeError,
            remedy="a size of 0 often comes from M // TILE with M smaller than TILE",
        )
    return tuple(sizes), marked[0] if marked else 0


# -- direct allocation of a whole kernel -----------------------------------------------------------

FORCES_AUTO_ALLOC = "force_auto_alloc"
SKIPS_MIDDLE_END = "skip_middle_end_transformations"
"""The decorators of ``nki.compiler`` that mark a kernel's function."""


def mark(kernel: Any, decorator: str) -> Any:
    """Mark a kernel with a decorator of ``nki.compiler``; return the kernel.

    Raises
    ------
    KernelError : it is not a function.
    """
    try:
        setattr(as_launchable(kernel).function, f"__difftest_{decorator}__", True)
    except (AttributeError, TypeError):  # a class, or a function written in C
        raise wrong_kind(kernel, "a function", f"ncc.{decorator}") from None
    return kernel


def is_marked(function: Callable[..., Any], decorator: str) -> bool:
    """Return whether :func:`mark` has marked a kernel's function."""
    return bool(getattr(function, f"__difftest_{decorator}__", False))


def note_mixed(core: Core) -> None:
    """Note a kernel that places some of its tensors and leaves others to the compiler.

    AWS's compiler rejects it: its own placements would collide with the kernel's.
    """
    made = core.trace.allocations
    if not any(tensor.address or tensor.places for tensor in made):
        return
    placed: list[Allocation] = []
    left: list[Allocation] = []
    for tensor in made:
        if _is_used_on_chip(tensor):
            group = placed if tensor.areas else left
            group.append(tensor)
    if not placed or not left:
        return
    error = KernelError(
        "a kernel that places a tensor places all that it has on chip",
        happened=f"{len(placed)} tensors were placed by the kernel, {len(left)} by the compiler",
        received=f"{placed[0]} was placed, {left[0]} was not",
        remedy="give it buffer=ncc.sbuf.alloc(...) too, and assign results to such tensors; or "
        "decorate the kernel with ncc.force_auto_alloc",
        location=left[0].location,
    )
    report_violation(error)


def _is_used_on_chip(tensor: Allocation) -> bool:
    """Return whether a kernel's instructions write a tensor of its own on chip."""
    return not tensor.space.is_hbm and not tensor.is_temporary and tensor.first >= 0


# -- the machine -----------------------------------------------------------------------------------

_SIZES = {
    "pmax": "partitions",
    "total_available_sbuf_size": "sbuf_usable_bytes",
    **{
        name: name for name in ("psum_fmax", "gemm_stationary_fmax", "gemm_moving_fmax")
    },
    **{name: name for name in ("bn_stats_fmax", "psum_min_align", "sbuf_min_align")},
}
"""The machine's attributes for the names of ``nl.tile_size`` that AWS documents."""


class TileSize:
    """The machine of the running launch, trn2 without a launch: ``nl.tile_size``."""

    def __getattr__(self, name: str) -> Any:
        if name not in _SIZES:
            raise missing_name("nl.tile_size", name, _SIZES)
        return getattr(current().machine if is_running() else TRN2, _SIZES[name])

    def __setattr__(self, name: str, value: Any) -> None:
        place = f"nl.tile_size.{name}"
        remedy = "give the kernel a parameter instead"
        value_set = f"{place} = {value!r:.60}"
        rule = "is the machine's, as AWS documents it"
        error = call_error(place, rule, "was set", value_set, remedy=remedy)
        if name not in _SIZES:
            raise error
        report_violation(error)
        self.__dict__[name] = as_integer(value, f"nl.tile_size.{name}")

    def __dir__(self) -> list[str]:
        return sorted(_SIZES)

    def reset(self) -> None:
        """Forget the values that kernels' modules have set."""
        self.__dict__.clear()


tile_size = TileSize()


@ISA.by_hand  # by hand: depends on the launch
def get_nc_version() -> nc_version:
    """Return the NeuronCore version of the running launch's machine."""
    return nc_version(current().machine.nc_version)
