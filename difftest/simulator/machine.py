"""The machines: sizes and limits of one NeuronCore, each number with its source.

Sources, all public AWS Neuron documentation (repository aws-neuron/aws-neuron-sdk):

- ARCH2: ``general/nki/arch/trainium_inferentia2_arch.rst`` at tag v2.26.0
- ARCH3: ``nki/guides/architecture/trainium2_arch.rst`` (2026-08)
- ARCH4: ``nki/guides/architecture/trainium3_arch.rst`` at tag v2.32.0
- PM: ``general/nki/programming_model.rst`` at tag v2.26.0, tile-size constraints TC#1 to TC#3
- ISA: ``general/nki/api/nki/isa/__init__.py`` at tag v2.26.0
- ISA32: the stubs ``nki/api/nki/isa/__init__.py`` at tag v2.32.0
- ALLOC: ``general/nki/api/nki/compiler/sbuf.py`` at tag v2.26.0
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A NeuronCore from the kernels' view.

    Sizes are in bytes, counts in elements or partitions.
    """

    name: str
    nc_version: int
    """The member of ``nki.isa.nc_version``: 2 for Trn1/Inf2, 3 for Trn2, 4 for Trn3."""
    sbuf_partition_bytes: int

    partitions: int = 128
    """Partitions of SBUF and PSUM, and the largest partition size of a tile (PM TC#1)."""
    sbuf_reserved_bytes: int = 16 * KIB
    """The part of each SBUF partition that the compiler reserves (ALLOC, NeuronCore-v2)."""
    psum_partition_bytes: int = 16 * KIB
    """ARCH2, Memory: 2 MiB of PSUM in 128 partitions."""
    psum_bank_bytes: int = 2 * KIB
    """Eight banks a partition, each 512 float32 (PM TC#2)."""
    gemm_stationary_fmax: int = 128
    """Free size of nc_matmul's stationary operand (PM TC#3)."""
    gemm_moving_fmax: int = 512
    """Free size of nc_matmul's moving operand (PM TC#3)."""
    bn_stats_fmax: int = 512
    """Free size of bn_stats' input (ISA bn_stats)."""
    vector_transpose_max: int = 32
    """Rows and columns of a Vector Engine transpose (ISA nc_transpose)."""
    max8_range: tuple[int, int] = (8, 16384)
    """Elements a partition of max8, nc_find_index8, nc_match_replace8 (ISA)."""
    gpsimd_core_partitions: int = 16
    """Partitions of each of the eight GpSimd cores (ISA local_gather)."""
    gather_indices_max: int = 4096
    """Indices that a GpSimd core accepts in one local_gather (ISA local_gather)."""
    gpsimd_dma_elements: int = 256
    """Elements a partition that GpSimd's own DMA moves (ISA32 sendrecv)."""
    dge_rows: int = 16
    """Rows that a descriptor engine transposes at a time (ISA32 dma_transpose)."""
    pe_tile_step: int = 32
    """PE tiling positions and sizes are multiples of this (ISA nc_matmul)."""
    pe_tile_sizes: tuple[int, ...] = (32, 64, 128)
    """Rows of a tile of the PE array in the current dialect (ISA32 nc_matmul)."""
    shuffle_quadrant: int = 32
    """Partitions in which nc_stream_shuffle moves data (ISA nc_stream_shuffle)."""
    start_partition_step: int = 32
    """Tensors start at partition 0, 32, 64 or 96, so that narrow ones can share the same bytes in
    different quadrants (ALLOC).
    """
    sbuf_min_align: int = 1
    psum_min_align: int = 4

    @property
    def pe_cells(self) -> int:
        """Multiply-adds of the Tensor Engine in one cycle: its array, rows by columns (ARCH2)."""
        return self.partitions * self.gemm_stationary_fmax

    @property
    def psum_fmax(self) -> int:
        """Free size, in float32, of a PSUM tile: one bank."""
        return self.psum_bank_bytes // 4

    @property
    def psum_banks(self) -> int:
        return self.psum_partition_bytes // self.psum_bank_bytes

    @property
    def sbuf_usable_bytes(self) -> int:
        """Bytes of an SBUF partition that a kernel's tensors can use."""
        return self.sbuf_partition_bytes - self.sbuf_reserved_bytes


TRN1 = Machine(
    name="trn1", nc_version=2, sbuf_partition_bytes=192 * KIB, pe_tile_sizes=(64, 128)
)
"""NeuronCore-v2; SBUF 24 MiB (ARCH2)."""

TRN2 = Machine(name="trn2", nc_version=3, sbuf_partition_bytes=224 * KIB)
"""NeuronCore-v3; SBUF 28 MiB (ARCH3)."""

TRN3 = Machine(name="trn3", nc_version=4, sbuf_partition_bytes=256 * KIB)
"""NeuronCore-v4; SBUF 32 MiB, PSUM 2 MiB (ARCH4). The compiler's reserved part of SBUF is assumed
to equal that of the other machines.
"""

MACHINES = {machine.name: machine for machine in (TRN1, TRN2, TRN3)}
