"""However a judge, a fork_server or a worker ends: no process and no folder is left."""

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
with ForkServer() as fork_server:
    pid, folder, way = fork_server.fork()
    print(fork_server._process.pid, pid, fork_server.folder, flush=True)
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
    fork_server, worker, folder = judge.stdout.readline().split()
    os.kill(judge.pid, number)
    judge.communicate()
    assert ends([fork_server, worker], folder)


def test_a_fork_server_that_is_killed_is_started_again():
    with ForkServer() as fork_server:
        with Sandbox(Limits(30.0), fork_server):
            worker = fork_server._process.pid
            folder = fork_server.folder
            os.kill(fork_server._process.pid, signal.SIGKILL)
            fork_server._process.wait()
        with Sandbox(Limits(30.0), fork_server) as again:
            assert again.ask({"request": "coverage"}).header["how"] == "covered"
        assert ends([worker], folder)
    assert not os.path.exists(fork_server.folder)
