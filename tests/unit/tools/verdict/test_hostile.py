"""Kernels that break down, run away or misbehave: each has a verdict that names it."""

from __future__ import annotations

import os
import platform
from contextlib import nullcontext

import click
import pytest

from difftest.simulator.errors import Location
from difftest.simulator.tape import Tape, TapedCall
from difftest.support.output import write_file
from difftest.tools.verdict import backend, confinement
from difftest.tools.verdict.confinement import bubblewrap_command
from difftest.tools.verdict.fork_server import Limits, Sandbox
from difftest.tools.verdict.formats import verdict_text
from difftest.tools.verdict.outcome import Outcome, Stage
from difftest.tools.verdict.wire import WorkerEnd
from tests.every import every
from tests.unit.tools.verdict.kernels import RIGHT, judged, source

OPEN = ("os", "sys", "time", "socket", "struct", "ctypes", "resource")
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
            in_kernel("import os\nos.kill(0, 0)"),
            Outcome.CRASHED,
            "PermissionError",
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
def test_a_hostile_kernel_is_named(fork_server, tmp_path, text, outcome, reason):
    with Sandbox(Limits(seconds=30.0), fork_server) as worker:
        judgement = opened(worker, tmp_path, text, 5)
    assert judgement.outcome is (outcome or Outcome.WRONG_ALGORITHM), (
        judgement.as_mapping()
    )
    assert reason in judgement.report, judgement.report
    assert judgement.outcome.exit_code
    assert "most recent call" not in judgement.reason
    assert "launch.py" not in judgement.report, "frames of ours"


def test_a_kernel_that_never_ends_is_stopped(fork_server, tmp_path):
    text = in_kernel("import time\ntime.sleep(1000)")
    with Sandbox(Limits(seconds=2.0), fork_server) as worker:
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
def test_the_words_of_a_candidate_look_like_no_others(fork_server, tmp_path, text):
    with Sandbox(Limits(30.0), fork_server) as worker:
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
            backend.read_tape("")


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
def test_a_header_is_held_to_its_form(fork_server, tmp_path, said, reason):
    text = said.replace('" + "0" * 5000 + "', "0" * 5000)
    body = f"say(b'{{{text}}}')\nsay(b'1')"
    with Sandbox(Limits(seconds=30.0), fork_server) as worker:
        judgement = opened(worker, tmp_path, in_kernel(body, FRAME))
    assert judgement.outcome is Outcome.CRASHED
    assert reason in judgement.reason, judgement.reason


SYSCALL = "assert ctypes.CDLL(None).syscall({}) == -1"
DENIED = {
    "fork": "os.fork()",
    "another program": "os.execv('/bin/sleep', ['sleep', '60'])",
    "a program beside": "os.posix_spawn('/bin/sleep', ['sleep', '60'], {})",
    "a signal to the judge": "os.kill(os.getppid(), 0)",
    "a signal to all": "os.killpg(0, 0)",
    "limits of the process that forked it": (
        "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (1, 1))"
    ),
    "a priority": "os.setpriority(os.PRIO_PROCESS, 0, 5)",
    "a priority of another": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 5)",
    "cores": "os.sched_setaffinity(0, {0})",
    "a unix socket": "socket.socket(socket.AF_UNIX)",
    "a pair of sockets": "socket.socketpair()",
    "a file of its folder": "os.open('x', os.O_CREAT | os.O_WRONLY)",
    "a folder": "os.mkdir('x')",
    "a mode": "os.chmod('.', 0o700)",
    "a time of a file": "os.utime('.')",
    "an attribute of a file": "os.setxattr('.', 'user.x', b'1')",
    "a removed file": "os.unlink('x')",
    "a link": "os.symlink('x', 'y')",
    "a pipe with a name": "os.mkfifo('x')",
}
"""What a worker asks of the system, to which ``--allow`` has opened Python."""
UNHEARD = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "add_key": 248,
    "keyctl": 250,
    "shmget": 29,
    "shmat": 30,
    "unshare": 272,
    "setns": 308,
    "mount": 165,
    "ptrace": 101,
    "process_vm_readv": 310,
    "memfd_create": 319,
    "userfaultfd": 323,
    "bpf": 321,
    "perf_event_open": 298,
    "personality": 135,
    "prctl": 157,
    "pidfd_open": 434,
    "inotify_init": 253,
    "mq_open": 240,
}
"""System calls on x86-64 that Python does not name."""


@every("name", DENIED)
def test_the_system_denies_a_call(worker, tmp_path, name):
    text = in_kernel(DENIED[name], f"import {', '.join(OPEN)}\n")
    judgement = opened(worker, tmp_path, text, 1)
    denied = ("PermissionError", "BlockingIOError")
    assert any(word in judgement.report for word in denied) or worker.missing


def test_the_system_denies_all_calls_that_are_not_listed(worker, tmp_path):
    lines = "\n".join(
        SYSCALL.format(f"{number}, 0, 0, 0") for number in UNHEARD.values()
    )
    judgement = opened(worker, tmp_path, in_kernel(lines, "import ctypes\n"), 1)
    is_other = platform.machine() != "x86_64"
    assert is_other or worker.missing or judgement.outcome is Outcome.AGREES


@every("column, machine", [(0, "x86_64"), (1, "aarch64")])
def test_a_filter_allows_each_listed_call_and_no_other(column, machine):
    numbers = [pair[column] for pair in confinement._CALLS.values()]
    known = [number for number in numbers if number is not None]
    assert len(set(known)) == len(known), machine
    assert all(answer(column, number) for number in known)
    assert [number for number in range(500) if answer(column, number)] == sorted(known)
    for opened_for_writing, allowed in ((0o2, False), (0o0, True)):
        assert answer(column, (257, 56)[column], 0, 0, opened_for_writing) == allowed
    for process, allowed in ((7, True), (8, False), (0, False)):
        assert answer(column, (62, 129)[column], process) == allowed
    for process, allowed in ((7, True), (8, False), (0, True)):
        assert answer(column, (302, 261)[column], process) == allowed
    assert answer(column, (56, 220)[column], 0x10000)
    assert not answer(column, (56, 220)[column], 0x11)


def answer(column, number, *arguments):
    """Whether the filter of the process 7 allows a call, by running its instructions."""
    words = {0: number, 4: confinement._AUDIT[column]}
    words |= {16 + 8 * at: value for at, value in enumerate((*arguments, 8, 8, 8)[:3])}
    if not arguments:
        words |= {16: 8, 24: 0o2, 32: 0o2}
    at = loaded = 0
    rows = confinement.filter_instructions(column, 7)
    while True:
        code, if_true, if_false, operand = rows[at]
        at += 1
        if code == confinement._LOAD:
            loaded = words[operand]
        elif code == confinement._RETURN:
            return operand == confinement._ALLOW
        else:
            holds = {
                confinement._JUMP_IF_EQUAL: loaded == operand,
                confinement._JUMP_IF_AT_LEAST: loaded >= operand,
                confinement._JUMP_IF_ANY_BIT: bool(loaded & operand),
            }[code]
            at += if_true if holds else if_false


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


def test_a_worker_alone_answers_as_one_of_a_fork_server(tmp_path):
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
    assert "PermissionError" in judgement.report or worker.missing
