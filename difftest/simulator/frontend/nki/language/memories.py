"""``nki.language``: memories, and the sizes of tiles."""

from __future__ import annotations

from os import environ
from typing import Any

from difftest.simulator.core import current, is_running
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.constants import MemoryRegion
from difftest.simulator.frontend.nki.kernel import TARGET_VARIABLE, machine_of
from difftest.simulator.machine import Machine

_HBM = (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)


def _machine() -> Machine:
    """The machine of the kernel that runs, or that the environment names."""
    return current().machine if is_running() else machine_of(environ.get(TARGET_VARIABLE))


class TileSizes:
    """``nl.tile_size``: the machine's limits, in elements unless the name says bytes."""

    __slots__ = ()

    @property
    def pmax(self) -> int:
        """Partitions of a tile."""
        return _machine().partitions

    @property
    def psum_fmax(self) -> int:
        """The same as :attr:`psum_bank_fmax`, under its name before NKI 0.4."""
        return _machine().psum_fmax

    @property
    @public
    def psum_bank_fmax(self) -> int:
        """Float32 elements of a PSUM bank in each partition."""
        return _machine().psum_fmax

    @property
    @public
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes of a PSUM bank in each partition."""
        return _machine().psum_bank_bytes

    @property
    @public
    def psum_num_banks(self) -> int:
        """PSUM banks of each partition."""
        return _machine().psum_banks

    @property
    def gemm_stationary_fmax(self) -> int:
        """Free size of nc_matmul's stationary operand."""
        return _machine().gemm_stationary_fmax

    @property
    def gemm_moving_fmax(self) -> int:
        """Free size of nc_matmul's moving operand."""
        return _machine().gemm_moving_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Free size of bn_stats' data."""
        return _machine().bn_stats_fmax

    @property
    def psum_min_align(self) -> int:
        """Bytes to which addresses in a PSUM partition are aligned."""
        return _machine().psum_min_align

    @property
    def sbuf_min_align(self) -> int:
        """Bytes to which addresses in an SBUF partition are aligned."""
        return _machine().sbuf_min_align

    @property
    @public
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF, all partitions together."""
        return _machine().sbuf_partition_bytes * _machine().partitions

    @property
    @public
    def sbuf_fmax(self) -> int:
        """Float32 elements of an SBUF partition that a kernel's tensors can have."""
        return _machine().sbuf_usable_bytes // 4

    @property
    @public
    def sbuf_fmax_bytes(self) -> int:
        """Bytes of an SBUF partition that a kernel's tensors can have."""
        return _machine().sbuf_usable_bytes

    @property
    def total_available_sbuf_size(self) -> int:
        """The same as :attr:`sbuf_fmax_bytes`, under its name before NKI 0.4."""
        return _machine().sbuf_usable_bytes


tile_size = TileSizes()
sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
private_hbm = hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm


@public
def is_hbm(buffer: Any) -> bool:
    """Whether a memory is HBM of either kind."""
    return any(buffer is one for one in _HBM)


@public
def is_sbuf(buffer: Any) -> bool:
    """Whether a memory is SBUF."""
    return buffer is sbuf


@public
def is_psum(buffer: Any) -> bool:
    """Whether a memory is PSUM."""
    return buffer is psum


@public
def is_on_chip(buffer: Any) -> bool:
    """Whether a memory is SBUF or PSUM."""
    return buffer is sbuf or buffer is psum
