"""The repository's kernels, which both modes run."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import OracleError, launch
from difftest.simulator.entry import kernel as nki
from difftest.simulator.entry.install import embedded
from difftest.simulator.entry.nki_kernel import NkiKernel
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.oracle.use import MEANINGS
from tests.every import every
from tests.kernels.budget import NIGHTLY
from tests.unit.simulator.small_runs import in_turn

with embedded():
    import kernels

    FOLDER = Path(kernels.__file__).parent
    KERNELS = {
        f"{module.name.split('.')[1]}.{name}": value
        for module in pkgutil.walk_packages([str(FOLDER)], "kernels.")
        for name, value in vars(importlib.import_module(module.name)).items()
        if isinstance(value, nki.Kernel | NkiKernel)
        and value.function.__module__ == module.name
    }


def integers(*shape, dtype=np.float32, seed=0):
    """Small integers: exact in each dtype, and so are their sums."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def agree(kernel, *arrays, grid=(), units=0, **parameters):
    """Both modes give the same bits, and leave the same elements unwritten.

    ``units`` in the last place may differ, where the kernel applies exp and its kin: each mode
    takes NumPy's in another precision.
    """
    results = []
    for plain in (False, True):
        copies = [array.copy() for array in arrays]
        run = launch(kernel, copies, parameters, grid=grid, plain=plain)
        results.append((run.outputs, run.unwritten, copies))
    (fast, fast_gaps, fast_arrays), (plain, plain_gaps, plain_arrays) = results
    assert fast or any(
        not np.array_equal(a, b) for a, b in zip(arrays, fast_arrays, strict=True)
    )
    for one, other in zip((*fast, *fast_arrays), (*plain, *plain_arrays), strict=True):
        assert_units_apart(one, other, units)
    for one, other in zip(fast_gaps, plain_gaps, strict=True):
        assert (one is None) == (other is None)
        assert one is None or np.array_equal(one, other)


def assert_units_apart(one, other, units):
    if units == 0:
        assert_array_equal(one, other, strict=True)
        return
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    unit = (
        float(ml_dtypes.finfo(one.dtype).eps) * np.abs(other.astype(np.float64)).max()
    )
    assert (
        np.abs(one.astype(np.float64) - other.astype(np.float64)).max() <= units * unit
    )


APPLIES_FUNCTIONS = {
    "softmax_rows",
    "rms_norm_rows",
    "attention_heads",
    "gated_mlp_rows",
    "attention_in_phases",
    "fused_attention",
    "linear_gelu",
}
IMAGE = (
    integers(1, 128, 4, 5),
    integers(128, 128, 3, 2)[..., [0, 1, 1]],
    integers(128),
)
CALLS = {
    "vector_add_naive": [((integers(7), integers(7, seed=1)), {})],
    "vector_add_tiled": [((integers(256), integers(256, seed=1)), {})],
    "vector_add_stream": [((integers(512), integers(512, seed=1)), {"FREE_DIM": 2})],
    "matrix_transpose": [
        ((integers(256, 128),), {}),
        ((integers(128, 384),), {"STORE_TILES": 2}),
    ],
    "transpose_by_tiles": [((integers(128, 256),), {})],
    "nki_matmul_tiled_": [
        (
            (
                integers(128, 64),
                integers(128, 96, seed=1),
                np.zeros((64, 96), np.float32),
            ),
            {"TILE_M": 32, "TILE_K": 64, "TILE_N": 48},
        )
    ],
    "matmul_hoisted": [((integers(128, 128), integers(128, 512, seed=1)), {})],
    "matmul_blocked": [
        (
            (integers(256, 256), integers(256, 512, seed=1)),
            {"M_TILES": 1, "N_TILES": 1, "K_TILES": 2},
        )
    ],
    "matmul_in_blocks": [((integers(128, 128), integers(128, 512, seed=1)), {})],
    "matmul_rung": [((integers(128, 128), integers(128, 512, seed=1)), {})],
    "softmax_rows": [((integers(130, 7),), {})],
    "rms_norm_rows": [((integers(130, 7), integers(7)), {"eps": 0.5})],
    "rope_rows": [((integers(130, 6), integers(130, 3), integers(130, 3)), {})],
    "attention_heads": [
        (
            (integers(2, 3, 8), integers(1, 130, 8), integers(1, 130, 8)),
            {"causal": causal},
        )
        for causal in (False, True)
    ],
    "attention_in_phases": [
        (tuple(integers(128, 512, seed=seed) for seed in range(3)), {})
    ],
    "fused_attention": [
        (tuple(integers(128, 512, seed=seed) for seed in range(3)), {})
    ],
    "linear_gelu": [((integers(128, 128), integers(128, 512), integers(1, 512)), {})],
    "gated_mlp_rows": [
        ((integers(3, 130), integers(130, 5), integers(130, 5), integers(5, 130)), {})
    ],
    "fused_conv2d_maxpool": [
        (IMAGE, {}),
        ((IMAGE[0][..., :4], *IMAGE[1:]), {"pool_size": 2}),
    ],
}


def test_every_kernel_is_among_them():
    names = {kernel.__name__ for kernel in KERNELS.values()}
    missing = {name for name in names if not name.startswith("conv2d_")} ^ set(CALLS)
    assert missing == set()
    assert sum(name.startswith("conv2d_") for name in names) > 5


# By day a third of the ladder's rungs; they differ in their loads.
CHOSEN = [
    name
    for turn, name in enumerate(in_turn(KERNELS))
    if NIGHTLY or ".conv2d_" not in name or turn % 3 == 0
]


@every("number, name", enumerate(CHOSEN))
def test_a_kernel_runs_in_both_modes(number, name):
    """By default a kernel runs in one dtype, every night in both; a ladder's rung always in one."""
    kernel = KERNELS[name]
    units = 4 if kernel.__name__ in APPLIES_FUNCTIONS else 0
    dtypes = (np.float32, ml_dtypes.bfloat16)
    for dtype in (
        dtypes if NIGHTLY and kernel.__name__ in CALLS else dtypes[number % 2 :][:1]
    ):
        for arrays, parameters in CALLS.get(kernel.__name__, [(IMAGE, {})]):
            agree(
                kernel,
                *(array.astype(dtype) for array in arrays),
                units=units,
                **parameters,
            )


# After an example of the documentation's page of nl.mgrid.
def loads_and_stores_of_halves(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    half = x.shape[1] // 2
    i_p, i_f = nl.mgrid[0 : x.shape[0], 0:half]
    for part in nl.affine_range(2):
        nl.store(
            out[i_p, part * half + i_f], nl.load(x[i_p, part * half + i_f]) * (part + 1)
        )
    return out


def test_a_planted_difference_is_seen(monkeypatch):
    monkeypatch.setitem(MEANINGS, "tensor_scalar", MEANINGS["reciprocal"])
    with pytest.raises(OracleError, match="22 of 30 elements differ, the first at"):
        agree(nki.jit(loads_and_stores_of_halves), integers(6, 10))
