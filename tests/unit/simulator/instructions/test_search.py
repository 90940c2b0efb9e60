from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import NkiError
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import integers, normal, on_tiles

DATA = normal(5, 20)
WITH_TIES = integers(5, 20, low=0, high=5, dtype=np.float32)
NARROW = DATA.astype(ml_dtypes.bfloat16)
LONG = normal(3, 2500, seed=3)
LONG_WITH_TIES = integers(3, 2500, low=0, high=9, dtype=np.float32)
CLUSTERED = np.sort(LONG, axis=1)  # all of the largest lie at the end, after the last whole fold
DATA_OF_ALL_KINDS = {
    "distinct": DATA,
    "ties": WITH_TIES,
    "narrow": NARROW,
    "long": LONG,
    "long, ties": LONG_WITH_TIES,
    "clustered": CLUSTERED,
    "folded": np.ascontiguousarray(CLUSTERED[:, ::-1]),
}


def largest(data):
    return -np.sort(-data.reshape(len(data), -1), axis=1)[:, :8]


def first_places(data, values):
    """Each value's first place that no equal value before it has taken."""
    places = np.empty(values.shape, np.uint32)
    for p, row in enumerate(data):
        free = np.ones(row.size, bool)
        for k, value in enumerate(values[p]):
            places[p, k] = np.flatnonzero((row == value) & free)[0]
            free[places[p, k]] = False
    return places


@every("kind", DATA_OF_ALL_KINDS)
def test_max8_and_its_places(kind):
    data = DATA_OF_ALL_KINDS[kind]
    values, places = on_tiles(
        lambda x: (nisa.max8(src=x), nisa.nc_find_index8(data=x, vals=nisa.max8(src=x))), data
    )
    assert_array_equal(values, largest(data), strict=True)
    assert_array_equal(places, first_places(data, largest(data)), strict=True)
    assert all(len(set(row)) == 8 for row in places.tolist())


def test_max8_over_several_axes_and_into_another_dtype():
    data = normal(5, 4, 6)
    result = on_tiles(lambda x: nisa.max8(src=x, dtype=nl.float16), data)
    assert_array_equal(result, largest(data).astype(np.float16), strict=True)


@every("dtype", [nl.uint16, nl.uint32])
def test_the_places_may_have_16_bits(dtype):
    places = on_tiles(
        lambda x: nisa.nc_find_index8(data=x, vals=nisa.max8(src=x), dtype=dtype), DATA
    )
    assert_array_equal(places, first_places(DATA, largest(DATA)).astype(dtype), strict=True)


@every("data", [DATA, WITH_TIES])
def test_nc_match_replace8(data):
    def compute(x):
        places = nl.ndarray((5, 8), nl.uint32)
        replaced = nisa.nc_match_replace8(data=x, vals=nisa.max8(src=x), imm=-1.0, dst_idx=places)
        return replaced, places

    replaced, places = on_tiles(compute, data)
    expected_places = first_places(data, largest(data))
    expected = data.copy()
    np.put_along_axis(expected, expected_places.astype(np.int64), -1, axis=1)
    assert_array_equal(replaced, expected, strict=True)
    assert_array_equal(places, expected_places, strict=True)


def test_the_16_largest_in_two_rounds():
    def compute(x):
        first = nisa.max8(src=x)
        rest = nisa.nc_match_replace8(data=x, vals=first, imm=-9999.0)
        return first, nisa.max8(src=rest)

    first, second = on_tiles(compute, WITH_TIES)
    assert_array_equal(np.concatenate([first, second], 1), -np.sort(-WITH_TIES, axis=1)[:, :16])


@every("width, count", [(1, None), (4, None), (1, 20), (2, 7)])
def test_local_gather(width, count):
    source = normal(32, 40)
    index = integers(32, 2, low=0, high=30, dtype=np.uint16)
    result = on_tiles(lambda x, i: nisa.local_gather(x, i, width, count), source, index)
    for core in range(2):
        rows = slice(16 * core, 16 * core + 16)
        order = index[rows].T.reshape(-1)[:count].astype(int)  # along partitions first
        for k, place in enumerate(order):
            assert_array_equal(result[rows, k], source[rows, place : place + width])
    assert result.shape == (32, 32 if count is None else count, width)


