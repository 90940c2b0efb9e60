import click
from click.testing import CliRunner
from rich.console import Console

from difftest.cli import timing
from difftest.cli import timing as command
from difftest.cli.main import main
from difftest.timing.calibration import Judged
from difftest.timing.interval import Interval
from difftest.timing.measurements import grouped, measurements


def run(*arguments):
    return CliRunner().invoke(main, ["timing", "validate", *arguments], env={"COLUMNS": "200"})


def test_predicted_against_measured():
    result = run("-k", "vector_add_stream")
    assert result.exit_code == 0, result.output
    rows = [line for line in result.stdout.splitlines() if "vector_add_stream FREE_DIM" in line]
    assert len(rows) == 3 + 2 + 1  # profiles, benchmarks, a step from one to the other
    assert "us, predicted against measured" in result.stdout
    assert "median error of 3" in result.stdout
    assert "26.60" in result.stdout
    assert "Interval" in result.stdout
    assert "Calibration: " in result.stdout
    assert "Of 5 published latencies of kernels on trn2: median error " in result.stdout
    assert "vector-add-stream-256000-fd1k" in result.stdout


def test_errors_and_order_are_counted(capsys):
    """30 was measured as the slowest and is predicted as the fastest: of three pairs one holds."""
    known = (("a", 10.0, 11.0), ("b", 20.0, 30.0), ("c", 30.0, 9.0))
    judged = [Judged(*one, Interval(5.0, 25.0), 0.0) for one in known]
    timing._say(Console(width=200), "rows", judged)
    said = "Of 3 rows: median error 50.0%, 1 within 20%, 1 of 3 pairs in order."
    assert capsys.readouterr().out.startswith(said)


def test_the_probes_are_beside_all_kernels(monkeypatch):
    few = measurements()[:1]
    monkeypatch.setattr(command, "measurements", lambda: few)
    result = run()
    assert result.exit_code == 0, result.output
    assert "Trn1: published probes of single instructions" in result.stdout
    row = next(line for line in result.stdout.splitlines() if "float32 product of 512" in line)
    assert " no " in row
    assert "probes of trn1 from which no cost was taken: median error " in result.stdout
    assert "Each kernel with the scale that the others alone give" in result.stdout


def test_it_says_where_it_is_and_what_it_leaves_out():
    result = run("-k", "vector_add_")
    assert result.exit_code == 0, result.output
    rows = {one[0].run for one in grouped(measurements()) if "vector_add" in one[0].counterpart}
    lines = result.stderr.splitlines()
    assert lines[0] == "1/6 kernels.classic.vector_add:vector_add_stream 256000"
    assert lines[-1].startswith("6/6 ")
    assert len(rows) == 6  # one of them slow, one in a profile and in a picture
    assert "Left out: 1 slow ones, which --all has." in result.stdout


def test_slow_kernels_alone_are_named():
    result = run("-k", "matmul_hoisted")
    assert result.exit_code == 2
    assert "only slow ones, which --all has" in result.output


def test_a_kernel_that_was_not_measured():
    result = run("-k", "softmax")
    assert result.exit_code == 2
    assert "no measured kernel has 'softmax' in its name" in result.output


def test_a_narrow_terminal_cuts_no_word(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if it were a terminal
    monkeypatch.setenv("NO_COLOR", "1")
    arguments = ["timing", "validate", "-k", "transpose_by_tiles"]
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "60"})
    assert "\nMeasured kernel: " in result.output
    assert "Predicted: " in result.output
    assert max(map(len, click.unstyle(result.stdout).splitlines())) <= 60
