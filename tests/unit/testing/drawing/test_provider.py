"""What this package needs of Hypothesis's internals, on the oldest and the newest Hypothesis."""

import hashlib
import inspect

import hypothesis
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.data import ConjectureData
from hypothesis.internal.conjecture.provider_conformance import run_conformance_test
from hypothesis.strategies import SearchStrategy

from difftest.testing.drawing.cases import cases
from difftest.testing.drawing.examples import examples
from difftest.testing.drawing.provider import (
    BACKEND,
    CaseProvider,
    DryProvider,
    draw_index,
    integer_bounds,
    ordered_values,
    planned_provider,
    prefer,
    sampled_values,
    use_backend,
)
from difftest.testing.drawing.sizes import multiples, sizes
from tests.every import every
from tests.unit.standin import add_spec

METHODS = {
    "draw_boolean": ["self", "p"],
    "draw_integer": ["self", "min_value", "max_value", "weights", "shrink_towards"],
    "draw_float": [
        "self",
        "min_value",
        "max_value",
        "allow_nan",
        "smallest_nonzero_magnitude",
    ],
    "draw_string": ["self", "intervals", "min_size", "max_size"],
    "draw_bytes": ["self", "min_size", "max_size"],
    "realize": ["self", "value", "for_failure"],
    "__init__": ["self", "conjecturedata"],
}
"""The methods of Hypothesis's interface for backends that the providers here override or call."""


@every("name, parameters", METHODS.items())
def test_a_method_of_the_interface_is_as_it_was(name, parameters):
    """If this fails, Hypothesis has changed that method of its ``PrimitiveProvider``."""
    method = getattr(providers.PrimitiveProvider, name)
    assert list(inspect.signature(method).parameters) == parameters, (
        f"Hypothesis {hypothesis.__version__} has another {name}"
    )


@every("name", ["lifetime", "avoid_realization"])
def test_an_attribute_of_the_interface_is_there(name):
    assert hasattr(providers.PrimitiveProvider, name)


@every(
    "holder, names",
    [
        (providers, ["AVAILABLE_PROVIDERS", "HypothesisProvider", "_seen_modules"]),
        (ConjectureData, ["draw_integer", "choices"]),
        (settings(), ["backend"]),
        (st.integers().filter(str).wrapped_strategy, ["flat_conditions"]),
        (st.integers().map(str).wrapped_strategy, ["mapped_strategy", "pack"]),
        (st.sampled_from([1]).map(str), ["elements", "_transformations"]),
        (given(st.none())(lambda value: None), ["_hypothesis_internal_use_settings"]),
    ],
)
def test_a_private_name_is_there(holder, names):
    for name in names:
        assert hasattr(holder, name), f"Hypothesis {hypothesis.__version__}: {name}"


def test_hypothesis_accepts_what_the_provider_draws():
    run_conformance_test(
        CaseProvider, settings=settings(max_examples=20, deadline=None)
    )


def test_the_strategies_of_hypothesis_show_their_values():
    assert integer_bounds(st.integers(3, 8)) == (3, 8)
    assert integer_bounds(st.integers(3)) is None
    assert sampled_values(st.sampled_from([5, 4])) == (5, 4)
    assert sampled_values(st.sampled_from([5, 4]).map(str)) is None
    assert ordered_values(st.integers(-1, 2)) == [0, 1, -1, 2]
    assert ordered_values(st.integers(0, 9).filter(lambda n: n % 4 == 0)) == [0, 4, 8]
    assert ordered_values(st.integers(0, 3).map(lambda n: n * n)) == [0, 1, 4, 9]
    sampled = st.sampled_from([5, 4, 3])
    assert ordered_values(sampled) == [5, 4, 3]
    texts = sampled.map(str).filter(lambda text: text > "3")
    assert ordered_values(texts) == ["5", "4"]
    assert ordered_values(st.booleans()) == (False, True)
    assert ordered_values(st.one_of(st.just(3), st.integers(0, 9))) == []
    assert ordered_values(st.tuples(st.booleans())) == []


