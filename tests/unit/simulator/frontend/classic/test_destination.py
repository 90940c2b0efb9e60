"""nl.loop_reduce: the tile on the left of its assignment is where it reduces into."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import KernelError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles, written

DATA = normal(4, 3, 5)


def into_a_name(x):
    total = nl.zeros((4, 5), nl.float32)
    for i in nl.affine_range(3):
        total = nl.loop_reduce(x[:, i, :], op=np.add, loop_indices=[i])
    return total


def into_a_tile(x):
    total = nl.zeros((4, 5), nl.float32)
    for i in nl.affine_range(3):
        total[...] = nl.loop_reduce(
            x[:, i, :], op=np.add, loop_indices=[i], dtype=nl.float32
        )
    return total


def into_a_part(x):
    total = nl.zeros((4, 2, 5), nl.float32)
    for i in nl.affine_range(3):
        total[:, 1, :] = nl.loop_reduce(x[:, i, :], op=np.add, loop_indices=[i])
    return nl.copy(total[:, 1, :])


def into_an_annotated_name(x):
    total = nl.zeros((4, 5), nl.float32)
    for i in nl.affine_range(3):
        total: object = nl.loop_reduce(x[:, i, :], op=np.add, loop_indices=i)
    return total


def over_several_lines(x):
    totals = [nl.zeros((4, 5), nl.float32)]
    for i in nl.affine_range(3):
        totals[0] = nl.loop_reduce(x[:, i, :], op=np.add, loop_indices=[i])
    return totals[0]


def into_parts_of_a_list(x):
    totals = {"sum": [nl.zeros((4, 2, 5), nl.float32)]}
    for i in nl.affine_range(3):
        k = i - i
        totals["sum"][0][:, 2 * k + 1, 0:5] = nl.loop_reduce(x[:, i, :], np.add, [i])
    return nl.copy(totals["sum"][k][:, 1, :])


def into_a_range_of_names(x):
    total = nl.zeros((4, 5), nl.float32)
    first = 0
    last = 4
    for i in nl.affine_range(3):
        total[first:last] = nl.loop_reduce(x[:, i, :], op=np.add, loop_indices=[i])
    return total


def into_the_name_of_a_closure(x):
    total = nl.zeros((4, 5), nl.float32)

    def reduce(i):
        nonlocal total
        total = nl.loop_reduce(x[:, i, :], op=np.add, loop_indices=[i])

    for i in nl.affine_range(3):
        reduce(i)
    return total


def two_on_a_line(x):
    total = nl.zeros((4, 5), nl.float32)
    other = nl.zeros((4, 5), nl.float32)
    for i in nl.affine_range(3):
        # fmt: off
        other = nl.loop_reduce(x[:, 0, :], np.add, [i]); total = nl.loop_reduce(x[:, i, :], np.add, [i])  # noqa: E501, E702
        # fmt: on
    assert other is not total
    return total


FORMS = [
    into_a_name,
    into_a_tile,
    into_a_part,
    into_an_annotated_name,
    over_several_lines,
    into_parts_of_a_list,
    into_a_range_of_names,
    into_the_name_of_a_closure,
    two_on_a_line,
]


@every("compute", FORMS)
def test_loop_reduce_accumulates_into_the_tile_of_its_assignment(compute):
    expected = np.zeros((4, 5), np.float32)
    for i in range(3):
        expected = expected + DATA[:, i]
    assert_array_equal(on_tiles(compute, DATA), expected, strict=True)


@every("plain", [False, True])
def test_a_tile_whose_indices_call_something_is_reduced_into_once(plain):
    def kernel(x):
        total = nl.zeros((2, nl.par_dim(4), 5), nl.float32)
        for i in nl.affine_range(3):
            total[1, nl.arange(4)[:, None], nl.arange(5)[None, :]] = nl.loop_reduce(
                nl.load(x[:, i, :]), op=np.add, loop_indices=[i]
            )
        return written(total[1]), written(total[0, :, 0:5])

    reduced, other = launch(kernel, [DATA], plain=plain).outputs
    assert_array_equal(reduced, DATA[:, 0] + DATA[:, 1] + DATA[:, 2])
    assert not other.any()
    with pytest.raises(KernelError, match=r"takes a tile as x"):
        launch(awaited_in_vain, [DATA], plain=plain)


def awaited_in_vain(x):
    tile = nl.load(x[:, 0, :])
    nl.add(
        nl.loop_reduce(tile, op=np.add, loop_indices=[0]),
        tile[nl.arange(4)[:, None], 0],
    )


def without_assignment(x):
    nl.loop_reduce(x, op=np.add, loop_indices=[0])


def into_a_new_name(x):
    fresh = nl.loop_reduce(x, op=np.add, loop_indices=[0])
    return nl.copy(fresh)


def into_a_number(x):
    total = 0
    total = nl.loop_reduce(x, op=np.add, loop_indices=[0])
    return nl.copy(total)


def into_a_call(x):
    total = nl.zeros((4, 5), nl.float32)
    total = nl.copy(nl.loop_reduce(x, op=np.add, loop_indices=[0]))
    return [total]


def into_a_list_that_is_too_short(x):
    totals = []
    totals[0] = nl.loop_reduce(x, op=np.add, loop_indices=[0])


@every(
    "compute",
    [
        without_assignment,
        into_a_new_name,
        into_a_number,
        into_a_call,
        into_a_list_that_is_too_short,
    ],
)
def test_loop_reduce_needs_a_tile_on_the_left_of_its_assignment(compute):
    with pytest.raises(
        KernelError, match="reduces into the tile on the left of its assignment"
    ):
        on_tiles(compute, DATA[:, 0])


class Counting:
    """The expressions of a left side, with every way that could run the kernel's own code."""

    def __init__(self, tile):
        self.tile = tile
        self.uses = 0

    def __getitem__(self, key):
        self.uses += 1
        return self.tile

    @property
    def total(self):
        self.uses += 1
        return self.tile

    def find(self):
        self.uses += 1
        return self.tile

    def __add__(self, other):
        self.uses += 1
        return 0


