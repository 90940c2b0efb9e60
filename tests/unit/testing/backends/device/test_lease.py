import errno
import os
import signal
import subprocess
import sys

import pytest

from difftest.support.worker import Worker
from difftest.testing.backends.device import core
from difftest.testing.backends.device.core import CoreLease, NoCoreError, find_cores
from tests.every import every

HOLD = """
import sys
from difftest.testing.backends.device.core import CoreLease
print((taken := CoreLease()).core, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def cores(tmp_path, monkeypatch):
    """Locks of this test's own, and core 0 alone."""
    monkeypatch.setenv(core.LOCK_FOLDER, str(tmp_path))

    def are(text):
        monkeypatch.setenv(core.VISIBLE_CORES, text)

    are("0")
    return are


def holder():
    """Another process that holds core 0 until its stdin ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "0\n"
    return process


def test_two_workers_and_one_core(cores):
    other = holder()
    try:
        with pytest.raises(NoCoreError, match=rf"core 0 by process {other.pid}\b"):
            CoreLease()
        cores("0-1")
        assert CoreLease().core == 1
    finally:
        other.communicate()
    assert CoreLease().core == 0, "given back at its end"


def test_a_worker_that_is_killed_while_it_holds_the_core_gives_it_back():
    other = holder()
    os.kill(other.pid, signal.SIGKILL)
    other.communicate()
    assert CoreLease().core == 0


def test_a_process_on_the_core_keeps_it_when_its_leaseholder_lets_go():
    taken = CoreLease()
    worker = Worker(len, {})
    taken.release()
    try:
        with pytest.raises(NoCoreError):
            CoreLease()
    finally:
        worker.close()
    assert CoreLease().core == 0


def test_one_process_leases_a_core_once(cores):
    cores("0-1")
    first = CoreLease()
    assert (first.core, CoreLease().core) == (0, 1)


@every(
    "text, cores",
    [
        ("0", (0,)),
        ("4-7", (4, 5, 6, 7)),
        ("0,2,4-5", (0, 2, 4, 5)),
        ("1,1", (1,)),
        ("", (0,)),
    ],
)
def test_the_runtimes_notation_of_cores(monkeypatch, text, cores):
    monkeypatch.setenv(core.VISIBLE_CORES, text)
    assert find_cores() == cores


@every("text", ["all", "-1", "1-", "0:3", "1-x"])
def test_another_notation_is_an_error(monkeypatch, text):
    monkeypatch.setenv(core.VISIBLE_CORES, text)
    with pytest.raises(NoCoreError, match="accepted: an index or a range"):
        find_cores()


@pytest.fixture
def foreign(monkeypatch):
    """The lock of core 0 is another user's."""
    opened = os.open

    def refusing(path, *how):
        if str(path).endswith("neuroncore-0.lock"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *how)

    monkeypatch.setattr(os, "open", refusing)


@pytest.mark.usefixtures("foreign")
def test_a_lock_of_another_user_is_one_error_with_a_remedy(cores, tmp_path):
    with pytest.raises(NoCoreError) as error:
        CoreLease()
    text = str(error.value)
    assert f"core 0 by a lock of another user, {tmp_path}/neuroncore-0.lock" in text
    assert (
        "let DIFFTEST_LOCK_DIR name a folder that all users of the cores can write"
        in text
    )
    cores("0-1")
    assert CoreLease().core == 1, "another core is free"


def test_a_folder_of_another_user_is_reported_likewise(monkeypatch, tmp_path):
    def refused(folder, **how):
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(core.Path, "mkdir", refused)
    with pytest.raises(NoCoreError, match="by a lock of another user") as error:
        CoreLease()
    assert "DIFFTEST_LOCK_DIR" in str(error.value)
