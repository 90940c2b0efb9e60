from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator import Engine, KernelError, NkiError, ShapeError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.trace import Attributes
from tests.every import every
from tests.unit.simulator.on_tiles import integers, normal, on_tiles, written

DATA = normal(4, 3, 5)
REDUCTIONS = {
    "add": (np.add, np.sum),
    "maximum": (np.max, np.max),
    "minimum": (np.min, np.min),
    "multiply": (np.multiply, np.prod),
}


@every("op, expected", REDUCTIONS.values())
@every("axis", [2, [2], (1, 2), [2, 1], -1, [-2, -1]])
@every("keepdims", [False, True])
def test_tensor_reduce(op, expected, axis, keepdims):
    axes = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
    wanted = expected(DATA, axis=axes, keepdims=keepdims)
    result = on_tiles(lambda x: nisa.tensor_reduce(op, x, axis, keepdims=keepdims), DATA)
    assert result.shape == (wanted.shape if wanted.ndim > 1 else (4, 1))
    assert_allclose(result, wanted.reshape(result.shape), rtol=1e-6)


@every(
    "function, expected", [(nl.sum, np.sum), (nl.max, np.max), (nl.min, np.min), (nl.prod, np.prod)]
)
def test_the_functions_of_nl(function, expected):
    for axis, keepdims in ((1, False), (2, True), ((1, 2), False)):
        result = on_tiles(lambda x, a=axis, k=keepdims: function(x, axis=a, keepdims=k), DATA)
        wanted = expected(DATA, axis=axis, keepdims=keepdims)
        assert_allclose(result, wanted.reshape(result.shape), rtol=1e-6)


def test_subtract_takes_the_others_from_the_first():
    result = on_tiles(lambda x: nisa.tensor_reduce(np.subtract, x, [1, 2]), DATA)
    flat = DATA.reshape(4, -1).astype(np.float64)
    assert_allclose(result[:, 0], flat[:, 0] - flat[:, 1:].sum(1), rtol=1e-6)


def test_a_logical_reduction_is_negated_as_a_number():
    """Logical operators are arithmetic: negate multiplies their 1 or 0 by -1.0."""
    values = np.array([[0, 3, 0], [1, 2, 3]], np.float32)
    both, either = on_tiles(
        lambda x: tuple(
            nisa.tensor_reduce(op, x, 1, negate=True) for op in (nl.logical_and, nl.logical_or)
        ),
        values,
    )
    assert (both[:, 0].tolist(), either[:, 0].tolist()) == ([0, -1], [-1, -1])


@every("op", [np.bitwise_or, np.bitwise_and])
def test_bits_across_partitions(op):
    bits = integers(5, 6, low=0, high=2**31, dtype=np.int32)
    result = on_tiles(lambda x: nisa.tensor_partition_reduce(op, x), bits)
    assert_array_equal(result, op.reduce(bits, axis=0, keepdims=True), strict=True)
    with pytest.raises(NkiError, match="bitvec operators work on integers"):
        on_tiles(lambda x: nisa.tensor_partition_reduce(op, x), bits.astype(np.float32))


@every(
    "op, expected",
    [(nl.abs, np.abs), (nl.logical_not, np.logical_not), (nl.reciprocal, np.reciprocal)],
)
def test_tensor_scalar_reduce_with_a_unary_operator(op, expected):
    """ "Any arithmetic operator" of the table that the Vector Engine has."""

    def compute(x):
        total = nl.ndarray((4, 1), nl.float32)
        result = nisa.tensor_scalar_reduce(
            data=x, op0=op, operand0=0.0, reduce_op=np.add, reduce_res=total
        )
        return result, total

    result, total = on_tiles(compute, DATA)
    wanted = expected(DATA).astype(np.float32)
    assert_array_equal(result, wanted)
    assert_allclose(total[:, 0], wanted.sum((1, 2)), rtol=1e-5)


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


def test_the_registers_are_one_for_each_partition():
    """An instruction over two partitions leaves the other partitions' registers alone."""

    def compute(x):
        into = nl.zeros((4, 1), nl.float32)
        run = {"reduce_op": np.add, "reduce_cmd": nisa.reduce_cmd.reduce}
        nisa.activation(nl.copy, x, reduce_op=np.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)
        nisa.activation(nl.copy, x[0:2], **run)
        nisa.activation(nl.copy, x, reduce_res=into, **run)
        return into

    data = normal(4, 6)
    sums = data.sum(1, keepdims=True) * np.array([[3], [3], [2], [2]])
    assert_allclose(on_tiles(compute, data), sums, rtol=1e-5)


def test_logical_reductions_are_one_or_zero():
    values = np.array([[0, 0, 0], [0, 3, 0], [1, 2, 3]], np.float32)
    results = on_tiles(
        lambda x: tuple(
            nisa.tensor_reduce(op, x, 1) for op in (nl.logical_and, nl.logical_or, nl.logical_xor)
        ),
        values,
    )
    assert [result[:, 0].tolist() for result in results] == [[0, 0, 1], [0, 1, 1], [0, 1, 1]]


@every("dtype", ["uint8", "int16", "uint32", "int32"])
def test_bitvec_reductions_keep_every_bit(dtype):
    info = np.iinfo(dtype)
    values = integers(4, 6, low=info.min, high=info.max, dtype=dtype)
    for op in (np.bitwise_and, np.bitwise_or, np.bitwise_xor):
        result = on_tiles(lambda x, op=op: nisa.tensor_reduce(op, x, 1), values)
        assert_array_equal(result, op.reduce(values, axis=1, keepdims=True), strict=True)