def into_a_call_s_result(x, counting):
    counting.find()[...] = nl.loop_reduce(x, op=np.add, loop_indices=[0])


def into_an_item(x, counting):
    counting[0] = nl.loop_reduce(x, op=np.add, loop_indices=[0])


def into_an_attribute(x, counting):
    counting.total[...] = nl.loop_reduce(x, op=np.add, loop_indices=[0])


def into_an_index_that_is_computed(x, counting):
    counting.tile[counting + 1] = nl.loop_reduce(x, op=np.add, loop_indices=[0])


def into_an_item_behind_a_sum(x, counting):
    tiles = [counting.tile]
    tiles[counting + 1] = nl.loop_reduce(x, op=np.add, loop_indices=[0])


@every("plain", [False, True])
@every(
    "compute",
    [
        into_a_call_s_result,
        into_an_item,
        into_an_attribute,
        into_an_index_that_is_computed,
        into_an_item_behind_a_sum,
    ],
)
def test_a_left_side_that_may_run_code_is_refused_and_not_run(compute, plain):
    made = []

    def kernel(x):
        made.append(Counting(nl.zeros((4, 5), nl.float32)))
        compute(nl.load(x), made[0])

    with pytest.raises(KernelError, match="names, integers and indices") as caught:
        launch(kernel, [DATA[:, 0]], plain=plain)
    assert "give the tile a name first" in caught.value.remedy
    assert made[0].uses == 0


@every("plain", [False, True])
@every("target", ["float32", "bfloat16", "float16", "int32"])
@every("dtype", ["bfloat16", "float16", "float32", "int32"])
@every("begun", [True, False])
def test_another_dtype_rounds_the_result_on_its_way(target, dtype, begun, plain):
    """As ``b[...] = nisa.tensor_tensor(b, x, op, dtype=...)``, into the tile that is there."""
    data = (DATA[:, 0] * np.float32(37.173)).astype(np.float32)

    def kernel(x):
        tile = nl.load(x)
        narrow = getattr(nl, dtype)
        total = nl.ndarray((4, 5), getattr(nl, target))
        wanted = nl.ndarray((4, 5), getattr(nl, target))
        if begun:
            total[...] = nl.copy(tile, dtype=getattr(nl, target))
            wanted[...] = nl.copy(total)
        else:
            wanted[...] = nl.copy(nl.copy(tile, dtype=narrow))
        for i in nl.affine_range(2):
            total = nl.loop_reduce(tile, op=np.add, loop_indices=[i], dtype=narrow)
            if begun or i:
                wanted[...] = nisa.tensor_tensor(wanted, tile, np.add, dtype=narrow)
        return written(total), written(wanted)

    total, wanted = launch(kernel, [data], plain=plain).outputs
    assert_array_equal(total, wanted)
    assert np.asarray(total, np.float64).any()


@every("plain", [False, True])
def test_another_dtype_under_a_mask_leaves_the_rest_alone(plain):
    def kernel(x):
        total = nl.full((4, 5), 257.0, nl.float32)
        mask = nl.arange(5)[None, :] < 3
        total = nl.loop_reduce(
            nl.load(x), op=np.add, loop_indices=[0], dtype=nl.bfloat16, mask=mask
        )
        return written(total)

    (result,) = launch(kernel, [np.ones((4, 5), np.float32)], plain=plain).outputs
    assert_array_equal(result, [[258.0] * 3 + [257.0] * 2] * 4)
