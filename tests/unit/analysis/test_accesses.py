from hypothesis import given
from hypothesis import strategies as st

from difftest.analysis.dependences import FEW, Accesses
from difftest.analysis.footprint import Footprint


@st.composite
def marks(draw):
    """Rectangles of whole elements on a small memory, and some with a stride."""
    first = draw(st.integers(0, 7))
    low = draw(st.integers(0, 40))
    last = first + draw(st.integers(1, 8))
    if draw(st.booleans()):
        return Footprint(first, last, low, low + draw(st.integers(1, 40)), ())
    count = draw(st.integers(2, 5))
    step = draw(st.integers(2, 9))
    return Footprint(first, last, low, low + (count - 1) * step + 1, ((count, step),))


def users(found):
    return sorted(user for access in found for user in access.users)


@given(st.lists(marks(), max_size=3 * FEW), st.sets(st.integers(0, 3 * FEW)), marks())
def test_exactly_the_overlapping_accesses_are_found(added, forgotten, asked):
    accesses = Accesses()
    for user, mark in enumerate(added):
        accesses.add(mark, user)
    gone = {mark for user, mark in enumerate(added) if user in forgotten}
    known = {
        access.mark: access for mark in added for access in accesses.overlapping(mark)
    }
    accesses.forget([known[mark] for mark in gone])
    expected = [
        user
        for user, mark in enumerate(added)
        if mark not in gone and mark.overlaps(asked)
    ]
    assert users(accesses.overlapping(asked)) == expected


def test_accesses_of_one_footprint_are_one():
    accesses = Accesses()
    mark = Footprint(0, 128, 0, 8, ())
    for user in range(100):
        accesses.add(mark, user)
    (found,) = accesses.overlapping(Footprint(3, 4, 7, 9, ()))
    assert (found.mark, found.users) == (mark, list(range(100)))
