import fcntl
import signal
import subprocess
import sys

import pytest

from difftest.backends.device.cache import CompileCache, cache_folder
from difftest.backends.device.worker import Worker
from tests.every import every

COMPILE = """
import os, signal, sys, time
from pathlib import Path
from difftest.backends.device.cache import CompileCache

def make(folder):
    (folder / "kernel.neff").write_text("half")
    print("started", flush=True)
    {middle}
    (folder / "kernel.neff").write_text("whole")

print(CompileCache(Path(sys.argv[1])).get("key", make), flush=True)
"""


def compiling(folder, middle):
    """Another process that compiles, and does `middle` when half is written."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMPILE.format(middle=middle), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "started\n"
    return process


def whole(folder):
    (folder / "kernel.neff").write_text("whole")


def never(folder):
    raise AssertionError("it was compiled before")


def test_a_key_is_made_once(tmp_path):
    cache = CompileCache(tmp_path)
    entry = cache.get("key", whole)
    assert cache.get("key", never) == entry
    assert (cache.hits, cache.misses) == (1, 1)
    assert cache.get("other key", whole) != entry


def test_a_kill_in_the_middle_of_a_write_leaves_nothing_wrong(tmp_path):
    killed = compiling(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    entry = CompileCache(tmp_path).get("key", whole)
    assert (entry / "kernel.neff").read_text() == "whole"
    assert [path.name for path in tmp_path.glob(".unfinished-*")] == []


def test_nothing_whole_is_lost_to_a_kill(tmp_path):
    entry = CompileCache(tmp_path).get("earlier", whole)
    compiling(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)").communicate()
    assert CompileCache(tmp_path).get("earlier", never) == entry


def test_two_processes_compile_one_key_once(tmp_path):
    other = compiling(tmp_path, "time.sleep(0.3)")
    entry = CompileCache(tmp_path).get("key", never)
    assert other.communicate()[0].strip() == str(entry)
    assert (entry / "kernel.neff").read_text() == "whole"


def test_a_process_that_was_forked_to_compile_does_not_keep_the_key(tmp_path):
    workers = []

    def make(folder):
        workers.append(Worker(len, {}))
        whole(folder)

    CompileCache(tmp_path).get("key", make)
    try:
        with open(tmp_path / "key.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        workers[0].close()


def test_a_compiler_error_leaves_no_entry(tmp_path):
    def failing(folder):
        (folder / "kernel.neff").write_text("half")
        raise RuntimeError("NCC_EVRF007")

    cache = CompileCache(tmp_path)
    with pytest.raises(RuntimeError, match="NCC_EVRF007"):
        cache.get("key", failing)
    assert (cache.get("key", whole) / "kernel.neff").read_text() == "whole"


@every("damage", ["changed", "removed", "added", "manifest"])
def test_a_damaged_entry_is_made_anew(tmp_path, damage):
    cache = CompileCache(tmp_path)
    entry = cache.get("key", whole)
    if damage == "changed":
        (entry / "kernel.neff").write_text("whale")
    elif damage == "removed":
        (entry / "kernel.neff").unlink()
    elif damage == "added":
        (entry / "other.neff").write_text("")
    else:
        (entry / "manifest.json").write_text("{")
    assert (cache.get("key", whole) / "kernel.neff").read_text() == "whole"
    assert cache.misses == 2


def test_a_compilation_that_writes_no_file_is_not_served(tmp_path):
    cache = CompileCache(tmp_path)
    cache.get("key", lambda folder: None)
    assert (cache.get("key", whole) / "kernel.neff").read_text() == "whole"


def test_the_folder_is_the_users_unless_told_otherwise(monkeypatch, tmp_path):
    monkeypatch.delenv("DIFFTEST_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "difftest"
    monkeypatch.setenv("DIFFTEST_CACHE_DIR", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
