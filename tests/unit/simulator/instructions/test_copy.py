from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import Engine, NkiError, ShapeError, Space, launch
from difftest.simulator.dtypes import BOOL, DTYPES, FLOAT32, TFLOAT32, is_float, round_to
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.copy import tensor_copy_predicated
from tests.every import every
from tests.unit.simulator.on_tiles import in_psum, normal, on_tiles

PLAIN = [dtype for dtype in DTYPES if dtype != TFLOAT32]
VALUES = np.array([[0, 1, 2.5, 3.5, 100.3, 300, 70000, -1, -2.5, -129, 1e-3, 3e9]], np.float32)


@every("source, target", list(itertools.product(PLAIN, PLAIN)))
def test_a_cast_goes_through_float32_and_rounds_once(source, target):
    with np.errstate(over="ignore"):
        data = VALUES.astype(source) if is_float(source) else round_to(VALUES, source)
    result = on_tiles(lambda x: nisa.tensor_copy(x, dtype=target), data)
    with np.errstate(over="ignore"):
        expected = round_to(data.astype(np.float32), target).astype(target)
    assert_array_equal(result, expected, strict=True)


@every("dtype", PLAIN)
@every("engine", [nisa.vector_engine, nisa.gpsimd_engine, nisa.unknown_engine])
def test_a_copy_without_cast_keeps_every_bit(dtype, engine):
    if dtype == BOOL:
        data = np.array([[True, False]])
    else:
        count = 2 ** (8 * min(dtype.itemsize, 2))
        bits = np.arange(count, dtype=np.uint32) * np.uint32(2654435761)
        data = bits.astype(f"u{dtype.itemsize}").view(dtype)[None, :256]
    result = on_tiles(lambda x: nisa.tensor_copy(x, engine=engine), data)
    number = ~np.isnan(data.astype(np.float32)) if is_float(dtype) else np.ones(data.shape, bool)
    assert result.dtype == dtype
    assert result[number].tobytes() == data[number].tobytes()


@every("copy", [nl.copy, nisa.tensor_copy, lambda x: x[...]])
def test_copies_between_memories(copy):
    data = normal(8, 3, 4)

    def compute(x):
        psum = nl.ndarray((8, 3, 4), nl.float32, buffer=nl.psum)
        psum[...] = copy(x)
        back = nl.ndarray((8, 3, 4), nl.float32, buffer=nl.sbuf)
        back[...] = copy(psum)
        return back

    assert_array_equal(on_tiles(compute, data), data)


def test_a_copy_is_a_new_tile_in_sbuf():
    def compute(x):
        copied = nisa.tensor_copy(in_psum(x))
        assert copied._space is Space.SBUF
        copied[0, 0] = 7
        return copied, x

    data = normal(2, 2)
    copied, original = on_tiles(compute, data)
    assert copied[0, 0] == 7
    assert_array_equal(original, data)


def test_memset():
    results = on_tiles(
        lambda _: (
            nisa.memset((4, 3), 0.2, nl.bfloat16),
            nisa.memset((4, 3), 300, nl.uint8),
            nisa.memset([4, 2, 2], 2**31 - 1, nl.int32),
            nisa.memset((nl.par_dim(4), 3), -1.5, nl.float32),
            nl.full((4, 3), 2.5, nl.int16),
        ),
        normal(1, 1),
    )
    assert_array_equal(results[0], np.full((4, 3), 0.2, ml_dtypes.bfloat16), strict=True)
    assert_array_equal(results[1], np.full((4, 3), 255, np.uint8), strict=True)
    assert_array_equal(results[2], np.full((4, 2, 2), 2**31 - 1, np.int32), strict=True)
    assert_array_equal(results[3], np.full((4, 3), -1.5, np.float32), strict=True)
    assert_array_equal(results[4], np.full((4, 3), 2, np.int16), strict=True)


