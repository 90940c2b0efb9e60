"""A call with room maps no memory for the frames of calls within it."""

import resource

import pytest

from difftest.support.call_stack import call_with_room

CALLS = 200
DEPTHS = 300


def inner(a=0, b=0, c=0, d=0, e=0, f=0, g=0, h=0):
    """Do nothing, with a frame larger than that of :func:`page_faults`."""
    return [a, b, c, d, e, f, g, h]


def page_faults(depth):
    """Return the page faults of a loop of calls, ``depth`` calls further down."""
    if depth:
        return page_faults(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(CALLS):
        inner()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def depths_with_faults():
    """Return the depths at which calls cause page faults again and again."""
    return [depth for depth in range(DEPTHS) if page_faults(depth) >= CALLS / 2]


def test_no_depth_of_calls_maps_memory():
    assert call_with_room(depths_with_faults) == []


def test_arguments_result_and_error_are_the_functions():
    assert call_with_room(divmod, 7, 2) == (3, 1)
    assert call_with_room(dict, one=1) == {"one": 1}
    with pytest.raises(ZeroDivisionError):
        call_with_room(divmod, 1, 0)
