"""The module that kernels import as ``neuronxcc.nki.language`` (usually ``nl``)."""

from __future__ import annotations

import types

import numpy as np

from difftest.simulator.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, TFLOAT32
from difftest.simulator.frontend import launchable, loops
from difftest.simulator.frontend.arguments import DynamicSlice, absent
from difftest.simulator.frontend.classic import (  # noqa: F401  each adds its functions
    copies,
    creation,
    memories,
    operators,
    products,
    reductions,
)
from difftest.simulator.frontend.classic.calls import LANGUAGE
from difftest.simulator.frontend.classic.expressions import MGridMaker, arange
from difftest.simulator.frontend.classic.memories import ParDim
from difftest.simulator.frontend.classic.memories import tile_size as tile_size
from difftest.simulator.frontend.dispatch import as_called, publish


class fp32:
    """Constants of float32."""

    min = float(np.finfo(np.float32).min)


class bfp16:
    """Constants of bfloat16: AWS documents the bit pattern, which is that of minus infinity."""

    min = float(np.array(0xFF80, np.uint16).view(BFLOAT16))


constants = types.SimpleNamespace(
    fp32=fp32,
    bfp16=bfp16,
    finfo=creation.finfo,
    tile_size=tile_size,
    sbuf_min_align=tile_size.sbuf_min_align,
    psum_min_align=tile_size.psum_min_align,
    sizeinbytes=creation.sizeinbytes,
)
_LOOPS = (
    "affine_range",
    "num_programs",
    "program_id",
    "program_ndim",
    "sequential_range",
)
_FUNCTIONS = {
    **{name: getattr(loops, name) for name in (*_LOOPS, "static_range")},
    "arange": arange,
    "nc": launchable.nc,
    "spmd_dim": launchable.spmd_dim,
}
_DTYPES = [
    "float32",
    "float16",
    "int8",
    "int16",
    "int32",
    "uint8",
    "uint16",
    "uint32",
    "bool_",
]
_MEMORIES = ["sbuf", "psum", "hbm", "private_hbm", "shared_hbm", "tile_size"]
_NOT_MODELLED = frozenset({"gemm_grid", "gemm_stationary_grid"})
__getattr__ = absent("nki.language", _NOT_MODELLED, globals())
publish(
    globals(),
    {
        **as_called("nl", LANGUAGE | _FUNCTIONS),
        **as_called("nl", {"ds": DynamicSlice, "mgrid": MGridMaker()}),
        **{name: getattr(np, name) for name in _DTYPES},
        "bfloat16": BFLOAT16,
        "tfloat32": TFLOAT32,
        "float8_e4m3": FLOAT8_E4M3,
        "float8_e5m2": FLOAT8_E5M2,
        "par_dim": ParDim,
        **{name: getattr(memories, name) for name in _MEMORIES},
        "fp32": fp32,
        "bfp16": bfp16,
        "constants": constants,
    },
)
