"""`difftest verdict --batch`: killed and resumed, each candidate is judged once."""

import contextlib
import json
from unittest.mock import Mock

import click
import numpy as np
import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.support.journal import Journal
from difftest.support.pool import LostTask
from difftest.tools.verdict import batch
from difftest.tools.verdict.batch import (
    BatchSetup,
    batch_summary,
    candidates,
    lost,
    memoize_pickled,
)
from difftest.tools.verdict.candidate import JudgeSettings
from difftest.tools.verdict.judgement import Judgement
from difftest.tools.verdict.outcome import Outcome
from tests.every import every
from tests.unit.tools.verdict.kernels import RIGHT, WRONG, spec_of
from tests.unit.tools.verdict.schema_check import SCHEMA, breaches
from tests.unit.tools.verdict.test_command import TEST

NEVER_HERE = "\nimport os\nassert not os.environ, 'a candidate runs in the judge'\n"
BATCH = [
    "verdict",
    "--batch",
    "many:add",
    "test_own.py::test_add",
    "--results",
    "out.jsonl",
]
BATCH += ["-n", "1", "--cases", "3"]


def lines_of(file):
    return file.read_bytes().splitlines(keepends=True) if file.exists() else []


def interrupted(monkeypatch, count):
    """Return the output and exit code of a batch that Ctrl-C interrupts after so many lines."""
    add = Journal.add
    added = []

    def stop(self, *line):
        add(self, *line)
        added.append(line)
        if len(added) == count:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "add", stop)
        return CliRunner().invoke(main, BATCH)


def test_a_batch_that_is_ended_goes_on_where_it_was(tmp_path, monkeypatch, capfd):
    (tmp_path / "many").mkdir()
    (tmp_path / "test_own.py").write_text(TEST.format(module="many.kernel_a"))
    (tmp_path / "many" / "kernel_a.py").write_text(RIGHT + NEVER_HERE)
    (tmp_path / "many" / "kernel_b.py").write_text(RIGHT + "# another key\n")
    (tmp_path / "many" / "kernel_c.py").write_text(WRONG)
    (tmp_path / "many" / "kernel_d.py").write_text(RIGHT + NEVER_HERE)
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out.jsonl"

    result = interrupted(monkeypatch, 1)
    assert result.exit_code == 130
    assert "stopped: 1 of 4 are in out.jsonl; the same command goes on" in result.output
    assert capfd.readouterr().err == "", "its judge has ended without a word"
    first = lines_of(out)

    with out.open("ab") as file:
        file.write(first[0][:50])

    result = CliRunner().invoke(main, BATCH)
    assert result.exit_code == 0, result.output
    whole = lines_of(out)
    assert whole[:1] == first
    rows = [json.loads(line) for line in whole]
    assert len({row["key"] for row in rows}) == len(rows) == 4
    assert [row["verdict"]["outcome"] for row in rows] == [
        "agrees",
        "agrees",
        "wrong_algorithm",
        "agrees",
    ]
    assert len({row["verdict"]["seed"] for row in rows}) == 1
    assert [list(breaches(row["verdict"], SCHEMA)) for row in rows] == [[]] * 4
    assert "4 candidates; agrees: 3, wrong algorithm: 1" in result.output
    assert "the same instructions: many/kernel_b.py:add\n" in result.output
    assert "the same instructions: many/kernel_d.py:add\n" in result.output


def test_a_line_that_a_kill_cut_off_anywhere_is_taken_away(tmp_path):
    """An added line is in the file before the next begins, for any end of the process."""
    file = tmp_path / "out.jsonl"
    journal = Journal(file)
    journal.add("one", {"seed": 3})
    whole = file.read_bytes()
    journal.close()
    for end in range(len(whole)):
        file.write_bytes(whole + whole[:end])
        assert Journal(file).known == {"one": {"seed": 3}}
        assert file.read_bytes() == whole


def test_a_broken_line_takes_no_other_with_it(tmp_path, capfd, monkeypatch):
    file = tmp_path / "out.jsonl"
    for key in ("first", "second", "third"):
        Journal(file).add(key, {"seed": 3})
    first, _, third = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + b'{"key": "se\0\n' + third)
    # as in a sweep: pytest, which collects, has its own
    monkeypatch.setattr("sys.stderr", None)
    assert list(Journal(file).known) == ["first", "third"]
    assert (
        "1 of 3 lines cannot be read; those tasks run again" in capfd.readouterr().err
    )


def test_a_disk_that_is_full_is_told_with_the_file(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "out.jsonl")
    monkeypatch.setattr(
        "difftest.support.journal.os.fsync", Mock(side_effect=OSError(28, "full"))
    )
    with pytest.raises(OSError, match=r"full: .*out\.jsonl"):
        journal.add("key", {"seed": 3})


@every(
    "text",
    [b"notes without an end", b"notes\n", b'{"key": "a"}\n', b"[1]\n", b'{"other": 1'],
)
def test_a_file_of_something_else_is_left_alone(tmp_path, text):
    file = tmp_path / "notes"
    file.write_bytes(text)
    with pytest.raises(click.UsageError, match="holds no results of a batch"):
        Journal(file)
    assert file.read_bytes() == text


