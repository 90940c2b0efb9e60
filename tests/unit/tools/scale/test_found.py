import json
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import settings
from hypothesis.database import InMemoryExampleDatabase

from difftest.analysis.finding import Finding, Severity
from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.pattern import Pattern
from difftest.simulator.trace import (
    Allocation,
    Engine,
    Event,
    EventKind,
    Location,
    Region,
    Returned,
    Space,
    Trace,
)
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Ones
from difftest.testing.contract.reference import ReferenceDefect
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.failures import (
    BrokenReferenceError,
    DifferentialFailure,
    HazardFailure,
    Reproduction,
)
from difftest.testing.harness.verdict import Mismatch, OneSided, WrongElement
from difftest.tools.scale.findings import (
    CLOSED,
    CampaignFindingError,
    FindingStore,
    class_of_shapes,
    found_from_json,
    found_of,
)
from difftest.tools.scale.findings import finding_kind as kind
from tests.every import every


def add(a, b):
    return a + b


DEFECT = ReferenceDefect("x", rule="", received="", remedy="")


@pytest.fixture
def database():
    """Hypothesis's, for a while."""
    before = settings.default
    made = InMemoryExampleDatabase()
    settings.register_profile("before", before)
    settings.register_profile(
        "with a database", before, database=made, derandomize=False
    )
    settings.load_profile("with a database")
    yield made
    settings.load_profile("before")


SPEC = KernelSpec(
    kernel=add, reference=add, domain={"n": (2, 600)}, inputs={"a": "n", "b": "n"}
)
CASE = Case({"n": 2}, "float32", {"a": Ones(), "b": Ones()})
AGAIN = Reproduction("t.py::t", ("--simulate", "--case-timeout=5"))
WRONG = Mismatch(
    "value", 0, "", first=WrongElement((70,), "", "", "", ""), shape=(128,)
)
HAZARD = Finding(
    id="sbuf-full",
    severity=Severity.ERROR,
    happened="",
    rule="",
    locations=(Location(__file__, 7),),
    remedy="",
)


def failing(verdict, case=CASE):
    return DifferentialFailure(SPEC, case, {"embedded": verdict}, AGAIN)


def found_here(failure, root, traces=()):
    return found_of(failure, "t.py::t", root, "embedded", dict(traces))


def stores(*spans):
    """A trace of stores to a tensor of 128: the first element and the number of each."""
    tensor = Allocation(0, Space.SHARED_HBM, (128,), FLOAT32, 0, None, output=0)
    events = [
        Event(
            number=line,
            kind=EventKind("dma_copy", Engine.DMA),
            writes=(Region(tensor, first, (count,), (1,)),),
            reads=(),
            stack=(Location(__file__, line),),
        )
        for line, (first, count) in enumerate(spans, 1)
    ]
    returned = Returned(tensor, Pattern.whole((128,)), FLOAT32)
    return Trace(events=events, allocations=[tensor], returned=[returned])


@every(
    "failure, name",
    [
        (failing(WRONG), "value differs"),
        (
            failing(replace(WRONG, kind="nan", question="algorithm")),
            "nan differs (algorithm)",
        ),
        (failing(OneSided("kernel", IndexError("x"))), "kernel refused: IndexError"),
        (
            failing(OneSided("kernel", KeyError(), "crashed")),
            "kernel crashed: KeyError",
        ),
        (HazardFailure(SPEC, CASE, AGAIN, [HAZARD]), "sbuf-full"),
        (BrokenReferenceError(SPEC, CASE, DEFECT, AGAIN), "broken reference"),
    ],
)
def test_a_kind_stays_the_same(failure, name):
    assert kind(failure) == name


def test_a_finding_is_known_by_kind_line_and_class_of_shapes(tmp_path):
    found = found_here(failing(WRONG), tmp_path)
    larger = found_here(failing(WRONG, replace(CASE, values={"n": 3})), tmp_path)
    assert found.id == larger.id
    assert found.shapes == "a (<128), b (<128)"
    assert found.id == found._replace(line=99, test="other", state=CLOSED).id
    others = [
        found_here(failing(WRONG, replace(CASE, values={"n": 128})), tmp_path),
        found_here(failing(replace(WRONG, kind="nan")), tmp_path),
        *(found._replace(**{name: "x"}) for name in ("file", "source", "kernel")),
    ]
    assert len({found.id, *(one.id for one in others)}) == 6


