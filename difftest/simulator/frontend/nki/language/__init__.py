"""The module that kernels import as ``nki.language`` (usually ``nl``), today's dialect."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT4_E2M1FN_X4,
    FLOAT8_E4M3,
    FLOAT8_E4M3FN,
    FLOAT8_E4M3FN_X4,
    FLOAT8_E5M2,
    FLOAT8_E5M2_X4,
    FLOAT8_E8M0FNU,
    INT32,
    TFLOAT32,
)
from difftest.simulator.errors import missing_name
from difftest.simulator.frontend.nki.constants import MemoryRegion
from difftest.simulator.frontend.nki.language.creation import (
    ds,
    empty_like,
    full,
    ndarray,
    ones,
    par_dim,
    rand,
    shared_constant,
    shared_identity_matrix,
    zeros,
    zeros_like,
)
from difftest.simulator.frontend.nki.language.device_loops import (
    dynamic_range,
    fori_loop,
    while_loop,
)
from difftest.simulator.frontend.nki.language.functions import FUNCTIONS
from difftest.simulator.frontend.nki.language.loops import (
    affine_range,
    num_programs,
    program_id,
    program_ndim,
    sequential_range,
    static_range,
)
from difftest.simulator.frontend.nki.language.memories import (
    hbm,
    is_hbm,
    is_on_chip,
    is_psum,
    is_sbuf,
    private_hbm,
    psum,
    sbuf,
    shared_hbm,
    tile_size,
)
from difftest.simulator.frontend.nki.language.moves import device_print, load, no_reorder, store
from difftest.simulator.frontend.nki.language.reductions import (
    all,
    max,
    mean,
    min,
    prod,
    rms_norm,
    softmax,
    sum,
    var,
)
from difftest.simulator.frontend.nki.language.shapes import (
    broadcast_to,
    dropout,
    expand_dims,
    gather_flattened,
    load_transpose2d,
    matmul,
    random_seed,
    transpose,
    where,
)
from difftest.simulator.frontend.nki.language.tiling import (
    GRIDS,
    alloc_blocks,
    alloc_tiles,
    blocks,
    tiles,
)
from difftest.simulator.frontend.nki.levels import check_name
from difftest.simulator.frontend.nki.objects import NKIObject
from difftest.simulator.frontend.nki.tensor import NkiTensor
from difftest.simulator.frontend.nki.virtual_registers import NkiScalar
from difftest.simulator.frontend.unmodelled import unmodelled

float32 = np.dtype(np.float32)
float16 = np.dtype(np.float16)
bfloat16 = BFLOAT16
tfloat32 = TFLOAT32
float8_e4m3 = FLOAT8_E4M3
float8_e4m3fn = FLOAT8_E4M3FN
float8_e5m2 = FLOAT8_E5M2
float8_e4m3fn_x4 = FLOAT8_E4M3FN_X4
float8_e5m2_x4 = FLOAT8_E5M2_X4
float4_e2m1fn_x4 = FLOAT4_E2M1FN_X4
int8 = np.dtype(np.int8)
int16 = np.dtype(np.int16)
int32 = INT32
uint8 = np.dtype(np.uint8)
uint16 = np.dtype(np.uint16)
uint32 = np.dtype(np.uint32)
bool_ = BOOL
DType = np.dtype
"""What a dtype is, for annotations; AWS's is a string."""

_DOCUMENTED = unmodelled("nki.language", ["int64", "uint64"])
"""What AWS documents (at v2.33) and the simulator does not have."""
_LATER: dict[str, Any] = {"float8_e8m0fnu": FLOAT8_E8M0FNU, **GRIDS, **_DOCUMENTED}
"""Dtypes and classes that not all levels have: each access is checked."""


def __getattr__(name: str) -> Any:
    check_name(f"nl.{name}")
    if name in _LATER:
        return _LATER[name]
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise missing_name("nki.language", name, [*__all__, *_LATER, *FUNCTIONS])


__all__ = [
    "DType",
    "MemoryRegion",
    "NKIObject",
    "NkiScalar",
    "NkiTensor",
    "affine_range",
    "all",
    "alloc_blocks",
    "alloc_tiles",
    "bfloat16",
    "blocks",
    "bool_",
    "broadcast_to",
    "device_print",
    "dropout",
    "ds",
    "dynamic_range",
    "empty_like",
    "expand_dims",
    "float4_e2m1fn_x4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float16",
    "float32",
    "fori_loop",
    "full",
    "gather_flattened",
    "hbm",
    "int8",
    "int16",
    "int32",
    "is_hbm",
    "is_on_chip",
    "is_psum",
    "is_sbuf",
    "load",
    "load_transpose2d",
    "matmul",
    "max",
    "mean",
    "min",
    "ndarray",
    "no_reorder",
    "num_programs",
    "ones",
    "par_dim",
    "private_hbm",
    "prod",
    "program_id",
    "program_ndim",
    "psum",
    "rand",
    "random_seed",
    "rms_norm",
    "sbuf",
    "sequential_range",
    "shared_constant",
    "shared_hbm",
    "shared_identity_matrix",
    "softmax",
    "static_range",
    "store",
    "sum",
    "tfloat32",
    "tile_size",
    "tiles",
    "transpose",
    "uint8",
    "uint16",
    "uint32",
    "var",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
]
