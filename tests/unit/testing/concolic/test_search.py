"""Bugs at a few of many sizes, which only a case meets that aims at the source's conditions."""

import abc
import bisect
import contextlib
import dataclasses
import enum
import functools
import math
import os
import sys
import threading
import time
from typing import ClassVar

import hypothesis
import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.testing.concolic import search as branch_targets
from difftest.testing.concolic.run import ConcolicRun, StepLimitExceeded
from difftest.testing.concolic.search import nearest_miss, targets_in_domain
from difftest.testing.contract.recipes import Zeros
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.cases import cases
from difftest.testing.drawing.dry_run import search_kernels
from difftest.testing.drawing.examples import examples
from difftest.testing.drawing.provider import BACKEND
from difftest.testing.drawing.sizes import multiples, sizes
from tests.every import every
from tests.kernels.budget import NIGHTLY

GENERATED = settings(
    database=None, deadline=None, phases=[Phase.generate], backend=BACKEND
)
TILE = 96
LEVEL = 0.75
PAIRS = {(64, 512): False, (217, 443): True, (30, 600): True}
SHAPES = {"217x443", "30x600"}
WIDTHS = [0, 0, 384, 387, 0, 0, 1000, 0, 0, 0]
TUNED = {31 * n + 7: n for n in range(20)}
NESTED = {640: {96: 1}, 353: {33: 1, 259: 2}}
# by the author's code, which is to run as a copy alone
TOLD = []
MET = {0}
MADE = os.listdir
TABLE = np.zeros(8)
SEVERAL = np.arange(2)


def both(x, rows, columns):
    return rows == 217 and columns % 64 == 33


def apart(x, rows, columns):
    left = columns % 128
    if left == 77:
        return rows % 32 == 31
    return False


def ds(columns):  # the author's, of whom NKI's is none
    return columns % 64 + 1


def helper(columns):
    return 1 if not (columns + 1) % (2 * TILE) else 0


SHORT = [
    lambda x, rows, columns: (
        (own := {217: 33, 96: 7}) and own.get(rows) == columns % 64
    ),
    lambda x, rows, columns: rows * np.float64(1) + columns == 777,
    lambda x, rows, columns: rows * columns % 1000 == 7,
    lambda x, rows, columns: (
        (rows, columns) in PAIRS or PAIRS.get((rows, columns), False)
    ),
    lambda x, rows, columns: columns in NESTED and rows in NESTED[columns],
    lambda x, rows, columns: rows in {37, 111} and any(columns == n for n in (5, 350)),
    lambda x, rows, columns: 90 <= rows < columns <= 93,
    lambda x, rows, columns: np.prod((rows, columns)) == 39060,
    lambda x, rows, columns: f"{rows}x{columns:d}" in SHAPES,
    lambda x, rows, columns: (
        bisect.bisect_left(WIDTHS[:4], columns) == 3 and rows % 64 == 33
    ),
    lambda x, rows, columns: len(range(0, columns, 7)) == 61 and rows // 11 == 19,
    lambda x, rows, columns: rows in {1, 127, 128, 129} and columns % 101 == 57,
    lambda x, rows, columns: math.ceil(columns / TILE) == 5 and -columns % TILE == 37,
    lambda x, rows, columns, border=217: columns == Plan.border and rows % border == 0,
    lambda x, rows, columns: f"{rows}" == "217" and columns % 64 == 33,
    lambda x, rows, columns: 37 in range(columns, 0, -96) and rows % 64 == 33,
    lambda x, rows, columns: ds(columns) == 34 and rows == 217,
]
COMPOSED = [
    sizes(1, 100).map(lambda n: 3 * n - 2 if n > 9 else n),
    st.one_of(st.just(128), sizes(200, 300)),
    st.builds(
        lambda tiles, rest: tiles * 64 + rest, st.integers(0, 4), st.integers(1, 64)
    ),
    sizes(1, 300).filter(lambda n: n % 3 == 1),
    sizes(1, 30).flatmap(lambda n: st.integers(n, 10 * n)),
]


def of_a_helper(x, rows, columns):
    return bool(helper(columns)) and rows > 290


def of_a_turn(x, rows, columns):
    wrong = False
    for start in range(0, columns, 3 * TILE):
        wrong |= start > 3 * TILE and rows < 6
    return wrong


