"""Placement of tensors: the peak, shared bytes, and the lower bound of all placements."""

import numpy as np
import pytest

from difftest.analysis.placement import (
    EASY,
    needed_bytes,
    overfull_placements,
    placements,
)
from difftest.simulator import TRN2, TRN3, launch
from difftest.simulator.capacity import partition_bytes
from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.trace import Allocation, Space, Trace
from tests.every import every

KIB = 1024


def tensor(
    number, size, first, last, *, partitions=128, space=Space.SBUF, address=None, axis=0
):
    """A tensor of ``size`` bytes a partition, a multiple of 4, that lives for some events."""
    shape = (partitions, size // 4)
    made = Allocation(number, space, shape, FLOAT32, axis, None, first=first, last=last)
    made.address = address
    return made


def laid_out(tensors, machine=TRN2):
    [placement] = placements(Trace(allocations=tensors), machine)
    return placement


def overlapping(placement):
    """The pairs of tensors that share a byte at one time."""
    found = []
    for number, one in enumerate(placement.places):
        for other in placement.places[number + 1 :]:
            meet = (
                one.live.first <= other.live.last and other.live.first <= one.live.last
            )
            bytes_meet = one.low < other.high and other.low < one.high
            first = range(one.quadrant, one.quadrant + one.live.quadrants)
            rows_meet = set(first) & set(
                range(other.quadrant, other.quadrant + other.live.quadrants)
            )
            if meet and bytes_meet and rows_meet:
                found.append((one.live.allocation.id, other.live.allocation.id))
    return found


def test_the_peak_has_the_tensors_that_are_live_together():
    found = laid_out(
        [tensor(0, 400, 0, 2), tensor(1, 800, 2, 4), tensor(2, 1200, 5, 6)]
    )
    assert (found.needed, found.peak.event) == (1200, 2)
    assert [live.allocation.id for live in found.peak.live] == [1, 0]


def test_a_dead_tensor_frees_its_place():
    """A tensor that is read last by the instruction that writes the next one still lives then."""
    limit = partition_bytes(Space.SBUF, TRN2)
    half = limit // 2 // 4 * 4
    chain = [tensor(k, half, k, k + 1) for k in range(6)]
    found = laid_out(chain)
    assert found.fits
    assert found.needed == limit
    assert found.reached == limit
    assert not overlapping(found)
    longer = [tensor(k, half, k, k + 2) for k in range(6)]
    assert not laid_out(longer).fits
    assert laid_out(longer).needed == 3 * half


def test_narrow_tensors_lie_beside_each_other():
    limit = partition_bytes(Space.SBUF, TRN2)
    found = laid_out([tensor(k, limit, 0, 9, partitions=32) for k in range(4)])
    assert found.fits
    assert sorted(one.quadrant for one in found.places) == [0, 1, 2, 3]
    assert found.needed == limit
    assert not laid_out([tensor(k, limit, 0, 9, partitions=32) for k in range(5)]).fits


def test_a_tensor_of_more_than_a_quadrant_starts_at_partition_0_or_64():
    limit = partition_bytes(Space.SBUF, TRN2)
    two = laid_out([tensor(k, limit, 0, 9, partitions=64) for k in range(2)])
    assert sorted(one.quadrant for one in two.places) == [0, 2]
    beside = [
        tensor(0, limit, 0, 9, partitions=96),
        tensor(1, limit, 0, 9, partitions=32),
    ]
    assert [(one.quadrant, one.low) for one in laid_out(beside).places] == [
        (0, 0),
        (3, 0),
    ]


def test_tensors_that_cannot_share_a_bank_need_one_each():
    """Their bytes fit PSUM, but it has eight banks; NeuronCore-v4 need not keep to them."""
    size = 1200
    tensors = [tensor(k, size, 0, 9, space=Space.PSUM) for k in range(9)]
    found = laid_out(tensors)
    assert found.peak.bytes == 9 * size < partition_bytes(Space.PSUM, TRN2)
    assert found.needed == 9 * 2048
    assert not found.fits
    assert laid_out(tensors, TRN3).fits


def test_one_block_of_a_psum_tensor_counts():
    blocks = Allocation(
        0, Space.PSUM, (20, 128, 512), FLOAT32, 1, None, first=0, last=9
    )
    assert laid_out([blocks]).needed == 2048


def test_tensors_with_addresses_count_each_byte_once():
    same = [tensor(k, 4000, 0, 9, address=(0, 0)) for k in range(3)]
    found = laid_out([*same, tensor(3, 4000, 0, 9)])
    assert found.needed == 8000
    assert found.reached == 8000
    assert {one.low for one in found.places} == {0, 4000}


def test_an_address_is_free_again_after_the_last_use():
    limit = partition_bytes(Space.SBUF, TRN2)
    tensors = [tensor(0, limit, 0, 4, address=(0, 0)), tensor(1, limit, 5, 9)]
    assert laid_out(tensors).needed == limit
    assert laid_out(tensors).fits


def test_small_tensors_need_no_placement():
    limit = partition_bytes(Space.SBUF, TRN2)
    size = limit // EASY // 4 * 4
    assert not laid_out([tensor(0, size, 0, 9)]).places
    assert laid_out([tensor(0, size + 4, 0, 9)]).places


@every("seed", range(20))
def test_no_two_places_share_a_byte(seed):
    """Drawn live ranges: whatever order was taken, the places are disjoint and hold the tensors."""
    rng = np.random.default_rng(seed)
    tensors = []
    for number in range(60):
        first = int(rng.integers(0, 100))
        partitions = int(rng.choice([1, 32, 33, 64, 96, 128]))
        last = first + int(rng.integers(0, 40))
        size = 4 * int(rng.integers(1, 4000))
        tensors.append(tensor(number, size, first, last, partitions=partitions))
    found = laid_out(tensors)
    assert len(found.places) == len(tensors)
    assert not overlapping(found)
    assert found.reached >= found.needed
    assert all(one.quadrant + one.live.quadrants <= 4 for one in found.places)


def test_programs_of_a_grid_have_memories_of_their_own():
    def kernel(x):
        out = nl.ndarray((2, 128, 8), x.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.program_id(0)], nl.exp(nl.load(x)))
        return out

    trace = launch(kernel, [np.ones((128, 8), np.float32)], grid=(2,)).trace
    found = list(placements(trace, TRN2))
    assert [(one.program, one.space, one.needed) for one in found] == [
        ((0,), Space.SBUF, 64),
        ((1,), Space.SBUF, 64),
    ]


