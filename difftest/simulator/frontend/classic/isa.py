"""The module that kernels import as ``neuronxcc.nki.isa`` (usually ``nisa``), classic dialect.

Signatures are those of AWS's documentation at tag v2.26.0; each call allocates a result and lets
the instruction of :mod:`difftest.simulator.instructions` write to it.
"""

from __future__ import annotations

import types

from difftest.simulator.frontend.arguments import (
    absent,
    dge_mode,
    engine,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from difftest.simulator.frontend.classic.activations import activation, activation_reduce
from difftest.simulator.frontend.classic.copies import (
    tensor_copy,
    tensor_copy_dynamic_dst,
    tensor_copy_dynamic_src,
    tensor_copy_predicated,
)
from difftest.simulator.frontend.classic.creation import iota, memset
from difftest.simulator.frontend.classic.dma import dma_copy, dma_transpose
from difftest.simulator.frontend.classic.elementwise import (
    reciprocal,
    scalar_tensor_tensor,
    tensor_scalar,
    tensor_tensor,
    tensor_tensor_scan,
)
from difftest.simulator.frontend.classic.language import fp32
from difftest.simulator.frontend.classic.memories import get_nc_version
from difftest.simulator.frontend.classic.products import nc_matmul, nc_transpose
from difftest.simulator.frontend.classic.randomness import dropout
from difftest.simulator.frontend.classic.reductions import (
    tensor_partition_reduce,
    tensor_reduce,
    tensor_scalar_reduce,
)
from difftest.simulator.frontend.classic.searches import (
    local_gather,
    max8,
    nc_find_index8,
    nc_match_replace8,
    nc_stream_shuffle,
    sequence_bounds,
)
from difftest.simulator.frontend.classic.selections import (
    affine_select,
    range_select,
    select_reduce,
)
from difftest.simulator.frontend.classic.statistics import bn_aggr, bn_stats
from difftest.simulator.frontend.dispatch import make_dispatching

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown
constants = types.SimpleNamespace(
    engine=engine,
    dge_mode=dge_mode,
    oob_mode=oob_mode,
    reduce_cmd=reduce_cmd,
    nc_version=nc_version,
)

__getattr__ = absent("nki.isa", frozenset({"builtin_custom_op", "dma_engine"}), globals())


__all__ = [
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "constants",
    "dge_mode",
    "dma_copy",
    "dma_transpose",
    "dropout",
    "engine",
    "fp32",
    "get_nc_version",
    "gpsimd_engine",
    "iota",
    "local_gather",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_stream_shuffle",
    "nc_transpose",
    "nc_version",
    "oob_mode",
    "range_select",
    "reciprocal",
    "reduce_cmd",
    "scalar_engine",
    "scalar_tensor_tensor",
    "select_reduce",
    "sequence_bounds",
    "tensor_copy",
    "tensor_copy_dynamic_dst",
    "tensor_copy_dynamic_src",
    "tensor_copy_predicated",
    "tensor_engine",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "unknown_engine",
    "vector_engine",
]

make_dispatching("nisa", globals(), __all__)
