import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import NkiError
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.gather import nonzero_with_count
from tests.every import every
from tests.unit.simulator.on_tiles import integers, normal, on_tiles

DATA = normal(5, 20)
WITH_TIES = integers(5, 20, low=0, high=5, dtype=np.float32)
NARROW = DATA.astype(ml_dtypes.bfloat16)
LONG = normal(3, 2500, seed=3)
LONG_WITH_TIES = integers(3, 2500, low=0, high=9, dtype=np.float32)
# all of the largest lie at the end, after the last whole fold
CLUSTERED = np.sort(LONG, axis=1)
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
    """Return each value's first place that is still free for it."""
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
        lambda x: (
            nisa.max8(src=x),
            nisa.nc_find_index8(data=x, vals=nisa.max8(src=x)),
        ),
        data,
    )
    assert_array_equal(values, largest(data), strict=True)
    assert_array_equal(places, first_places(data, largest(data)), strict=True)
    assert all(len(set(row)) == 8 for row in places.tolist())


@every("ids", [[np.nan], [1, -1], [1.5], [np.inf]])
def test_segment_ids_are_integers_from_0(ids):
    with pytest.raises(
        NkiError, match="takes integers of at least 0 as segment_ids"
    ) as caught:
        on_tiles(
            lambda x: nisa.sequence_bounds(segment_ids=x), np.array([ids], np.float32)
        )
    assert f"at element {len(ids) - 1}" in caught.value.received


@every("dtype", [np.float32, np.int32])
def test_sequence_bounds_gives_the_start_and_the_end_of_each_segment(dtype):
    ids = np.array([[0, 1, 1, 2, 2, 2, 0, 3]], dtype)
    result = on_tiles(lambda x: nisa.sequence_bounds(segment_ids=x), ids)
    starts = [8, 1, 1, 3, 3, 3, 8, 7]
    ends = [-1, 3, 3, 6, 6, 6, -1, 8]
    assert_array_equal(result, np.array([[starts, ends]], dtype), strict=True)


NONZERO = np.array([[0, 1, 1, 0, 0, 1, 0, 0]], np.int32)


@every("dtype", [np.int32, np.float32])
def test_the_documented_example_of_nonzero_with_count(dtype):
    def compute(x):
        out = nl.ndarray((1, 9), nl.int32)
        return gate.issue(nonzero_with_count, (x,), (16, -1), dst=out)

    result = on_tiles(compute, NONZERO.astype(dtype))
    assert_array_equal(
        result, np.array([[17, 18, 21, -1, -1, -1, -1, -1, 3]], np.int32)
    )
