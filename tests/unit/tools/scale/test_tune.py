"""The tuner, on a kernel with a given time, and on this project's own kernels by name."""

import gc
import json
import warnings
from dataclasses import replace

import click
import pytest
from click.testing import CliRunner
from optuna.exceptions import StorageInternalError

from difftest.cli.main import main
from difftest.tools.scale import tune
from difftest.tools.scale.axes import Axes, parse_axes
from difftest.tools.scale.tune import (
    AGREES,
    BOUND,
    SLOWER,
    TRACE_BOUND,
    Tuner,
    run_tuner,
)
from tests.every import every
from tests.unit.tools.scale.sample import SPEC
from tests.unit.tools.scale.test_sweep import TEST

CASE = {"columns": 64, "rows": 64}
SIZES = "columns_at_once=1,2,3,4,8,16,64,600"


def tuner_of(*texts, **case):
    return Tuner(SPEC, Axes(parse_axes(texts), {**CASE, **case}), cases=2)


@pytest.fixture(scope="module")
def searched():
    tuner = tuner_of(SIZES)
    return tuner, list(run_tuner(tuner, {}, 8, exhaustive=True))


def test_the_largest_tile_is_found_from_the_smallest(searched):
    tuner, lines = searched
    best = tuner.ladder[-1]
    assert best.point == {"columns_at_once": 64}
    assert tuner.ladder[0].point == {"columns_at_once": 1}
    times = [one.latency_us for one in tuner.ladder]
    assert times == sorted(times, reverse=True)
    assert best.low_us < best.latency_us < best.high_us
    told = "\n".join(lines)
    assert "8 of 8 points looked at; all times are predicted" in told
    assert "  1 refused" in told
    assert "best: columns_at_once=64" in told
    assert "the kernel's own sizes: columns_at_once=512" in told
    assert told.endswith("place 1 of 7 points that have a time (predicted)")


def test_each_point_is_looked_at_once_and_the_slow_ones_are_not_judged(
    searched, monkeypatch
):
    tuner, _ = searched
    points = [one.point["columns_at_once"] for one in tuner.attempts]
    assert sorted(points) == [1, 2, 3, 4, 8, 16, 64, 600]
    judged, again = [], tuner_of(SIZES)
    monkeypatch.setattr(
        Tuner, "judged", lambda self, one: judged.append(one.point) or one
    )
    for point in ({"columns_at_once": n} for n in (8, 2, 16, 4)):
        again.attempt(point)
    assert judged == [{"columns_at_once": 8}, {"columns_at_once": 16}]
    assert [one.status for one in again.attempts] == [AGREES, SLOWER, AGREES, SLOWER]


def test_a_fast_wrong_kernel_is_not_the_best():
    tuner = tuner_of("CHUNK=3,4", "columns_at_once=8,64")
    told = "\n".join(run_tuner(tuner, {}, 4))
    assert tuner.ladder[-1].point == {"CHUNK": 4, "columns_at_once": 64}
    assert "wrong algorithm" in told
    assert "the kernel's own sizes" not in told  # CHUNK is a constant


def test_sizes_of_the_kernel_that_are_fast_and_wrong_have_no_time(monkeypatch):
    wrong = {"status": "wrong_algorithm", "reason": "planted"}
    judged = Tuner.judged

    def judge(tuner, one):
        return (
            replace(one, **wrong)
            if one.point["columns_at_once"] == 512
            else judged(tuner, one)
        )

    monkeypatch.setattr(Tuner, "judged", judge)
    told = list(run_tuner(tuner_of("columns_at_once=8,16"), {}, 2))
    assert told[-2:] == [
        "the kernel's own sizes: columns_at_once=512",
        "  wrong_algorithm: planted",
    ]


def test_a_point_below_whose_bound_the_best_is_costs_no_run(monkeypatch):
    tuner = tuner_of("dtype=bfloat16,float32")
    tuner.attempt({"dtype": "bfloat16"})
    best = tuner.ladder[-1]
    monkeypatch.setattr(tune, "predict", lambda *_, **__: 1 / 0)
    bounds = iter((best.own_us, 0.0))
    monkeypatch.setattr(Tuner, "_task_bound", lambda *_: next(bounds))
    line = tune.bounds_of
    large = best.own_us + 1
    monkeypatch.setattr(
        tune, "bounds_of", lambda it: line(it)._replace(memory_bound=large)
    )
    trace_bound = tuner.timed({"dtype": "float32"}, best.own_us)
    assert (trace_bound.status, trace_bound.own_us) == (BOUND, best.own_us)
    assert tuner.timed({"dtype": "float32"}, best.own_us).status == TRACE_BOUND


