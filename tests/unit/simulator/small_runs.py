"""A small run of each kernel of kernels/."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np

import kernels
from difftest.simulator import launch
from difftest.simulator.entry.install import embedded
from difftest.simulator.entry.kernel import Kernel
from difftest.simulator.entry.nki_kernel import NkiKernel
from tests.kernels.budget import NIGHTLY

LAYER = ([(1, 128, 6, 6), (128, 128, 3, 3), (128,)], {"pool_size": 2})
MATRICES = ([(256, 256), (256, 512)], {})
RUNS = {
    "fused_conv2d_maxpool": LAYER,
    "conv2d_whole_plane": LAYER,
    "conv2d_baseline": LAYER,
    "conv2d_halo_tiles": LAYER,
    "conv2d_cached_weights": LAYER,
    "conv2d_flat_weights": LAYER,
    "conv2d_without_copies": LAYER,
    "conv2d_broadcast_bias": LAYER,
    "conv2d_row_tiles": LAYER,
    "matrix_transpose": ([(256, 128)], {}),
    "transpose_by_tiles": ([(256, 128)], {}),
    "nki_matmul_tiled_": ([*MATRICES[0], (256, 512)], {}),
    "matmul_hoisted": MATRICES,
    "matmul_blocked": (MATRICES[0], {"M_TILES": 1, "N_TILES": 1, "K_TILES": 1}),
    "matmul_in_blocks": (MATRICES[0], {"ROWS_FIRST": False}),
    "matmul_rung": (MATRICES[0], {"HOISTED": False}),
    "vector_add_naive": ([(100,), (100,)], {}),
    "vector_add_tiled": ([(512,), (512,)], {"ROW_CHUNK": 128}),
    "vector_add_stream": ([(512,), (512,)], {"FREE_DIM": 2}),
    "softmax_rows": ([(130, 7)], {}),
    "rms_norm_rows": ([(130, 7), (7,)], {}),
    "rope_rows": ([(130, 6), (130, 3), (130, 3)], {}),
    "attention_in_phases": ([(128, 512)] * 3, {}),
    "fused_attention": ([(128, 512)] * 3, {}),
    "linear_gelu": ([(256, 256), (256, 512), (1, 512)], {}),
    "attention_heads": ([(2, 3, 8), (1, 130, 8), (1, 130, 8)], {"causal": True}),
    "gated_mlp_rows": ([(3, 130), (130, 5), (130, 5), (5, 130)], {}),
}
"""Name of the kernel, in either dialect -> shapes of its arrays, and its other arguments."""


def kernels_of_the_tree():
    """Each kernel of kernels/, by dialect and name: "classic.matrix_transpose"."""
    found = {}
    with embedded():
        for module in pkgutil.walk_packages(kernels.__path__, "kernels."):
            dialect = module.name.split(".")[1]
            for one in vars(importlib.import_module(module.name)).values():
                if isinstance(one, Kernel | NkiKernel):
                    found[f"{dialect}.{one.__name__}"] = one
    return found


def in_turn(names):
    """Each runs in one of its dialects; every night in both."""
    twins: dict[str, list[str]] = {}
    for name in sorted(names):
        twins.setdefault(name.partition(".")[2], []).append(name)
    turns = enumerate(twins.values())
    return (
        sorted(names) if NIGHTLY else [pair[turn % len(pair)] for turn, pair in turns]
    )


def trace_of(kernel):
    """The trace of the kernel's small run."""
    shapes, keywords = RUNS[kernel.__name__]
    return launch(
        kernel, [np.ones(shape, np.float32) for shape in shapes], keywords
    ).trace
