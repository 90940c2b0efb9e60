"""`difftest findings` and `difftest fuzz`; the bisection runs a step that takes no pytest."""

import subprocess
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import configuration, settings

from difftest.cli.main import main
from difftest.tools.scale import command
from difftest.tools.scale.findings import OPEN, CampaignFinding, FindingStore, utc_now

STEP = """
import sys
from pathlib import Path
assert sys.argv[2:4] == ["--simulate", "test_add.py::test_add"], sys.argv
kernel = Path(sys.argv[1]) / "kernel.py"
sys.exit(kernel.read_text().count("wrong") if kernel.exists() else 125)
"""


@pytest.fixture
def found(tmp_path, monkeypatch):
    """A finding of this machine, which lacks a database."""
    monkeypatch.setattr(
        configuration, "__hypothesis_home_directory", tmp_path / ".hypothesis"
    )
    monkeypatch.chdir(tmp_path)
    before = settings.default
    settings.register_profile("before", before)
    settings.register_profile("without a database", before, database=None)
    settings.load_profile("without a database")
    one = CampaignFinding(
        kind="value differs",
        file="kernel.py",
        source="nisa.dma_copy(dst=out, src=tile)",
        line=12,
        shapes="a (<128)",
        kernel="add",
        test="test_add.py::test_add",
        case={"values": {"n": 3}, "dtype": "float32", "data": {"a": "ones"}},
        setting="embedded",
        options=("--simulate",),
        state=OPEN,
        found="2026-11-20T09:00:00.000+00:00",
        changed="2026-11-20T09:00:00.000+00:00",
        changed_at="0123456789ab",
    )
    FindingStore().put(one)
    yield one
    settings.load_profile("before")


def run(*words):
    return CliRunner().invoke(main, words, catch_exceptions=False)


def test_findings_are_listed_shown_and_closed(found):
    said = run("findings").output
    for text in (found.id, "open", "2026-11-20", "kernel.py:12", "a (<128)"):
        assert text in said
    said = run("findings", "show", found.id[:3]).output
    assert said.startswith(
        f"finding {found.id}: value differs at kernel.py:12, a (<128)"
    )
    assert "line:        kernel.py:12: nisa.dma_copy(dst=out, src=tile)\n" in said
    assert 'pytest --simulate test_add.py::test_add --case \'{"values":{"n":3}' in said
    assert run("findings", "close", found.id).exit_code == 0
    (closed,) = FindingStore()
    assert closed.state == "closed"
    assert closed.changed > found.changed
    assert "closed" in run("findings").output
    FindingStore().drop(found)
    assert run("findings").output == "no findings: difftest fuzz looks for some\n"


def test_an_unknown_finding_is_a_usage_error(found):
    result = run("findings", "show", "xyz")
    assert result.exit_code == 2
    assert (
        f"not one finding alone begins with 'xyz'; the open findings are {found.id}"
        in result.output
    )
    assert "--good COMMIT, or --levels" in run("findings", "bisect", found.id).output
    both = run("findings", "bisect", found.id, "--levels", "--good", "v1")
    assert both.exit_code == 2
    assert "--levels does not go with --good" in both.output


def test_commits_are_bisected_in_a_tree_of_their_own(found, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_STEP", STEP)
    home = tmp_path / "repository" / "project"
    home.mkdir(parents=True)

    def git(*words):
        name = (
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.org",
            "-c",
            "init.defaultBranch=b",
        )
        done = subprocess.run(
            ["git", *name, *words], cwd=home, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    git("init")
    commits = []
    for number, text in enumerate(["right", None, "right", "wrong", None, "wrong"]):
        (home / "other.py").write_text(f"{number}")
        (home / "kernel.py").unlink(missing_ok=True)
        if text:
            (home / "kernel.py").write_text(text)
        git("add", "-A")
        git("commit", "-m", f"commit {number}")
        commits.append(git("rev-parse", "HEAD"))
    monkeypatch.chdir(home)
    (home / "kernel.py").write_text("work that is not committed")
    said = run("findings", "bisect", found.id, "--good", commits[0]).output
    assert said.startswith(f"{commits[3]} is the first bad commit\n")
    assert git("worktree", "list").count("\n") == 0
    assert (home / "kernel.py").read_text() == "work that is not committed"
    unsure = run(
        "findings", "bisect", found.id, "--good", commits[3], "--bad", commits[5]
    )
    assert unsure.exit_code == 1
    assert f"could be any of:\n{commits[4]}\n{commits[5]}\n" in unsure.output


def test_levels_are_tried_one_by_one(found, monkeypatch):
    tried = []

    def answer(words, **_):
        tried.append(words[3:])
        return subprocess.CompletedProcess(
            words, {"0.4": 1, "0.5": -9}.get(words[3][-3:], 0)
        )

    monkeypatch.setattr(command.subprocess, "run", answer)
    said = run("findings", "bisect", found.id, "--levels").output.splitlines()
    assert said[:3] == ["NKI 0.3: passes", "NKI 0.4: fails", "NKI 0.5: cannot be tried"]
    assert tried[0] == ["--nki-level=0.3", *found.arguments]


def test_without_hypofuzz_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setattr("difftest.support.choices.find_spec", lambda name: None)
    result = run("fuzz", "--", "--simulate", "tests/kernels")
    assert result.exit_code == 2
    assert "pip install '/path/to/nki-difftest[scale]'" in result.output


class Worker:
    """A process of a campaign that ends at once, as a member of the pool."""

    exitcode = 0

    def __init__(self, serve):
        self.process = self
        if self.exitcode == 0 and serve.args[0] == ("find",):
            (one,) = FindingStore()
            FindingStore().put(one.now(OPEN, ""))

    def is_alive(self):
        return False

    def terminate(self):
        pass

    end = terminate


def test_a_campaign_fails_where_it_has_found_something(found, monkeypatch):
    assert found.changed < utc_now()
    context = SimpleNamespace(Array=lambda kind, count: [3] * count)
    monkeypatch.setattr(command.multiprocessing, "get_context", lambda method: context)
    monkeypatch.setattr(command, "PoolWorker", Worker)
    assert (
        "inf is not in the range"
        in run("fuzz", "--minutes", "inf", "--", "nothing").output
    )
    quiet = run("fuzz", "--minutes", "0.1", "--", "nothing")
    assert (quiet.exit_code, quiet.stdout[:19]) == (0, "0 found in 3 cases,")
    loud = run("fuzz", "--minutes", "0.1", "--", "find")
    assert (loud.exit_code, loud.stdout[:8]) == (1, "1 found ")
    monkeypatch.setattr(context, "Array", lambda kind, count: [1] * count)
    assert run("fuzz", "--minutes", "0.1", "--", "find").stdout.startswith(
        "1 found in 1 case, "
    )
    monkeypatch.setattr(Worker, "exitcode", 3)
    assert "crashed" in run("fuzz", "--", "nothing").output
    context.Array = lambda kind, count: [0] * count
    assert "as in difftest fuzz -- --simulate tests\n" in run("fuzz", "nothing").output
