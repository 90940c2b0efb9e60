import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from difftest.analysis import dependences
from difftest.analysis.dependences import MOST, Dependences
from difftest.simulator.trace import Allocation, Region, Space
from tests.every import every

WIDTH = 6


def tile(space=Space.SBUF, reads=1, writes=2):
    allocation = Allocation(0, space, (128, WIDTH), np.dtype("float32"), 0, None)
    allocation.reads = reads
    allocation.writes = writes
    return allocation


def columns(allocation, low, high):
    return Region(allocation, low, (128, high - low), (WIDTH, 1))


def test_each_reader_waits_for_a_tensor_that_is_written_once():
    one = tile(writes=1)
    known = Dependences(by_tensor=True)
    assert known.of(0, (), (columns(one, 0, 6),)) == (set(), set())
    assert known.of(1, (columns(one, 2, 4),), ()) == ({0}, set())
    assert known.of(2, (columns(one, 0, 6),), ()) == ({0}, set())
    assert not known.widened


def test_readers_of_an_unwritten_part_wait_for_nothing():
    one = tile(writes=1)
    known = Dependences()
    known.of(0, (), (columns(one, 0, 3),))
    assert known.of(1, (columns(one, 3, 6),), ()) == (set(), set())
    one = tile(writes=1)
    known = Dependences()
    known.of(0, (), (columns(one, 0, 6)._replace(whole=False),))
    assert known.of(1, (), (columns(one, 0, 6),)) == (set(), {0})


def test_a_single_write_waits_for_earlier_readers():
    one = tile(writes=1)
    known = Dependences()
    known.of(0, (columns(one, 0, 6),), ())
    assert known.of(1, (), (columns(one, 0, 6),)) == (set(), {0})


def test_a_placed_tensor_may_share_its_bytes():
    one = tile(writes=1)
    other = tile(writes=1)
    known = Dependences()
    one.address = other.address = (0, 0)
    other.id = 1
    known.of(0, (), (columns(one, 0, 6),))
    assert known.of(1, (), (columns(other, 0, 6),)) == (set(), {0})


def test_accesses_that_a_write_covers_are_forgotten():
    one = tile()
    known = Dependences()
    for user in range(5):
        known.of(user, (), (columns(one, 0, 6),))
    assert known.of(5, (columns(one, 0, 6),), ()) == ({4}, set())


def test_users_of_one_tensor_wait_for_each_other_by_tensor():
    """Slices used in turn, as a ring: a load, its reader, the next load, its reader."""
    one = tile()
    known = Dependences(by_tensor=True)
    left = columns(one, 0, 3)
    right = columns(one, 3, 6)
    known.of(0, (), (left,))
    assert known.of(1, (left,), ()) == ({0}, set())
    # the reader of the other slice, no writer
    assert known.of(2, (), (right,)) == (
        set(),
        {1},
    )
    assert known.of(3, (right,), ()) == ({0, 2}, set())
    assert known.of(4, (), (left,)) == (set(), {0, 1, 3})


def test_a_tensor_with_an_address_and_one_in_hbm_are_watched_by_element():
    for one in (tile(), tile(Space.PRIVATE_HBM)):
        one.address = (0, 0)
        known = Dependences(by_tensor=True)
        known.of(0, (), (columns(one, 0, 3),))
        assert known.of(1, (columns(one, 3, 6),), ()) == (set(), set())


def test_a_partial_write_covers_nothing():
    one = tile()
    known = Dependences()
    everything = columns(one, 0, 6)
    known.of(0, (), (everything,))
    assert known.of(1, (), (everything._replace(whole=False),)) == (set(), {0})
    assert known.of(2, (everything,), ()) == ({0, 1}, set())


def test_an_accumulation_depends_on_the_product_before_it():
    one = tile(Space.PSUM)
    known = Dependences()
    whole = (columns(one, 0, 6),)
    known.of(0, (), whole)
    assert known.of(1, whole, whole) == ({0}, set())
    assert known.of(2, whole, whole) == ({1}, set())


def test_tensors_at_overlapping_addresses_depend_on_each_other():
    first, second, apart, psum = (
        Allocation(k, space, (128, WIDTH), np.dtype(dtype), 0, None, address=address)
        for k, (space, dtype, address) in enumerate(
            [
                (Space.SBUF, "float32", (0, 0)),
                (Space.SBUF, "float16", (0, 12)),
                (Space.SBUF, "float32", (0, 24)),
                (Space.PSUM, "float32", (0, 0)),
            ]
        )
    )
    known = Dependences()
    known.of(0, (), (columns(first, 0, 6),))
    assert known.of(1, (columns(second, 0, 1),), ()) == ({0}, set())
    assert known.of(2, (), (columns(second, 4, 6),)) == (set(), {0})
    assert known.of(3, (columns(first, 3, 4),), ()) == ({0}, set())
    assert known.of(4, (columns(first, 5, 6),), ()) == ({0, 2}, set())
    for other in (apart, psum):
        assert known.of(5, (columns(other, 0, 6),), (columns(other, 0, 6),)) == (
            set(),
            set(),
        )


