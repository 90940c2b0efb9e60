from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import TRN1, NkiError
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles

FLOAT32_MIN = np.finfo(np.float32).min
A = normal(6, 8)
P, X = nl.mgrid[0:6, 0:8]
ROWS, COLUMNS = np.mgrid[0:6, 0:8]


@every(
    "predicate, chosen",
    [
        (P >= X, ROWS >= COLUMNS),
        (P > X, ROWS > COLUMNS),
        (2 * P + 1 < 3 * X, 2 * ROWS + 1 < 3 * COLUMNS),
        (X <= 4, COLUMNS <= 4),
    ],
)
def test_affine_select(predicate, chosen):
    narrow = A.astype(ml_dtypes.bfloat16)
    plain, small = on_tiles(
        lambda x, n: (
            nisa.affine_select(predicate, x, -9.25),
            nisa.affine_select(pred=predicate, on_true_tile=n, on_false_value=-9984.1),
        ),
        *(A, narrow),
    )
    assert_array_equal(plain, np.where(chosen, A, np.float32(-9.25)), strict=True)
    expected = np.where(chosen, narrow, np.array(-9984.1, ml_dtypes.bfloat16))
    assert_array_equal(small, expected, strict=True)


LOW = np.array([[0], [1], [2], [3], [7], [8]], np.float32)
HIGH = np.array([[8], [3], [2], [7], [8], [9]], np.float32)


@every("start", [0, 2])
@every("op0, op1", [(np.greater_equal, np.less), (np.greater, np.less_equal), (np.equal, np.less)])
def test_range_select(start, op0, op1):
    def compute(x, low, high):
        largest = nl.ndarray((6, 1), nl.float32)
        selected = nisa.range_select(
            on_true_tile=x,
            comp_op0=op0,
            comp_op1=op1,
            bound0=low,
            bound1=high,
            reduce_res=largest,
            range_start=start,
        )
        return selected, largest

    selected, largest = on_tiles(compute, A, LOW, HIGH)
    index = (start + np.arange(8))[None, :]
    expected = np.where(op0(index, LOW) & op1(index, HIGH), A, FLOAT32_MIN)
    assert_array_equal(selected, expected, strict=True)
    assert_array_equal(largest, expected.max(1, keepdims=True), strict=True)


def test_in_a_narrow_dtype_the_smallest_float32_becomes_minus_infinity():
    result = on_tiles(
        lambda x, low, high: nisa.range_select(
            on_true_tile=x,
            comp_op0=nl.greater_equal,
            comp_op1=nl.less,
            bound0=low,
            bound1=high,
            dtype=nl.bfloat16,
        ),
        *(A, LOW, HIGH),
    )
    inside = (np.arange(8) >= LOW) & (np.arange(8) < HIGH)
    assert_array_equal(np.isinf(result.astype(np.float32)), ~inside)


def test_the_registers_of_the_vector_engine_accumulate_a_maximum():
    def compute(x, low, high):
        largest = nl.ndarray((6, 1), nl.float32)

        def select(part, command, **kwargs):
            nisa.range_select(
                on_true_tile=part,
                comp_op0=np.greater_equal,
                comp_op1=np.less,
                bound0=low,
                bound1=high,
                reduce_cmd=command,
                **kwargs,
            )

        select(x, nisa.reduce_cmd.reset_reduce)
        select(nl.multiply(x, 2.0), nisa.reduce_cmd.reduce, reduce_res=largest)
        return largest

    inside = (np.arange(8) >= LOW) & (np.arange(8) < HIGH)
    expected = np.maximum(A, 2 * A)
    expected = np.where(inside, expected, FLOAT32_MIN).max(1, keepdims=True)
    assert_array_equal(on_tiles(compute, A, LOW, HIGH), expected)


PREDICATE = (COLUMNS % 3 == ROWS % 3).astype(np.uint8)