@every("dtype", [nl.int32, nl.float32, nl.int8, nl.bfloat16])
def test_iota(dtype):
    def compute(_):
        p, x, y = nl.mgrid[0:4, 0:3, 0:2]
        return nisa.iota(1000 - 100 * p + 10 * x + y, dtype)

    p, x, y = np.mgrid[0:4, 0:3, 0:2]
    exact = 1000 - 100 * p + 10 * x + y
    if dtype == nl.int8:
        exact = np.minimum(exact, 127)
    assert_array_equal(on_tiles(compute, normal(1, 1)), exact.astype(dtype), strict=True)


PREDICATE = np.array([[0, 1, 2], [3, 0, 0]], np.uint8)
A, B = normal(2, 3), normal(2, 3, seed=1)


@every("dtype", [np.uint8, np.uint16, np.uint32])
@every("reverse", [False, True])
def test_tensor_copy_predicated(dtype, reverse):
    def compute(src, dst, predicate):
        nisa.tensor_copy_predicated(src=src, dst=dst, predicate=predicate, reverse_pred=reverse)
        return dst

    chosen = (PREDICATE != 0) ^ reverse
    result = on_tiles(compute, A, B, PREDICATE.astype(dtype))
    assert_array_equal(result, np.where(chosen, A, B))
    filled = on_tiles(lambda d, p: compute(2.5, d, p), B, PREDICATE.astype(dtype))
    assert_array_equal(filled, np.where(chosen, np.float32(2.5), B))


def test_a_predicate_of_another_rank():
    def compute(src, dst, predicate):
        nisa.tensor_copy_predicated(src=src, dst=dst, predicate=predicate)
        return dst

    result = on_tiles(compute, A[:, None], B, PREDICATE[:, :, None])
    assert_array_equal(result, np.where(PREDICATE, A, B))


def test_a_mask_beside_the_predicate():
    """Of the instruction; the classic API refuses the argument."""
    columns = np.arange(3)[None, :] > 0

    def compute(src, dst, predicate):
        where = np.broadcast_to(columns, (2, 3))
        gate.issue(tensor_copy_predicated, (src, predicate), (False,), dst=dst, where=where)
        return dst

    result = on_tiles(compute, A, B, PREDICATE)
    assert_array_equal(result, np.where((PREDICATE != 0) & columns, A, B))


def test_a_predicated_constant_rounds_into_its_tile():
    def compute(dst, predicate):
        nisa.tensor_copy_predicated(src=2.5, dst=dst, predicate=predicate)
        return dst

    result = on_tiles(compute, np.full((2, 3), 9, np.int8), PREDICATE)
    assert result.tolist() == [[9, 2, 2], [2, 9, 9]]


def test_what_a_predicate_did_not_write_is_unwritten():
    def kernel(src, predicate):
        dst = nl.ndarray((2, 3), nl.float32)
        nisa.tensor_copy_predicated(src=nl.load(src), dst=dst, predicate=nl.load(predicate))
        nl.sum(dst, axis=1)

    with pytest.raises(NkiError, match="reads only what was written") as caught:
        launch(kernel, [A, PREDICATE])
    assert "3 of 6 elements" in caught.value.received


def test_copies_at_an_offset_held_in_a_tile():
    table = normal(4, 6, 3)
    offsets = np.array([[5, 0, 3]], np.int32)

    def compute(data, index):
        x = nl.arange(3)[None, :]
        p = nl.arange(4)[:, None]
        gathered = nl.ndarray((4, 3, 3), nl.float32)
        scattered = nl.zeros((4, 6, 3), nl.float32)
        for k in nl.static_range(3):
            gathered[:, k, :] = nisa.tensor_copy_dynamic_src(data[p, index[0, k], x])
            nisa.tensor_copy_dynamic_dst(dst=scattered[p, index[0, k], x], src=gathered[:, k, :])
        return gathered, scattered

    gathered, scattered = on_tiles(compute, table, offsets)
    assert_array_equal(gathered, table[:, offsets[0]])
    expected = np.zeros_like(table)
    expected[:, offsets[0]] = table[:, offsets[0]]
    assert_array_equal(scattered, expected)


