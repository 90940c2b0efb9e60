"""Unwritten elements and their propagation through elementwise instructions."""

import numpy as np
import pytest

from difftest.simulator import UnwrittenError, launch
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as today
from difftest.simulator.frontend.nki import language as today_nl
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles, raised

A = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


def half(array):
    """Return a tile with only the two columns in the middle written."""
    tile = nl.ndarray(array.shape, array.dtype)
    tile[:, 1:3] = nl.load(array[:, 1:3])
    return tile


def halved(x):
    part = today_nl.ndarray(x.shape, x.dtype)
    today.tensor_copy(part[:, 1:3], x[:, 1:3])
    return part


def test_the_error_says_whence_it_came():
    def compute(x):
        copied = today_nl.ndarray(x.shape, x.dtype)
        today.tensor_copy(copied, halved(x))  # the line
        total = today_nl.ndarray((6, 1), x.dtype)
        today.tensor_reduce(total, today_nl.add, copied, axis=1)
        return total

    text = raised(UnwrittenError, compute, A)
    assert (
        "they came from [0:6, 0:4] of tensor 3 [6, 4] float32 in sbuf, made at " in text
    )
    line = compute.__code__.co_firstlineno + 2
    assert "part = today_nl.ndarray(x.shape, x.dtype), called at " in text
    assert ", read by tensor_copy at " in text
    assert f"test_carrying.py:{line}: today.tensor_copy(copied" in text
    assert "# the line" in text


def test_a_transposing_matmul_moves_nonfinite_and_unwritten_elements():
    x = A.copy()
    x[0, 1], x[5, 2] = np.nan, np.inf

    def compute(x):
        identity = today_nl.shared_identity_matrix(6, dtype=today_nl.float32)
        turned = today_nl.ndarray((4, 6), x.dtype, buffer=today_nl.psum)
        today.nc_matmul(turned, halved(x), identity, is_transpose=True)
        return turned[1:3]

    np.testing.assert_array_equal(on_nki_tiles(compute, x), x.T[1:3])


def counted(rows, read):
    """The nonzero elements of the first partition of each GpSimd core, of two cores."""

    def compute(x):
        source = today_nl.ndarray((32, 4), x.dtype)
        for row in rows:
            today.dma_copy(source[row : row + 1], x)
        found = today_nl.zeros((32, 5), today_nl.int32)
        today.nonzero_with_count(found, source)
        return found[read : read + 1]

    return compute


def test_values_computed_from_unwritten_elements_count_as_unwritten():
    row = np.array([[0, 2, 0, 3]], np.float32)
    compute = counted([0], 0)
    expected = [[1, 3, -1, -1, 2]]
    np.testing.assert_array_equal(
        launch(copied_out, [row, compute]).outputs[0], expected
    )
    with pytest.raises(UnwrittenError, match="by nonzero_with_count at"):
        launch(copied_out, [row, counted([0], 16)])
    with pytest.raises(UnwrittenError, match="4 of 4 elements"):
        launch(copied_out, [row, counted([1], 0)])


def copied_out(x, compute):
    result = compute(x)
    out = today_nl.ndarray(result.shape, result.dtype, buffer=today_nl.shared_hbm)
    today.dma_copy(out, result)
    return out


RELAXED = {
    "nothing times it, plus one": lambda x: nl.add(nl.multiply(x, 0.0), 1.0),
    "a copy": nl.copy,
    "an integer": lambda x: nl.add(nl.copy(x, dtype=nl.int32), 1),
    "a comparison": lambda x: nl.where(nl.greater(x, 0.0), 1.0, 2.0),
    "a maximum": lambda x: nl.maximum(x, 5.0),
    "a row's sum": lambda x: nl.broadcast_to(
        nl.sum(nl.multiply(x, 0.0), axis=1, keepdims=True), shape=(6, 4)
    ),
}


@pytest.mark.filterwarnings("ignore::difftest.simulator.RuleWarning")
@pytest.mark.parametrize("some", [True, False], ids=["half", "nothing"])
def test_where_that_is_no_error_both_modes_go_on_with_the_same(some):
    """The results are unwritten or NaN: they show that unwritten elements were read."""
    for name, compute in RELAXED.items():

        def kernel(x, compute=compute):
            result = compute(half(x) if some else nl.ndarray(x.shape, x.dtype))
            out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
            nl.store(out, result)
            return out

        fast, plain = (
            launch(kernel, [A], plain=one, strictness="relaxed") for one in (0, 1)
        )
        np.testing.assert_array_equal(fast.outputs[0], plain.outputs[0], err_msg=name)
        if name == "nothing times it, plus one":
            assert np.isnan(fast.outputs[0]).sum() == (12 if some else 24)
        missing = [one.unwritten[0] for one in (fast, plain)]
        assert (missing[0] is None) == (missing[1] is None), name
        np.testing.assert_array_equal(
            *[np.zeros(1) if m is None else m for m in missing]
        )
