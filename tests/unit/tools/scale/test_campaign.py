import atexit
from dataclasses import replace

import hypofuzz.provider
import pytest

from difftest.testing.harness.failures import HazardFailure
from difftest.testing.harness.runner import Runner
from difftest.tools.scale import campaign
from difftest.tools.scale.findings import FindingStore
from tests.unit.tools.scale.test_found import AGAIN, CASE, HAZARD, SPEC, WRONG, failing


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """A campaign's, which listens as HypoFuzz does before and after shrinking."""
    monkeypatch.setattr(hypofuzz.provider, "CoverageCollector", None)
    monkeypatch.setattr(atexit, "register", lambda action: None)
    monkeypatch.setattr(campaign, "observability_enabled", lambda: True)
    monkeypatch.setattr(
        FindingStore, "database", None
    )  # the database of these tests has the findings of others
    return campaign.CampaignRunner(
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
