"""The module that kernels import as ``nki.isa`` (usually ``nisa``), today's dialect."""

from __future__ import annotations

from typing import Any, NoReturn

from difftest.simulator.core import current
from difftest.simulator.errors import missing_name
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.constants import (
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from difftest.simulator.frontend.nki.isa.activations import activate2, activation, activation_reduce
from difftest.simulator.frontend.nki.isa.dma_sums import dma_compute
from difftest.simulator.frontend.nki.isa.elementwise import (
    bn_aggr,
    bn_stats,
    dropout,
    reciprocal,
    scalar_tensor_tensor,
    tensor_scalar,
    tensor_tensor,
    tensor_tensor_scan,
)
from difftest.simulator.frontend.nki.isa.microscaling import nc_matmul_mx, quantize_mx
from difftest.simulator.frontend.nki.isa.moves import (
    dma_copy,
    dma_transpose,
    iota,
    memset,
    tensor_copy,
    tensor_copy_predicated,
)
from difftest.simulator.frontend.nki.isa.multicore import core_barrier, sendrecv
from difftest.simulator.frontend.nki.isa.products import nc_matmul, nc_transpose
from difftest.simulator.frontend.nki.isa.random_numbers import (
    rand2,
    rand_get_state,
    rand_set_state,
    rng,
    set_rng_seed,
)
from difftest.simulator.frontend.nki.isa.reductions import (
    exponential,
    tensor_partition_reduce,
    tensor_reduce,
    tensor_scalar_cumulative,
    tensor_scalar_reduce,
)
from difftest.simulator.frontend.nki.isa.registers import (
    register_alloc,
    register_load,
    register_move,
    register_store,
    scalar_load,
    scalar_store,
)
from difftest.simulator.frontend.nki.isa.searches import (
    local_gather,
    max8,
    nc_find_index8,
    nc_match_replace8,
    nc_n_gather,
    nc_stream_shuffle,
    nonzero_with_count,
    sequence_bounds,
    topk,
)
from difftest.simulator.frontend.nki.isa.selections import (
    affine_select,
    range_select,
    select_reduce,
)
from difftest.simulator.frontend.nki.levels import ending
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.frontend.nki.patterns import NkiValidationError
from difftest.simulator.frontend.nki.virtual_registers import VirtualRegister

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown


def __getattr__(name: str) -> NoReturn:
    raise missing_name("nki.isa", name, __all__, ended=ending(f"nisa.{name}"))


@public
def get_nc_version() -> Any:
    """The generation of the machine that runs: a member of ``nisa.nc_version``."""
    return nc_version(current().machine.nc_version)


@public
def get_nc_sub_version() -> int:
    """The revision of the silicon: the first."""
    return 0


__all__ = [
    "NkiInstruction",
    "NkiValidationError",
    "VirtualRegister",
    "activate2",
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "constants",
    "core_barrier",
    "dge_mode",
    "dma_compute",
    "dma_copy",
    "dma_engine",
    "dma_transpose",
    "dropout",
    "engine",
    "exponential",
    "get_nc_sub_version",
    "get_nc_version",
    "gpsimd_engine",
    "iota",
    "local_gather",
    "matmul_perf_mode",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_matmul_mx",
    "nc_n_gather",
    "nc_stream_shuffle",
    "nc_transpose",
    "nc_version",
    "nonzero_with_count",
    "oob_mode",
    "quantize_mx",
    "rand2",
    "rand_get_state",
    "rand_set_state",
    "range_select",
    "reciprocal",
    "reduce_cmd",
    "register_alloc",
    "register_load",
    "register_move",
    "register_store",
    "rng",
    "scalar_engine",
    "scalar_load",
    "scalar_store",
    "scalar_tensor_tensor",
    "select_reduce",
    "sendrecv",
    "sequence_bounds",
    "set_rng_seed",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_engine",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "topk",
    "unknown_engine",
    "vector_engine",
]
