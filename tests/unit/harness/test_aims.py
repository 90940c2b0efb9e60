"""Bugs at a few of many sizes, which only a case meets that aims at the source's conditions."""

import math

import hypothesis
import numpy as np
import pytest
from hypothesis import Phase, find, given, settings

from difftest.harness.aims import conditions_of, nearest
from difftest.harness.recipes import Zeros
from difftest.harness.simplest import examples
from difftest.harness.spec import KernelSpec
from difftest.harness.strategies import cases, sizes
from tests.every import every
from tests.kernels.budget import NIGHTLY

TILE = 96
LEVEL = 0.75
FACTORS = {443: 3.0}
KEPT = []
SEVERAL = np.arange(2)
nl = nisa = None  # what reads a source runs nothing of it


def both(rows, columns):
    return rows == 217 and columns % 64 == 33


def apart(rows, columns):
    left = columns % 128
    if left == 77:
        right = rows % 32
        if right == 31:
            return True
    return False


def helper(columns):
    return 1 if not (columns + 1) % (2 * TILE) else 0


def of_a_helper(rows, columns):
    return bool(helper(columns)) and rows > 290


def keeping(columns):
    """It is no function of numbers alone: nobody asks it but a kernel."""
    KEPT.append(columns)
    return not columns % 8


def of_several(rows, columns):
    return columns == SEVERAL


def of_what_keeps(rows, columns):
    return keeping(columns) and keeping(columns + 1)


def of_a_turn(rows, columns):
    wrong = False
    for start in range(0, columns, 3 * TILE):
        wrong |= start > 3 * TILE and rows < 6
    return wrong


def of_few(rows, columns):
    return rows in (37, 111) and columns in (5, 350)


def of_two(rows, columns):
    low, left = 0, rows + columns
    return low + left == 777


def of_a_product(rows, columns):
    return rows * columns % 1000 == 7


def of_itself(rows, columns):
    columns = columns or rows
    return columns == 333


def seldom_false(rows, columns):
    return 1 if rows % 64 else 2


def often_true(rows, columns):
    return 1 if columns % 2 else 2


def of_three(rows, columns, depth):
    """Places of all would fix them in most cases."""
    return rows + columns + depth == 777


def of_an_array(x, rows, columns):
    _, few = x.shape
    return x.shape[-1] + few == 434


class Limits:
    BORDER = 443


def answer(n, tile):
    return 3 if n % tile == 59 and n // tile == 4 else 2


def of_names_elsewhere(rows, columns, border=217):
    return columns == Limits.BORDER and rows % border == 0


def of_an_answer(rows, columns):
    return max(answer(columns, TILE), 2) - 2


def of_a_table(rows, columns):
    return FACTORS.get(columns)


def of_a_ceiling(rows, columns):
    tiles = math.ceil(columns / TILE)
    return tiles * TILE - columns == 37 and tiles == 5


def of_a_function(x, rows, columns):
    return [step(x) for step in (lambda tile: nl.where(tile == 0.75, 1.0, tile),)]


def of_a_default(x, rows, columns, level=0.75):
    return nl.where(x == level, 1.0, x)


def of_a_value(x, rows, columns):
    return nl.where(x == LEVEL, 1.0, x)


def of_an_operand(x, rows, columns):
    return nisa.tensor_scalar(x, op0=nl.not_equal, operand0=0.75)


def refusing(rows, columns):
    assert rows % 64 == 0
    if columns > 512:
        raise ValueError(columns)


def spec_of(kernel, dtypes=("float32",), **more):
    domain = {"rows": sizes(1, 300), "columns": sizes(1, 700), **more}
    inputs = {"x": "rows columns"}
    names = ("rows", "columns")

    def run(x, rows, columns):
        return np.array(kernel(rows, columns))

    spec = KernelSpec(
        kernel=run,
        reference=lambda x: x,
        domain=domain,
        inputs=inputs,
        parameters=names,
        dtypes=dtypes,
    )
    object.__setattr__(spec, "kernel", kernel)
    return spec


