"""The module that kernels import as ``neuronxcc.nki.language`` (usually ``nl``)."""

from __future__ import annotations

import types

import numpy as np

from difftest.simulator.dtypes import (
    BFLOAT16,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    TFLOAT32,
    as_dtype,
)
from difftest.simulator.frontend.arguments import absent
from difftest.simulator.frontend.classic.activations import ACTIVATION
from difftest.simulator.frontend.classic.arithmetic import BINARY, UNARY, negative, reciprocal
from difftest.simulator.frontend.classic.compositions import (
    COMPOSED,
    all,
    all_reduce,
    dropout,
    finfo,
    rms_norm,
    static_cast,
)
from difftest.simulator.frontend.classic.copies import broadcast_to, copy, expand_dims
from difftest.simulator.frontend.classic.creation import (
    empty_like,
    full,
    ndarray,
    ones,
    shared_constant,
    shared_identity_matrix,
    zeros,
    zeros_like,
)
from difftest.simulator.frontend.classic.dma import atomic_rmw, load, load_transpose2d, store
from difftest.simulator.frontend.classic.expressions import MGridMaker, arange
from difftest.simulator.frontend.classic.memories import (
    hbm,
    private_hbm,
    psum,
    sbuf,
    shared_hbm,
    tile_size,
)
from difftest.simulator.frontend.classic.printing import device_print
from difftest.simulator.frontend.classic.products import matmul, transpose
from difftest.simulator.frontend.classic.randomness import rand, random_seed
from difftest.simulator.frontend.classic.reductions import REDUCTION, loop_reduce
from difftest.simulator.frontend.classic.searches import gather_flattened
from difftest.simulator.frontend.classic.selections import where
from difftest.simulator.frontend.classic.shapes import ParDim as par_dim
from difftest.simulator.frontend.classic.statistics import mean, softmax, var
from difftest.simulator.frontend.dispatch import make_dispatching
from difftest.simulator.frontend.grid import nc, spmd_dim
from difftest.simulator.frontend.loops import (
    affine_range,
    num_programs,
    program_id,
    program_ndim,
    sequential_range,
    static_range,
)
from difftest.simulator.frontend.slices import DynamicSlice as ds

float32 = np.float32
float16 = np.float16
bfloat16 = BFLOAT16
tfloat32 = TFLOAT32
float8_e4m3 = FLOAT8_E4M3
float8_e5m2 = FLOAT8_E5M2
int8 = np.int8
int16 = np.int16
int32 = np.int32
uint8 = np.uint8
uint16 = np.uint16
uint32 = np.uint32
bool_ = np.bool_

mgrid = MGridMaker()


class fp32:
    """Constants of float32."""

    min = float(np.finfo(np.float32).min)


class bfp16:
    """Constants of bfloat16: AWS documents the bit pattern, which is that of minus infinity."""

    min = float(np.array(0xFF80, np.uint16).view(BFLOAT16))


def sizeinbytes(dtype: object) -> int:
    """The bytes of an element of a dtype; it lies in ``nki.language.constants`` alone."""
    return as_dtype(dtype, "sizeinbytes").itemsize


constants = types.SimpleNamespace(
    fp32=fp32,
    bfp16=bfp16,
    finfo=finfo,
    tile_size=tile_size,
    sbuf_min_align=tile_size.sbuf_min_align,
    psum_min_align=tile_size.psum_min_align,
    sizeinbytes=sizeinbytes,
)

globals().update(BINARY)
globals().update(UNARY)
globals().update(ACTIVATION)
globals().update(REDUCTION)
globals().update(COMPOSED)

__getattr__ = absent(
    "nki.language",
    frozenset(
        {
            "gemm_grid",
            "gemm_stationary_grid",
        }
    ),
    globals(),
)

__all__ = [
    "affine_range",
    "all",
    "all_reduce",
    "arange",
    "atomic_rmw",
    "bfloat16",
    "bfp16",
    "bool_",
    "broadcast_to",
    "constants",
    "copy",
    "device_print",
    "dropout",
    "ds",
    "empty_like",
    "expand_dims",
    "finfo",
    "float8_e4m3",
    "float8_e5m2",
    "float16",
    "float32",
    "fp32",
    "full",
    "gather_flattened",
    "hbm",
    "int8",
    "int16",
    "int32",
    "load",
    "load_transpose2d",
    "loop_reduce",
    "matmul",
    "mean",
    "mgrid",
    "nc",
    "ndarray",
    "negative",
    "num_programs",
    "ones",
    "par_dim",
    "private_hbm",
    "program_id",
    "program_ndim",
    "psum",
    "rand",
    "random_seed",
    "reciprocal",
    "rms_norm",
    "sbuf",
    "sequential_range",
    "shared_constant",
    "shared_hbm",
    "shared_identity_matrix",
    "softmax",
    "spmd_dim",
    "static_cast",
    "static_range",
    "store",
    "tfloat32",
    "tile_size",
    "transpose",
    "uint8",
    "uint16",
    "uint32",
    "var",
    "where",
    "zeros",
    "zeros_like",
    *BINARY,
    *UNARY,
    *ACTIVATION,
    *REDUCTION,
    *COMPOSED,
]

make_dispatching("nl", globals(), __all__)