@every("reverse", [False, True])
@every("shape", [(6, 8), (6, 2, 4)])
def test_select_reduce(reverse, shape):
    column = normal(6, 1, seed=2)

    def compute(x, predicate, other):
        dst, largest = nl.ndarray((6, 8), nl.float32), nl.ndarray((6, 1), nl.float32)
        scalar = nl.ndarray((6, 8), nl.float32)
        nisa.select_reduce(
            dst=dst,
            predicate=predicate,
            on_true=x,
            on_false=other,
            reduce_res=largest,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
            reduce_op=nl.max,
            reverse_pred=reverse,
        )
        nisa.select_reduce(dst=scalar, predicate=predicate, on_true=x, on_false=nl.fp32.min)
        return dst, largest, scalar

    dst, largest, scalar = on_tiles(compute, A, PREDICATE.reshape(shape), column)
    chosen = (PREDICATE != 0) ^ reverse
    expected = np.where(chosen, A, column)
    assert_array_equal(dst, expected, strict=True)
    assert_array_equal(largest, expected.max(1, keepdims=True), strict=True)
    assert_array_equal(scalar, np.where(PREDICATE, A, FLOAT32_MIN), strict=True)


def test_nl_where():
    other, row = normal(6, 8, seed=3), normal(1, 8, seed=4)
    results = on_tiles(
        lambda x, y, r: (
            nl.where(x > y, x, y),
            nl.where(x > 0, x, 0.0),
            nl.where(x > 0, 1.0, y, dtype=nl.bfloat16),
            nl.where(r > 0, x, y),
            nl.where(x[:, 0:1] > 0, x, y),
        ),
        *(A, other, row),
    )
    expected = [
        np.maximum(A, other),
        np.where(A > 0, A, np.float32(0)),
        np.where(A > 0, 1, other).astype(ml_dtypes.bfloat16),
        np.where(row > 0, A, other),
        np.where(A[:, :1] > 0, A, other),
    ]
    for result, wanted in zip(results, expected, strict=True):
        assert_array_equal(result, wanted, strict=True)


def test_nl_where_keeps_integers_exact():
    big = np.full((2, 3), 2**30 + 1, np.int32)
    result = on_tiles(lambda x: nl.where(x > 0, x, x), big)
    assert_array_equal(result, big, strict=True)


def ranged(x, **changes):
    bound = nl.zeros((6, 1), nl.float32)
    given = {"on_true_tile": x, "comp_op0": np.less, "comp_op1": np.less}
    return nisa.range_select(**{**given, "bound0": bound, "bound1": bound, **changes})


def selected(x, predicate, **changes):
    given = {"dst": nl.zeros((6, 8), nl.float32), "on_true": x, "on_false": 0.0}
    return nisa.select_reduce(**{**given, "predicate": predicate, **changes})


REFUSED = [
    (
        "two conditions",
        lambda x, p: nisa.affine_select((P >= X) & (P < 4), x, 0),
        "affine_select takes pred as one comparison of index expressions",
    ),
    ("an equality", lambda x, p: nisa.affine_select(P == X, x, 0), "pred as one comparison"),
    (
        "a tile as condition",
        lambda x, p: nisa.affine_select(x > 0, x, 0),
        "pred as one comparison",
    ),
    (
        "a bound for each element",
        lambda x, p: ranged(x, bound1=x),
        "range_select takes bound1 as a vector",
    ),
    ("where of a number", lambda x, p: nl.where(1, x, x), "nl.where takes a tile as condition"),
]


@every("compute, rule", [row[1:] for row in REFUSED])
def test_what_is_refused(compute, rule):
    with pytest.raises(NkiError, match=rule):
        on_tiles(compute, A, PREDICATE)


def test_range_select_needs_trn2():
    with pytest.raises(NkiError, match="range_select needs NeuronCore-v3") as caught:
        on_tiles(lambda x: ranged(x), A, machine=TRN1)
    assert caught.value.received == "trn1 (NeuronCore-v2)"
    assert caught.value.limit == "trn2 and later"
