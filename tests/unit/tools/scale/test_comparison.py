import random

import click
import numpy as np
import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.tools.scale.store import COLUMNS, write_rows
from difftest.tools.scale.sweep import comparison, heat_map, print_rows, shifts
from tests.every import every
from tests.unit.saved_figures import saved_figures
from tests.unit.tools.scale.sample import SPEC
from tests.unit.tools.scale.test_sweep import TEST

AXES = ["n", "dtype"]


def row(n, dtype, predicted, outcome="agrees"):
    known = {
        "outcome": outcome,
        "predicted_us": predicted,
        "reason": "why",
        "limited_by": "memory",
    }
    times = {"low_us": predicted, "high_us": predicted, "bound_us": predicted}
    empty = dict.fromkeys(COLUMNS)
    return {
        **empty,
        "findings": [],
        **known,
        **times,
        "n": n,
        "dtype": dtype,
        "key": f"{n}{dtype}",
    }


OLD = [row(n, dtype, 10.0 + n) for n in range(12) for dtype in ("float32", "float16")]


FEW = OLD[:16]
"""Eight of each dtype: to rank twelve, SciPy goes through 4,096 orders."""


def changed(factor, old=OLD):
    return [{**one, "predicted_us": one["predicted_us"] * factor(one)} for one in old]


def test_a_slowdown_everywhere_or_in_one_dtype_is_reported():
    slower = changed(lambda one: 1.01, FEW)
    lines, fails = comparison(FEW, slower, AXES)
    assert not fails
    assert lines[0] == "16 points are in both: 0 newly fail, 0 newly agree"
    assert any(line.startswith("slower: all points: 1.010 times") for line in lines)
    one = changed(lambda one: 0.8 if one["dtype"] == "float16" else 1.0, FEW)
    told = "\n".join(comparison(FEW, one, AXES)[0])
    assert "faster: dtype=float16: 0.800 times, median of 8, 8 changed" in told
    assert "dtype=float32" not in told


def test_points_that_scatter_both_ways_are_no_shift():
    rng = random.Random(0)
    lines, _ = comparison(OLD, changed(lambda one: rng.uniform(0.98, 1.02)), AXES)
    assert lines[1] == "no shift of the predicted latencies is sure; 24 points changed"
    assert comparison(OLD, OLD, AXES)[0][1:] == [
        "no shift of the predicted latencies is sure; 0 points changed"
    ]


def test_many_tests_make_a_chance_larger():
    pairs = list(
        zip(FEW, changed(lambda one: 1.1 if one["n"] < 5 else 0.999, FEW), strict=True)
    )
    ((_, alone),) = shifts(pairs, []).values()
    by_group = shifts(pairs, AXES)
    assert by_group["all points"][1] > alone
    assert "n=3" not in by_group  # two points only


def test_a_new_failure_is_reported_and_an_old_one_is_not():
    old = [*OLD[:-1], row(11, "float16", None, "refused")]
    new = [row(0, "float32", None, "wrong_algorithm"), *old[1:]]
    lines, fails = comparison(old, new, AXES)
    assert fails
    assert lines[:2] == [
        "24 points are in both: 1 newly fail, 0 newly agree",
        "newly wrong_algorithm: n=0, dtype=float32: why",
    ]
    assert comparison(new, old, AXES)[1] is False


def test_sweeps_without_a_common_point_are_refused():
    with pytest.raises(click.UsageError, match="no point in common"):
        comparison(OLD, [row(99, "float32", 1.0)], AXES)


def test_the_table_and_the_picture(tmp_path, capsys, monkeypatch):
    rows = [*OLD, row(99, "float32", None, "refused")]
    print_rows(rows, AXES)
    told = capsys.readouterr().out
    assert told.startswith("25 points; agrees: 24, refused: 1\n")
    assert "The fastest 20 of 24, as predicted" in told
    assert "10.0 (10.0, 10.0)" in told
    assert told.endswith("refused: n=99, dtype=float32: why\n")
    figures = saved_figures(monkeypatch)
    heat_map(
        [*rows, row(3, "float16", 15.0, "wrong_algorithm")],
        "dtype",
        "n",
        tmp_path / "h.svg",
    )
    (axis,) = figures.pop().axes
    texts = {text.get_position(): text.get_text() for text in axis.texts}
    times = {(x, n): f"{10 + n}" for n in range(12) for x in (0, 1)}
    assert texts == {**times, (1, 3): "14\n1 wrong", (0, 12): "1 wrong"}
    assert [label.get_text() for label in axis.get_xticklabels()] == [
        "float32",
        "float16",
    ]
    assert [label.get_text() for label in axis.get_yticklabels()] == [
        *map(str, range(12)),
        "99",
    ]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("dtype", "n")
    (image,) = axis.images
    bright = np.mean(image.cmap(image.norm(image.get_array()))[..., :3], axis=-1)
    assert np.all(np.diff(bright[:12, 0]) < 0)  # slower is darker
    white = [text.get_position() for text in axis.texts if text.get_color() == "white"]
    dark = sorted(bright[y, x] for x, y in white)
    assert 0 < len(dark) < 24
    assert sorted(bright[:12].ravel())[: len(dark)] == dark  # white text can be read


@pytest.fixture
def swept_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "difftest.tools.scale.sweep.with_spec", lambda test, use: use(SPEC)
    )

    def run(*words):
        words = ["sweep", TEST, "-o", "out.parquet", "-n", "0", "--cases", "1", *words]
        return CliRunner().invoke(main, words)

    return run


def test_the_command_fails_where_a_point_newly_fails(swept_command, tmp_path):
    axes = ["--over", "CHUNK=3,4", "--over", "columns=8"]
    result = swept_command(*axes, "--heat", "CHUNK,columns", "heat.png")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "heat.png").stat().st_size > 1000
    rows = [
        {**row(8, "float32", 1.0), "CHUNK": chunk, "columns": 8} for chunk in (3, 4)
    ]
    write_rows(tmp_path / "old.parquet", rows, ["CHUNK", "columns"])
    result = swept_command(*axes, "--compare", "old.parquet")
    assert result.exit_code == 1
    assert "newly wrong_algorithm: CHUNK=3:" in result.output


@every(
    "words, told",
    [
        (
            ("--over", "columns=1", "--heat", "columns,rows", "h.png"),
            "two names of --over (columns); got columns,rows",
        ),
        (
            ("--over", "columns=1", "--compare", "nowhere.parquet"),
            "holds no results of a sweep",
        ),
    ],
)
def test_an_invalid_output_option_is_rejected_before_the_run(
    swept_command, words, told
):
    result = swept_command(*words)
    assert result.exit_code == 2
    assert told in result.output


def test_a_picture_without_its_library_is_refused_before_anything_runs(
    swept_command, monkeypatch
):
    monkeypatch.setattr("difftest.support.choices.find_spec", lambda name: None)
    axes = ("--over", "CHUNK=3,4", "--over", "columns=8")
    result = swept_command(*axes, "--heat", "CHUNK,columns", "heat.png")
    assert result.exit_code == 2
    assert (
        "--heat needs matplotlib: pip install '/path/to/nki-difftest[plot]'"
        in result.output
    )
