"""Findings of a campaign: kept once, replayed by all who share its database, closed when clean."""

import atexit
import json
import sys
import weakref
from random import Random

import hypofuzz.provider
import pytest
from hypofuzz import detection
from hypofuzz.collection import collect_tests
from hypothesis import configuration, settings
from hypothesis.database import InMemoryExampleDatabase

from tests.every import every

NIGHTLY = settings.get_current_profile_name() == "nightly"

KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def twice(a):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for first in range(0, rows, 4):
        last = min(first + 4, rows)
        tile = nl.ndarray((last - first, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[first:last])
        factor = 2.0
        if last - first == 1:
            if first >= 8 and columns > 3:
                factor = FACTOR
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[first:last], src=tile)
    return out
"""
TEST = """
import numpy as np
from difftest import kernel_test
from hypothesis import strategies as st
from twice import twice


@kernel_test(
    kernel=twice,
    reference=lambda a: 2 * a.astype(np.float64),
    # mapped, they are aimed at by nobody, and the bug comes after some cases
    domain={"rows": st.integers(1, 12).map(int), "columns": st.integers(1, 6).map(int)},
    inputs={"a": "rows columns"},
    edges=False,
)
def test_twice(case):
    case.check()
"""


class Machines:
    """Checkouts of the tests that share only Hypothesis's database."""

    def __init__(self, project, monkeypatch):
        self.project = project
        self.monkeypatch = monkeypatch
        self.database = InMemoryExampleDatabase()
        default = settings.get_profile("default")
        settings.register_profile("default", default, database=self.database)
        self.move("first")
        self.write(factor="3.0")

    def move(self, name):
        folder = self.project.pytester.path
        self.home = folder / name
        self.home.mkdir()
        (self.home / "constants").symlink_to(folder / ".hypothesis" / "constants")
        self.monkeypatch.setattr(
            configuration, "__hypothesis_home_directory", self.home
        )

    def write(self, factor, test=TEST):
        """The kernel with another factor; no two of one length, which Python would not compile."""
        kernel = KERNEL.replace("FACTOR", factor)
        self.project.pytester.makepyfile(twice=kernel, test_twice=test)

    def run(self, *arguments):
        return self.project.run(
            "--simulate", "-p", "no:cacheprovider", "test_twice.py", *arguments
        )

    def campaign(self, most=400, seed=0, turns=1):
        """Run a worker of HypoFuzz until it has found something, and return its state of the test.

        Where it has several tests, each has its turn again and again.
        """
        self.monkeypatch.setattr(detection, "_in_hypofuzz_run", True)
        self.monkeypatch.setattr(
            hypofuzz.provider, "CoverageCollector", hypofuzz.coverage.CoverageCollector
        )
        # the first asks atexit for all of them, whose end this is not
        weakref.finalize(self, int)
        at_exit = []
        self.monkeypatch.setattr(atexit, "register", at_exit.append)
        try:
            (target,) = collect_tests(
                ["--simulate", "-p", "no:cacheprovider"]
            ).fuzz_targets
            target.provider.random, target.random = Random(seed), Random(seed)
            for _ in range(turns):
                target._enter_fixtures()
                last = target.provider.ninputs + most
                while not target.has_found_failure and target.provider.ninputs < last:
                    target.run_one()
                target._exit_fixtures()
        finally:
            self.monkeypatch.setattr(detection, "_in_hypofuzz_run", False)
            for undo in at_exit:
                undo()
            for name in ("twice", "test_twice"):
                sys.modules.pop(name, None)
        return target.provider

    @property
    def found(self):
        """The contents of the files on this machine, by id."""
        files = sorted((self.home / "difftest-findings").glob("*.json"))
        return {file.stem: json.loads(file.read_text()) for file in files}


@pytest.fixture
def machines(project, monkeypatch):
    return Machines(project, monkeypatch)


def test_a_finding_is_kept_replayed_elsewhere_closed_and_opened_again(machines, capfd):
    corpus = machines.campaign().corpus
    assert len(corpus.fingerprints) > 3  # a case repeats its behaviour
    known = {str(one) for one in corpus.behavior_counts}
    assert {
        one for one in known if "site-packages" in one or "/simulator/" in one
    } == set()
    assert any("twice.py" in one and one.endswith("x <128 time 2") for one in known)
    ((id, found),) = machines.found.items()
    assert found["case"]["values"] == {"rows": 9, "columns": 4}
    assert (found["kind"], found["shapes"]) == (
        "value differs (algorithm)",
        "a (<128, <128)",
    )
    assert found["source"] == "nisa.dma_copy(dst=out[first:last], src=tile)"
    assert found["test"] == "test_twice.py::test_twice"
    told = [
        line for line in capfd.readouterr().err.splitlines() if "difftest: " in line
    ]
    assert told == [
        f"difftest: finding {id}: value differs (algorithm) at twice.py:{found['line']}, "
        "a (<128, <128) (test_twice.py::test_twice)"
    ]

    machines.campaign()
    assert capfd.readouterr().err == ""  # told once

    machines.move("second")
    result = machines.run("-k", "finding")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(
        ["*1 open of 1: difftest findings*", f"FAILED *finding-{id}*"]
    )

    machines.write(factor="2.00")
    result = machines.run()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"clean, and closed: finding {id}: value differs*"])
    assert machines.found[id]["state"] == "closed"

    machines.move("third")
    machines.write(factor="3.000")
    result = machines.run("-k", "finding")
    result.stdout.fnmatch_lines([f"back, and open again: finding {id}: value differs*"])
    assert machines.found[id]["state"] == "open"


