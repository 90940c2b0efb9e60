"""Additions of NeuronCore-v4: operators, dtypes, MX, and the machine itself."""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import TRN2, TRN3, DtypeError, KernelError, NkiError, launch
from difftest.simulator.entry.nki_kernel import jit, simulate
from difftest.simulator.frontend.launchable import TARGET_VARIABLE
from difftest.simulator.frontend.levels import LEVELS
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.machine import KIB
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles, stored, tile, values

X = values(16, 24)
Y = values(16, 24, seed=1)
BFLOAT16 = ml_dtypes.bfloat16


def named(op, data, operand, machine=TRN3):
    """``tensor_scalar`` with an operator."""

    def compute(x):
        out = tile((16, 24))
        nisa.tensor_scalar(out, x, op, operand)
        return out

    return on_nki_tiles(compute, data, machine=machine)


# -- operators -------------------------------------------------------------------------------------


@every("op", [nl.abs_max, nl.abs_min, nl.square, nl.relu])
def test_they_need_neuroncore_v4(op):
    with pytest.raises(KernelError, match="needs NeuronCore-v4"):
        named(op, X, 0.0, machine=TRN2)


# -- the machine -----------------------------------------------------------------------------------


@every("target", ["trn3", "gen4"])
def test_the_environment_names_trn3(monkeypatch, target):
    seen = []

    def kernel(x):
        seen.append((nisa.get_nc_version(), nl.tile_size.sbuf_fmax_bytes))
        return stored(nl.load(x))

    monkeypatch.setenv(TARGET_VARIABLE, target)
    simulate(kernel)(X)
    assert seen == [(nisa.nc_version.gen4, TRN3.sbuf_usable_bytes)]
    assert TRN3.sbuf_usable_bytes > 224 * KIB


# -- dtypes ----------------------------------------------------------------------------------------


def test_the_classic_dialect_does_not_have_it():
    from difftest.simulator.frontend.classic import language as classic

    def kernel(x):
        return classic.load(x)

    with pytest.raises(DtypeError, match="float8_e4m3fn"):
        launch(kernel, [np.ones((2, 2), ml_dtypes.float8_e4m3fn)])


# -- MX --------------------------------------------------------------------------------------------


def mx_matmul(stationary, stationary_scale, moving):
    """A stationary operand quantized on the host, given as uint32, and one quantized here."""
    rows = stationary.shape[0]
    columns = moving.shape[1] // 4
    left = nl.ndarray(stationary.shape, nl.float8_e5m2_x4)
    nisa.dma_copy(left, stationary.view(nl.float8_e5m2_x4))
    left_scale = nl.load(stationary_scale)
    right = nl.ndarray((rows, columns), nl.float8_e4m3fn_x4)
    right_scale = nl.ndarray((rows, columns), nl.float8_e8m0fnu)
    nisa.quantize_mx(dst=right, src=nl.load(moving), dst_scale=right_scale)
    result = nl.ndarray((stationary.shape[1], columns), nl.float32, buffer=nl.psum)
    for _ in range(2):
        nisa.nc_matmul_mx(result, left, right, left_scale, right_scale)
    return stored(result)


def test_mx_operands_from_the_host_and_from_the_vector_engine():
    """Small integers, which every scale keeps exact; ``accumulate=None`` adds the second time."""
    random = np.random.default_rng(0)
    left = random.integers(-2, 3, (128, 6, 4)).astype(ml_dtypes.float8_e5m2)
    right = random.integers(-2, 3, (128, 10 * 4)).astype(BFLOAT16)
    scale = np.full((128, 6), 127 + 1, np.uint8)  # a factor of two
    packed = np.ascontiguousarray(left).view(np.uint32)[..., 0]
    result = launch(mx_matmul, [packed, scale, right], machine=TRN3).outputs[0]
    product = np.einsum(
        "pif,pjf->ij",
        left.astype(np.float32),
        right.astype(np.float32).reshape(128, 10, 4),
    )
    assert_array_equal(result, 2 * 2 * product)


# -- levels ----------------------------------------------------------------------------------------


def at_level(level, body):
    """Return the error of a kernel with this body at a level of NKI; None if it runs."""

    @jit
    def kernel(x):
        body()
        return stored(nl.load(x))

    try:
        launch(kernel, [X], machine=TRN3, level=level)
    except NkiError as error:
        return error
    return None


def activated():
    nisa.activate2(tile((4, 4)), nl.copy, tile((4, 4)), 0.0, 0.0, nl.bypass, nl.bypass)


def quantized():
    packed, scale = (
        nl.ndarray((32, 4), kind) for kind in (nl.float8_e4m3fn_x4, nl.uint8)
    )
    nisa.quantize_mx(packed, tile((32, 16), nl.bfloat16), scale)


@every(
    "body, since",
    [
        (activated, "0.4"),
        (lambda: nl.abs_max(tile((4, 4)), 1.0), "0.4"),
        (quantized, "0.5"),
    ],
)
def test_a_level_before_has_not_the_name(body, since):
    assert at_level(None, body) is None
    for level in LEVELS:
        error = at_level(level, body)
        assert (error is not None) == (level < since), level
        assert error is None or since in str(error)
