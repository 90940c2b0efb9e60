"""The functions of ``nki.language`` that both dialects have, each against NumPy in float64."""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator import KernelError
from difftest.simulator.frontend.classic import language as classic_nl
from difftest.simulator.frontend.nki import language as todays_nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles
from tests.unit.simulator.on_tiles import normal, on_tiles

DIALECTS = {"classic": (classic_nl, on_tiles), "today's": (todays_nl, on_nki_tiles)}
both = every("nl, run", DIALECTS.values())
A = normal(16, 24)
B = normal(16, 24, seed=1)
CUBE = A.reshape(16, 4, 6)
TRUTHS = ("equal", "less", "greater_equal", "logical_and")
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", *TRUTHS)
UNARY = {
    **{
        name: getattr(np, name)
        for name in ("exp", "tanh", "square", "abs", "negative", "sign")
    },
    "reciprocal": np.reciprocal,
    "copy": np.copy,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
ROUNDED = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc}
FRACTIONS = np.array(
    [3.2, 3.7, -3.2, -3.7, 0, -0.3, 0.3, 1e-30, -1e-30, 0.99999994, -0.99999994, 2.5, -2.5, 7, -7,
     8388607.5, -8388607.5, 16777217, 3e38, -3e38],
    np.float32,
)[None, :]  # fmt: skip
ANGLES = np.linspace(-20, 20, 64, dtype=np.float32).reshape(4, 16)
REDUCTIONS = {name: getattr(np, name) for name in ("sum", "max", "min", "prod", "mean")}


@both
@every("name", BINARY)
def test_functions_of_two_tiles_and_of_a_number(nl, run, name):
    function, numpys = getattr(nl, name), getattr(np, name)
    pair, right, left = run(
        lambda x, y: (function(x, y), function(x, 0.5), function(0.5, x)), A, B
    )
    half = np.float32(0.5)
    for result, expected in (
        (pair, numpys(A, B)),
        (right, numpys(A, half)),
        (left, numpys(half, A)),
    ):
        assert_array_equal(result.astype(np.float32), expected.astype(np.float32))


@both
@every("name", UNARY)
def test_functions_of_one_tile(nl, run, name):
    function = getattr(nl, name)
    result, narrow = run(lambda x: (function(x), function(x, dtype=nl.bfloat16)), A)
    assert result.dtype == np.float32
    assert_allclose(result, UNARY[name](A.astype(np.float64)), rtol=1e-6, atol=1e-7)
    assert_array_equal(narrow, result.astype(ml_dtypes.bfloat16), strict=True)


@both
@every("name", ROUNDED)
@every("dtype", [np.float32, ml_dtypes.bfloat16])
def test_floor_ceil_and_trunc_are_exact(nl, run, name, dtype):
    for data in (FRACTIONS.astype(dtype), (10 * A).astype(dtype)):
        expected = ROUNDED[name](data.astype(np.float64))
        assert_array_equal(
            run(getattr(nl, name), data), expected.astype(dtype), strict=True
        )
    integers = run(
        lambda x: getattr(nl, name)(x, dtype=nl.int32), np.float32([[2.7, -2.2]])
    )
    assert_array_equal(integers, np.int32(ROUNDED[name]([[2.7, -2.2]])), strict=True)


@both
@every("name", ["cos", "tan"])
def test_angles_of_any_size(nl, run, name):
    angles = ANGLES[np.abs(np.cos(ANGLES)) > 0.1].reshape(1, -1)
    expected = getattr(np, name)(angles.astype(np.float64))
    assert_allclose(run(getattr(nl, name), angles), expected, rtol=2e-4, atol=1e-5)


@both
@every("name", REDUCTIONS)
def test_reductions_have_the_values_of_numpy(nl, run, name):
    function = getattr(nl, name)
    numpys = REDUCTIONS[name]
    whole, last, kept = run(
        lambda x: (function(x, (1, 2)), function(x, 2), function(x, -1, keepdims=True)),
        CUBE,
    )
    wide = CUBE.astype(np.float64)
    assert_allclose(whole, numpys(wide, axis=(1, 2))[:, None], rtol=1e-5, atol=1e-6)
    assert_allclose(last, numpys(wide, axis=2), rtol=1e-5, atol=1e-6)
    assert_allclose(kept, numpys(wide, axis=2, keepdims=True), rtol=1e-5, atol=1e-6)


@both
def test_reductions_made_of_others(nl, run):
    spread, soft, whole, every_one, large = run(
        lambda x, y: (
            nl.var(x, 2), nl.softmax(x, 2), nl.softmax(x, (1, 2)), nl.all(x, (1, 2)),
            nl.softmax(y, 1),
        ),
        CUBE, np.float32([[1000, 1000, -1000]]),
    )  # fmt: skip
    wide = CUBE.astype(np.float64)
    exponent = np.exp(wide)
    assert_allclose(spread.reshape(16, 4), wide.var(axis=2), rtol=1e-5)
    assert_allclose(soft, exponent / exponent.sum(axis=2, keepdims=True), rtol=1e-5)
    assert_allclose(
        whole, exponent / exponent.sum(axis=(1, 2), keepdims=True), rtol=1e-5
    )
    assert (every_one == 1).all()
    assert large.tolist() == [[0.5, 0.5, 0]]


@both
def test_rms_norm_scales_by_the_root_of_the_mean_square(nl, run):
    result = run(lambda x, w: nl.rms_norm(x, w, 1, 24), A, B)
    square = np.square(A.astype(np.float64)).sum(axis=1, keepdims=True) / 24
    assert_allclose(result, A / np.sqrt(square + 1e-6) * B, rtol=1e-5)
    with pytest.raises(KernelError, match="n=0"):
        run(lambda x: nl.rms_norm(x, x, 1, 0), A)


@both
def test_matmul_and_transpose_have_the_values_of_numpy(nl, run):
    turned, plain, transposed = run(
        lambda x, y: (
            nl.matmul(x, y, transpose_x=True), nl.matmul(nl.copy(x[:, 0:16]), y), nl.transpose(x)
        ),
        A, B,
    )  # fmt: skip
    assert_allclose(turned, A.T @ B, rtol=1e-5, atol=1e-5)
    assert_allclose(plain, A[:, :16] @ B, rtol=1e-5, atol=1e-5)
    assert_array_equal(transposed, A.T)


@both
def test_selections_and_changes_of_shape_have_the_values_of_numpy(nl, run):
    places = np.random.default_rng(0).integers(0, 24, (16, 5)).astype(np.uint32)
    chosen, gathered, column, row, expanded = run(
        lambda x, y, i: (
            nl.where(nl.greater(x, 0.0), x, y),
            nl.gather_flattened(x, i),
            nl.broadcast_to(nl.copy(x[:, 0:1], dtype=nl.float16), shape=(16, 3)),
            nl.broadcast_to(nl.copy(x[0:1]), shape=(128, 24)),
            nl.copy(nl.expand_dims(x, 1)),
        ),
        A,
        B,
        places,
    )
    assert_array_equal(chosen, np.where(A > 0, A, B))
    assert_array_equal(gathered, np.take_along_axis(A, places.astype(int), axis=1))
    assert_array_equal(column, np.broadcast_to(A[:, :1], (16, 3)).astype(np.float16))
    assert_array_equal(row, np.broadcast_to(A[:1], (128, 24)))
    assert_array_equal(expanded, A[:, None])
