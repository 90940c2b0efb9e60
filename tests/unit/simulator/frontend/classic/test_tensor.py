"""Tensors as kernels handle them: operators, assignment, accumulation, views."""

from __future__ import annotations

import operator

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import KernelError, NkiError, ShapeError, UnwrittenError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import integers, normal, on_tiles

A, B = normal(6, 8), normal(6, 8, seed=1)
POSITIVE = np.abs(A) + np.float32(0.5)
M, N = (integers(6, 8, low=0, high=30, dtype=np.int32, seed=k) for k in (2, 3))


@every("dtype", [np.int32, np.uint8])
def test_the_quotient_of_integers_is_a_fraction(dtype):
    """nl.divide is "similar to numpy.divide"; an instruction keeps its documented dtype."""
    m, n = M.astype(dtype), (N + 1).astype(dtype)
    both, right, left, cast, instruction, in_place = on_tiles(
        lambda x, y: (
            x / y,
            nl.divide(x, 38),
            38 / y,
            nl.divide(x, y, dtype=nl.int32),
            nisa.tensor_tensor(x, y, np.divide),
            operator.itruediv(x, y),
        ),
        *(m, n),
    )
    quotient = m.astype(np.float32) / n.astype(np.float32)
    assert_array_equal(both, quotient, strict=True)
    assert_array_equal(right, m.astype(np.float32) / np.float32(38), strict=True)
    assert_array_equal(left, np.float32(38) / n.astype(np.float32), strict=True)
    assert_array_equal(cast, np.rint(quotient).astype(np.int32), strict=True)
    assert_array_equal(instruction, np.rint(quotient).astype(dtype), strict=True)
    assert_array_equal(in_place, np.rint(quotient).astype(dtype), strict=True)


@every("name", ["iadd", "isub", "imul", "itruediv"])
@every("dtype", [np.float32, ml_dtypes.bfloat16])
@every("form", ["name", "[...]", "part"])
def test_in_place_operators_keep_the_tile_and_its_dtype(name, dtype, form):
    op = getattr(operator, name)

    def compute(x, y):
        alias = x
        if form == "name":
            x = op(x, y)
        elif form == "[...]":
            x[...] = op(x[...], y)
        else:
            x[:, 0:8] = op(x[:, 0:8], y)
        assert x is alias or form == "name"
        return alias

    a = A.astype(dtype)
    plain = getattr(operator, name[1:])
    expected = plain(a.astype(np.float32), POSITIVE).astype(dtype)
    assert_array_equal(on_tiles(compute, a, POSITIVE), expected, strict=True)


TARGETS = {
    "all": (lambda t, v: t.__setitem__(..., v), lambda a, v: a.__setitem__(..., v)),
    "columns": (
        lambda t, v: t.__setitem__((slice(None), slice(0, 8, 2)), v[:, 0:4]),
        lambda a, v: a.__setitem__((slice(None), slice(0, 8, 2)), v[:, 0:4]),
    ),
    "a column": (
        lambda t, v: t.__setitem__((slice(None), 3), v[:, 0]),
        lambda a, v: a.__setitem__((slice(None), 3), v[:, 0]),
    ),
    "a row": (lambda t, v: t.__setitem__(2, v[2]), lambda a, v: a.__setitem__(2, v[2])),
    "nl.ds": (
        lambda t, v: t.__setitem__((nl.ds(1, 3), nl.ds(2, 4)), v[1:4, 0:4]),
        lambda a, v: a.__setitem__((slice(1, 4), slice(2, 6)), v[1:4, 0:4]),
    ),
    "a repeated column": (
        lambda t, v: t.__setitem__(..., v[:, 0:1]),
        lambda a, v: a.__setitem__(..., v[:, 0:1]),
    ),
    "a number": (
        lambda t, v: t.__setitem__((slice(1, 3), slice(0, 2)), 7),
        lambda a, v: a.__setitem__((slice(1, 3), slice(0, 2)), 7),
    ),
    "a NumPy number": (
        lambda t, v: t.__setitem__(0, np.float64(0.5)),
        lambda a, v: a.__setitem__(0, np.float32(0.5)),
    ),
}


@every("assign, same", TARGETS.values())
@every("made", [lambda v: v, lambda v: nl.copy(v)])
def test_assignment(assign, same, made):
    def compute(x, y):
        assign(x, made(y))
        return x

    expected = A.copy()
    same(expected, B)
    assert_array_equal(on_tiles(compute, A, B), expected)