def test_negate():
    plain, negated = on_tiles(
        lambda x: (nisa.tensor_reduce(np.max, x, 2), nisa.tensor_reduce(np.max, x, 2, negate=True)),
        DATA,
    )
    assert_array_equal(negated, -plain)


@every("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_sum_is_accumulated_in_float32_and_rounded_once(dtype):
    """4096 ones are 256 in bfloat16 and 2048 in float16 if each partial sum is rounded."""
    ones = np.ones((2, 4096), dtype)
    assert on_tiles(lambda x: nl.sum(x, axis=1), ones).astype(np.float32).tolist() == [[4096]] * 2
    values = normal(4, 100, dtype=dtype)
    exact = values.astype(np.float64).sum(1, keepdims=True).astype(np.float32).astype(dtype)
    assert_array_equal(on_tiles(lambda x: nl.sum(x, axis=1), values), exact, strict=True)


def test_the_result_may_have_another_dtype():
    values = normal(4, 100, dtype=np.float16)
    result = on_tiles(lambda x: nisa.tensor_reduce(np.add, x, 1, dtype=nl.float32), values)
    assert result.dtype == np.float32
    assert_allclose(result[:, 0], values.astype(np.float64).sum(1), rtol=1e-6)


def test_integers_reduce_in_float32():
    values = np.array([[2**24, 1, 1]], np.int32)
    assert on_tiles(lambda x: nl.max(x, axis=1), values).tolist() == [[2**24]]
    assert on_tiles(lambda x: nl.sum(x, axis=1), values).tolist() != [[2**24 + 1]]


@every("op, expected", [(np.add, np.sum), (np.max, np.max), (nl.bitwise_or, np.bitwise_or.reduce)])
def test_across_partitions(op, expected):
    values = integers(6, 3, 2, low=0, high=100, dtype=np.int32)
    result = on_tiles(lambda x: nisa.tensor_partition_reduce(op, x), values)
    assert_array_equal(result, expected(values, axis=0)[None].astype(np.int32), strict=True)


@every(
    "op, expected", [(np.add, np.sum), (np.max, np.max), (np.min, np.min), (nl.multiply, np.prod)]
)
def test_tensor_scalar_reduce(op, expected):
    column = normal(4, 1, seed=1)

    def both(x, y):
        total = nl.ndarray((4, 1), nl.float32)
        scaled = nisa.tensor_scalar_reduce(
            data=x, op0=np.multiply, operand0=y, reduce_op=op, reduce_res=total
        )
        return scaled, total

    scaled, total = on_tiles(both, DATA, column)
    assert_array_equal(scaled, DATA * column[:, :, None])
    assert_allclose(total[:, 0], expected(scaled.reshape(4, -1), axis=1), rtol=1e-6)


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


def test_the_mean_of_integers_is_float32():
    result = on_tiles(lambda x: nl.mean(x, axis=1), np.array([[1, 2]], np.int32))
    assert_array_equal(result, np.array([[1.5]], np.float32), strict=True)


def test_engines():
    def kernel(x):
        tile = nl.load(x)
        nisa.tensor_reduce(np.add, tile, 1)
        nisa.tensor_partition_reduce(np.add, tile)

    events = launch(kernel, [DATA[:, 0]]).trace.events[1:]
    assert [(event.opcode, event.engine) for event in events] == [
        ("tensor_reduce", Engine.VECTOR),
        ("tensor_partition_reduce", Engine.GPSIMD),
    ]
    assert events[0].attributes == Attributes(op="add")
    assert events[0].arguments["axis"] == (1,)


@every("op", [np.divide, np.equal, nl.power])
@every(
    "issued, option",
    [
        (lambda x, op: nisa.tensor_reduce(op, x, axis=2), "op"),
        (
            lambda x, op: nisa.activation_reduce(
                nl.exp, x, reduce_op=op, reduce_res=nl.ndarray((4, 1), nl.float32)
            ),
            "reduce_op",
        ),
    ],
)
def test_what_does_not_reduce(issued, option, op):
    with pytest.raises(KernelError, match="takes an operator that can reduce") as caught:
        on_tiles(lambda x: issued(x, op), DATA)
    assert caught.value.received.startswith(f"{option}=")
    assert "maximum" in caught.value.limit


REFUSED = [
    ("an axis before", lambda x: nl.sum(x, axis=-4), "tensor_reduce reduces free", "axis=-4 of"),
    (
        "bits of floats",
        lambda x: nisa.tensor_reduce(np.bitwise_or, x, axis=2),
        "bitvec operators work on integers",
        "data of float32",
    ),
    (
        "a product across partitions",
        lambda x: nisa.tensor_partition_reduce(np.multiply, x),
        "tensor_partition_reduce takes few operators",
        "multiply",
    ),
    (
        "bits after arithmetic",
        lambda x: nisa.tensor_scalar_reduce(
            data=x, op0=np.add, operand0=1.0, reduce_op=nl.bitwise_or, reduce_res=x[:, 0, 0:1]
        ),
        "tensor_scalar_reduce takes few reductions",
        "reduce_op=bitwise_or",
    ),
]


@every("compute, rule, received", [row[1:] for row in REFUSED])
def test_what_is_refused(compute, rule, received):
    with pytest.raises(NkiError) as caught:
        on_tiles(compute, DATA)
    assert rule in caught.value.rule
    assert received in caught.value.received


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


def test_a_difference_is_from_left_to_right():
    data = normal(16, 200)
    negated = np.concatenate([data[:, :1], -data[:, 1:]], axis=1)
    assert_array_equal(
        on_tiles(lambda x: nisa.tensor_reduce(np.subtract, x, 1), data), left_to_right(negated)
    )
