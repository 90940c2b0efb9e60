"""nisa.topk, as AWS's page of NKI 0.7 has it."""

import warnings

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import NotModelledError, UnwrittenError, launch
from difftest.simulator.frontend import levels
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.isa.arithmetic import TopKWarning
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import stored


def shuffled(groups, columns, seed=0):
    """Distinct small whole numbers, exact in bfloat16 per group of 16 partitions [16 G, C]."""
    rng = np.random.default_rng(seed)
    each = [rng.permutation(16 * columns).reshape(16, columns) for _ in range(groups)]
    return np.concatenate(each).astype(ml_dtypes.bfloat16)


def kernel(k, n, **options):
    """A kernel that returns values and numbers, [P, k]."""

    def run(x):
        src = nl.load(x)
        val = nl.ndarray((x.shape[0], k), nl.bfloat16)
        idx = nl.ndarray((x.shape[0], k), nl.uint32)
        nisa.memset(val, -1.0)
        nisa.memset(idx, 99)
        nisa.topk(val, idx, src, n, **options)
        return stored(val), stored(idx)

    return run


@every("k", [16, 32])
def test_each_sixteen_partitions_are_one_problem(k):
    x = shuffled(3, 6)
    values, numbers = launch(kernel(k, 90), [x], level="0.7").outputs
    for group in range(3):
        rows = slice(16 * group, 16 * group + 16)
        snake = x[rows].T.reshape(-1)[:90].astype(np.float32)
        columns = k // 16
        found = numbers[rows, :columns].T.reshape(-1)
        assert sorted(snake[found]) == sorted(snake)[-k:]
        assert_array_equal(
            values[rows, :columns].T.reshape(-1).astype(np.float32), snake[found]
        )
        assert (values[rows, columns:] == -1).all()
        assert (numbers[rows, columns:] == 99).all()


def test_nan_is_the_least_in_both_modes():
    """The oracle ordered NaN among numbers by chance."""
    x = np.resize([np.inf, 1, -0.0, np.nan, -np.inf, 0], (16, 8)).astype(
        ml_dtypes.bfloat16
    )
    fast, plain = (
        launch(kernel(32, 125), [x], level="0.7", plain=one) for one in (False, True)
    )
    assert_array_equal(fast.outputs[1], plain.outputs[1])
    assert not np.isnan(fast.outputs[0].astype(np.float32)).any()


def test_elements_after_the_results_of_the_last_column_count_as_unwritten():
    def first(rows):
        def run(x):
            val = nl.zeros((16, 8), nl.bfloat16)
            idx = nl.zeros((16, 8), nl.uint32)
            nisa.topk(val, idx, nl.load(x), 32)
            return stored(val[0:rows, 0:1]), stored(idx[0:rows, 0:1])

        return run

    x = shuffled(1, 2)
    with pytest.raises(UnwrittenError, match="by topk at"):
        launch(first(9), [x], level="0.7")
    values, numbers = launch(first(8), [x], level="0.7").outputs
    assert sorted(values[:, 0].astype(int)) == list(range(24, 32))
    assert_array_equal(x.T.reshape(-1)[numbers[:, 0]], values[:, 0])


@every("level", [None, "0.6"])
def test_levels_whose_page_says_otherwise_warn(level):
    with pytest.warns(TopKWarning, match="down 16 partitions"):
        launch(kernel(16, 32), [shuffled(1, 2)], level=level)


def test_a_future_level_has_the_rules_of_the_last_page(monkeypatch):
    """A level that is compared as text with "0.7" would count as one before it."""
    monkeypatch.setattr(levels, "LEVELS", (*levels.LEVELS, "0.8"))
    monkeypatch.setattr(levels, "_ORDER", (*levels._ORDER, "0.8"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", TopKWarning)
        launch(kernel(16, 32), [shuffled(1, 2)], level="0.8")


def test_an_order_is_not_modelled():
    with pytest.raises(NotModelledError, match="sorted=True"):
        launch(kernel(16, 32, sorted=True), [shuffled(1, 2)])
