import json
import os
import signal
import subprocess
import sys

import pytest

from difftest.backends.device import lease
from difftest.backends.device.lease import NoCoreError, find_cores, lease_core, parse_cores
from difftest.backends.device.worker import Worker
from tests.every import every

HOLD = """
import sys
from pathlib import Path
from difftest.backends.device.lease import lease_core
taken = lease_core((0,), folder=Path(sys.argv[1]))
print(taken.core, flush=True)
sys.stdin.read()
"""


def holder(folder):
    """Another process that holds core 0 until its stdin ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "0\n"
    return process


def test_two_workers_and_one_core(tmp_path):
    other = holder(tmp_path)
    try:
        with pytest.raises(NoCoreError, match=rf"core 0 by process {other.pid}\b"):
            lease_core((0,), folder=tmp_path)
        assert lease_core((0, 1), folder=tmp_path).core == 1
    finally:
        other.communicate()
    assert lease_core((0,), folder=tmp_path).core == 0, "given back at its end"


def test_a_worker_that_is_killed_while_it_holds_the_core_gives_it_back(tmp_path):
    other = holder(tmp_path)
    os.kill(other.pid, signal.SIGKILL)
    other.communicate()
    assert lease_core((0,), folder=tmp_path).core == 0


def test_one_waits_for_a_core_to_become_free(tmp_path):
    other = holder(tmp_path)
    other.stdin.close()
    taken = lease_core((0,), wait=30, folder=tmp_path)
    assert taken.core == 0
    other.stdout.close()
    other.wait()


def test_a_process_on_the_core_keeps_it_when_its_leaseholder_lets_go(tmp_path):
    taken = lease_core((0,), folder=tmp_path)
    worker = Worker(len, {})
    taken.release()
    try:
        with pytest.raises(NoCoreError):
            lease_core((0,), folder=tmp_path)
    finally:
        worker.close()
    assert lease_core((0,), folder=tmp_path).core == 0


def test_releasing_twice_does_nothing(tmp_path):
    taken = lease_core((0,), folder=tmp_path)
    taken.release()
    taken.release()
    assert lease_core((0,), folder=tmp_path).core == 0


def test_one_process_leases_a_core_once(tmp_path):
    first = lease_core((0, 1), folder=tmp_path)
    assert (first.core, lease_core((0, 1), folder=tmp_path).core) == (0, 1)


@every(
    "text, cores", [("0", (0,)), ("4-7", (4, 5, 6, 7)), ("0,2,4-5", (0, 2, 4, 5)), ("1,1", (1,))]
)
def test_the_runtimes_notation_of_cores(text, cores):
    assert parse_cores(text) == cores


@every("text", ["all", "-1", "1-", "0:3", "1-x"])
def test_another_notation_is_an_error(text):
    with pytest.raises(NoCoreError, match="accepted: an index or a range"):
        parse_cores(text)


def neuron_ls(folder, output, monkeypatch):
    tool = folder / "neuron-ls"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv(lease.VISIBLE_CORES, raising=False)


def test_the_cores_come_from_neuron_ls(tmp_path, monkeypatch):
    """The fields of its documented JSON: one object a device, with the ids of its cores."""
    devices = [
        {"neuron_device": 1, "nc_count": 2, "neuroncore_ids": [2, 3]},
        {"neuron_device": 0, "nc_count": 2, "neuroncore_ids": [0, 1]},
    ]
    neuron_ls(tmp_path, json.dumps(devices), monkeypatch)
    assert find_cores() == (0, 1, 2, 3)


@every("output", ["", "no devices", "{}", '[{"neuron_device": 0}]'])
def test_without_a_list_it_is_core_0(tmp_path, monkeypatch, output):
    neuron_ls(tmp_path, output, monkeypatch)
    assert find_cores() == (0,)


def test_the_environment_goes_before_neuron_ls(monkeypatch):
    monkeypatch.setenv(lease.VISIBLE_CORES, "2-3")
    assert find_cores() == (2, 3)
