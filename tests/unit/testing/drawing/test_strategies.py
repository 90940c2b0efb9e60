import re
from dataclasses import replace
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.internal.scrutineer import ModuleLocation

from difftest.support.tracebacks import PACKAGE
from difftest.testing.contract.recipes import Fill, Integers, Outliers, Random, Zeros
from difftest.testing.contract.sources import HARDWARE_LIMITS
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.cases import cases
from difftest.testing.drawing.data import recipes
from difftest.testing.drawing.examples import examples as drawn_examples
from difftest.testing.drawing.provider import BACKEND
from difftest.testing.drawing.reference_properties import ReferenceProperties
from difftest.testing.drawing.sizes import multiples, sizes
from tests.every import every
from tests.kernels.budget import NIGHTLY
from tests.unit.standin import add_spec

deterministic = settings(
    derandomize=True, database=None, deadline=None, max_examples=500, backend=BACKEND
)


def along_the_wrong_axis(x, row):
    """Wrong where ``row`` fits both axes, and alone there."""
    return x + (row[:, None] if len(row) == len(x) else row)


def not_transposed(x, row):
    """Wrong but where both axes are as long."""
    return (x if x.shape[0] == x.shape[1] else x[::-1]) + row


@pytest.mark.parametrize("wrong", [along_the_wrong_axis, not_transposed])
@pytest.mark.parametrize("seed", range(5 if NIGHTLY else 2))
def test_equal_sizes_and_others_are_among_twenty_cases(wrong, seed):
    domain = {"m": sizes(1, 128), "n": sizes(1, 512)}
    inputs = {"x": "m n", "row": "n"}
    spec = replace(
        add_spec(), kernel=along_the_wrong_axis, domain=domain, inputs=inputs
    )
    failed = []

    @hypothesis.seed(seed)
    @settings(
        deterministic, derandomize=False, max_examples=20, phases=[Phase.generate]
    )
    @given(cases(replace(spec, reference=lambda x, row: x + row)))
    def collect(case):
        x, row = spec.inputs_of(case)
        with np.errstate(all="ignore"):
            same = np.array_equal(wrong(x, row), x + row, equal_nan=True)
        failed.append(not same)

    collect()
    assert any(failed)


def drawn(strategy, examples=100):
    """The values of a strategy in this many draws."""
    return drawn_examples(strategy, examples)


def test_sizes_stay_in_the_range_and_lean_to_its_ends_and_the_hardwares_limits():
    values = drawn(sizes(1, 2000))
    assert all(1 <= value <= 2000 for value in values)
    edges = {1, 2, 1999, 2000} | {
        limit + step for limit in HARDWARE_LIMITS for step in (-1, 0, 1)
    }
    assert edges <= set(values)


def test_a_range_of_one_size_draws_that_size():
    assert set(drawn(sizes(5, 5))) == {5}


def test_hardware_limits_are_the_partitions_and_the_moving_operand():
    assert HARDWARE_LIMITS == (128, 512)


def test_multiples_stay_in_the_range_and_lean_to_its_ends():
    values = drawn(multiples(128, at_most=100_000, at_least=200))
    assert all(value % 128 == 0 and 200 <= value <= 100_000 for value in values)
    assert {256, 384, 99_840, 99_968} <= set(values)


@every(
    "strategy, smallest",
    [
        (sizes(1, 1000), 1),
        (sizes(3, 1000), 3),
        (multiples(128, at_most=4096), 128),
        (multiples(3, at_most=4096, at_least=100), 102),
    ],
)
def test_sizes_shrink_to_the_smallest(strategy, smallest):
    assert find(strategy, lambda value: True, settings=deterministic) == smallest


@every("condition, smallest", [(lambda n: n > 128, 129), (lambda n: n >= 127, 127)])
def test_sizes_shrink_to_the_smallest_that_fails(condition, smallest):
    assert find(sizes(1, 4096), condition, settings=deterministic) == smallest