def test_a_reference_is_asked_once_for_the_same_bytes():
    asked = []

    def double(a, scale=1):
        asked.append(a)
        return 2.0 * a

    known = memoize_pickled(double, most=4)
    ones = np.ones(4)
    known(ones)[0] = 7  # what is kept is not what is given away
    assert known(ones.copy()).tolist() == [2.0] * 4
    assert len(asked) == 1
    for other in (ones.view(np.int64), ones.reshape(2, 2), ones + 1):
        assert known(other).tobytes() == (2.0 * other).tobytes()
    assert known(ones, scale=True) is not known(ones, scale=1)
    assert len(asked) == 6
    for size in (1, 2, 3, 5, 6, 1):  # more than are kept
        known(np.zeros(size))
    known(ones, scale=lambda: 0)  # nothing that can be pickled
    known(ones, scale=lambda: 0)
    assert len(asked) == 14


def test_lines_name_kernels_or_hold_sources(tmp_path):
    file = tmp_path / "many.jsonl"
    file.write_text(
        '{"kernel": "a.py:add"}\n{"name": "mul", "source": "x = 1\u2028"}\n', "utf-8"
    )
    named, held = candidates(str(file), "t.py::t", tmp_path / "kept")
    assert named == "a.py:add"
    place, _, name = held.rpartition(":")
    assert name == "mul"
    with open(place, encoding="utf-8") as source:
        assert source.read() == "x = 1\u2028", (
            "JSON has it in a line, str.splitlines between two"
        )
    file.write_text('{"name": "é"}', "latin-1")
    with pytest.raises(click.UsageError, match="cannot be read: 'utf-8' codec"):
        candidates(str(file), "t.py::t", tmp_path)


@every("line", ["", "{}", "[]", '{"name": "add"}', '{"name": "add", "source": 1}'])
def test_a_line_of_another_form_is_told(tmp_path, line):
    file = tmp_path / "many.jsonl"
    file.write_text('{"kernel": "a.py:add"}\n' + line + "\n")
    with pytest.raises(click.UsageError, match=r"many\.jsonl:2: a line is"):
        candidates(str(file), "t.py::t", tmp_path)


@every(
    "given, said",
    [
        (["a.py:add"], "it takes FILE.py:KERNEL and PATH::TEST; got a.py:add"),
        (["--batch", "many:add", "t.py::t"], "--batch and --results go together"),
        (
            ["--batch", "m:add", "--results", "o", "a", "b"],
            "PATH::TEST with --batch or --audit; got a b",
        ),
        (
            ["--batch", "nowhere:add", "--results", "o", "t.py::t"],
            "nowhere:add has no candidates",
        ),
        (["-n", "0", "a.py:add", "t.py::t"], "0 is not in the range x>=1"),
        (["-n", "2", "a.py:add", "t.py::t"], "-n is for the processes of a --batch"),
    ],
)
def test_what_does_not_go_together_is_a_usage_error(tmp_path, monkeypatch, given, said):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["verdict", *given])
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_what_agrees_is_ordered_by_its_time():
    def verdict(name, time, instructions, outcome="agrees"):
        time = None if time is None else {"predicted_us": time}
        kernel = {"file": "a.py", "name": name}
        return {
            "kernel": kernel,
            "outcome": outcome,
            "time": time,
            "instructions": instructions,
        }

    rows = [
        verdict("slow", 9, "s"),
        verdict("none", None, "n"),
        verdict("quick", 2, "q"),
    ]
    rows += [verdict("twin", 9, "s"), verdict("bad", 1, "", "crashed")]
    assert list(batch_summary(rows)) == [
        "5 candidates; agrees: 4, crashed: 1",
        "       2.0 us (predicted)  a.py:quick",
        "       9.0 us (predicted)  a.py:slow",
        "    the same instructions: a.py:twin",
        "no time is predicted  a.py:none",
    ]


@every("is_late, outcome", [(True, Outcome.TIMEOUT), (False, Outcome.INCONCLUSIVE)])
def test_a_kernel_that_takes_its_judge_with_it_has_a_verdict(
    tmp_path, is_late, outcome
):
    file = tmp_path / "a.py"
    file.write_text(RIGHT)
    setup = BatchSetup("t.py::t", JudgeSettings(seed=1), ())
    document = lost(f"{file}:add", LostTask([], is_late), setup)
    assert document["outcome"] == outcome.value
    assert list(breaches(document, SCHEMA)) == []


def test_a_candidate_whose_process_died_is_judged_again(tmp_path, monkeypatch):
    """A candidate before it may have harmed the process that forks workers."""
    file = tmp_path / "a.py"
    file.write_text(RIGHT)
    verdicts = [
        Judgement({"file": str(file), "name": "add"}, "t.py::t", 1, has_died=has_died)
        for has_died in (True, False)
    ]
    servers = []

    def judge(kernel, test, settings, forks, spec):
        servers.append(forks)
        return verdicts[len(servers) - 1]

    monkeypatch.setattr(batch, "judge_candidate", judge)
    monkeypatch.setattr(batch, "ForkServer", lambda: contextlib.nullcontext("fresh"))
    connection = Mock()
    connection.recv.side_effect = [("key", f"{file}:add"), EOFError]
    setup = BatchSetup("t.py::t", JudgeSettings(seed=1), (f"{file}:add",))
    spec = spec_of(lambda a, b: a)
    batch._judge_all(connection, setup, {}, "shared", spec)
    assert servers == ["shared", "fresh"]
    (answer,) = connection.send.call_args_list[1].args
    assert answer["notes"] == [batch._AGAIN]