def of_itself(x, rows, columns):
    columns = columns or rows
    return columns == 333


def of_an_array(x, rows, columns):
    _, few = x.shape
    return x.shape[-1] + few == 434


def of_last_turns(x, rows, columns):
    return any(
        columns - n == 3 and n > 600 and rows == 133 for n in range(0, columns, 9)
    )


class Mode(enum.Enum):
    FAST = 31

    def asks(self, columns):
        return columns % TILE == self.value


class Plan(abc.ABC):  # noqa: B024
    all: ClassVar = {}
    border = 443

    def __init__(self):
        self.sizes = [TILE]
        self.lock = threading.Lock()
        self.all[0] = self

    def __getattr__(self, name):
        raise AttributeError(name)

    @functools.cache  # noqa: B019
    def asks(self, columns):
        return columns % self.last == 31

    @property
    def last(self):
        print("asked")
        return self.all[0].sizes[-1]


PLAN = Plan()
CONFIG = type("Config", (threading.Event,), {})()
tell = TOLD.append
CONFIG.plans = [[TILE]]


def of_a_plan(x, rows, columns, kept=[]):  # noqa: B006
    import os as system

    PLAN.lock.acquire()
    kept.append(tell(columns))
    TABLE[0] += 1
    TABLE.tofile("t.bin")
    system.environ["KEPT"] = f"{np.random.rand()}"
    CONFIG.plans[0].append(columns)
    Plan.all[0].sizes.insert(0, columns)
    return (
        PLAN.asks(columns)
        or Mode.FAST.asks(columns + 1)
        or columns % CONFIG.plans[0][0] == 29
    )


def of_what_is_left(x, rows, columns):
    tiles, left = divmod(columns, TILE)
    left -= 8
    return (rows > 150) + (tiles == 4) + (left == 33) == 3


def of_a_while(x, rows, columns):
    zeros = 0
    while columns % 2 == 0:
        columns //= 2
        zeros += 1
    return zeros == 2 and rows & 127 == 85


def of_a_match(x, rows, columns):
    match columns % 128:
        case 91 if (left := rows % 64) == 3:
            return left
    return 0


def of_nothing_left(x, rows, columns):
    try:
        return rows / (columns - 331) < 0 and rows == columns + 1
    except ZeroDivisionError:
        return True


def of_tiles(x, rows, columns):
    """A size of a tile, in a loop that NKI makes."""
    wrong = False
    for turn in nl.affine_range(math.ceil(columns / 128)):
        tile = nl.ndarray((rows, min(128, columns - turn * 128)), dtype=x.dtype)
        _, width = tile.shape
        wrong |= width == 19 and turn == 3
    return wrong


def of_a_closure(kind):
    def kernel(x, rows, columns):
        return kind(rows, 217) and functools.partial(kind, 351)(columns)

    return kernel


of_a_closure = of_a_closure(lambda n, to: n == to)


def endless(x, rows, columns):
    while x.is_ready:
        time.sleep(1)


def deep(x, rows, columns):
    return deep(x[0], rows, columns)


def of_contents(x, rows, columns):
    with open("written.txt", "w") as file:
        file.write(print(rows))
    pytest.skip("what would end the test")


