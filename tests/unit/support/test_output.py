"""A command's output: to a stream of any encoding, to a disk that is full."""

import contextlib
import io
import resource
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.support.output import write_file
from tests.every import every

KERNEL = """
import nki


@nki.jit
def copy(x):
    return [size for size in x.shape]  # x → out, in tiles … of 128 rows
"""
RUN = "kernels.nki.softmax:softmax_rows --shape 64,8"


def set_up(tmp_path, monkeypatch):
    """A kernel in a folder of its own."""
    (tmp_path / "copied.py").write_text(KERNEL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@every(
    "command",
    [
        f"check {RUN} --memory",
        f"profile {RUN}",
        "lint --sdk 2.32 copied.py",
        "doctor",
        "api",
    ],
)
def test_a_stream_of_another_encoding_gets_utf_8(tmp_path, monkeypatch, command):
    set_up(tmp_path, monkeypatch)
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with contextlib.suppress(SystemExit):
        main.main(command.split(), prog_name="difftest", standalone_mode=False)
    sys.stdout.flush()
    text = written.getvalue().decode("utf-8")
    assert text
    draws = command.startswith(("check", "profile"))
    assert ("how full" in text) == ("\u2581" in text) == draws


@contextlib.contextmanager
def full_disk():
    """Files may not grow, not even for root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@every(
    "command",
    [
        f"check {RUN} --json {{}}",
        f"profile {RUN} --json {{}}",
        f"profile {RUN} --perfetto {{}}",
        f"trace {RUN} -o {{}}",
        "stubs {}",
        "init {}",
        "migrate copied.py -o {}",
    ],
)
def test_a_full_disk_is_one_line_and_no_file(tmp_path, monkeypatch, command):
    set_up(tmp_path, monkeypatch)
    here = set(tmp_path.rglob("*"))
    with full_disk():
        result = CliRunner().invoke(main, command.format("new").split())
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("Error: cannot write new")
    assert "Traceback" not in result.output
    left = {file for file in set(tmp_path.rglob("*")) - here if file.is_file()}
    assert not left


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path):
    file = tmp_path / "sub" / "file.txt"
    write_file(file, "before")
    file.chmod(0o754)
    with full_disk(), pytest.raises(OSError, match=r"file\.txt"):
        write_file(file, "after")
    assert {one.name: one.read_text() for one in file.parent.iterdir()} == {
        "file.txt": "before"
    }
    write_file(file, "after")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after", 0o754)


@every("command", [f"check {RUN}", f"profile {RUN}", "api", "--help"])
def test_a_full_standard_output_is_one_line(tmp_path, monkeypatch, capfd, command):
    set_up(tmp_path, monkeypatch)
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            main.main(command.split(), prog_name="difftest")
    assert ended.value.code == 1
    said = capfd.readouterr().err
    assert (
        said.splitlines()[-1]
        == "Error: cannot write the output: No space left on device"
    )
    assert "Traceback" not in said