@every(
    "call, message",
    [
        (lambda: sizes(3, 2), "sizes: received low=3, high=2; accepted: low <= high"),
        (
            lambda: multiples(0, at_most=9),
            "multiples: received of=0; accepted: at least 1",
        ),
        (
            lambda: multiples(128, at_most=127),
            "multiples: received of=128, at_least=1, at_most=127; accepted: a range that holds",
        ),
    ],
)
def test_an_empty_range_is_an_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_recipes_shrink_to_zeros():
    assert (
        find(recipes("float32"), lambda recipe: True, settings=deterministic) == Zeros()
    )


def test_random_data_is_frequent_and_has_values_inexact_in_narrow_dtypes():
    seen = drawn(recipes("float32"))
    random = [recipe for recipe in seen if isinstance(recipe, Random)]
    assert len(random) > len(seen) / 8
    values = random[0].build((100,), np.dtype("float32"))
    assert np.any(values != values.astype(np.float16))


def test_recipes_of_integers_are_integers():
    for recipe in drawn(recipes("uint8")):
        assert not isinstance(recipe, Random)
        assert recipe.build((64,), np.dtype("uint8")).dtype == np.uint8


@every(
    "dtype, largest",
    [
        ("float32", 2.0**32),
        ("bfloat16", 2.0**32),
        ("float16", 2.0**15),
        ("float8_e4m3", 2.0**10),
        ("float8_e5m2", 2.0**15),
    ],
)
def test_products_of_drawn_data_do_not_overflow(dtype, largest):
    for recipe in drawn(recipes(dtype), 50):
        values = recipe.build((128,), np.dtype(dtype)).astype(np.float64)
        assert np.isfinite(values).all()
        assert np.abs(values).max() <= largest


def test_what_people_forget_is_drawn_among_random_data():
    seen = drawn(recipes("float32", random=True), 300)
    arrays = [
        one.build((128,), np.dtype("float32"))
        for one in seen
        if isinstance(one, Outliers)
    ]
    values = np.array(arrays)
    tiny = np.finfo(np.float32).tiny
    assert np.any(np.signbit(values) & (values == 0)), "-0.0"
    assert np.any((values != 0) & (np.abs(values) < tiny)), "subnormal"
    assert np.any(values > 2.0**30), "very large"
    assert np.any(values < -(2.0**30)), "very negative"
    assert all(np.unique(array).size > 64 for array in arrays)


def test_where_data_only_move_all_values_are_drawn():
    spec = add_spec(domain={"n": (128,)}, reduction=0)
    arrays = [spec.inputs_of(case)[0] for case in drawn(cases(spec), 150)]
    assert any(np.isnan(array).any() for array in arrays)
    assert any(np.isinf(array).any() for array in arrays)
    assert any(
        np.abs(array[np.isfinite(array)]).max(initial=0.0) > 1e38 for array in arrays
    )


def test_where_integers_only_move_all_values_are_drawn():
    values = [
        recipe.build((512,), np.dtype("int8"))
        for recipe in drawn(
            recipes("int8", nature=ReferenceProperties(moves=True, selects=True))
        )
    ]
    assert max(array.max() for array in values) > 100
    assert min(array.min() for array in values) < -100


def test_in_most_cases_all_operands_are_random_and_none_is_zeros():
    """Hypothesis makes a tenth of all cases as plain as it can, and those first."""
    seen = drawn(cases(add_spec(domain={"n": sizes(64, 1000)})), 130)[30:]
    random = [
        case for case in seen if all(data.is_random for data in case.data.values())
    ]
    zeros = [case for case in seen if Zeros() in case.data.values()]
    assert len(random) > 0.6 * len(seen)
    assert len(zeros) < 0.2 * len(seen)


@every("least", [129, 249, 400, 511])
def test_a_size_shrinks_from_an_edge_to_any_below_it(least):
    for strategy in (sizes(1, 512), multiples(1, at_most=512)):
        assert find(strategy, lambda n: n >= least, settings=deterministic) == least


def test_sizes_lean_to_those_that_are_near():
    assert 777 in drawn(sizes(1, 100_000, near=(777,)))
    assert 770 in drawn(multiples(10, at_most=100_000, near=(770,)))


