"""``nki.language``: memories, and the sizes of tiles."""

from __future__ import annotations

from collections.abc import Callable
from os import environ

from difftest.simulator.core import current, is_running
from difftest.simulator.errors import missing_name
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.constants import MemoryRegion
from difftest.simulator.frontend.nki.kernel import TARGET_VARIABLE, machine_of
from difftest.simulator.frontend.nki.levels import check_name
from difftest.simulator.machine import Machine

_HBM = (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)


def _machine() -> Machine:
    """The machine of the kernel that runs, or that the environment names."""
    return current().machine if is_running() else machine_of(environ.get(TARGET_VARIABLE))


_SIZES: dict[str, Callable[[Machine], int]] = {
    "pmax": lambda machine: machine.partitions,
    "psum_fmax": lambda machine: machine.psum_fmax,  # psum_bank_fmax under its name before 0.4
    "psum_bank_fmax": lambda machine: machine.psum_fmax,
    "psum_bank_fmax_bytes": lambda machine: machine.psum_bank_bytes,
    "psum_num_banks": lambda machine: machine.psum_banks,
    "gemm_stationary_fmax": lambda machine: machine.gemm_stationary_fmax,
    "gemm_moving_fmax": lambda machine: machine.gemm_moving_fmax,
    "bn_stats_fmax": lambda machine: machine.bn_stats_fmax,
    "psum_min_align": lambda machine: machine.psum_min_align,
    "sbuf_min_align": lambda machine: machine.sbuf_min_align,
    "sbuf_size_bytes": lambda machine: machine.sbuf_partition_bytes * machine.partitions,
    "sbuf_fmax": lambda machine: machine.sbuf_usable_bytes // 4,
    "sbuf_fmax_bytes": lambda machine: machine.sbuf_usable_bytes,
    "total_available_sbuf_size": lambda machine: machine.sbuf_usable_bytes,  # before 0.4
}
"""Of a partition, in float32 elements unless the name says bytes; sbuf_size_bytes of them all."""


class TileSizes:
    """``nl.tile_size``: the machine's limits."""

    __slots__ = ()

    def __getattr__(self, name: str) -> int:
        if name not in _SIZES:
            raise missing_name("nki.language.tile_size", name, _SIZES)
        check_name(f"nl.tile_size.{name}")
        return _SIZES[name](_machine())

    def __dir__(self) -> list[str]:
        return [*_SIZES]


@public
def is_hbm(buffer):
    """Whether a memory is HBM of either kind."""
    return any(buffer is one for one in _HBM)


@public
def is_sbuf(buffer):
    """Whether a memory is SBUF."""
    return buffer is MemoryRegion.sbuf


@public
def is_psum(buffer):
    """Whether a memory is PSUM."""
    return buffer is MemoryRegion.psum


@public
def is_on_chip(buffer):
    """Whether a memory is SBUF or PSUM."""
    return buffer is MemoryRegion.sbuf or buffer is MemoryRegion.psum