def test_a_test_keeps_its_settings_and_gets_the_backend():
    seen = []

    @settings(max_examples=7, database=None)
    @given(st.integers(0, 9))
    def test(value):
        seen.append(planned_provider() is not None)

    use_backend(test)
    test()
    assert seen == [False] + 6 * [True]  # the simplest case is Hypothesis's


def test_another_backend_stays(monkeypatch):
    monkeypatch.setitem(
        providers.AVAILABLE_PROVIDERS, "other", providers.AVAILABLE_PROVIDERS[BACKEND]
    )
    test = settings(backend="other")(given(st.none())(lambda value: None))
    use_backend(test)
    assert test._hypothesis_internal_use_settings.backend == "other"


def test_what_is_no_hypothesis_test_is_left_alone():
    use_backend(None)
    use_backend(len)


def test_integers_lean_to_preferred_ones():
    @st.composite
    def leaning(draw):
        prefer(1, 1000, (7, 500))
        return draw(st.integers(1, 1000)), draw(st.integers(1, 999))

    drawn = examples(leaning(), 200)
    near = [sum(pair[at] in (7, 8, 500, 501) for pair in drawn) for at in range(2)]
    assert near[0] > 60
    assert near[1] < 20


def test_a_wanted_choice_is_drawn_next_if_it_is_permitted():
    @st.composite
    def wanted(draw):
        if provider := planned_provider():
            provider.wanted = [5, True, 77]
        own = draw(st.integers(0, 9)), draw(st.booleans()), draw_index(3)
        return own, provider is not None

    drawn = examples(wanted(), 20)
    assert all(own[:2] == (5, True) for own, is_planned in drawn if is_planned)
    assert all(own[2] in range(3) for own, _ in drawn)
    assert sum(is_planned for _, is_planned in drawn) == 19


def test_a_dry_provider_draws_whatever_is_chosen():
    class Recorded(int):
        pass

    @st.composite
    def strategy(draw):
        draw(st.booleans())
        provider = planned_provider()
        if not isinstance(provider, DryProvider):
            return None
        provider.choose = lambda kind, limits, fresh: (
            Recorded(fresh()) if kind == "integer" else fresh()
        )
        provider.concrete = lambda value: (
            int(value) if isinstance(value, Recorded) else value
        )
        return draw(st.integers(2, 9)), draw(st.floats(0, 1))

    _, (size, number) = examples(strategy(), 2, backend="difftest-dry-run")
    assert type(size) is Recorded
    assert 0 <= number <= 1


def digest(values):
    return hashlib.sha256("\n".join(map(repr, values)).encode()).hexdigest()[:16]


def drawn_with_seed(spec, seed):
    met = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=40,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        backend=BACKEND,
    )
    @given(cases(spec))
    def collect(case):
        met.append(case)

    collect()
    return met


DOMAIN = {
    "n": sizes(1, 300),
    "m": multiples(64, at_most=2000),
    "k": lambda n: sizes(1, n),
    "pool": (1, 2, 3),
}


def test_the_same_seed_draws_the_same_cases_on_each_version_of_hypothesis():
    """The digest was made once; the tests run with the oldest and the newest Hypothesis."""
    spec = add_spec(domain=DOMAIN, dtypes=("float32", "bfloat16"))
    met = drawn_with_seed(spec, 3)
    assert [case.to_json() for case in met] == [
        case.to_json() for case in drawn_with_seed(spec, 3)
    ]
    assert met != drawn_with_seed(spec, 4)
    assert digest(met) == "05104f5a61d8fc6f"


def test_a_planned_failure_replays_without_the_plan():
    """What Hypothesis chose is all that a case is made of."""
    both = settings(max_examples=300, database=None, deadline=None, backend=BACKEND)
    found = find(
        cases(add_spec(domain=DOMAIN)),
        lambda case: case.values["k"] > 100,
        settings=both,
    )
    assert (found.values["n"], found.values["k"]) == (101, 101)


def test_a_strategy_is_one_of_hypothesis():
    assert isinstance(sizes(1, 9), SearchStrategy)
    with pytest.raises(ValueError, match="low <= high"):
        sizes(3, 2)
