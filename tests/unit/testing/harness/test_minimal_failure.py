"""The failing case is minimal wherever one is kept: sweeps, mutants, campaigns."""

import atexit
import contextlib
import json

import hypofuzz.provider
import numpy as np
import pytest

from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Random, Zeros
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.reference_properties import ReferenceProperties
from difftest.testing.drawing.sizes import sizes
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.runner import Runner
from difftest.tools.mutants.suite import Suite
from difftest.tools.scale import campaign, engine
from difftest.tools.scale.engine import PointJudge
from difftest.tools.scale.findings import FindingStore
from tests.unit.standin import PlainBackend

LARGE = Case({"n": 212}, "float32", {"x": Random(5)})


def wrong(x):
    """Wrong where n % 7 is 2 and n is above 20: 23 is the least."""
    n = len(x)
    return x + np.float32(1) if n % 7 == 2 and n > 20 else x.copy()


SPEC = KernelSpec(
    kernel=wrong,
    reference=lambda x: x.astype(np.float64),
    domain={"n": sizes(1, 300)},
    inputs={"x": "n"},
)


@pytest.fixture(autouse=True)
def plain_backend(monkeypatch):
    for module in (engine, "difftest.tools.mutants.suite"):
        name = module if isinstance(module, str) else module.__name__
        monkeypatch.setattr(f"{name}.EmbeddedSimulator", lambda *_: PlainBackend())


def test_the_case_of_a_point_of_a_sweep_is_minimal(monkeypatch):
    monkeypatch.setattr(engine, "cases_of", lambda *_: [LARGE])
    judge = PointJudge(SPEC, 1)
    judge._natures[None] = ReferenceProperties()
    row = judge.row({})
    assert row["outcome"] == "wrong_algorithm" or row["reason"]
    assert json.loads(row["case"])["values"] == {"n": 23}


def test_the_case_of_a_killed_mutant_is_minimal():
    kill = Suite("test", SPEC, [LARGE]).run("case 0")
    assert json.loads(kill.case) == {
        "values": {"n": 23},
        "dtype": "float32",
        "data": {"x": "zeros"},
    }


def test_the_finding_of_a_campaign_is_minimal(tmp_path, monkeypatch):
    monkeypatch.setattr(hypofuzz.provider, "CoverageCollector", None)
    at_exit = contextlib.ExitStack()
    monkeypatch.setattr(atexit, "register", at_exit.callback)
    monkeypatch.setattr(campaign, "is_observed", lambda: True)
    monkeypatch.setattr(FindingStore, "database", None)
    runner = campaign.CampaignRunner(
        Runner((PlainBackend(),)), FindingStore(tmp_path), tmp_path, "plain", ()
    )
    with at_exit:
        for _ in range(2):  # before and after HypoFuzz's shrinking
            with pytest.raises(DifferentialFailure):
                runner.check(SPEC, LARGE)
    (found,) = runner.findings
    assert found.case["values"] == {"n": 23}
    assert Zeros().to_json() == found.case["data"]["x"]
