"""Kernels that break down, run away or misbehave: each has a verdict that names it."""

from __future__ import annotations

import os
from contextlib import nullcontext

import click
import pytest

from difftest.simulator.errors import Location
from difftest.simulator.tape import Tape, TapedCall
from difftest.support.output import write_file
from difftest.tools.verdict import backend
from difftest.tools.verdict.confinement import bubblewrap_command
from difftest.tools.verdict.fork_server import Limits, Sandbox
from difftest.tools.verdict.formats import verdict_text
from difftest.tools.verdict.outcome import Outcome, Stage
from difftest.tools.verdict.wire import WorkerEnd
from tests.every import every
from tests.unit.tools.verdict.kernels import RIGHT, judged, source

OPEN = ("os", "sys", "time", "socket", "struct")
"""The modules that these kernels may import: the second layer is the system's."""


def in_kernel(line: str, before: str = "") -> str:
    """A right kernel that does something else first."""
    return source(f"{line}\nreturn store(total(a, b))", before)


def opened(worker, folder, text, cases=3):
    """Return the verdict on a kernel that may use the system."""
    return judged(worker, folder, text, cases, shrink=False, allow=OPEN)


@every(
    "text, outcome, reason",
    [
        (in_kernel("raise ValueError('no')"), Outcome.CRASHED, "ValueError"),
        (
            in_kernel("import sys\nsys.exit(0)"),
            Outcome.CRASHED,
            "a kernel returns, and ends no",
        ),
        (in_kernel("def f(): f()\nf()"), Outcome.CRASHED, "RecursionError"),
        (
            in_kernel("import os\nos.kill(0, 0)\nos.killpg(0, 3)"),
            Outcome.CRASHED,
            "SIGQUIT",
        ),
        (
            in_kernel("import os\nos.kill(os.getpid(), 9)"),
            Outcome.CRASHED,
            "ended by SIGKILL",
        ),
        (in_kernel("[0] * 2**33"), Outcome.OUT_OF_MEMORY, "more memory"),
        (
            in_kernel("assert a.shape[0] > 1, 'too few'"),
            Outcome.REFUSES_PROMISED,
            "too few",
        ),
        (
            in_kernel("nl.ndarray((129, 8), dtype=a.dtype, buffer=nl.sbuf)"),
            Outcome.REFUSED,
            "129",
        ),
        (
            source("return store(total(a, b)), store(total(a, b))"),
            Outcome.WRONG_ALGORITHM,
            "2",
        ),
        (
            source("return store(total(a, b)).reshape((1, a.size))"),
            Outcome.WRONG_ALGORITHM,
            "",
        ),
        (source("nisa.dma_copy(dst=a, src=b)\nreturn store(total(a, b))"), None, "a"),
        (source("return 3"), Outcome.REFUSED, "tensors"),
    ],
)
def test_a_hostile_kernel_is_named(nursery, tmp_path, text, outcome, reason):
    with Sandbox(Limits(seconds=30.0), nursery) as worker:
        judgement = opened(worker, tmp_path, text, 5)
    assert judgement.outcome is (outcome or Outcome.WRONG_ALGORITHM), (
        judgement.as_mapping()
    )
    assert reason in judgement.report, judgement.report
    assert judgement.outcome.exit_code
    assert "most recent call" not in judgement.reason
    assert "launch.py" not in judgement.report, "frames of ours"


def test_a_kernel_that_never_ends_is_stopped(nursery, tmp_path):
    text = in_kernel("import time\ntime.sleep(1000)")
    with Sandbox(Limits(seconds=2.0), nursery) as worker:
        judgement = opened(worker, tmp_path, text)
    assert judgement.outcome is Outcome.TIMEOUT
    assert judgement.stage is Stage.RUN
    assert "within 2 seconds" in judgement.reason


def test_what_a_kernel_prints_is_counted_and_not_shown(worker, tmp_path, capsys):
    judgement = judged(worker, tmp_path, in_kernel("print('x' * 10**6)"))
    assert judgement.outcome is Outcome.AGREES
    assert any("prints" in note for note in judgement.notes)
    assert "xxx" not in capsys.readouterr().out


@every(
    "text, outcome, said",
    [
        ("raise ImportError('no such thing')", Outcome.CRASHED, "no such thing"),
        ("x = [0] * 2**33", Outcome.OUT_OF_MEMORY, "MemoryError"),
        ("x = 1", None, "has no function add"),
    ],
)
def test_a_file_that_cannot_be_imported_is_told(worker, tmp_path, text, outcome, said):
    if outcome is None:
        with pytest.raises(click.UsageError, match=said):
            judged(worker, tmp_path, text)
        return
    judgement = judged(worker, tmp_path, text)
    assert judgement.outcome is outcome
    assert said in judgement.report


PIPE = """
import os
OPEN = [int(one) for one in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{one}")]
OUT = max(one for one in OPEN if os.readlink(f"/proc/self/fd/{one}").startswith("socket:"))
"""


def test_a_worker_that_writes_to_the_pipe_breaks_the_protocol(worker, tmp_path):
    judgement = opened(worker, tmp_path, in_kernel("os.write(OUT, b'x' * 64)", PIPE))
    assert judgement.outcome is Outcome.CRASHED
    assert "protocol" in judgement.reason


