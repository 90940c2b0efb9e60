import math

import hypothesis
import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Integers, Iota, Ones, Random, Zeros
from difftest.testing.contract.spec import Input, KernelSpec
from difftest.testing.contract.structured import Indices
from difftest.testing.drawing.data import seeded
from difftest.testing.drawing.minimal import OutOfTimeError, minimize
from difftest.testing.drawing.provider import use_backend
from difftest.testing.drawing.sizes import multiples, sizes
from difftest.testing.harness.bound_case import check_each
from difftest.testing.harness.decorator import decorate
from difftest.testing.harness.failures import BrokenReferenceError, DifferentialFailure
from difftest.testing.harness.minimal_failure import minimal_failure
from difftest.testing.harness.runner import Runner
from tests.unit.standin import PlainBackend, add_spec, broken_add

POOLS = (1, 2, 3)


def plane_spec(is_wrong=lambda *_: False, **fields):
    """A copy of a matrix, which is wrong where a condition holds."""

    def kernel(a, pool):
        result = a.copy()
        if is_wrong(*a.shape, pool, a.dtype.name):
            result[-1, -1] = 7
        return result

    own = {
        "kernel": kernel,
        "reference": lambda a, pool: a.astype(np.float64),
        "domain": {"rows": sizes(1, 256), "columns": sizes(1, 600), "pool": POOLS},
        "inputs": {"a": "rows columns"},
        "parameters": ["pool"],
        "dtypes": ("float32", "bfloat16"),
    }
    return KernelSpec(**{**own, **fields})


def failing(spec, seed=0, phases=(Phase.generate, Phase.shrink)):
    test = decorate(spec, lambda case: case.check())
    few = settings(max_examples=60, phases=phases, database=None, deadline=None)
    drawn = few(hypothesis.seed(seed)(test))
    use_backend(drawn)
    with pytest.raises((DifferentialFailure, BrokenReferenceError)) as caught:
        drawn(difftest_runner=Runner((PlainBackend(),)))
    return caught.value


CONDITIONS = [
    lambda r, c, p, d: c % 3 == 2 and r > 128,
    lambda r, c, p, d: math.isqrt(c) ** 2 == c and c > 9,
    lambda r, c, p, d: (r + c) % 5 == 4 and c > 10,
    lambda r, c, p, d: r == c > 4,
    lambda r, c, p, d: p == 2 and c % 2 == 1 and c > 9,
    lambda r, c, p, d: d == "bfloat16" and c % 5 == 2,
]


def test_no_coordinate_of_a_final_case_can_be_smaller():
    """Where failure is not monotone, Hypothesis mostly ends far above."""
    for seed, is_wrong in enumerate(CONDITIONS):
        case = failing(plane_spec(is_wrong), seed).case
        rows, columns, pool = case.values.values()
        point = [rows, columns, POOLS.index(pool), case.dtype == "bfloat16"]
        assert is_wrong(rows, columns, pool, case.dtype)
        for axis, least in enumerate((1, 1, 0, 0)):
            for other in range(least, point[axis]):
                r, c, p, narrow = [*point[:axis], other, *point[axis + 1 :]]
                dtype = "bfloat16" if narrow else "float32"
                assert not is_wrong(r, c, POOLS[p], dtype), (case, axis, other)
        assert case.data == {"a": Zeros()}


