"""However a judge, a nursery or a worker ends: no process and no folder is left."""

import os
import signal
import subprocess
import sys
import time

from difftest.tools.verdict.fork_server import ForkServer, Limits, Sandbox
from tests.every import every

CODE = """
import time
from difftest.tools.verdict.fork_server import ForkServer
with ForkServer() as nursery:
    pid, folder, way = nursery.fork()
    print(nursery._process.pid, pid, nursery.folder, flush=True)
    time.sleep(600)
"""


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def ends(pids, folder):
    for _ in range(400):
        if all(map(is_gone, pids)) and not os.path.exists(folder):
            return True
        time.sleep(0.05)
    return False


@every("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_judge_that_is_killed_leaves_nothing(number):
    judge = subprocess.Popen(
        [sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True
    )
    nursery, worker, folder = judge.stdout.readline().split()
    os.kill(judge.pid, number)
    judge.communicate()
    assert ends([nursery, worker], folder)


def test_a_nursery_that_is_killed_is_made_anew():
    with ForkServer() as nursery:
        with Sandbox(Limits(30.0), nursery):
            worker = nursery._process.pid
            folder = nursery.folder
            os.kill(nursery._process.pid, signal.SIGKILL)
            nursery._process.wait()
        with Sandbox(Limits(30.0), nursery) as again:
            assert again.ask({"request": "coverage"}).header["how"] == "told"
        assert ends([worker], folder)
    assert not os.path.exists(nursery.folder)