def test_tensors_at_other_partitions_do_not():
    low, high = (
        Allocation(
            k,
            Space.SBUF,
            (32, WIDTH),
            np.dtype("float32"),
            0,
            None,
            address=(32 * k, 0),
        )
        for k in range(2)
    )
    known = Dependences()
    known.of(0, (), (Region(low, 0, (32, WIDTH), (WIDTH, 1)),))
    assert known.of(1, (Region(high, 0, (32, WIDTH), (WIDTH, 1)),), ()) == (
        set(),
        set(),
    )


def test_a_view_of_another_dtype_depends_on_the_bytes_that_it_has():
    one = tile()
    known = Dependences()
    one.viewed = True
    half = np.dtype("float16")
    known.of(0, (), (columns(one, 2, 3),))  # bytes 8 to 11 of each partition
    read = Region(one, 5, (128, 1), (2 * WIDTH, 1), view=half)  # bytes 10 and 11
    assert known.of(1, (read,), ()) == ({0}, set())
    assert known.of(2, (read._replace(offset=6),), ()) == (set(), set())


@every("reads, writes", [(1, 0), (0, 1)])
def test_inputs_and_outputs_in_hbm_make_no_dependence(reads, writes):
    one = tile(Space.SHARED_HBM, reads, writes)
    known = Dependences()
    region = (columns(one, 0, 6),)
    for user in range(3):
        arguments = (region, ()) if reads else ((), region)
        assert known.of(user, *arguments) == (set(), set())


accesses = st.lists(
    st.tuples(st.booleans(), st.integers(0, WIDTH - 1), st.integers(1, WIDTH)),
    max_size=12,
)


def apart(known, numbers):
    """The instructions among dependences, and the joined ones."""
    found = set()
    left = list(numbers)
    while left:
        number = left.pop()
        if number >= 0:
            found.add(number)
        else:
            left.extend(known.joins[~number])
    return found


@given(accesses, st.sampled_from([1, 2, dependences.MOST]))
def test_each_conflict_is_ordered_and_nothing_else_waits(drawn, most):
    """Whatever the order, conflicting accesses are ordered, if not directly then through others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dependences, "MOST", most)
        check_conflicts(drawn, exact=most == MOST)


def check_conflicts(drawn, *, exact):
    one = tile()
    known = Dependences()
    done = []
    waits = []
    for user, (writes, low, size) in enumerate(drawn):
        region = (columns(one, low, min(low + size, WIDTH)),)
        data, order = known.of(user, () if writes else region, region if writes else ())
        waits.append(apart(known, data | order))
        done.append((writes, set(range(low, min(low + size, WIDTH)))))
    before = []
    for user, direct in enumerate(waits):
        before.append(set(direct).union(*(before[other] for other in direct)))
        for other in range(user):
            conflict = bool(done[user][1] & done[other][1]) and (
                done[user][0] or done[other][0]
            )
            assert (
                other in before[user] if conflict else not exact or other not in direct
            )


SIDE = 32
READERS = 200


def loaded_by_elements():
    """Return the dependences of a tile that is loaded by elements and often read whole."""
    one = Allocation(0, Space.SBUF, (SIDE, SIDE), np.dtype("float32"), 0, None)
    one.reads = one.writes = 1
    whole = Region(one, 0, (SIDE, SIDE), (SIDE, 1))
    known = Dependences()
    count = 0
    for turn in range(2):
        elements = [Region(one, k, (1, 1), (SIDE, 1)) for k in range(SIDE * SIDE)]
        accesses = [((), (each,)) for each in elements] + [((whole,), ())] * READERS
        for user, (reads, writes) in enumerate(accesses):
            found = known.of(turn * len(accesses) + user, reads, writes)
            count += sum(map(len, found))
        last = [
            apart(known, data) for data in [known.of(10**6 + turn, (whole,), ())[0]]
        ]
        loads = set(range(turn * len(accesses), turn * len(accesses) + SIDE * SIDE))
        assert loads <= last[0]  # each reader waits for all loads of its turn
    return count + sum(map(len, known.joins)), 2 * len(accesses)


def test_dependences_grow_with_the_instructions():
    """Not with loads times readers: every reader of a tile that was loaded by elements."""
    count, instructions = loaded_by_elements()
    assert count < 8 * instructions


def test_dependences_that_are_never_joined_are_seen(monkeypatch):
    """Planted: the test above must see them grow with the square."""
    monkeypatch.setattr(dependences, "MOST", 10**9)
    count, instructions = loaded_by_elements()
    assert count > 100 * instructions
