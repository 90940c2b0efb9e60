"""`difftest verdict --batch` judges all files that a candidate loads; a line for each candidate."""

import hashlib
import json
import os

from click.testing import CliRunner

from difftest.cli.main import main
from difftest.tools.verdict.batch import BatchSetup, digests_of_test, lines_of
from difftest.tools.verdict.candidate import JudgeSettings
from difftest.tools.verdict.formats import kernel_argument
from tests.unit.tools.verdict.kernels import RIGHT, WRONG, source
from tests.unit.tools.verdict.schema_check import SCHEMA, breaches
from tests.unit.tools.verdict.test_command import TEST

USES_HELPER = source("return store(total(a, b, helper.OP))", "import helper\n")
HELPER = "import nki.language as nl\nOP = nl.{}\n"


def run(batch):
    """Run a batch, and return its rows as keys, files and verdicts."""
    names = ["verdict", "--batch", batch, "test_own.py::test_add"]
    result = CliRunner().invoke(
        main, [*names, "--results", "out.jsonl", "-n", "1", "--cases", "2"]
    )
    assert result.exit_code == 0, result.output
    with open("out.jsonl") as file:
        return [json.loads(line) for line in file]


def outcomes(rows):
    verdicts = [row["verdict"] for row in rows]
    assert [list(breaches(verdict, SCHEMA)) for verdict in verdicts] == [[]] * len(rows)
    return [(one["kernel"]["file"], one["outcome"]) for one in verdicts]


def test_the_files_that_a_candidate_loads_decide_its_key(tmp_path):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "c.py").write_text(USES_HELPER)
        (tmp_path / folder / "helper.py").write_text(HELPER.format("add"))
    kernels = [f"{tmp_path}/{file}:add" for file in ("x/c.py", "y/c.py", "x/c.py")]
    setup = BatchSetup("t.py::t", JudgeSettings(seed=1), tuple(kernels))
    ((digest, equal),) = lines_of(setup, {}).items()
    assert [line.kernel for line in equal] == kernels, "each has a line"
    assert [line.key for line in equal] == [digest, f"{digest}-2", f"{digest}-3"]

    (tmp_path / "y" / "helper.py").write_text(HELPER.format("subtract"))
    (same, other) = lines_of(setup, {}).items()
    assert same[0] == digest != other[0]
    assert [line.kernel for line in other[1]] == kernels[1:2]

    assert digest not in lines_of(setup, {"shared.py": "2"}), "a file of the test"
    (tmp_path / "x" / "helper.py").unlink()
    assert digest not in lines_of(setup, {})


def test_the_files_that_a_test_loads_decide_its_key(tmp_path, monkeypatch):
    (tmp_path / "candidate_of_files.py").write_text(RIGHT)
    (tmp_path / "shared_of_files.py").write_text("MORE = 1\n")
    text = TEST.format(module="candidate_of_files")
    (tmp_path / "test_of_files.py").write_text(f"{text}\nimport shared_of_files\n")
    monkeypatch.chdir(tmp_path)
    kernels = ("candidate_of_files.py:add",)
    setup = BatchSetup("test_of_files.py::test_add", JudgeSettings(), kernels)
    digests = digests_of_test(setup)
    assert digests["shared_of_files.py"] == hashlib.sha256(b"MORE = 1\n").hexdigest()
    assert {"candidate_of_files.py", "test_of_files.py"} <= digests.keys()
    assert not any("site-packages" in name for name in digests)


def test_what_lies_among_candidates_harms_no_other(tmp_path, monkeypatch):
    folder = tmp_path / "many"
    folder.mkdir()
    (tmp_path / "outside.py").write_text(RIGHT)
    (tmp_path / "test_own.py").write_text(TEST.format(module="outside"))
    (folder / "honest.py").write_text(
        RIGHT + "\nimport numpy as np\nONE = np.ones(1)\n"
    )
    (folder / "numpy.py").write_text(RIGHT)
    (folder / "thief.py").write_text("from honest import add\n")
    (folder / "wrong.py").write_text(WRONG + "\nimport honest\n")
    (folder / "link.py").symlink_to(tmp_path / "outside.py")
    (folder / "twin.py").symlink_to(folder / "honest.py")
    (folder / "loop.py").symlink_to(folder / "loop.py")
    os.mkfifo(folder / "fifo.py")
    with (folder / "sparse.py").open("wb") as file:
        file.truncate(2**40)  # more than any memory
    monkeypatch.chdir(tmp_path)

    rows = run("many:add")
    assert dict(outcomes(rows)) == {
        "many/fifo.py": "crashed",
        "many/honest.py": "agrees",
        "many/link.py": "outside_language",
        "many/loop.py": "crashed",
        "many/numpy.py": "outside_language",
        "many/sparse.py": "outside_language",
        "many/thief.py": "imports_candidate",
        "many/twin.py": "agrees",
        "many/wrong.py": "wrong_algorithm",
    }
    told = {row["verdict"]["kernel"]["file"]: row["verdict"] for row in rows}
    name = "it imports many/honest.py, another candidate of the batch"
    assert told["many/thief.py"]["reason"].startswith(name)
    assert told["many/wrong.py"]["notes"] == [name]
    assert "symbolic link" in told["many/link.py"]["reason"]
    assert told["many/thief.py"]["reward"]["total"] == 0.2


def test_candidates_of_a_package_are_judged(tmp_path, monkeypatch):
    folder = tmp_path / "pack_of_candidates"
    folder.mkdir()
    (folder / "__init__.py").write_text("open('it_runs_in_the_judge', 'w').close()\n")
    (folder / "own.py").write_text(RIGHT)
    test = TEST.format(module="pack_of_candidates.own")
    (tmp_path / "test_own.py").write_text(test)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    told = dict(outcomes(run("pack_of_candidates:add")))
    assert told["pack_of_candidates/own.py"] == "agrees"
    assert not (tmp_path / "it_runs_in_the_judge").exists()


def test_the_name_of_a_file_moves_no_cursor():
    kernel = {"file": "x\x1b[2J\n\udcff.py", "name": "add"}
    assert kernel_argument({"kernel": kernel}) == "x [2J  .py:add"
