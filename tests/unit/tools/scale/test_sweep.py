"""A sweep from the command line to Parquet, ended and gone on with."""

import gc
import json
from dataclasses import replace

import click
import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.testing.drawing.reference_properties import ReferenceProperties
from difftest.tools.scale.axes import Axes, parse_axes, spec_at
from difftest.tools.scale.engine import PointJudge, SweepSetup, cases_of, judge_locally
from difftest.tools.scale.store import read_rows, write_rows
from difftest.tools.scale.sweep import TIMEOUT, sweep_spec
from tests.every import every
from tests.unit.tools.scale import sample
from tests.unit.tools.scale.sample import SPEC

TEST = f"{sample.__file__}::test_doubled"
AXES = Axes(parse_axes(["CHUNK=3,4", "dtype=float32,bfloat16", "columns=8,16"]), {})


def without_seconds(rows):
    return [
        {name: one for name, one in row.items() if name != "seconds"} for row in rows
    ]


def swept(file, axes=AXES, **settings):
    return sweep_spec(SPEC, SweepSetup(TEST, 2, TIMEOUT), axes, file, **settings)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    file = tmp_path_factory.mktemp("sweep") / "whole.parquet"
    swept(file)
    return read_rows(file)


def test_a_row_has_the_outcome_of_a_point(undisturbed):
    assert [(one["CHUNK"], one["dtype"], one["columns"]) for one in undisturbed] == [
        (chunk, dtype, columns)
        for chunk in (3, 4)
        for dtype in ("float32", "bfloat16")
        for columns in (8, 16)
    ]
    wrong = undisturbed[:4]
    right = undisturbed[4:]
    assert {one["outcome"] for one in wrong} == {"wrong_algorithm"}
    assert {one["predicted_us"] for one in wrong} == {None}
    assert {one["outcome"] for one in right} == {"agrees"}
    for one in right:
        assert (
            0 < one["bound_us"] < one["low_us"] < one["predicted_us"] < one["high_us"]
        )
        assert one["limited_by"] == "memory"
        case = json.loads(one["case"])
        assert case["values"]["columns"] == one["columns"]
        width = 4 if one["dtype"] == "float32" else 2
        assert (
            one["columns"] * width // 4 <= one["sbuf_bytes"] <= one["columns"] * width
        )
        assert (one["psum_bytes"], one["cases"], one["kernel"]) == (None, 2, "doubled")


def test_data_that_overflow_are_drawn_in_the_dtype_of_the_point(monkeypatch):
    spec = replace(SPEC, dtypes=("float32", "float16"))
    for dtype in spec.dtypes:
        one = spec_at(spec, {"dtype": dtype}).spec
        drawn = cases_of(one, PointJudge(spec, 1)._nature(one), 60)
        assert {case.dtype for case in drawn} == {dtype}


def test_an_ended_sweep_continues_where_it_was(tmp_path, monkeypatch, undisturbed):
    file = tmp_path / "out.parquet"
    asked = []

    def judged(self, point):
        asked.append(point)
        if len(asked) in (4, 7):
            raise KeyboardInterrupt
        return row(self, point)

    row = PointJudge.row
    monkeypatch.setattr(PointJudge, "row", judged)
    for known in (3, 5):
        with pytest.raises(KeyboardInterrupt):
            swept(file)
        gc.collect()  # the interrupt's traceback holds the journal, which one process has
        assert not file.exists()
        journal = file.with_name("out.parquet.jsonl")
        assert len(journal.read_bytes().splitlines()) == known
        with journal.open("ab") as torn:
            torn.write(journal.read_bytes()[:70])
    rows = swept(file)
    assert len(asked) == 8 + 2  # the interrupted points, once more
    assert (
        without_seconds(rows)
        == without_seconds(read_rows(file))
        == without_seconds(undisturbed)
    )
    assert [one.name for one in tmp_path.iterdir()] == ["out.parquet"]
    assert without_seconds(swept(file)) == without_seconds(undisturbed)
    assert len(asked) == 10