LONG = [both, apart, of_a_helper, of_a_turn, of_what_is_left, of_last_turns, of_a_while]
LONG += [of_a_match, of_nothing_left, of_a_closure]
LONG += [
    lambda x, rows, columns: (
        columns in TUNED and TUNED[columns] == 10 and rows % 4 == 1
    ),
    lambda x, rows, columns: columns % 101 == 57 and WIDTHS[rows // 32] == 1000,
    lambda x, rows, columns: 345 <= columns < 357 and rows % 32 == 5,
]


def refusing(x, rows, columns):
    assert rows % 64 == 0
    if columns > 512:
        raise KeyboardInterrupt


@contextlib.contextmanager
def managed(columns):
    yield columns == 333


def branch_conditions(spec):
    return search_kernels(spec).conditions


def spec_of(kernel, dtypes=("float32",), **more):
    def run(x, rows, columns):
        return np.array(kernel(x, rows, columns))

    spec = KernelSpec(
        kernel=run,
        reference=lambda x: x,
        domain={"rows": sizes(1, 300), "columns": st.integers(1, 700), **more},
        inputs={"x": "rows columns"},
        parameters=("rows", "columns"),
        dtypes=dtypes,
    )
    object.__setattr__(spec, "kernel", kernel)
    return spec


@every("kernel", [*SHORT, *LONG])
@pytest.mark.parametrize("seed", range(8 if NIGHTLY else 1))
def test_a_rare_bug_is_met_within_three_hundred_cases(kernel, seed):
    @hypothesis.seed(seed)
    @settings(GENERATED, max_examples=300)
    @given(cases(spec_of(kernel)))
    def draw(case):
        if kernel(None, **case.values):
            raise KeyError  # none of the kernels does, and no more are drawn

    with contextlib.suppress(KeyError):
        draw()
        pytest.fail(f"the kernel of line {kernel.__code__.co_firstlineno} was right")


@every(
    "kernel",
    [
        lambda x, rows, columns: nl.where(x == LEVEL, 1.0, x),
        lambda x, rows, columns: nisa.tensor_scalar(x, op0=nl.not_equal, operand0=0.75),
        lambda x, rows, columns: [
            f(x) for f in (lambda tile: nl.where(tile == 0.75, 1.0, tile),)
        ],
        lambda x, rows, columns, level=0.75: nl.where(x == level, 1.0, x),
    ],
)
def test_the_number_that_values_are_compared_with_is_among_them(kernel):
    spec = spec_of(kernel)
    arrays = [spec.inputs_of(case)[0] for case in examples(cases(spec), 100)]
    assert sum(np.float32(LEVEL) in x for x in arrays) > 1


@every(
    ("text", "integers"),
    [
        ("(rows % 7) == 3", {7, 3}),
        ("rows > 300 and columns < 12", {300, 12}),
        ("rows == 0.5 or not columns", set()),
        ("5", {5}),
        ("999", {999}),
    ],
)
def test_the_integers_in_a_condition_are_known(text, integers):
    """Python 3.14 has those up to 255 in its instructions."""
    assert branch_targets._integers(text) == integers


@every("kernel", [refusing, both])
def test_pairs_of_sizes_repeat_little(kernel):
    """Edges of one size meet those of another, and aims each other: 37 of 200 were repeats."""
    met = [
        tuple(case.values.values()) for case in examples(cases(spec_of(kernel)), 200)
    ]
    assert len(met) == 200
    assert len(set(met)) > 185


@every("seed", range(8 if NIGHTLY else 1))
def test_choices_that_are_wrong_together_are_met_beside_aims(seed):
    """Nothing aims at a pool of 3 in bfloat16, and what aims at sizes leaves room for it."""
    spec = spec_of(both, ("float32", "bfloat16"), pool=(1, 2, 3))
    met = []

    @hypothesis.seed(seed)
    @settings(GENERATED, max_examples=60)
    @given(cases(spec))
    def collect(case):
        met.append((case.values["pool"], case.dtype) == (3, "bfloat16"))

    collect()
    assert sum(met) > 2


ODD = st.integers(1, 301).filter(lambda n: n % 2 == 1)


@every(
    "rows, is_met",
    [
        (ODD, True),
        (ODD.filter(lambda n: n % 7 == 0), True),
        (ODD.map(lambda n: n), True),
        (st.integers(1, 300).filter(lambda n: n % 2 == 0), False),
    ],
)
def test_a_filter_that_refuses_values_does_not_end_the_search(rows, is_met):
    """Hypothesis ends a run whose filter refuses three values, and the search makes many runs."""
    conditions = branch_conditions(spec_of(both, rows=rows))
    aims = [place.values() for *_, places in conditions for place in places]
    assert any(217 in values for values in aims) == is_met


@every("rows", [range(1, 301), *COMPOSED])
def test_a_case_that_aims_shrinks_as_any_other(rows):
    """It is replayed without its aim: what Hypothesis chose is all that it is made of. A range in
    a domain is a list of sizes: an aim's number was taken for one of a strategy's."""
    deterministic = settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=500,
        backend=BACKEND,
    )
    spec = spec_of(both, rows=rows)
    found = find(
        cases(spec), lambda case: both(None, **case.values), settings=deterministic
    )
    assert (found.values, found.data) == ({"rows": 217, "columns": 33}, {"x": Zeros()})


