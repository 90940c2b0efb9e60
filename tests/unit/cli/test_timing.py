from dataclasses import replace

import click
import pytest
from click.testing import CliRunner

from difftest.cli import timing as command
from difftest.cli.main import main
from difftest.timing.calibration import CheckedPrediction, calibration, measurements
from difftest.timing.interval import Interval


def run(*arguments):
    return CliRunner().invoke(
        main, ["timing", "validate", *arguments], env={"COLUMNS": "200"}
    )


def test_timing_compares_predictions_with_measurements():
    result = run("-k", "vector_add_stream")
    assert result.exit_code == 0, result.output
    rows = [
        line
        for line in result.stdout.splitlines()
        if "vector_add_stream FREE_DIM" in line
    ]
    assert len(rows) == 3 + 2  # profiles, benchmarks
    assert "us, predicted against measured" in result.stdout
    assert "26.60" in result.stdout
    assert "Interval" in result.stdout
    row = next(
        line
        for line in result.stdout.splitlines()
        if "the same kernels, classic-p" in line
    )
    assert row.split("│")[2].strip() == "3"
    assert "vector-add-stream-256000-fd1k" in result.stdout


def test_errors_and_order_are_counted():
    """30 was measured as the slowest and is predicted as the fastest: of three pairs one holds."""
    known = (("a", 10.0, 11.0), ("b", 20.0, 30.0), ("c", 30.0, 9.0))
    judged = [CheckedPrediction(*one, Interval(5.0, 25.0), 0.0) for one in known]
    found = calibration(judged)
    assert (found.median_error, found.near, found.in_order, found.pairs) == (
        0.5,
        1,
        1,
        3,
    )
    assert found.rank == pytest.approx(-1 / 3)


def test_the_probes_are_beside_all_kernels(monkeypatch):
    few = measurements()[:1]
    monkeypatch.setattr(command, "measurements", lambda: few)
    result = run()
    assert result.exit_code == 0, result.output
    for name, count in (
        ("probes of trn1 whose cost is theirs", "27"),
        ("probes of trn1, oth", "7"),
    ):
        row = next(line for line in result.stdout.splitlines() if name in line)
        assert row.split("│")[2].strip() == count


def test_the_output_has_at_most_sixty_lines(monkeypatch):
    """The worst of many rows; the others are counted, and so are slow ones that are left out."""
    rows = [one for one in measurements() if "vector_add" in one.counterpart]
    many = [replace(rows[0], kernel=f"{n}", value_us=20.0 + n) for n in range(90)]
    monkeypatch.setattr(command, "measurements", lambda: [*rows, *many])
    result = run()
    assert result.exit_code == 0, result.output
    assert len(result.output.splitlines()) <= 60
    assert "84 others with --rows" in result.stdout
    assert "│ 89 " in result.stdout
    assert "Each kernel with the scale that the others alone give" in result.stdout
    assert "Left out: 1 slow ones, which --all has." in result.stdout
    assert len(run("--rows").stdout.splitlines()) > 100


def test_a_narrow_terminal_cuts_no_word(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if it were a terminal
    monkeypatch.setenv("NO_COLOR", "1")
    arguments = ["timing", "validate", "-k", "transpose_by_tiles"]
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "60"})
    assert "\nMeasured kernel: " in result.output
    assert "Predicted: " in result.output
    assert max(map(len, click.unstyle(result.stdout).splitlines())) <= 60