def test_engines():
    def kernel(x):
        tile = nl.load(x)
        nisa.tensor_copy(tile)
        nisa.tensor_copy(tile, engine=nisa.scalar_engine)
        nisa.memset((2, 3), 0, nl.float32, engine=nisa.gpsimd_engine)
        nisa.iota(nl.arange(3)[None, :], nl.int32)

    events = launch(kernel, [A]).trace.events[1:]
    assert [event.engine for event in events] == [
        Engine.UNKNOWN,
        Engine.SCALAR,
        Engine.GPSIMD,
        Engine.GPSIMD,
    ]


X = nl.arange(3)[None, :]
REFUSED = [
    (
        "the Tensor Engine",
        lambda a, p: nisa.tensor_copy(a, engine=nisa.tensor_engine),
        "tensor_copy runs on the engines",
    ),
    (
        "memset on the Scalar Engine",
        lambda a, p: nisa.memset((2, 3), 0, nl.float32, engine=nisa.scalar_engine),
        "memset runs on the engines",
    ),
    ("memset without shape", lambda a, p: nisa.memset((), 0, nl.float32), "positive sizes"),
    ("iota beyond 32 bits", lambda a, p: nisa.iota(X * 2**31, nl.int32), "32-bit integers"),
    (
        "no tile as offset",
        lambda a, p: nisa.tensor_copy_dynamic_src(a),
        "takes a tile indexed by a tile",
    ),
]


@every("compute, rule", [row[1:] for row in REFUSED])
def test_what_is_refused(compute, rule):
    with pytest.raises(NkiError, match=rule):
        on_tiles(compute, A, PREDICATE)


def test_float32_is_what_the_engines_hold():
    assert on_tiles(lambda x: nl.copy(x, dtype=nl.float32), A).dtype == FLOAT32


@every("shape", [(4, 12), (4, 3, 4), (4, 12, 1)])
def test_a_predicated_copy_into_another_rank(shape):
    """src, dst and predicate have the same partitions and as many elements in each."""
    values, chosen = normal(4, 2, 6), normal(4, 6, 2, seed=1) > 0

    def compute(x, predicate):
        target = nl.zeros(shape, nl.float32)
        nisa.tensor_copy_predicated(src=x, dst=target, predicate=predicate)
        return target

    expected = np.where(chosen.reshape(4, 12), values.reshape(4, 12), 0).reshape(shape)
    assert_array_equal(on_tiles(compute, values, chosen.astype(np.uint8)), expected)


def test_a_predicated_copy_of_one_element_into_a_lower_rank():
    def compute(x, predicate):
        target = nl.zeros((1, 3), nl.float32)
        nisa.tensor_copy_predicated(src=x, dst=target[:, 1], predicate=predicate)
        return target

    one = np.full((1, 1, 1), 5, np.float32)
    assert on_tiles(compute, one, one.astype(np.uint8)).tolist() == [[0, 5, 0]]


def test_a_dynamic_destination_is_filled_by_a_source_of_its_shape():
    def compute(x, columns):
        target = nl.zeros((4, 6), nl.float32)
        rows = nl.arange(4)[:, None]
        nisa.tensor_copy_dynamic_dst(dst=target[rows, columns], src=x)
        return target

    column = np.array([[2]], np.int32)
    result = on_tiles(compute, normal(4, 1), column)
    assert_array_equal(result[:, 2], normal(4, 1)[:, 0])
    for wrong in (normal(4, 3), normal(2, 1), normal(4, 1, 2)):
        with pytest.raises(ShapeError, match="takes src of dst's shape") as caught:
            on_tiles(compute, wrong, column)
        assert caught.value.received == f"src {list(wrong.shape)}, dst [4, 1]"