PERMUTED = {
    "reversed": (
        lambda e, v, p, a, b: e.__setitem__((p, a, 3 - b), v),
        lambda v: v[:, :, ::-1],
    ),
    "axes swapped": (lambda e, v, p, a, b: e.__setitem__((p, b, a), v), lambda v: v.swapaxes(1, 2)),
    "axes swapped and reversed": (
        lambda e, v, p, a, b: e.__setitem__((p, 3 - b, a), v),
        lambda v: v.swapaxes(1, 2)[:, ::-1],
    ),
}


@every("put, expected", PERMUTED.values())
@every("dtype", [np.float32, np.float16, np.int32])
@every(
    "made",
    [
        lambda t: t,
        nisa.tensor_copy,
        lambda t: nl.add(t, 0),
        lambda t: nl.copy(t, dtype=nl.float32),
        lambda t: nl.copy(t, dtype=nl.bfloat16),
    ],
)
def test_a_destination_of_its_tensors_shape_in_another_order(put, expected, dtype, made):
    """All elements of the tensor, but not one after the other: the index says where each goes."""
    values = integers(6, 4, 4, low=-99, high=99, dtype=dtype)

    def compute(t):
        e = nl.ndarray((6, 4, 4), t.dtype)
        p, a, b = nl.mgrid[0:6, 0:4, 0:4]
        put(e, made(t), p, a, b)
        return e

    assert_array_equal(on_tiles(compute, values), expected(values), strict=True)


@every("dtype", [np.float32, np.float16])
def test_a_tile_reversed_in_its_own_place(dtype):
    def compute(x):
        p, f = nl.mgrid[0:6, 0:8]
        x[p, 7 - f] = x[p, f]
        return x

    assert_array_equal(on_tiles(compute, A.astype(dtype)), A.astype(dtype)[:, ::-1])


@every("dtype", [np.float32, np.float16])
@every("made", [lambda t: t, nl.copy])
def test_a_dense_index_beside_an_integer(dtype, made):
    """nl.mgrid's axes are dense (as NumPy's): every element of the column is named four times."""

    def compute(t):
        e = nl.ndarray((6, 4), t.dtype)
        i = nl.mgrid[0:6, 0:4]
        for p in range(4):
            e[i.p, p] = made(t[i.p, 2 * p])
        e[i.p, 1] += e[i.p, 3]
        return e

    a = A.astype(dtype)
    expected = a[:, ::2].copy()
    expected[:, 1] += a[:, 6]
    assert_array_equal(on_tiles(compute, a), expected, strict=True)


def test_a_dense_index_beside_an_integer_takes_one_value_for_each_element():
    def compute(t):
        e = nl.ndarray((6, 4), t.dtype)
        i = nl.mgrid[0:6, 0:4]
        e[i.p, 0] = t[i.p, i.x]
        return e

    with pytest.raises(ShapeError, match="names an element more than once gives it one value"):
        on_tiles(compute, A)


def test_an_element_that_a_dense_index_leaves_out_stays_unwritten():
    def compute(t):
        e = nl.ndarray((6, 4), t.dtype)
        i = nl.mgrid[0:6, 0:4]
        e[i.p, 0] = t[i.p, 2]
        return nl.copy(e)

    with pytest.raises(UnwrittenError, match="18 of 24 elements"):
        on_tiles(compute, A)


def test_a_value_of_a_lower_rank_repeats_along_the_free_axis_that_it_lacks():
    """Two partitions and an axis of two: the value's partitions stay partitions."""

    def compute(x):
        target = nl.ndarray((2, 2, 8), x.dtype)
        target[...] = x[0:2]
        return target

    assert_array_equal(on_tiles(compute, A), np.stack([A[:2]] * 2, axis=1))


@every("shape", [(1, 8), (6, 1)])
def test_an_accumulator_keeps_its_shape(shape):
    """A larger tile is not added to a smaller one, neither in SBUF nor in PSUM."""

    def compute(x):
        total = nl.zeros(shape, nl.float32)
        total += x
        return total

    with pytest.raises(ShapeError, match="tensor_tensor writes dst of shape \\[6, 8\\]") as caught:
        on_tiles(compute, A)
    assert caught.value.received == f"dst = tile {list(shape)} float32 in sbuf"


def test_astype_and_the_properties():
    def compute(x):
        narrow = x.astype(nl.bfloat16)
        assert (x.shape, x.ndim, x.size, x.itemsize) == ((6, 8), 2, 48, 4)
        assert (narrow.dtype, narrow.itemsize) == (nl.bfloat16, 2)
        assert x.assert_shape((6, 8)) is x
        return narrow

    assert_array_equal(on_tiles(compute, A), A.astype(ml_dtypes.bfloat16), strict=True)