ODD = st.integers(1, 200).filter(lambda n: n % 2 == 1)
TILES = [(128, 1), (64, 2), (32, 4), (16, 8)]
DOMAINS = {
    "a chain of names": (
        {
            "n": sizes(1, 400),
            "pos": lambda n: sizes(0, n),
            "width": lambda n, pos: sizes(0, n - pos),
        },
        lambda n, pos, width: n > 50 and pos % 3 == 2 and width >= 5,
        (51, 2, 5),
    ),
    "multiples of another": (
        {"k": [2, 4, 8], "n": lambda k: multiples(k, at_most=512)},
        lambda k, n: k == 4 and n // k % 3 == 2 and n > 30,
        (4, 32),
    ),
    "tuples": (
        {"n": sizes(1, 600), "tile": TILES},
        lambda n, tile: tile == (32, 4) and n % 5 == 1 and n > 6,
        (11, (32, 4)),
    ),
    "a filter": ({"n": ODD}, lambda n: n % 7 == 0 and n > 30, (35,)),
    "floats and booleans": (
        {"n": sizes(1, 300), "scale": [0.5, 1.0, 2.0], "flag": st.booleans()},
        lambda n, scale, flag: flag and scale > 1 and n % 4 == 3 and n > 20,
        (23, 2.0, True),
    ),
    "nothing for some": (
        {
            "n": sizes(1, 40),
            "m": lambda n: st.integers(5, n) if n >= 5 else st.nothing(),
        },
        lambda n, m: n > 20 and m % 3 == 0 and m > 6,
        (21, 9),
    ),
    "negative": (
        {"off": st.integers(-50, 50), "n": sizes(1, 200)},
        lambda off, n: off < -20 and off % 3 == 0,
        (-21, 1),
    ),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_final_cases_of_many_domains_are_minimal(name):
    domain, is_wrong, least = DOMAINS[name]

    def kernel(a, **values):
        result = a.copy()
        if is_wrong(**values):
            result[-1] = 7
        return result

    spec = add_spec(
        kernel,
        reference=lambda a: a.astype(np.float64),
        domain=domain,
        inputs={"a": "n"},
        parameters=list(domain),
    )
    failure = failing(spec)
    assert tuple(failure.case.values.values()) == least
    assert failure.case.data == {"a": Zeros()}
    assert all(f" {own}" in failure.minimal for own in domain)


def indices_spec(is_wrong, below):
    """A copy of indices, which is wrong where a condition holds for them."""

    def kernel(a):
        result = a.copy()
        if is_wrong(a):
            result[-1] = -1
        return result

    own = Input("n", dtype="int32", data=lambda n: seeded(Indices, below=below(n)))
    return add_spec(
        kernel,
        reference=lambda a: a,
        domain={"n": sizes(1, 400)},
        inputs={"a": own},
        output_dtype="int32",
    )


def test_a_final_case_whose_data_depend_on_a_name_is_minimal():
    """Hypothesis forbids a draw within a test, if the test's settings do not allow it."""
    failure = failing(
        indices_spec(lambda a: a.size % 7 == 3 and a.size > 10, lambda n: n)
    )
    assert failure.case.values == {"n": 17}
    assert failure.case.data["a"].below == 17


def test_smaller_values_are_tried_with_other_data():
    """With the first seed, two of five indices are 0; with another seed, two of three."""

    def is_wrong(flags):
        return np.count_nonzero(flags == 0) > 1

    for seed in range(3):
        failure = failing(indices_spec(is_wrong, lambda n: 3), seed)
        assert failure.case.values == {"n": 3}


def test_the_report_says_which_coordinates_are_minimal():
    failure = failing(plane_spec(CONDITIONS[0]))
    proof = "no case with smaller rows, columns or pool fails"
    assert failure.minimal == proof
    assert f"  minimal:     {proof}\n" in str(failure)


@pytest.mark.parametrize(
    ("source", "value", "names"),
    [
        ([1, 2.5, 4], 2.5, "smaller n or at"),
        (list(np.arange(3, 9)), 4, "smaller n or at"),
        (st.integers(3, 9), 4, "smaller n or at"),
        (range(9, 0, -2), 5, "smaller n or simpler at"),
        (st.integers(-9, 9), -3, "smaller n or simpler at"),
        (st.sampled_from([4, 3]).map(str), "3", "smaller n or simpler at"),
        ([(1, 2), (2, 1)], (2, 1), "smaller n or simpler at"),
        (st.booleans(), True, "smaller n or simpler at"),
        ([None, 3], 3, "smaller n or simpler at"),
    ],
)
def test_values_that_do_not_grow_are_simpler_not_smaller(source, value, names):
    """Only the values before this one were tried: smaller ones after it may fail."""
    spec = add_spec(domain={"n": sizes(1, 9), "at": source})
    at = {"n": 9, "at": value}
    found = started(spec, at, lambda case: case.values["at"] == value)
    assert found.describe() == f"no case with {names} fails"


def test_the_cases_of_the_last_step_are_not_counted():
    runner = Runner((PlainBackend(),))
    test = decorate(plane_spec(lambda r, c, p, d: c > 400), lambda case: case.check())
    few = settings(max_examples=60, database=None, deadline=None)
    with pytest.raises(DifferentialFailure):
        few(hypothesis.seed(1)(test))(difftest_runner=runner)
    assert runner.tally.rows["kernel", "plain"].cases < 300


def test_without_the_shrinking_phase_a_case_stays_as_it_was_drawn():
    failure = failing(plane_spec(lambda r, c, p, d: r > 7), phases=[Phase.generate])
    assert not failure.minimal


def test_an_explicit_example_stays_as_its_author_wrote_it():
    own = Case({"rows": 130, "columns": 5, "pool": 2}, "float32", {"a": Iota()})
    test = decorate(plane_spec(lambda r, c, p, d: r > 7), lambda case: case.check())
    test = hypothesis.example(case=own)(test)
    with pytest.raises(DifferentialFailure) as caught:
        settings(database=None)(test)(difftest_runner=Runner((PlainBackend(),)))
    assert caught.value.case == own
    assert not caught.value.minimal


def test_a_reference_that_breaks_down_breaks_down_on_a_minimal_case():
    def reference(a, pool):
        if a.shape[1] % 7 == 5:
            raise KeyError(pool)
        return a.astype(np.float64)

    failure = failing(plane_spec(reference=reference))
    assert isinstance(failure, BrokenReferenceError)
    assert failure.case.values == {"rows": 1, "columns": 5, "pool": 1}


def started(spec, values, fails, seconds=100.0, dtype="float32", **data):
    data = data or {name: Random(3) for name in spec.inputs}
    return minimize(spec, Case(values, dtype, data), fails, seconds)


def test_a_case_that_does_not_fail_again_proves_nothing():
    found = started(add_spec(), {"n": 5}, lambda case: False)
    assert (found.case.values, found.proven, found.tried) == ({"n": 5}, (), 1)
    assert found.describe() == ""


def test_all_smaller_values_are_tried_in_ascending_order():
    tried = []

    def fails(case):
        tried.append(case.values["n"])
        return case.values["n"] in (3, 7)

    found = started(add_spec(broken_add), {"n": 7}, fails)
    assert found.case.values == {"n": 3}
    numbers = [n for at, n in enumerate(tried) if at == 0 or tried[at - 1] != n]
    assert numbers[:4] == [7, 1, 2, 3]
    assert found.proven == ("n",)


def test_no_case_runs_twice():
    seen = set()

    def fails(case):
        assert repr(case) not in seen
        seen.add(repr(case))
        return case.values["rows"] * case.values["columns"] % 6 == 5

    found = started(plane_spec(), {"rows": 17, "columns": 25, "pool": 1}, fails)
    assert found.tried == len(seen)
    assert set(found.proven) == {"rows", "columns", "pool"}


def test_names_of_one_value_are_lowered_together():
    found = started(
        plane_spec(),
        {"rows": 51, "columns": 51, "pool": 1},
        lambda case: case.values["rows"] == case.values["columns"] > 4,
    )
    assert found.case.values == {"rows": 5, "columns": 5, "pool": 1}


def test_time_is_limited_and_the_report_has_the_unfinished_part():
    tried = []

    def fails(case):
        tried.append(case.values["columns"])
        if len(tried) > 12:
            raise OutOfTimeError
        return case.values["columns"] > 140

    values = {"rows": 1, "columns": 599, "pool": 1}
    found = started(plane_spec(), values, fails, seconds=1e9)
    assert found.unproven == ("columns",)
    proof = "no case with smaller rows or pool fails; no time to try all of columns"
    assert found.describe() == proof


def test_a_heavy_case_tries_the_ends_of_tiles_first(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.process_time", lambda: now[0])
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    tried = []

    def fails(case):
        now[0] += 0.02
        tried.append(case.values["columns"])
        return case.values["columns"] > 250

    values = {"rows": 1, "columns": 599, "pool": 1}
    found = started(plane_spec(), values, fails, 2.0, a=Zeros())
    assert set(tried[1:7]) <= {1, 2, 127, 128, 129, 256}
    assert found.case.values["columns"] == 256
    assert found.describe().endswith("no time to try all of columns")


def test_a_value_that_depends_on_another_stays_in_its_domain():
    spec = add_spec(
        domain={"n": sizes(1, 400), "at": lambda n: sizes(1, n), "m": lambda n: (n, 9)}
    )

    def fails(case):
        n, at, m = case.values.values()
        assert 1 <= at <= n
        assert m in (n, 9)
        return at > 2

    found = started(spec, {"n": 300, "at": 290, "m": 9}, fails)
    assert found.case.values == {"n": 3, "at": 3, "m": 3}


@pytest.mark.parametrize(
    ("source", "value", "least"),
    [
        (st.integers(0, 40), 38, 23),
        (st.integers(-40, 40), -38, 23),
        (st.integers(5, 40).filter(lambda n: n % 2 == 0), 38, 28),
        (st.integers(0, 9).map(lambda n: n * n), 81, 81),
        (multiples(4, at_most=80), 76, 28),
        (st.sampled_from([40, 23, 30]), 30, 23),
        (st.sampled_from([20, 11.5, 15]).map(lambda n: int(2 * n)), 30, 23),
        (range(1, 60), 58, 23),
    ],
)
def test_sources_of_many_kinds_have_an_order(source, value, least):
    found = started(
        plane_spec(domain={"rows": source, "columns": (1,), "pool": POOLS}),
        {"rows": value, "columns": 1, "pool": 1},
        lambda case: case.values["rows"] in (value, 23, 28, 81),
    )
    assert found.case.values["rows"] == least


def test_a_source_without_an_order_is_left_alone_and_not_named():
    spec = add_spec(domain={"n": st.one_of(st.just(3), st.integers(5, 8))})
    found = started(spec, {"n": 8}, lambda case: True)
    assert (found.case.values, found.describe()) == ({"n": 8}, "")


def test_data_that_depend_on_a_name_are_drawn_for_its_new_value():
    spec = add_spec(
        inputs={
            "a": Input("n", data=lambda n: seeded(Indices, below=n)),
            "b": Input("n", data=Integers(2, 4)),
        }
    )

    def fails(case):
        assert case.data["a"].below == case.values["n"]
        return case.values["n"] > 2

    found = started(spec, {"n": 7}, fails, a=Indices(5, 7), b=Integers(2, 4))
    assert found.case.data == {"a": Indices(5, 3), "b": Integers(2, 4)}


def other_with_ones(a, pool):
    """Wrong with random data, in another way with ones, and right with zeros."""
    if not a.any():
        return a.copy()
    return a + a.dtype.type(1) if a.min() < a.max() else a[:-1]


def test_an_error_of_another_kind_is_another_bug():
    spec = plane_spec(kernel=other_with_ones)
    runner = Runner((PlainBackend(),))

    def run(case):
        check_each(runner, spec, case)

    drawn = Case({"rows": 9, "columns": 9, "pool": 2}, "float32", {"a": Integers(1, 3)})
    with pytest.raises(DifferentialFailure) as caught:
        run(drawn)
    smallest = minimal_failure(caught.value, run)
    assert smallest.kind == caught.value.kind
    assert smallest.case.data == {"a": Iota()}
    assert smallest.case.values == {"rows": 1, "columns": 2, "pool": 1}


def test_data_become_simple_only_where_they_are_free():
    found = started(
        add_spec(inputs={"a": "n", "b": Input("n", data=Random(1))}),
        {"n": 1},
        lambda case: case.data["a"] != Zeros(),
        a=Integers(4, 2),
        b=Random(1),
    )
    assert found.case.data == {"a": Ones(), "b": Random(1)}
