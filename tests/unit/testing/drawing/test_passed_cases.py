import hypothesis
import pytest
from hypothesis import Phase, settings

from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Ones, Zeros
from difftest.testing.drawing import passed_cases
from difftest.testing.drawing.passed_cases import PassedCases
from difftest.testing.drawing.provider import BACKEND, Planned
from difftest.testing.drawing.sizes import sizes
from difftest.testing.harness.decorator import decorate
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Match
from tests.unit.standin import add_spec

ADD = add_spec()


def case_of(n):
    return Case({"n": n}, "float32", {"a": Zeros(), "b": Ones()})


@pytest.fixture
def replayed(monkeypatch):
    """Let a case be new, or a replay of Hypothesis's."""

    def set_to(is_replay):
        provider = None if is_replay else Planned()
        monkeypatch.setattr(passed_cases, "planned_provider", lambda: provider)

    set_to(False)
    return set_to


def test_a_case_is_a_repeat_once_it_agreed(replayed):
    repeats = PassedCases()
    assert not repeats.is_duplicate(ADD, case_of(1))
    repeats.add(ADD, case_of(1))
    with pytest.raises(hypothesis.errors.UnsatisfiedAssumption):
        repeats.is_duplicate(ADD, case_of(1))
    assert not repeats.is_duplicate(ADD, case_of(2))


def test_a_case_that_is_replayed_is_passed_over(replayed):
    """Hypothesis calls a test flaky if choices are valid once and not the next time."""
    repeats = PassedCases()
    repeats.add(ADD, case_of(1))
    replayed(True)
    assert repeats.is_duplicate(ADD, case_of(1))
    assert not repeats.is_duplicate(ADD, case_of(2))


def test_nothing_is_replaced_once_a_case_has_failed(replayed):
    repeats = PassedCases()
    repeats.add(ADD, case_of(1))
    repeats.has_failed = True
    assert repeats.is_duplicate(ADD, case_of(1))


def test_where_there_is_no_other_case_it_is_passed_over(replayed):
    repeats = PassedCases()
    repeats.add(ADD, case_of(1))
    for _ in range(4):
        with pytest.raises(hypothesis.errors.UnsatisfiedAssumption):
            repeats.is_duplicate(ADD, case_of(1))
    assert repeats.is_duplicate(ADD, case_of(1))


class Collecting(Runner):
    """Collects cases; those of ``wrong`` fail."""

    def __init__(self, wrong=()):
        super().__init__(())
        self.ran = []
        self.wrong = wrong

    def check(self, spec, case):
        self.ran.append(repr(case))
        assert case.values["n"] not in self.wrong
        return {"none": Match(elements=1, exact=True)}


def run_test(spec, runner, **given):
    def check(case):
        case.check()

    chosen = settings(
        **{
            "max_examples": 50,
            "database": None,
            "deadline": None,
            "backend": BACKEND,
            **given,
        }
    )
    chosen(hypothesis.seed(0)(decorate(spec, check)))(difftest_runner=runner)


def test_each_drawn_case_runs_once_and_most_executions_are_cases(monkeypatch):
    """Hypothesis copies what two draws of one label chose, and comes to the same case again."""
    runner = Collecting()
    asked = []
    is_one = PassedCases.is_duplicate
    monkeypatch.setattr(
        PassedCases, "is_duplicate", lambda *of: asked.append(1) or is_one(*of)
    )
    run_test(add_spec(), runner, phases=[Phase.generate])
    assert len(set(runner.ran)) == len(runner.ran) >= 48
    assert len(asked) <= 60


def test_a_domain_of_few_cases_is_no_error():
    """All health checks of Hypothesis are on."""
    runner = Collecting()
    one = add_spec(domain={"n": (3,)}, inputs={"a": "n", "b": "n"}, dtypes=("int8",))
    run_test(one, runner)
    assert len(set(runner.ran)) == len(runner.ran)


def test_a_failure_is_met_again_and_shrinks():
    runner = Collecting(wrong=range(2, 10_000))
    with pytest.raises(AssertionError):
        run_test(add_spec(), runner)
    assert "{'n': 2}" in runner.ran[-1]


def test_shrinking_that_makes_choices_again_is_not_called_flaky():
    """Where a size follows from another one, Hypothesis tries choices that it made before."""

    class WrongWhereWide(Collecting):
        def check(self, spec, case):
            small = case.values["d"] <= 100 or case.values["n"] <= 3
            assert small or "Random" not in repr(case)
            return super().check(spec, case)

    domain = {"n": sizes(1, 128), "h": sizes(1, 300), "d": lambda h: [2 * h]}
    spec = add_spec(domain=domain, inputs={"a": "n d", "b": "n d"})
    with pytest.raises(AssertionError):
        run_test(spec, WrongWhereWide(), max_examples=200)


def test_a_test_begins_without_repeats(replayed):
    runner = Collecting()
    runner.repeats.add(ADD, case_of(1))
    runner.start(None)
    assert not runner.repeats.is_duplicate(ADD, case_of(1))