@every(
    "kernel",
    [
        *(both, apart, of_a_helper, of_a_turn, of_few, of_two, of_a_product),
        *(of_names_elsewhere, of_an_answer, of_a_table, of_a_ceiling),
    ],
)
@pytest.mark.parametrize("seed", range(8 if NIGHTLY else 1))
def test_a_rare_bug_is_met_within_three_hundred_cases(kernel, seed):
    @hypothesis.seed(seed)
    @settings(database=None, deadline=None, max_examples=300, phases=[Phase.generate])
    @given(cases(spec_of(kernel)))
    def draw(case):
        if kernel(**case.values):
            raise KeyError  # none of the kernels does, and no more are drawn

    with pytest.raises(KeyError):
        draw()


@every("kernel", [of_a_value, of_an_operand, of_a_function, of_a_default])
def test_the_number_that_values_are_compared_with_is_among_them(kernel):
    spec = spec_of(kernel)
    arrays = [spec.inputs_of(case)[0] for case in examples(cases(spec), 100)]
    assert sum(np.float32(LEVEL) in x for x in arrays) > 1


@every("kernel", [refusing, both])
def test_pairs_of_sizes_repeat_little(kernel):
    """Edges of one size meet those of another, and aims each other: 37 of 200 were repeats."""
    met = [(*case.values.values(),) for case in examples(cases(spec_of(kernel)), 200)]
    assert len(met) == 200
    assert len({*met}) > 185


@every("seed", range(8 if NIGHTLY else 1))
def test_choices_that_are_wrong_together_are_met_beside_aims(seed):
    """Nothing aims at a pool of 3 in bfloat16, and what aims at sizes leaves room for it."""
    spec = spec_of(both, ("float32", "bfloat16"), pool=(1, 2, 3))
    met = []

    @hypothesis.seed(seed)
    @settings(database=None, deadline=None, max_examples=60, phases=[Phase.generate])
    @given(cases(spec))
    def collect(case):
        met.append((case.values["pool"], case.dtype) == (3, "bfloat16"))

    collect()
    assert sum(met) > 2


def test_a_case_that_aims_shrinks_as_any_other():
    """It is replayed without its aim: what Hypothesis chose is all that it is made of."""
    deterministic = settings(derandomize=True, database=None, deadline=None, max_examples=500)
    found = find(cases(spec_of(both)), lambda case: both(**case.values), settings=deterministic)
    assert (found.values, found.data) == ({"rows": 217, "columns": 33}, {"x": Zeros()})


@every(
    "kernel, asked",
    [
        (both, [[{217}, {*range(33, 700, 64)}]]),
        (apart, [[{*range(77, 700, 128)}], [{*range(77, 700, 128)}, {*range(31, 300, 32)}]]),
        (helper, [[{191, 383, 575}]]),
        (of_a_turn, [[{577}], [{577}, {5}]]),
        (of_few, [[{37, 111}, {5, 350}]]),
        (seldom_false, [[{64, 128, 192, 256}]]),
        (often_true, []),
        (of_what_keeps, []),
        (of_several, []),
        (of_three, []),
        (refusing, []),
        (spec_of, []),
    ],
)
def test_what_a_source_asks_for(kernel, asked):
    """Sizes between the ends of the domain, each condition with those around it."""
    conditions = conditions_of(spec_of(kernel))[0]
    groups = [[*around, *own] for *_, around, own in conditions]
    assert [[{n for at in places for n in at.values()} for places in g] for g in groups] == asked


@every("kernel, size", [(of_itself, 333), (of_an_array, 217)])
def test_a_name_that_keeps_its_value_or_is_of_an_array_is_aimed_at(kernel, size):
    """What a shape is unpacked into is the size of that axis, not any."""
    ((*_, joined),) = conditions_of(spec_of(kernel))[0]
    assert any(at.get("columns") == size for places in joined for at in places)
    assert not any(at.keys() == {"rows"} for places in joined for at in places)


def test_a_condition_is_at_its_line_and_knows_what_came_nearest():
    cases = [
        {"rows": 30, "columns": 50},
        {"rows": 219, "columns": 98},
        {"rows": 200, "columns": 97},
    ]
    (file, line, _, joined), *_ = conditions_of(spec_of(both))[0]
    assert (file, line) == (__file__, both.__code__.co_firstlineno + 1)
    assert nearest(joined, cases) == (3, "nearest of the last 3 cases: rows=219, columns=98")
    assert nearest(joined, cases[:1])[0] == (217 - 30) + (50 - 33)
