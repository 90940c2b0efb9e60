"""The memories that kernels name in ``buffer=``, and what they may ask of the machine."""

from __future__ import annotations

from difftest.simulator.core import current, is_running
from difftest.simulator.errors import KernelError, not_modelled
from difftest.simulator.frontend.arguments import nc_version
from difftest.simulator.machine import TRN2, Machine
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


def memory_of(buffer: object, where: str) -> Space:
    """The memory of a ``buffer`` argument, SBUF where there is none."""
    if buffer is None:
        return Space.SBUF
    if isinstance(buffer, Buffer):
        return buffer.space
    raise KernelError(
        f"{where} takes buffer as one of NKI's memories",
        happened=f"{where} got {buffer!r:.40} as buffer",
        received=f"buffer={buffer!r}",
        limit="nl.sbuf, nl.psum, nl.hbm, nl.private_hbm, nl.shared_hbm",
    )


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


def get_nc_version() -> nc_version:
    """The NeuronCore version of the running launch's machine."""
    return nc_version(current().machine.nc_version)