def test_tiles_of_a_loop_body_die_with_their_last_use():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(8):
            tile = nl.load(x[:, nl.ds(16 * i, 16)])
            product = nisa.nc_matmul(tile, tile)
            nl.store(out[0:16, nl.ds(16 * i, 16)], nl.copy(product))
        return out

    trace = launch(kernel, [np.ones((128, 128), np.float32)]).trace
    assert {one.space: one.needed for one in placements(trace, TRN2)} == {
        Space.SBUF: 64,
        Space.PSUM: 16,
    }


@every(
    "tensors, expected",
    [
        pytest.param([tensor(0, KIB, 0, 9)], [], id="little"),
        pytest.param(
            [tensor(n, 64 * KIB, n, n) for n in range(9)], [], id="one after the other"
        ),
        pytest.param(
            [tensor(n, 64 * KIB, 0, 9) for n in range(4)], [Space.SBUF], id="full"
        ),
        pytest.param(
            [tensor(n, 2 * KIB, n, n, space=Space.PSUM) for n in range(9)],
            [],
            id="nine banks",
        ),
        pytest.param(
            [tensor(n, 2 * KIB, 0, 9, space=Space.PSUM) for n in range(9)],
            [Space.PSUM],
            id="nine banks at once",
        ),
        pytest.param(
            [tensor(0, 4 * KIB, 0, 9, space=Space.PSUM)],
            [Space.PSUM],
            id="longer than a bank",
        ),
        pytest.param([tensor(0, 4, 0, 9, address=(0, 0))], [Space.SBUF], id="placed"),
    ],
)
def test_tensors_that_surely_fit_need_no_placement(tensors, expected):
    trace = Trace()
    trace.allocations = tensors
    found = list(overfull_placements(trace, TRN2))
    assert [one.space for one in found] == expected
    assert [one for one in found if not one.fits] == [
        one for one in placements(trace, TRN2) if not one.fits
    ]


@every("space, size", [(Space.SBUF, 104 * KIB), (Space.PSUM, KIB + 4)])
def test_the_least_memory_of_any_placement_needs_no_search(space, size):
    """In PSUM each tensor here takes a bank: no other tensor has room in it."""
    trace = Trace()
    trace.allocations = [tensor(k, size, k, k + 9, space=space) for k in range(12)]
    (placement,) = placements(trace, TRN2)
    assert needed_bytes(trace, TRN2) == {space: placement.needed}
    assert placement.needed == 10 * (size if space is Space.SBUF else 2 * KIB)


def test_another_order_is_tried_where_the_first_one_leaves_gaps():
    """Given places as they begin they reach 13 eighths of SBUF, the largest first all of it."""
    unit = partition_bytes(Space.SBUF, TRN2) // 8 // 4 * 4
    lives = [(5, 0, 4), (1, 4, 4), (3, 0, 1), (2, 3, 5), (6, 5, 7)]
    found = laid_out(
        [
            tensor(number, size * unit, *live)
            for number, (size, *live) in enumerate(lives)
        ]
    )
    assert found.reached == 8 * unit
    assert found.fits


def test_placed_tensors_that_share_a_bank_need_no_other():
    """Nine in eight banks: that two of them share one is another detector's."""
    nine = [
        tensor(number, 1200, 0, 9, space=Space.PSUM, address=(0, number % 8 * 2 * KIB))
        for number in range(9)
    ]
    assert laid_out(nine).fits
    assert laid_out(nine).needed <= partition_bytes(Space.PSUM, TRN2)


def test_a_tensor_that_nothing_writes_takes_nothing():
    def kernel():
        out = nl.ndarray((128, 4), nl.float32, buffer=nl.shared_hbm)
        nl.ndarray((128, 50_000), nl.float32)
        nl.store(out, nl.zeros((128, 4), nl.float32))
        return out

    (found,) = placements(launch(kernel).trace, TRN2)
    assert found.needed == 16
    assert [live.size for live in found.lives] == [16]
