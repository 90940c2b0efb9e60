import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from difftest.support.worker import RemoteError, Worker, WorkerEndedError


@pytest.fixture
def start():
    workers = []

    def make(function, **environment):
        workers.append(Worker(function, environment))
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


def test_it_calls_the_function_in_another_process_again_and_again(start):
    worker = start(lambda array: (array * 2, os.getpid()))
    first, pid = worker.run(np.arange(3), timeout=10).value
    assert first.tolist() == [0, 2, 4]
    assert (
        worker.run(np.ones(1), timeout=10).value[1]
        == pid
        == worker.process.pid
        != os.getpid()
    )


def test_its_environment_is_its_own(start):
    worker = start(
        lambda: os.environ["NEURON_RT_VISIBLE_CORES"], NEURON_RT_VISIBLE_CORES="7"
    )
    assert worker.run(timeout=10).value == "7"
    assert os.environ.get("NEURON_RT_VISIBLE_CORES") != "7"


def test_an_exception_comes_back_with_where_it_was_raised(start):
    def failing():
        raise KeyError("no such tensor")

    answer = start(failing).run(timeout=10)
    assert isinstance(answer.error, KeyError)
    assert "in failing" in str(answer.error.__cause__)


class Unpicklable(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} {second}")
        self.held = threading.Lock() if second == "here" else None

    def __reduce__(self):  # some packages teach pickle more than it can do by itself
        return Unpicklable, self.args, vars(self)


@pytest.mark.parametrize("where", ["here", "back"])
def test_an_exception_that_cannot_be_pickled_comes_back_as_its_text(start, where):
    def failing():
        raise Unpicklable("not", where)

    error = start(failing).run(timeout=10).error
    assert isinstance(error, RemoteError)
    assert str(error) == f"Unpicklable: not {where}"


def test_the_output_of_a_worker_and_its_children_is_kept_for_each_job(start):
    def noisy(word):
        print(f"python says {word}")
        subprocess.run(["sh", "-c", f"echo compiler says {word} >&2"], check=True)

    worker = start(noisy)
    assert worker.run("one", timeout=10).log.splitlines() == [
        "python says one",
        "compiler says one",
    ]
    assert "one" not in worker.run("two", timeout=10).log


def test_a_long_log_keeps_its_end(start):
    log = start(lambda: print("x" * 60000 + "the error")).run(timeout=10).log
    assert len(log) < 40000
    assert log.endswith("the error")
    assert log.startswith("[…]")


def test_only_a_job_that_hangs_is_killed(start):
    def hang(seconds):
        print("about to hang", flush=True)
        time.sleep(seconds)
        return "done"

    bystander = start(hang)
    worker = start(hang)
    answer = worker.run(60, timeout=0.3)
    assert isinstance(answer.error, WorkerEndedError)
    assert str(answer.error) == "no answer within 0.3 s: the process was killed"
    assert answer.log == "about to hang"
    assert bystander.run(0, timeout=10).value == "done"


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by SIGKILL"),
        (lambda: os._exit(3), "with exit code 3"),
    ],
)
def test_a_job_that_ends_early_reports_how(start, ending, words):
    error = start(ending).run(timeout=10).error
    assert isinstance(error, WorkerEndedError)
    assert str(error) == f"the process ended in the middle of it, {words}"


def test_a_crash_leaves_its_traceback_in_the_log(start):
    def crash():
        os.kill(os.getpid(), signal.SIGSEGV)

    log = start(crash).run(timeout=10).log
    assert "Segmentation fault" in log
    assert "in crash" in log


def in_a_process_of_its_own(value):
    return value + 1


def test_a_compiler_may_start_processes_of_its_own(start):
    def compile_in_parallel():
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(in_a_process_of_its_own, [1, 2])

    answer = start(compile_in_parallel).run(timeout=30)
    assert answer.error is None
    assert answer.value == [2, 3]


FORGOTTEN = """
from difftest.support.worker import Worker

worker = Worker(len, {})
print(worker.run("four", timeout=10).value)
"""


def test_python_ends_although_nobody_closed_it():
    finished = subprocess.run(
        [sys.executable, "-c", FORGOTTEN], capture_output=True, text=True, timeout=30
    )
    assert (finished.returncode, finished.stdout) == (0, "4\n"), finished.stderr


ORPHAN = """
import os, time
from difftest.support.worker import Worker

def hang():
    time.sleep(60)

worker = Worker(hang, {})
print(worker.process.pid, flush=True)
worker.run(timeout=60)
"""


def test_it_ends_when_its_parent_is_killed(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(ORPHAN)],
        stdout=subprocess.PIPE,
        text=True,
    )
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def alive(pid):
    """Return whether the process runs; a process that has ended and was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