def test_classes_of_shapes_part_at_the_limits_of_the_hardware():
    sizes = (1, 2, 127, 128, 129, 511, 512, 513)
    classes = [class_of_shapes(SPEC, replace(CASE, values={"n": one})) for one in sizes]
    assert len(set(classes)) == 6
    assert classes[1] == classes[2]
    assert classes[4] == classes[5]


def test_the_line_is_the_last_store_to_the_wrong_element(tmp_path):
    trace = stores((0, 64), (64, 64), (0, 64))
    found = found_here(failing(WRONG), tmp_path, {"embedded": trace}.items())
    assert (found.line, found.file) == (2, "test_found.py")
    first = replace(WRONG, first=replace(WRONG.first, index=(3,)))
    assert found_here(failing(first), tmp_path, {"embedded": trace}.items()).line == 3
    nothing = found_here(failing(WRONG), tmp_path)
    assert nothing.source == "def add(a, b):"


def test_the_line_of_an_error_is_the_kernels(tmp_path):
    def wrong(a, b):
        raise IndexError("x")

    with pytest.raises(IndexError) as caught:
        wrong(1, 2)
    failure = failing(OneSided("kernel", caught.value))
    assert found_here(failure, tmp_path).source == 'raise IndexError("x")'


def test_only_a_finding_that_needs_a_limit_has_one(tmp_path):
    class CaseLimitError(RuntimeError): ...

    slow = found_here(
        failing(OneSided("kernel", CaseLimitError(), "crashed")), tmp_path
    )
    assert slow.limits == ("--case-timeout=5",)
    assert found_here(failing(WRONG), tmp_path).limits == ()


def test_a_file_says_all(tmp_path):
    found = found_here(failing(WRONG), tmp_path)
    assert found_from_json(found.to_json()) == found
    for text in ("", "[]", "{}", json.dumps({"kind": "x"})):
        with pytest.raises(CampaignFindingError, match="no finding"):
            found_from_json(text)


def test_the_last_change_counts_in_files_and_database(tmp_path, database):
    found = found_here(failing(WRONG), tmp_path)
    here = FindingStore(tmp_path / "here")
    there = FindingStore(tmp_path / "there")
    here.put(found)
    assert list(there) == [found]
    there.put(found.now(CLOSED, "abc"))
    assert [one.state for one in here] == [CLOSED]
    assert '"state": "open"' in (tmp_path / "here" / f"{found.id}.json").read_text()
    here.exchange()
    assert '"state": "closed"' in (tmp_path / "here" / f"{found.id}.json").read_text()
    for one in tuple(database.fetch(b"difftest.findings")):
        database.delete(b"difftest.findings", one)
    here.exchange()
    assert len(list(database.fetch(b"difftest.findings"))) == 1
    here.drop(here.get(found.id[:4]))
    assert list(here) == []


def test_a_file_that_is_no_finding_is_named(tmp_path, database):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(CampaignFindingError, match=r"x\.json: no finding"):
        list(FindingStore(tmp_path))


def test_the_arrays_of_a_case_are_in_its_line(tmp_path):
    found = found_here(failing(WRONG), tmp_path)
    assert found.arguments[:4] == (
        "--simulate",
        "--case-timeout=5",
        "t.py::t",
        "--case",
    )
    assert json.loads(found.arguments[4])["values"] == {"n": 2}


def test_the_folder_beside_the_database_is_found_by_any_hypothesis(
    monkeypatch, tmp_path
):
    """6.140, the oldest that is taken, gives a path, and later ones an object that has it."""
    for beside in (tmp_path, SimpleNamespace(path=tmp_path)):
        given = Mock(return_value=beside)
        monkeypatch.setattr("difftest.tools.scale.findings.storage_directory", given)
        assert FindingStore().folder == tmp_path