def test_a_size_that_is_made_of_another_is_known_by_both():
    """Columns are a multiple of the rows: 651 are 3 times 217, 7 times 93, and few others."""
    columns = functools.cache(lambda rows: multiples(rows, at_most=700))
    for of in (columns.__wrapped__, columns):
        spec = spec_of(lambda x, rows, columns: columns == 651, columns=of)
        met = [case.values for case in examples(cases(spec), 200)]
        assert {type(size) for values in met for size in values.values()} == {int}
        assert of is columns or [values["columns"] for values in met].count(651) > 4


@every("kernel", [*SHORT, both, apart, of_a_closure])
def test_where_the_last_condition_holds_the_kernel_is_wrong(kernel):
    """Those around it hold there too."""
    rows = st.sampled_from(range(1, 301))
    *_, (_, _, places) = branch_conditions(spec_of(kernel, rows=rows))
    assert any(
        kernel(None, **{"rows": 300, "columns": 700} | place) for place in places
    )


@every(
    "kernel, asked",
    [
        (lambda x, rows, columns: 1 if rows % 64 else 2, [{64, 128, 192, 256}]),
        (of_itself, [{333}]),
        (of_an_array, [{217}]),
        (lambda x, rows, columns: x[7:-3, 1::2].shape == (100, 99), [{110, 198, 199}]),
        (
            lambda x, rows, columns: (
                nl.transpose(x[nl.ds(5, rows)]).shape[0] // 7 == 99
            ),
            [{693, 699}],
        ),
        (
            lambda x, rows, columns: (
                rows - nl.program_id(0) == 217 * nl.num_programs(0)
            ),
            [{217}],
        ),
        (lambda x, rows, columns: 1 if columns % 2 else 2, []),
        (lambda x, rows, columns: columns == SEVERAL, []),
        (lambda x, rows, columns: columns >= 1000 or rows == 301, [{1000}, {301}]),
        (lambda x, rows, columns: (int(pytest.fail("here")), columns == 333), [{333}]),
        (refusing, [{64, 128, 192, 256}]),
        (lambda x, rows, columns: (MET.add(rows), columns == 333), [{333}]),
        (lambda x, rows, columns: managed(columns).__enter__(), [{333}]),
        (spec_of, []),
    ],
)
def test_what_a_kernel_asks_for(kernel, asked):
    """Sizes between the ends of the domain and beyond its last, and none that it refuses."""
    conditions = branch_conditions(spec_of(kernel))
    alone = [places for *_, places in conditions if len(places[0]) == 1]
    assert [{n for at in places for n in at.values()} for places in alone] == asked


@every("columns", [sizes(0, 300), lambda rows: sizes(0, rows)])
def test_the_third_value_of_a_range_is_asked_for(columns):
    """Cases lean to 0 and 1, the first two, and to 2 only where it is one of these."""
    ((_, _, places),) = branch_conditions(
        spec_of(lambda x, rows, columns: columns == 2, columns=columns)
    )
    assert {n for at in places for n in at.values()} == {2}


@every(
    "kernel",
    [
        lambda x, rows, columns: rows == 3 and columns == 1,
        lambda x, rows, columns: columns % 2 == 1 if rows > 200 else False,
        refusing,
    ],
)
def test_what_several_conditions_ask_for_together(kernel):
    """Each alone holds for many sizes, or for small ones, which are drawn anyhow."""
    *_, (_, _, places) = branch_conditions(spec_of(kernel))
    assert {*places[0]} == {"rows", "columns"}
    if kernel is not refusing:
        assert any(kernel(None, **place) for place in places)


def test_a_kernel_of_a_grid_is_the_last_of_its_programs():
    """What stood for its number answered to nothing, and none of its rows was looked at."""
    spec = spec_of(
        lambda x, rows, columns: columns * nl.program_id(0) // nl.num_programs(0) == 222
    )
    object.__setattr__(spec, "grid", (3,))
    *_, (file, _, places) = branch_conditions(spec)
    assert (file, {at["columns"] for at in places}) == (__file__, {333, 334})


def test_what_leads_into_a_window_is_kept():
    """Each of its ends holds for half of the columns: rows alone met it in one of 60 cases."""
    *_, (_, _, places) = branch_conditions(spec_of(LONG[-1]))
    at = ({"columns": 1, **place} for place in places if place["rows"] % 32 == 5)
    assert all(LONG[-1](None, **place) for place in at)