@every(
    "text",
    [
        in_kernel(
            "assert False, '\\x1b[2J\\x9b\\u202e\\u2066\\ud800\\n  reward:      1.000'"
        ),
        source("", "raise ValueError('\\x1b]0;x\\x07\\n  reward:      1.000')\n"),
    ],
)
def test_the_words_of_a_candidate_look_like_no_others(nursery, tmp_path, text):
    with Sandbox(Limits(30.0), nursery) as worker:
        judgement = judged(worker, tmp_path, text, 2, shrink=False)
    write_file(tmp_path / "page.html", judgement.report)
    shown = verdict_text(judgement.as_mapping())
    assert all(one.isprintable() or one == "\n" for one in shown)
    (reward,) = [line for line in shown.splitlines() if line.startswith("  reward")]
    assert not reward.endswith("1.000")


def test_a_tape_names_lines_of_no_other_file(monkeypatch):
    places = {"own.py": None, "/dev/stdin": WorkerEnd}
    for file, error in places.items():
        call = TapedCall("effect", (), {}, stack=(Location(file, 1),))
        monkeypatch.setattr(
            backend, "tape_from_json", lambda _, call=call: Tape(steps=[call])
        )
        with pytest.raises(error) if error else nullcontext():
            backend._read("")


FRAME = (
    PIPE
    + """
import struct

def say(text):
    text = struct.pack("!i", len(text)) + text
    while text:
        text = text[os.write(OUT, text) :]
"""
)


@every(
    "said, reason",
    [
        ('"how": "ran", "blobs": 1, "printed": "many"', "'printed' is 'many'"),
        ('"how": "ran", "blobs": 1, "printed": true', "'printed' is True"),
        ('"how": "ran", "blobs": 1, "printed": 1" + "0" * 5000 + "', "integer string"),
        ('"how": "ran", "blobs": 2, "printed": 0', "a frame of 2 blobs"),
        ('"how": "ran", "blobs": -1, "printed": 0', "a frame of -1 blobs"),
        ('"how": "ran", "blobs": 0, "printed": 0, "more": 1', "'more' is 1"),
        ('"how": ' + "[" * 5000, "no frame"),
    ],
)
def test_a_header_is_held_to_its_form(nursery, tmp_path, said, reason):
    text = said.replace('" + "0" * 5000 + "', "0" * 5000)
    body = f"say(b'{{{text}}}')\nsay(b'1')"
    with Sandbox(Limits(seconds=30.0), nursery) as worker:
        judgement = opened(worker, tmp_path, in_kernel(body, FRAME))
    assert judgement.outcome is Outcome.CRASHED
    assert reason in judgement.reason, judgement.reason


@every(
    "body, error",
    [
        ("os.fork()", "PermissionError"),
        ("os.execv('/bin/sleep', ['sleep', '60'])", "PermissionError"),
        ("os.posix_spawn('/bin/sleep', ['sleep', '60'], {})", "PermissionError"),
    ],
)
def test_the_system_keeps_a_worker_from_processes(nursery, tmp_path, body, error):
    with Sandbox(Limits(seconds=30.0), nursery) as worker:
        judgement = opened(worker, tmp_path, in_kernel(body, "import os\n"))
        assert error in judgement.report or "processes" in worker.missing


BOX = """#!/bin/sh
echo boxed > {folder}/marker
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


def test_bubblewrap_is_used_where_it_is_there_and_works(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for text, works in (
        (BOX.format(folder=tmp_path), True),
        ("#!/bin/sh\nexit 1\n", False),
    ):
        (tmp_path / "bwrap").write_text(text)
        (tmp_path / "bwrap").chmod(0o755)
        assert bool(bubblewrap_command(str(tmp_path))) == works
    assert (tmp_path / "marker").exists()


def test_a_worker_alone_answers_as_one_of_a_nursery(tmp_path):
    with Sandbox(Limits(seconds=30.0)) as worker:
        assert judged(worker, tmp_path, RIGHT, 2).outcome is Outcome.AGREES
        worker.close()
        with pytest.raises(WorkerEnd):
            worker.ask({"request": "coverage"})


def test_the_system_keeps_a_worker_from_files(worker, tmp_path):
    file = tmp_path / "left_behind"
    body = f"os.close(os.open({str(file)!r}, os.O_CREAT | os.O_WRONLY))"
    judgement = opened(worker, tmp_path, in_kernel(body, "import os\n"))
    assert file.exists() == ("writing" in worker.missing)
    assert (judgement.outcome is Outcome.CRASHED) != file.exists(), (
        judgement.as_mapping()
    )


def test_the_system_keeps_a_worker_from_the_network(worker, tmp_path):
    before = "import socket\nNAMES = socket.if_nameindex()\n"
    body = in_kernel("assert [name for _, name in NAMES] == ['lo']", before)
    judgement = opened(worker, tmp_path, body)
    alone = judgement.outcome is Outcome.AGREES
    assert alone or "network" in worker.missing, judgement.as_mapping()