def test_a_kill_between_parquet_and_the_journal_loses_nothing(
    tmp_path, undisturbed, monkeypatch
):
    file = tmp_path / "out.parquet"
    monkeypatch.setattr("difftest.tools.scale.store.os.replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        swept(file)
    monkeypatch.undo()
    gc.collect()
    monkeypatch.setattr(PointJudge, "row", lambda *_: 1 / 0)
    assert without_seconds(swept(file)) == without_seconds(undisturbed)


@every(
    "column, told",
    [
        ("kernel_digest", "the kernel's files changed since then"),
        ("spec_digest", "the test, the reference or the domain changed since then"),
        ("versions", "the versions of what runs and judges it changed since then"),
    ],
)
def test_a_file_of_another_kernel_test_or_version_is_not_gone_on_with(
    tmp_path, undisturbed, column, told
):
    file = tmp_path / "out.parquet"
    write_rows(file, [{**one, column: "another"} for one in undisturbed], list(AXES[0]))
    before = file.read_bytes()
    with pytest.raises(click.UsageError, match=told):
        swept(file)
    assert file.read_bytes() == before


def test_a_grid_may_grow_and_not_lose_points(tmp_path, undisturbed, monkeypatch):
    file = tmp_path / "out.parquet"
    asked = []
    write_rows(file, undisturbed, list(AXES[0]))
    fewer = Axes(parse_axes(["CHUNK=3,4", "dtype=float32", "columns=8,16"]), {})
    with pytest.raises(click.UsageError, match="4 of its points are not among"):
        swept(file, fewer)
    row = PointJudge.row
    monkeypatch.setattr(
        PointJudge, "row", lambda self, at: asked.append(at) or row(self, at)
    )
    more = Axes(
        parse_axes(["CHUNK=3,4", "dtype=float32,bfloat16", "columns=8,16,24"]), {}
    )
    assert len(swept(file, more)) == 12
    assert {one["columns"] for one in asked} == {24}
    assert len(swept(file, fewer, fresh=True)) == 4


@every("name, text", [("a.parquet", b"notes"), ("a.parquet.jsonl", b"notes")])
def test_a_file_of_something_else_is_left_alone(tmp_path, name, text):
    (tmp_path / name).write_bytes(text)
    with pytest.raises(click.UsageError, match="a sweep"):
        swept(tmp_path / "a.parquet")
    assert (tmp_path / name).read_bytes() == text


def test_cases_are_the_same_each_time_and_none_is_there_twice():
    drawn = cases_of(SPEC, ReferenceProperties(), 6)
    assert [case.to_json() for case in drawn] == [
        case.to_json() for case in cases_of(SPEC, ReferenceProperties(), 6)
    ]
    assert len({case.to_json() for case in drawn}) == 6


@every(
    "point, outcome, told",
    [
        (
            {"columns": 8, "columns_at_once": 513},
            "refuses_promised",
            "at most 512 columns: got 513",
        ),
        ({"columns": 0}, "inconclusive", "no case can be drawn"),
        (
            {"columns": 65, "columns_at_once": 513},
            "inconclusive",
            "columns=65 is out of the domain",
        ),
        ({"columns": 8, "kernel": "classic"}, "agrees", ""),
    ],
)
def test_the_row_of_a_point_has_its_outcome_and_reason(point, outcome, told):
    row = PointJudge(SPEC, 2).row(point)
    assert (row["outcome"], told in row["reason"]) == (outcome, True), row


def test_a_call_that_takes_too_long_is_reported():
    def forever(x):
        while True:
            pass

    spec = replace(SPEC, kernel=forever, others=())
    ((_, row),) = judge_locally(spec, SweepSetup(TEST, 1, 0.2), [{}])
    assert row["outcome"] == "crashed"
    assert "ran for more than 0.2 s" in row["reason"]


def test_sweep_runs_each_point_on_each_machine(tmp_path):
    file = tmp_path / "out.parquet"
    words = ["sweep", TEST, "--over", "CHUNK=3,4", "--machines", "trn1,trn2", "-n", "0"]
    words += ["--case", '{"columns": 4, "rows": 4}', "-o", str(file), "--cases", "1"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    rows = read_rows(file)
    assert [(one["CHUNK"], one["machine"], one["columns"]) for one in rows] == [
        (3, "trn1", 4),
        (3, "trn2", 4),
        (4, "trn1", 4),
        (4, "trn2", 4),
    ]
    assert "4 points" in result.output


@every(
    "words, told",
    [
        ((), "no axis is given"),
        (("--over", "outcome=1"), "outcome is a column of each row"),
        (
            ("--over", "columns=1", "--sample", "some"),
            "'some' is not a valid integer range",
        ),
        (
            ("--over", "n=1", "--heat", "n,n", "heat.txt"),
            "its name ends in .png, .svg, .pdf",
        ),
    ],
)
def test_a_command_line_that_says_nothing_is_refused(tmp_path, words, told):
    result = CliRunner().invoke(
        main, ["sweep", TEST, *words, "-o", str(tmp_path / "a.parquet")]
    )
    assert result.exit_code == 2
    assert told in result.output


def test_a_name_of_another_form_is_refused_and_no_option_is_named_that_is_not_there(
    tmp_path,
):
    words = ["sweep", TEST, "--over", "columns=8", "-o", str(tmp_path / "a.csv")]
    assert (
        "its name ends in .parquet; got a.csv" in CliRunner().invoke(main, words).output
    )
    result = CliRunner().invoke(main, ["tune", TEST, "--case", "{}"])
    assert "no axis is given: pass --over NAME=VALUES\n" in result.output


def test_a_cluster_has_its_own_processes(tmp_path):
    words = ["sweep", TEST, "--over", "CHUNK=3", "-n", "2", "--scheduler", "tcp://a:1"]
    result = CliRunner().invoke(main, [*words, "-o", str(tmp_path / "a.parquet")])
    assert result.exit_code == 2
    assert "-n does not go with --scheduler" in result.output


def test_a_sweep_without_a_deciding_point_is_no_success(tmp_path):
    words = [
        "sweep",
        f"{sample.__file__}::test_nothing_decides",
        "--over",
        "columns=8",
        "-n",
        "0",
    ]
    result = CliRunner().invoke(
        main, [*words, "-o", str(tmp_path / "a.parquet"), "--cases", "1"]
    )
    assert result.exit_code == 1
    assert "weak_spec: columns=8: " in result.output, "one point has a name, too"
    assert "no point is decided" in result.output


def test_a_campaign_without_a_case_is_no_success():
    result = CliRunner().invoke(main, ["fuzz", TEST, "--minutes", "0.001"])
    assert result.exit_code == 1
    assert "no case has run" in result.output
