import atexit
import contextlib
from dataclasses import replace
from itertools import pairwise

import hypofuzz.provider
import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.internal.conjecture import providers

from difftest.testing.drawing.cases import cases
from difftest.testing.drawing.sizes import sizes
from difftest.testing.harness.failures import HazardFailure
from difftest.testing.harness.runner import Runner
from difftest.tools.scale import campaign
from difftest.tools.scale.findings import FindingStore
from tests.unit.tools.scale.test_found import AGAIN, CASE, HAZARD, SPEC, WRONG, failing


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """A campaign's, which listens as HypoFuzz does before and after shrinking."""
    monkeypatch.setattr(hypofuzz.provider, "CoverageCollector", None)
    at_exit = contextlib.ExitStack()
    monkeypatch.setattr(atexit, "register", at_exit.callback)
    monkeypatch.setattr(campaign, "is_observed", lambda: True)
    # the database of these tests has the findings of others
    monkeypatch.setattr(FindingStore, "database", None)
    with at_exit:
        yield campaign.CampaignRunner(
            Runner(()), FindingStore(tmp_path), tmp_path, "embedded", ()
        )


def test_the_case_that_a_failure_shrinks_to_takes_the_place_of_the_first(
    runner, capsys
):
    runner._keep(failing(WRONG, replace(CASE, values={"n": 600})))
    (first,) = runner.findings
    assert first.shapes == "a (>512), b (>512)"
    assert capsys.readouterr().err == ""
    runner._keep(failing(WRONG))
    (shrunk,) = runner.findings
    assert shrunk.shapes == "a (<128), b (<128)"
    assert capsys.readouterr().err == f"difftest: {shrunk}\n"


def test_a_hazard_that_is_an_error_fails_its_case(runner, monkeypatch):
    def check(self, spec, case, reference=None):
        self.hazards["hazard"] = spec, case, HAZARD
        return {}

    monkeypatch.setattr(Runner, "check", check)
    with pytest.raises(HazardFailure):
        runner.check(SPEC, CASE)
    (found,) = runner.findings
    assert found.kind == "sbuf-full"
    assert AGAIN.options != found.options == ()


def test_no_case_is_a_repeat(runner):
    runner.repeats.add(SPEC, CASE)
    assert not runner.repeats.is_duplicate(SPEC, CASE)


def test_a_campaign_draws_as_a_test_does_and_its_second_runs_are_the_same_case(
    monkeypatch,
):
    """HypoFuzz runs each new case twice, to see whether it is stable."""
    home = f"{campaign.__name__}.{campaign.PlannedFuzz.__name__}"
    monkeypatch.setitem(providers.AVAILABLE_PROVIDERS, "hypofuzz", home)
    domain = {"m": sizes(1, 256), "n": sizes(1, 600)}
    spec = replace(SPEC, kernel=asking, domain=domain, inputs={"a": "m n", "b": "m n"})
    met = []

    @settings(
        backend="hypofuzz",
        max_examples=160,
        database=InMemoryExampleDatabase(),
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(spec))
    def collect(case):
        met.append(case)
        for name, size in case.values.items():
            hypothesis.event(f"{name} {size // 16}")

    collect()
    again = sum(repr(one) == repr(two) for one, two in pairwise(met))
    assert again > 40
    points = [(case.values["m"], case.values["n"]) for case in met]
    assert sum(m == n for m, n in points) > 12
    assert sum(127 <= size <= 130 for point in points for size in point) > 16
    assert any(m == 217 and n % 64 == 33 for m, n in points)


def asking(a, b):
    m, n = a.shape
    return a + b if m == 217 and n % 64 == 33 else b + a