def test_rows_are_iterated():
    def compute(x):
        return tuple(nl.copy(row) for row in x)

    assert_array_equal(np.concatenate(on_tiles(compute, A)), A)


def test_tensors_are_compared_by_identity_in_hash():
    def kernel():
        a, b = nl.zeros((2, 2), nl.float32), nl.zeros((2, 2), nl.float32)
        assert len({a, b, a}) == 2

    launch(kernel)


def test_a_mask_on_a_part_of_the_target():
    p, f = nl.mgrid[0:6, 0:8]

    def compute(x):
        x[p, f] = nl.multiply(x[p, f], 0.0, mask=(p >= f) & (f < 6))
        return x

    rows, columns = np.mgrid[0:6, 0:8]
    assert_array_equal(on_tiles(compute, A), np.where((rows >= columns) & (columns < 6), 0, A))


X = nl.arange(8)[None, :]
P = nl.arange(6)[:, None]


def assigned(target, value):
    target[...] = value


REFUSED = [
    (
        "an assignment to HBM",
        lambda x, t: assigned(t, x),
        "tensors in HBM are written by DMA",
        "assignment to t [6, 8] float32 in shared_hbm",
    ),
    (
        "an assignment of HBM",
        lambda x, t: assigned(x, t),
        "assignment takes its value in sbuf or psum",
        "its value = t [6, 8] float32 in shared_hbm",
    ),
    (
        "another number of columns",
        lambda x, t: assigned(x, x[:, 0:3]),
        "an assignment's value has its target's shape, or repeats along free dimensions",
        "target [6, 8], value [6, 3]",
    ),
    (
        "other partitions",
        lambda x, t: assigned(x, x[0:1]),
        "an assignment's value has its target's shape, or repeats along free dimensions",
        "target [6, 8], value [1, 8]",
    ),
    (
        "more than the target",
        lambda x, t: assigned(x[:, 0:1], x),
        "an assignment's value has its target's shape, or repeats along free dimensions",
        "target [6, 1], value [6, 8]",
    ),
    (
        "a target beyond the tile",
        lambda x, t: assigned(x[:, 4:12], x),
        "an access stays inside its tensor",
        "indices 4 to 11 on axis 1",
    ),
    ("an index", lambda x, t: assigned(x, X), "an index is not a tile", "Index(shape=(1, 8)"),
    (
        "indices in a tile on the right",
        lambda x, t: assigned(x, x[P, nl.copy(x[:, 0:1], dtype=nl.int32)]),
        "a tile of indices on a side of '=' is not a copy that the engines make",
        "indexed by a tile",
    ),
    (
        "indices in a tile on the left",
        lambda x, t: x.__setitem__((P, nl.copy(x[:, 0:1], dtype=nl.int32)), 1.0),
        "a tile of indices on a side of '=' is not a copy that the engines make",
        "indexed by a tile",
    ),
    (
        "an array",
        lambda x, t: assigned(x, np.zeros((6, 8))),
        "assignment takes a tile as its value",
        "ndarray",
    ),
    ("None", lambda x, t: operator.eq(x, None), "nl.equal takes a tile as y", "NoneType None"),
    (
        "arithmetic in HBM",
        lambda x, t: t + 1.0,
        "nl.add takes x in sbuf or psum",
        "x = t [6, 8] float32 in shared_hbm",
    ),
]


@every("use, rule, received", [row[1:] for row in REFUSED])
def test_what_is_refused(use, rule, received):
    def kernel(t):
        use(nl.load(t), t)

    with pytest.raises(NkiError) as caught:
        launch(kernel, [A])
    assert rule in caught.value.rule
    assert received in caught.value.received


def test_numpys_functions_do_not_take_tiles():
    """NumPy says so itself; it does not loop over the tile for ever."""
    for function in (np.exp, np.sum, np.add.reduce):
        with pytest.raises(TypeError, match="operand 'Tensor' does not support ufuncs"):
            on_tiles(function, A)
    for function in (np.sort, np.ravel, np.array):
        with pytest.raises(KernelError, match="a tile is not an array"):
            on_tiles(function, A)


@every("plain", [False, True])
def test_a_whole_grid_is_an_index(plain):
    """AWS's example of nisa.reciprocal indexes with ``nl.mgrid[...]`` itself, not its parts."""

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[nl.mgrid[0:6, 0:8]])
        nl.store(out[nl.mgrid[0:6, 0:8]], tile)
        return out

    assert_array_equal(launch(kernel, [A], plain=plain).outputs[0], A)