def test_a_tile_has_the_shape_that_it_is_made_of():
    groups = [places for *_, places in branch_conditions(spec_of(of_tiles))]
    assert 403 in {at.get("columns") for places in groups for at in places}


@every("kernel", [endless, lambda *_, **__: all(iter(lambda: 1, 0)), of_contents])
def test_the_search_leaves_nothing_and_ends(kernel, capsys, tmp_path, monkeypatch):
    """A kernel may print, write, and wait for what no stand-in brings."""
    quick = dataclasses.replace(branch_targets.LIMITS, seconds=0.1)
    monkeypatch.setattr(branch_targets, "LIMITS", quick)
    monkeypatch.chdir(tmp_path)
    branch_conditions(spec_of(kernel))
    assert (capsys.readouterr().out, list(tmp_path.iterdir())) == ("", [])


def test_the_authors_code_runs_as_a_copy_on_copies(capsys, recwarn):
    spec = spec_of(of_a_plan)
    ran = []
    sys.setprofile(lambda frame, event, _: event == "call" and ran.append(frame.f_code))
    conditions = search_kernels(spec).conditions
    sys.setprofile(None)
    assert {at["columns"] % TILE for *_, places in conditions for at in places} >= {
        29,
        30,
        31,
    }
    assert [code for code in ran if code.co_filename == __file__] == []
    assert (TOLD, *of_a_plan.__defaults__, list(recwarn), capsys.readouterr().out) == (
        [],
        [],
        [],
        "",
    )
    assert (PLAN.sizes, CONFIG.plans, Plan.asks.cache_info().currsize) == (
        [TILE],
        [[TILE]],
        0,
    )
    assert not any(
        (PLAN.lock.locked(), TABLE.any(), {"KEPT", "t.bin"} & {*os.environ, *MADE()})
    )


def test_a_recursion_ends_long_before_the_stack_does(monkeypatch):
    """Of C; mypy, called by another test, had left a limit that ended the process."""
    counts, before, real = [], sys.getrecursionlimit(), ConcolicRun.stub
    monkeypatch.setattr(
        ConcolicRun, "stub", lambda *a, **k: counts.append(most) or real(*a, **k)
    )
    for most in (2000, 4000):
        sys.setrecursionlimit(most)
        branch_conditions(spec_of(deep))
    sys.setrecursionlimit(before)
    assert counts.count(4000) == pytest.approx(counts.count(2000), rel=0.1)


def test_a_number_of_a_million_digits_is_not_computed():
    with pytest.raises(StepLimitExceeded):
        _ = 3 ** ConcolicRun().number(2**21, "rows")


@every(
    "compute, value, text",
    [
        (lambda n: pow(n, 2, 5), 4, "((rows ** 2) % 5)"),
        (lambda n: pow(n, n, n), 0, "((rows ** rows) % rows)"),
        (lambda n: pow(n, 2), 49, "(rows ** 2)"),
        (lambda n: pow(n, -1, 5), 3, None),
        (lambda n: pow(n, 2**30, 5), 1, None),
        (lambda n: pow(2, n, 5), 3, None),
        (lambda n: pow(2, 3, n), 1, None),
    ],
)
def test_a_power_with_a_modulus_is_pythons(compute, value, text):
    result = compute(ConcolicRun().number(7, "rows"))
    assert result == value
    assert getattr(result, "text", None) == text


def test_a_condition_is_at_its_line_and_knows_what_came_nearest():
    cases = [{"rows": r, "columns": c} for r, c in ((30, 50), (219, 98), (200, 97))]
    # also of a table
    assert {file for file, *_ in branch_conditions(spec_of(SHORT[4]))} == {__file__}
    *_, (file, line, places) = branch_conditions(spec_of(both))
    assert (file, line) == (__file__, both.__code__.co_firstlineno + 1)
    assert nearest_miss(places, cases) == (
        3,
        "nearest of the last 3 cases: rows=219, columns=98",
    )
    assert nearest_miss(places, cases[:1])[0] == (217 - 30) + (50 - 33)
    inside = {"rows": 1, "columns": 2}
    rows = [inside, {**inside}, {"rows": 9}]
    columns = [{"rows": 9}]
    assert targets_in_domain([("", 1, rows), ("", 2, columns)], {"rows": range(9)}) == [
        [inside]
    ]