def test_the_first_three_multiples_are_frequent():
    """A loop over tiles makes a first, a second and a third turn there."""
    spec = add_spec(domain={"n": multiples(128, at_most=128_000)})
    seen = [case.values["n"] for case in drawn(cases(spec), 150)]
    assert all(seen.count(count * 128) > 3 for count in (1, 2, 3))


@every("nonfinite", [True, False])
def test_nonfinite_values_come_only_where_they_are_asked_for(nonfinite):
    fills = [
        recipe
        for recipe in drawn(recipes("float16", nonfinite=nonfinite))
        if isinstance(recipe, Fill)
    ]
    values = [fill.value for fill in fills] + [
        v for fill in fills for _, v in fill.overrides
    ]
    assert np.isfinite(values).all() == (not nonfinite)


@given(
    cases(
        add_spec(
            domain={
                "CHUNK": sizes(1, 128),
                "n": lambda CHUNK: multiples(CHUNK, at_most=4096),
            },
            dtypes=("float32", "bfloat16"),
        )
    )
)
def test_cases_are_built_from_the_domain(case):
    assert list(case.values) == ["CHUNK", "n"]
    assert case.values["n"] % case.values["CHUNK"] == 0
    assert case.dtype in ("float32", "bfloat16")
    assert list(case.data) == ["a", "b"]


def test_a_function_of_the_domain_may_return_a_sequence():
    spec = add_spec(domain={"m": (1, 2), "n": lambda m: [m, 10 * m]})
    pairs = {tuple(case.values.values()) for case in drawn(cases(spec))}
    assert pairs == {(1, 1), (1, 10), (2, 2), (2, 20)}


def test_a_case_that_has_no_room_is_an_error_before_it_is_tried():
    spec = add_spec(domain={"n": sizes(1, 10**6)}, inputs={"a": "n n", "b": "n n"})
    drawn = r"drew n=\d+, a case of [\d,]+ elements \(a \(\d+, \d+\), b \(.*\)\)"
    message = f"domain: {drawn}; accepted: "
    with pytest.raises(
        SpecError, match=message + "at most 268,435,456 in all arrays of a case"
    ):
        cases(spec).validate()


def test_cases_shrink_to_the_first_of_everything():
    spec = add_spec(dtypes=("float16", "float32"))
    case = find(cases(spec), lambda case: True, settings=deterministic)
    assert (case.values, case.dtype) == ({"n": 1}, "float16")
    assert set(case.data.values()) == {Zeros()}


def test_integers_are_drawn_as_their_own_recipe():
    seen = drawn(st.one_of(recipes("float32"), recipes("int32")))
    assert any(isinstance(recipe, Integers) for recipe in seen)


@every(
    "make, message",
    [
        (lambda: sizes(1, 2.5), "sizes: high: received 2.5; accepted: an integer"),
        (lambda: sizes("1", 2), "sizes: low: received '1'; accepted: an integer"),
        (
            lambda: multiples(2.5, at_most=9),
            "multiples: of: received 2.5; accepted: an integer",
        ),
    ],
)
def test_sizes_are_integers(make, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        make()


@every("returned", [None, 5, "12", []])
def test_a_function_of_the_domain_returns_a_source(returned):
    spec = add_spec(domain={"m": (1,), "n": lambda m: returned})
    message = (
        f"domain['n']: what its function returned: received {returned!r}; accepted: a Hypothesis "
        "strategy, or a sequence that is not empty"
    )
    with pytest.raises(SpecError, match=re.escape(message)):
        drawn(cases(spec), 1)


def test_numbers_of_this_package_are_not_drawn():
    """Hypothesis parsed a checkout's files for them: two seconds of CPU in each new folder."""
    own = Path(PACKAGE) / "a_file_of_which_nothing_is_kept.py"
    assert ModuleLocation.from_path(str(own)) is not ModuleLocation.LOCAL
    assert ModuleLocation.from_path(__file__) is ModuleLocation.LOCAL
