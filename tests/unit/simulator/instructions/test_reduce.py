from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator import ShapeError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles, written

BOUND = {"comp_op0": np.less, "comp_op1": np.less}
INTO = {  # name: an instruction of x [4, 6] with the second destination ``into``
    "activation": lambda x, into: nisa.activation(
        nl.copy, x, reduce_op=np.add, reduce_res=into, reduce_cmd=nisa.reduce_cmd.reset_reduce
    ),
    "activation_reduce": lambda x, into: nisa.activation_reduce(
        nl.copy, x, reduce_op=np.add, reduce_res=into
    ),
    "tensor_scalar_reduce": lambda x, into: nisa.tensor_scalar_reduce(
        data=x, op0=np.add, operand0=0.0, reduce_op=np.add, reduce_res=into
    ),
    "range_select": lambda x, into: nisa.range_select(
        on_true_tile=x, bound0=x[:, 0], bound1=x[:, 1], reduce_res=into, **BOUND
    ),
    "select_reduce": lambda x, into: nisa.select_reduce(
        dst=x, predicate=nl.ones((4, 6), nl.uint8), on_true=x, on_false=0.0, reduce_res=into,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    ),
}  # fmt: skip


@every("name", INTO)
@every("shape", [(4, 6), (1, 4), (1, 1), (4, 2), (5, 1)])
def test_a_reductions_destination_has_one_element_a_partition(name, shape):
    def compute(x):
        into = nl.zeros(shape, nl.float32)
        with pytest.raises(ShapeError) as caught:
            INTO[name](x, into)
        return nl.copy(x), into, str(caught.value.received), caught.value.rule

    texts = []

    def kernel(x):
        *tiles, received, rule = compute(nl.load(x))
        texts.extend((received, rule.split(" ", 1)[1]))
        return tuple(written(tile) for tile in tiles)

    data = normal(4, 6)
    unchanged, zeros = launch(kernel, [data]).outputs
    assert_array_equal(unchanged, data)
    assert not zeros.any()
    assert texts == [
        f"reduce_res = tile {list(shape)} float32 in sbuf",
        "writes reduce_res of shape [4, 1]",
    ]


@every("name", INTO)
def test_a_reductions_destination_may_be_a_column(name):
    def compute(x):
        into = nl.zeros((4, 3), nl.float32)
        INTO[name](x, into[:, 1])
        return into

    result = on_tiles(compute, normal(4, 6))
    assert result[:, 1].all()
    assert not result[:, [0, 2]].any()


@every("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_sum_is_accumulated_in_float32_and_rounded_once(dtype):
    """4096 ones are 256 in bfloat16 and 2048 in float16 if each partial sum is rounded."""
    ones = np.ones((2, 4096), dtype)
    assert on_tiles(lambda x: nl.sum(x, axis=1), ones).astype(np.float32).tolist() == [[4096]] * 2
    values = normal(4, 100, dtype=dtype)
    exact = values.astype(np.float64).sum(1, keepdims=True).astype(np.float32).astype(dtype)
    assert_array_equal(on_tiles(lambda x: nl.sum(x, axis=1), values), exact, strict=True)


def test_integers_reduce_in_float32():
    values = np.array([[2**24, 1, 1]], np.int32)
    assert on_tiles(lambda x: nl.max(x, axis=1), values).tolist() == [[2**24]]
    assert on_tiles(lambda x: nl.sum(x, axis=1), values).tolist() != [[2**24 + 1]]


def test_mean_and_var_and_softmax():
    data = normal(4, 50, dtype=np.float16)
    wide = data.astype(np.float64)
    mean, var, softmax = on_tiles(
        lambda x: (nl.mean(x, axis=1), nl.var(x, axis=1), nl.softmax(x, axis=1)), data
    )
    shares = np.exp(wide - wide.max(1, keepdims=True))
    assert mean.dtype == var.dtype == softmax.dtype == np.float16
    assert_allclose(mean[:, 0], wide.mean(1), rtol=1e-3, atol=1e-4)
    assert_allclose(var[:, 0], wide.var(1), rtol=1e-3)
    assert_allclose(softmax, shares / shares.sum(1, keepdims=True), rtol=1e-3)


# -- sums from left to right -----------------------------------------------------------------------


def left_to_right(lines, start=0.0):
    """Each row added one element after the other, in float32, by Python's own loop."""
    totals = []
    for line in lines:
        total = np.float32(start)
        for value in line:
            total = np.float32(total + value)
        totals.append(total)
    return np.array(totals, np.float32)[:, None]


SIZES = [(128, 512), (128, 128), (1, 300), (2, 300), (3, 9), (5, 8), (5, 7), (1, 1)]


@every("size", SIZES)
def test_a_float32_sum_is_from_left_to_right(size):
    """Bit exact on trn1, as published for rows of 128 elements."""
    data = normal(*size)
    expected = left_to_right(data)
    if size[1] >= 128 and size[0] > 1:
        assert (np.add.reduce(data, axis=1) != expected[:, 0]).any()

    def sums(x):
        into = [nl.ndarray((size[0], 1), nl.float32) for _ in range(2)]
        nisa.activation_reduce(nl.copy, x, reduce_op=np.add, reduce_res=into[0])
        nisa.tensor_scalar_reduce(
            data=x, op0=np.multiply, operand0=1.0, reduce_op=np.add, reduce_res=into[1]
        )
        return nisa.tensor_reduce(np.add, x, 1), nl.sum(x, 1, keepdims=True), *into

    for result in on_tiles(sums, data):
        assert_array_equal(result, expected)


def test_the_sum_over_several_axes_is_in_row_major_order():
    data = normal(6, 5, 7, 11)
    both, last, middle = on_tiles(
        lambda x: (
            nisa.tensor_reduce(np.add, x, [2, 3]),
            nisa.tensor_reduce(np.add, x, 3),
            nl.sum(x, 1),
        ),
        data,
    )
    assert_array_equal(both.reshape(30, 1), left_to_right(data.reshape(30, 77)))
    assert_array_equal(last.reshape(-1, 1), left_to_right(data.reshape(-1, 11)))
    ordered = data.transpose(0, 2, 3, 1).reshape(-1, 5)
    assert_array_equal(middle.reshape(-1, 1), left_to_right(ordered))


def test_a_sum_is_minus_zero_only_of_nothing_but_minus_zeros():
    data = np.array([[-0.0, -0.0], [-0.0, 0.0], [0.0, -0.0], [1.0, -1.0]], np.float32)
    result = on_tiles(lambda x: nisa.tensor_reduce(np.add, x, 1), data)
    assert np.signbit(result)[:, 0].tolist() == [True, False, False, False]


def test_the_registers_add_on_to_what_they_hold():
    """One sum over two instructions, and not the sum of two sums."""
    data = normal(16, 200)

    def in_two(x):
        result = nl.ndarray((16, 1), nl.float32)
        for part, command in ((x[:, :100], "reset_reduce"), (x[:, 100:], "reduce")):
            nisa.activation(
                nl.copy,
                part,
                reduce_op=np.add,
                reduce_res=result,
                reduce_cmd=nisa.reduce_cmd[command],
            )
        return result

    expected = left_to_right(data)
    apart = left_to_right(data[:, :100]) + left_to_right(data[:, 100:])
    assert (apart != expected).any()
    assert_array_equal(on_tiles(in_two, data), expected)