def test_the_bound_without_a_run_follows_from_the_traffic():
    tuner = tuner_of("dtype=bfloat16,float32", machine="trn1")
    narrow, wide = (
        tuner._task_bound(*of(tuner, dtype)) for dtype in ("bfloat16", "float32")
    )
    assert wide == pytest.approx(2 * narrow)
    attempt = tuner.timed({"dtype": "float32"})
    assert 0 < wide < attempt.own_us


def of(tuner, dtype):
    place, case = tuner._place({"dtype": dtype})
    return place.spec, case


def test_a_large_grid_is_searched_in_part():
    tuner = tuner_of("columns_at_once=1..64:1")
    told = list(run_tuner(tuner, {"columns_at_once": 3}, 12))
    assert told[0].startswith("12 of 64 points looked at")
    assert tuner.attempts[0].point == {"columns_at_once": 3}
    assert len({one.point["columns_at_once"] for one in tuner.attempts}) == 12
    assert tuner.ladder[-1].point["columns_at_once"] >= 32


@every(
    "axis, case, start, told",
    [
        (SIZES, {"columns": 4}, {}, "give --case a value for rows"),
        (SIZES, CASE, {"columns_at_once": 5}, "the axis has 1, 2, 3, 4"),
        ("nothing=1,2", CASE, {}, "not a name of the domain"),
    ],
)
def test_an_impossible_search_is_rejected(axis, case, start, told):
    tuner = Tuner(SPEC, Axes(parse_axes([axis]), case))
    with pytest.raises(click.UsageError, match=told):
        list(run_tuner(tuner, start, 2))


def test_a_storage_keeps_the_results_and_a_search_continues(tmp_path, monkeypatch):
    """After a stop within a point, too; kept points are neither timed nor judged again."""
    monkeypatch.setattr(
        "difftest.tools.scale.tune.with_spec", lambda test, use: use(SPEC)
    )
    words = ["tune", TEST, "--over", SIZES, "--case", json.dumps(CASE), "--cases", "1"]
    words += ["--storage", f"sqlite:///{tmp_path}/tune.db"]
    timed = Tuner.timed
    asked = []

    def stopping(tuner, point, *limit):
        asked.append(point["columns_at_once"])
        if len(asked) in (1, 5):
            raise KeyboardInterrupt
        return timed(tuner, point, *limit)

    monkeypatch.setattr(Tuner, "timed", stopping)
    stopped = CliRunner().invoke(main, words)
    assert stopped.stderr == "stopped: the same command goes on\n", (
        "0 points tell nothing"
    )
    stopped = CliRunner().invoke(main, [*words, "--trials", "8"])
    assert (stopped.exit_code, stopped.stdout) == (130, "")
    assert stopped.stderr.startswith(
        "3 of 8 points looked at; all times are predicted\n"
    )
    assert stopped.stderr.endswith(
        "nine times of ten\nstopped: the same command goes on\n"
    )
    result = CliRunner().invoke(main, [*words, "--trials", "8"])
    assert result.exit_code == 0, result.output
    assert "8 of 8 points looked at" in result.output
    assert "best: columns_at_once=64" in result.output
    first = asked[1:4]
    again = asked[5:]
    assert not set(first) & set(again)
    assert len(again) <= 6  # five points, and the kernel's own sizes
    wrong = CliRunner().invoke(main, [*words[:-1], "sqlite:////nowhere/at/all.db"])
    assert (wrong.exit_code, wrong.output.count("\n")) == (2, 4)
    assert "--storage: " in wrong.output.splitlines()[-1]

    def full(*_):
        raise StorageInternalError("no commit") from OSError("disk is full")

    monkeypatch.setattr("optuna.trial.Trial.set_user_attr", full)
    said = (
        CliRunner().invoke(main, [*words[:-1], f"sqlite:///{tmp_path}/full.db"]).output
    )
    assert said == "Error: --storage: disk is full; the same command goes on\n"
    with warnings.catch_warnings():
        # Optuna's connections end with a process
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_tune_prints_the_better_value_or_why_no_point_is_correct(monkeypatch):
    monkeypatch.setattr(
        "difftest.tools.scale.tune.with_spec", lambda test, use: use(SPEC)
    )
    words = [
        "tune",
        TEST,
        "--over",
        "columns_at_once=600,64,8",
        "--case",
        json.dumps(CASE),
    ]
    result = CliRunner().invoke(
        main, [*words, "--cases", "1", "--start", "columns_at_once=8"]
    )
    assert result.exit_code == 0, result.output
    assert "columns_at_once 8 -> 64" in result.output
    result = CliRunner().invoke(
        main, [*words[:2], "--over", "columns_at_once=600", *words[4:]]
    )
    assert result.exit_code == 1
    assert "no point is correct: refused: at most 512 columns: got 600" in result.output