def test_only_a_case_that_shows_a_finding_closes_it(machines):
    machines.campaign()
    ((id, _),) = machines.found.items()
    machines.write(factor="2.00")
    machines.run("--nki-level=0.5").assert_outcomes(passed=2)
    assert machines.found[id]["state"] == "open"

    renamed = TEST.replace('"rows"', '"r"').replace("rows columns", "r columns")
    machines.write(factor="2.00", test=renamed)
    result = machines.run("-W", "default", "--hypothesis-profile=quick")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            f"*FindingWarning: finding {id} is no case of test_twice.py::test_twice any more: *"
        ]
    )
    assert machines.found[id]["state"] == "open"


FIXTURE = """
import pytest


def tell(text):
    with open("told.txt", "a") as file:
        print(text, file=file)


@pytest.fixture(scope="session")
def table(difftest_runner):
    tell("made")
    yield {"runner": difftest_runner, "cases": []}
    tell("ended")
"""
TOLD = """
    table["cases"].append(case)
    runner = table["runner"]
    rows, histories = runner.tally.rows.values(), runner.histories.values()
    tallied, agreed = sum(row.cases for row in rows), sum(len(one.agreed) for one in histories)
    tell(f"{len(table['cases'])} of its cases, {tallied} in the tally, {agreed} agreed")
"""


def test_a_campaign_keeps_a_session_s_fixtures_and_nothing_of_the_cases_before(
    machines,
):
    test = FIXTURE + TEST.replace("(case):", "(case, table):") + TOLD
    machines.write(factor="2.00", test=test)
    machines.campaign(most=4, turns=2)
    _, *turns = (
        (machines.project.pytester.path / "told.txt").read_text().split("made\n")
    )
    assert len(turns) == 2
    for told in map(str.splitlines, turns):
        cases = [
            f"{n} of its cases, 1 in the tally, 1 agreed" for n in range(1, len(told))
        ]
        assert told == [*cases, "ended"]
        assert len(cases) >= 4
    assert machines.found == {}


REMOTE = """
from hypothesis import settings
from hypothesis.database import ExampleDatabase


class Remote(ExampleDatabase):
    left = LEFT

    def ask(self, *arguments):
        Remote.left -= 1
        if Remote.left < 0:
            raise EOFError(f"the other machine hung up {-Remote.left} times.")
        return []

    fetch = save = delete = ask


settings.register_profile("shared", settings.default, database=Remote())
settings.load_profile("shared")
"""


@every("left", [0, 4])
def test_a_database_that_is_gone_is_one_line(project, left):
    files = {"twice": KERNEL.replace("FACTOR", "2.00"), "test_twice": TEST}
    project.pytester.makepyfile(conftest=REMOTE.replace("LEFT", str(left)), **files)
    result = project.run("--simulate", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    (line,) = (line for line in result.outlines if "hung up" in line)
    assert line.startswith("Hypothesis's database crashed at ")
    assert (
        "(ConnectionError: the other machine hung up 1 times; it is left alone" in line
    )
    assert line.endswith("a fault of this machine, and no verdict on the kernel")


if NIGHTLY:

    def test_two_processes_find_a_bug_that_another_machine_replays(
        project, monkeypatch
    ):
        folder = project.pytester.path
        shared = folder / "shared"
        profile = (
            "from hypothesis import settings\n"
            "from hypothesis.database import DirectoryBasedExampleDatabase\n"
            f"database = DirectoryBasedExampleDatabase({str(shared)!r})\n"
            "settings.register_profile('shared', settings.default, database=database)\n"
            "settings.load_profile('shared')\n"
        )
        project.pytester.makepyfile(
            twice=KERNEL.replace("FACTOR", "3.0"), test_twice=TEST, conftest=profile
        )
        monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(folder / "first"))
        words = (
            "-m",
            "difftest",
            "fuzz",
            "--minutes",
            "10",
            "-n",
            "2",
            "--",
            "--simulate",
        )
        done = project.pytester.run(sys.executable, *words)
        assert done.ret == 1
        assert "difftest: finding" in done.stderr.str()
        monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(folder / "second"))
        result = project.run_apart("--simulate", "-k", "finding")
        result.assert_outcomes(failed=1, deselected=1)