def test_gather_flattened():
    """The documentation's own example, and a random one."""
    data = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2)
    index = np.array([[[0, 1], [1, 3]], [[3, 3], [1, 0]]], np.uint32)
    result = on_tiles(nl.gather_flattened, data, index)
    assert_array_equal(result, [[[1, 2], [2, 4]], [[8, 8], [6, 5]]])
    data, index = normal(8, 3, 7), integers(8, 5, low=0, high=21, dtype=np.uint32)
    expected = np.take_along_axis(data.reshape(8, 21), index.astype(int), axis=1)
    assert_array_equal(on_tiles(nl.gather_flattened, data, index), expected, strict=True)


ORDER = [*range(31, 15, -1), *[255] * 8, *[3] * 8]


@every("partitions", [32, 64, 128])
def test_nc_stream_shuffle(partitions):
    source, target = normal(partitions, 6), normal(partitions, 6, seed=1)

    def compute(src, dst):
        nisa.nc_stream_shuffle(src, dst, ORDER)
        return dst

    expected = target.copy()
    for start in range(0, partitions, 32):
        for k, from_partition in enumerate(ORDER):
            if from_partition != 255:
                expected[start + k] = source[start + from_partition]
    assert_array_equal(on_tiles(compute, source, target), expected)


def test_nc_stream_shuffle_in_place():
    data = normal(32, 6)
    result = on_tiles(lambda x: (nisa.nc_stream_shuffle(x, x, list(range(31, -1, -1))), x)[1], data)
    assert_array_equal(result, data[::-1])


@every("ids", [[np.nan], [1, -1], [1.5], [np.inf]])
def test_segment_ids_are_integers_from_0(ids):
    with pytest.raises(NkiError, match="takes integers of at least 0 as segment_ids") as caught:
        on_tiles(lambda x: nisa.sequence_bounds(segment_ids=x), np.array([ids], np.float32))
    assert f"at element {len(ids) - 1}" in caught.value.received


@every("columns", [12, 9])
def test_a_masked_gather_cuts_the_indices_not_the_data(columns):
    """The mask is over the indices; what they name may lie anywhere in the partition."""
    data = normal(4, columns)
    places = integers(4, 12, low=0, high=columns, dtype=np.uint32)
    p, f = nl.mgrid[0:4, 0:12]

    def compute(x, i):
        result = nl.zeros((4, 12), nl.float32)
        result[...] = nl.gather_flattened(x, i, mask=(p > 0) & (f < 5))
        return result

    expected = np.zeros((4, 12), np.float32)
    expected[1:, :5] = np.take_along_axis(data, places.astype(int), 1)[1:, :5]
    assert_array_equal(on_tiles(compute, data, places), expected)


@every("dtype", [np.float32, np.int32])
def test_sequence_bounds(dtype):
    ids = np.array([[0, 1, 1, 2, 2, 2, 0, 3]], dtype)
    result = on_tiles(lambda x: nisa.sequence_bounds(segment_ids=x), ids)
    starts, ends = [8, 1, 1, 3, 3, 3, 8, 7], [-1, 3, 3, 6, 6, 6, -1, 8]
    assert_array_equal(result, np.array([[starts, ends]], dtype), strict=True)


REFUSED = [
    (
        "places in float32",
        lambda x: nisa.nc_find_index8(data=x, vals=x[:, 0:8], dtype=nl.float32),
        "takes the result of certain dtypes",
    ),
    (
        "an index beyond",
        lambda x: nisa.local_gather(nl.zeros((16, 4), nl.float32), nl.full((16, 2), 4, nl.uint16)),
        "local_gather is undefined for indices beyond src_buffer",
    ),
]


@every("compute, rule", [row[1:] for row in REFUSED])
def test_what_is_refused(compute, rule):
    with pytest.raises(NkiError, match=rule):
        on_tiles(compute, DATA)
