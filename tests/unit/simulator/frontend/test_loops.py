"""Loops and the grid: loop variables are integers, and every instruction knows its iterations."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import (
    BufferError,
    KernelError,
    OutOfBoundsError,
    launch,
    strictness,
)
from difftest.simulator.frontend.classic import compiler as ncc
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.trace import LoopKind
from tests.every import every

KINDS = {
    "affine": nl.affine_range,
    "sequential": nl.sequential_range,
    "static": nl.static_range,
    "Python's": range,
}
kinds = every("kind", KINDS.values())


@kinds
@every("args", [(5,), (2, 5), (1, 10, 3), (np.int64(3),), (0,), (5, 0, -2)])
def test_they_count_as_range_does(kind, args):
    seen = []
    launch(lambda: seen.extend(kind(*args)))
    assert seen == list(range(*args))
    assert all(type(i) is int for i in seen)


@kinds
def test_loop_variables_in_conditions_and_arithmetic(kind):
    data = np.arange(24, dtype=np.float32).reshape(2, 12)

    def kernel(x):
        out = nl.ndarray((2, 12), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for i in kind(6):
            part = nl.ds(4 * (i % 3) + 2 * (i // 3), 2)
            if i % 2 == 0 and i > 0:
                nl.store(out[:, part], nl.multiply(tile[:, part], float(i)))
            elif i:
                nl.store(out[:, part], -tile[:, part])
            else:
                nl.store(out[:, part], 0.0)
        return out

    expected = np.empty_like(data)
    for i in range(6):
        part = slice(4 * (i % 3) + 2 * (i // 3), 4 * (i % 3) + 2 * (i // 3) + 2)
        expected[:, part] = data[:, part] * (i if i % 2 == 0 else -1)
    assert_array_equal(launch(kernel, [data]).outputs[0], expected)


def test_the_trace_knows_each_iteration():
    def kernel():
        nl.zeros((2, 2), nl.float32)
        for i in nl.affine_range(2):
            nl.zeros((2, 2), nl.float32)
            for _ in nl.sequential_range(3, 5):
                nl.zeros((2, 2), nl.float32)
            if i == 1:
                break
        for _ in range(2):
            nl.zeros((2, 2), nl.float32)
        for _ in nl.static_range(1):
            nl.zeros((2, 2), nl.float32)

    events = launch(kernel).trace.events
    loops = [
        tuple((i.loop.id, i.number, i.value) for i in event.loops) for event in events
    ]
    assert loops == [
        (),
        ((0, 0, 0),),
        ((0, 0, 0), (1, 0, 3)),
        ((0, 0, 0), (1, 1, 4)),
        ((0, 1, 1),),
        ((0, 1, 1), (2, 0, 3)),
        ((0, 1, 1), (2, 1, 4)),
        (),
        (),
        ((3, 0, 0),),
    ]
    outer, first, second = (events[k].loops[-1].loop for k in (1, 2, 5))
    static = events[-1].loops[0].loop
    kinds = [loop.kind for loop in (outer, first, second, static)]
    assert kinds == [
        LoopKind.AFFINE,
        LoopKind.SEQUENTIAL,
        LoopKind.SEQUENTIAL,
        LoopKind.STATIC,
    ]
    assert first.location == second.location
    assert first.location.text == "for _ in nl.sequential_range(3, 5):"
    assert outer.location.text == "for i in nl.affine_range(2):"


def test_a_loop_left_by_an_error_leaves_the_next_launch_alone():
    def failing():
        for _ in nl.affine_range(3):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        launch(failing)

    def unlooped():
        nl.zeros((2, 2), nl.float32)

    assert launch(unlooped).trace.events[0].loops == ()


@every("kind", [nl.affine_range, nl.sequential_range, nl.static_range])
@every("args", [(1.5,), ("4",), (), (0, 4, 0), (None,), (1, 2, 3, 4)])
def test_invalid_bounds_of_loops_are_rejected(kind, args):
    with pytest.raises(KernelError) as caught:
        launch(lambda: list(kind(*args)) and None)
    assert caught.value.rule == (
        f"nl.{kind.__name__} takes integers: ([start,] stop[, step])"
    )
    if args:
        assert f"{args[0]!r} ({type(args[0]).__name__})" in caught.value.received
    else:
        assert caught.value.received == "no argument"


def test_the_grid_as_its_instances_see_it():
    seen = []

    def kernel():
        place = tuple(nl.program_id(axis) for axis in range(nl.program_ndim()))
        seen.append(
            (place, nl.num_programs(), nl.num_programs(1), nl.num_programs(axes=(0, 2)))
        )

    launch(kernel, grid=(2, 3, 4))
    assert seen == [
        ((i, j, k), 24, 3, 8) for i in range(2) for j in range(3) for k in range(4)
    ]


@every("use", [nl.program_id, nl.num_programs])
@every("axis", [2, -1])
def test_an_axis_that_the_grid_does_not_have(use, axis):
    with pytest.raises(KernelError) as caught:
        launch(lambda: use(axis) and None, grid=(2, 2))
    assert caught.value.rule == f"nl.{use.__name__} takes an axis of the launch grid"
    assert caught.value.received == f"axis {axis!r} of a grid of 2 dimensions"


@every("use", [nl.program_id, nl.num_programs])
@every("axis", ["x", 0.5])
def test_an_axis_that_is_no_number(use, axis):
    with pytest.raises(KernelError, match="indices and sizes are integers") as caught:
        launch(lambda: use(axis) and None, grid=(2, 2))
    assert caught.value.received.startswith(f"nl.{use.__name__} of {axis!r}")


def loaded_into_its_own_name(x, rows):
    for i in nl.affine_range(rows):
        x = nl.load(x[i])


def loaded_twice(x, rows):
    for i in nl.affine_range(rows):
        x = nl.load(nl.load(x[i]))


def loaded_beyond(x, rows):
    total = nl.zeros((4, 3), nl.float32)
    for i in nl.sequential_range(rows):
        total = nl.add(total, nl.load(x[i]))


@every("plain", [False, True])
def test_an_error_names_the_variable_that_the_loops_body_binds_again(plain):
    data = np.ones((2, 4, 3), np.float32)
    with pytest.raises(
        BufferError, match=r"^x, which the loop's body rebinds"
    ) as caught:
        launch(loaded_into_its_own_name, [data, 2], plain=plain)
    assert caught.value.remedy.startswith(
        "give the new value another name than x, or write it"
    )
    # the first iteration has not bound a name again
    with pytest.raises(BufferError) as first:
        launch(loaded_twice, [data, 1], plain=plain)
    with pytest.raises(OutOfBoundsError) as beyond:  # nothing to do with the name
        launch(loaded_beyond, [data, 3], plain=plain)
    assert "anew" not in f"{first.value} {beyond.value}"


def advanced(x, turns, columns):
    """Python's own number says which columns: on a device the first ones, in each turn."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    c = 0
    for _ in turns():
        nl.store(out[:, c : c + columns], nl.load(x[:, c : c + columns]))
        c += columns
    return out


