"""Kernels that break down, run away or misbehave: each has a verdict that names it."""

from __future__ import annotations

import pytest

from difftest.verdict.outcome import Outcome, Stage
from difftest.verdict.sandbox import Limits, Sandbox
from difftest.verdict.wire import WorkerEnd
from tests.every import every
from tests.unit.verdict.kernels import RIGHT, judged, source

BLIND = "from difftest.verdict import confinement\nconfinement.FORBIDDEN.clear()\n"
"""Takes from the hook what it knows, and changes no code."""
RETURN = "return store(total(a, b))"


def in_kernel(line: str, before: str = "") -> str:
    """A right kernel that does something else first."""
    return source(f"{line}\n{RETURN}", before)


@every(
    "text, outcome, reason",
    [
        (in_kernel("raise ValueError('no')"), Outcome.CRASHED, "ValueError"),
        (in_kernel("import sys\nsys.exit(0)"), Outcome.CRASHED, "a kernel returns, and ends no"),
        (in_kernel("raise KeyboardInterrupt"), Outcome.CRASHED, "KeyboardInterrupt"),
        (in_kernel("def f(): f()\nf()"), Outcome.CRASHED, "RecursionError"),
        (in_kernel("import os\nos._exit(0)"), Outcome.CRASHED, "exit code 0, and gave no answer"),
        (in_kernel("import os\nos.abort()"), Outcome.CRASHED, "ended by SIGABRT"),
        (in_kernel("bytearray(2**33)"), Outcome.OUT_OF_MEMORY, "more memory"),
        (in_kernel("assert a.shape[0] > 1, 'too few'"), Outcome.REFUSES_PROMISED, "too few"),
        (in_kernel("nl.ndarray((129, 8), dtype=a.dtype, buffer=nl.sbuf)"), Outcome.REFUSED, "129"),
        (in_kernel("import os\nos.fork()"), Outcome.CHEATS, "it forks"),
        (in_kernel("import os\nos.system('true')"), Outcome.CHEATS, "it starts a process"),
        (in_kernel("import socket\nsocket.socket()"), Outcome.CHEATS, "it opens a socket"),
        (in_kernel("open('/tmp/left-by-a-kernel', 'w')"), Outcome.CHEATS, "for writing"),
        (in_kernel("import ctypes\nctypes.CDLL(None)"), Outcome.CHEATS, "through ctypes"),
        (source("return store(total(a, b)), store(total(a, b))"), Outcome.WRONG_ALGORITHM, "2"),
        (source("return store(total(a, b)).reshape((1, a.size))"), Outcome.WRONG_ALGORITHM, ""),
        (source("nisa.dma_copy(dst=a, src=b)\nreturn store(total(a, b))"), None, "a"),
        (source("return 3"), Outcome.REFUSED, "tensors"),
    ],
)
def test_a_hostile_kernel_is_named(nursery, tmp_path, text, outcome, reason):
    with Sandbox(Limits(seconds=30.0), (), nursery) as worker:
        judgement = judged(worker, tmp_path, text, shrink=False)
    assert judgement.outcome is (outcome or Outcome.WRONG_ALGORITHM), judgement.as_mapping()
    assert reason in judgement.report, judgement.report
    assert judgement.exit_code


def test_a_kernel_that_never_ends_is_stopped(nursery, tmp_path):
    text = in_kernel("import time\ntime.sleep(1000)")
    with Sandbox(Limits(seconds=0.5), (), nursery) as worker:
        judgement = judged(worker, tmp_path, text)
    assert judgement.outcome is Outcome.TIMEOUT
    assert judgement.stage is Stage.RUN
    assert "within 0.5 seconds" in judgement.reason


def test_what_a_kernel_prints_is_counted_and_not_shown(worker, tmp_path, capsys):
    judgement = judged(worker, tmp_path, in_kernel("print('x' * 10**6)"))
    assert judgement.outcome is Outcome.AGREES
    assert any("prints" in note for note in judgement.notes)
    assert "xxx" not in capsys.readouterr().out


@every(
    "text, how",
    [
        ("raise ImportError('no such thing')", "crashed"),
        ("import sys; sys.exit(0)", "crashed"),
        ("def add(a, b:", "crashed"),
        ("x = bytearray(2**33)", "memory"),
        ("def other(): ...", "usage"),
    ],
)
def test_a_file_that_cannot_be_imported_is_told(worker, tmp_path, text, how):
    file = tmp_path / f"broken_{abs(hash(text))}.py"
    file.write_text(text)
    kernel = {"file": str(file), "name": "add"}
    answer = worker.ask({"request": "load", "kernel": kernel}).header
    assert answer["how"] == how
    assert answer["error"]


def test_a_worker_that_writes_to_the_pipe_breaks_the_protocol(worker, tmp_path):
    line = (
        "import os\nfor n in range(3, 20):\n    try: os.write(n, b'x' * 64)\n    except OSError: 0"
    )
    judgement = judged(worker, tmp_path, in_kernel(line))
    assert judgement.outcome is Outcome.CRASHED
    assert "protocol" in judgement.reason


def test_a_worker_alone_answers_as_one_of_a_nursery(tmp_path):
    with Sandbox(Limits(seconds=30.0)) as worker:
        assert judged(worker, tmp_path, RIGHT, 2).outcome is Outcome.AGREES
        worker.close()
        with pytest.raises(WorkerEnd):
            worker.ask({"request": "coverage"})


def test_the_system_keeps_a_worker_from_files_where_the_hook_is_gone(worker, tmp_path):
    file = tmp_path / "left_behind"
    before = f"{BLIND}confinement._WRITING = 0\nFILE = {str(file)!r}\n"
    opened = "os.open(FILE, os.O_CREAT | os.O_WRONLY)"
    judgement = judged(worker, tmp_path, in_kernel(opened, before), 2)
    assert file.exists() == ("writing" in worker.missing)
    assert (judgement.outcome is Outcome.CRASHED) != file.exists(), judgement.as_mapping()


def test_the_system_keeps_a_worker_from_the_network_where_the_hook_is_gone(worker, tmp_path):
    before = f"import socket\n{BLIND}NAMES = socket.if_nameindex()\n"
    body = in_kernel("assert [name for _, name in NAMES] == ['lo']", before)
    judgement = judged(worker, tmp_path, body, 2)
    alone = judgement.outcome is Outcome.AGREES
    assert alone or "network" in worker.missing, judgement.as_mapping()