def of_an_enclosing_function(x, turns, columns):
    c = 0

    def copy(out):
        nonlocal c
        for _ in turns():
            nl.store(out[:, c : c + columns], nl.load(x[:, c : c + columns]))
            c = c + columns

    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    copy(out)
    return out


def of_a_condition(x, turns, columns):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    is_first = True
    for i in turns():
        part = nl.ds(columns * i, columns)
        nl.store(
            out[:, part], nl.load(x[:, part]) if is_first else nl.load(x[:, part]) * 2
        )
        is_first = False
    return out


def of_the_inner_loop(x, turns, columns):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for _ in nl.static_range(2):
        last = 0
        for i in turns():
            nl.store(
                out[:, nl.ds(columns * i, columns)], nl.load(x[:, nl.ds(last, columns)])
            )
            last = i
    return out


def of_objects(x, turns, columns):
    """Each names its columns, and these names are not bound in the loop."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    at = [0]
    box = SimpleNamespace(c=0)
    kept = {"c": 0}
    tiles = []

    def begun():
        kept["c"] += columns
        return kept["c"] - columns

    for _ in turns():
        assert begun() == at[0] == box.c == len(tiles) * columns
        tiles.append(nl.load(x[:, nl.ds(box.c, columns)]))
        nl.store(out[:, nl.ds(at[0], columns)], tiles[-1])
        at[0] += columns
        box.c += columns
    return out


def bound_first(x, turns, columns):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    c = 0
    total = nl.zeros((x.shape[0], columns), nl.float32)
    for i in turns():
        own = [i]
        own.append(len(own))
        zeros = [c * 0 for c in range(3)]  # this c is not the loop's
        first = zeros[-1] + i * columns
        for c in nl.static_range(first, first + columns):
            nl.store(out[:, nl.ds(c, 1)], nl.load(x[:, nl.ds(c, 1)]))
        # a tile: the detectors of hazards look at what tiles carry
        total = nl.add(total, 1.0)
        columns = x.shape[1] // 4  # bound to its old value
    return out


CARRIED = {
    advanced: "c",
    of_an_enclosing_function: "c",
    of_a_condition: "is_first",
    of_the_inner_loop: "last",
    of_objects: "at[0] = 2, c of box = 2, len(tiles) = 1, c of kept",
}
"""The texts of a number in a kernel, and its name."""
WIDE = np.arange(16, dtype=np.float32).reshape(2, 8)


def notes_of(kernel, turns):
    return [
        one
        for one in launch(kernel, [WIDE, turns, 2]).notes
        if "traced once" in one.rule
    ]


@pytest.mark.filterwarnings("ignore::difftest.simulator.RuleWarning")
@every("kind", [nl.affine_range, nl.sequential_range])
@every("kernel, name", CARRIED.items())
def test_a_number_carried_between_iterations_is_reported(kind, kernel, name):
    (error,) = notes_of(kernel, lambda: kind(4))
    assert error.received.startswith(f"{name} = ")
    assert error.location.text.startswith("for ")
    with (
        strictness("documented"),
        pytest.raises(KernelError, match="the previous iteration"),
    ):
        launch(kernel, [WIDE, lambda: kind(4), 2])


@every("kernel", CARRIED)
@every(
    "turns", [lambda: nl.static_range(4), lambda: range(4), lambda: nl.affine_range(1)]
)
def test_an_unrolled_body_may_go_on_with_a_number(kernel, turns):
    assert notes_of(kernel, turns) == []


@every("kind", [nl.affine_range, nl.sequential_range])
def test_a_name_that_each_iteration_binds_first_is_its_own(kind):
    assert notes_of(bound_first, lambda: kind(4)) == []


@pytest.mark.filterwarnings("ignore::difftest.simulator.RuleWarning")
@every("kind, told", [(nl.affine_range, 1), (nl.static_range, 0)])
def test_a_tensor_placed_in_a_loop_has_the_place_of_the_first_iteration(kind, told):
    def kernel(x, turns, columns):
        out = nl.ndarray((4, *x.shape), x.dtype, buffer=nl.shared_hbm)
        address = 0
        for i in turns():
            for _ in nl.static_range(2):
                place = ncc.sbuf.mod_alloc(base_addr=address)
                tile = nl.ndarray((nl.par_dim(2), 8), x.dtype, buffer=place)
                tile[...] = nl.load(x)
                address += 64
            nl.store(out[i], tile)
        return out

    result = launch(kernel, [WIDE, lambda: kind(4), 2])
    places = [one.address[1] for one in result.trace.allocations if one.address]
    assert places == ([0, 64] * 4 if told else list(range(0, 512, 64)))
    assert len([one for one in result.notes if "traced once" in one.rule]) == told
