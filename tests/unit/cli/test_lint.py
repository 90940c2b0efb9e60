"""`difftest lint`: files, formats, exit codes, comments, and news of a newer SDK."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.tools.lint.check import rules

WRONG = """import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    tile = nl.ndarray((nl.par_dim(128), 64), x.dtype, nl.sbuf){comment}
    nisa.dma_copy(dst=tile, src=x)
    return x
"""


def lint(*args):
    return CliRunner().invoke(main, ["lint", *map(str, args)])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(WRONG.format(comment=""))
    return path


def test_text_names_file_line_column_and_id(file):
    result = lint(file, "--sdk", "2.33")
    assert result.exit_code == 1
    assert result.stdout.startswith(
        f"{file}:8:24: NKU302 [*] nl.par_dim ended with NKI 0.3"
    )
    assert "1 finding, 1 denied; [*] 1 fixable with --fix\n" in result.stderr


def test_a_rule_that_is_not_denied_warns_and_exits_with_0(file):
    result = lint(file)
    assert result.exit_code == 0
    assert f"{file}:8:24: NKU302 [*] warning: nl.par_dim ended" in result.stdout
    assert "1 finding, 0 denied" in result.stderr
    assert lint(file, "--deny", "upgrade").exit_code == 1
    assert lint(file, "--sdk", "2.33", "--warn", "NKU302").exit_code == 0
    assert lint(file, "--sdk", "2.33", "--allow", "NKU302").stdout == ""


def test_a_project_names_its_sdk_and_levels(file, monkeypatch):
    project = file.parent / "pyproject.toml"
    project.write_text('[tool.difftest.lint]\nsdk = "2.33"\n')
    monkeypatch.chdir(file.parent)
    assert lint(file).exit_code == 1
    assert lint(file, "--sdk", "2.28").stdout == ""
    project.write_text('[tool.difftest.lint]\nsdk = "2.33"\nallow = ["upgrade"]\n')
    assert lint(file).stdout == ""
    project.write_text('[tool.difftest.lint]\nsdk = "0"\n')
    assert "sdk is one of" in lint(file).stderr


FIXED = WRONG.replace("nl.par_dim(128)", "128").format(comment="")


def test_a_safe_fix_is_written_or_shown(file):
    shown = lint(file, "--diff")
    assert shown.exit_code == 1
    assert "-    tile = nl.ndarray((nl.par_dim(128), 64)" in shown.stdout
    assert "+    tile = nl.ndarray((128, 64), x.dtype" in shown.stdout
    assert file.read_text() == WRONG.format(comment="")
    done = lint(file, "--fix")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "1 file fixed\nnothing found" in done.stderr
    assert file.read_text() == FIXED
    assert lint(file, "--diff").exit_code == 0


def test_an_unsafe_fix_needs_an_option(file):
    wrong = FIXED.replace("    return x", "    if x is not tile:\n        return x")
    file.write_bytes(wrong.replace("\n", "\r\n").encode())
    assert "1 more with --fix --unsafe-fixes" in lint(file, "--sdk", "2.32").stderr
    assert lint(file, "--sdk", "2.32", "--deny", "NKL106", "--fix").exit_code == 1
    fixed = lint(file, "--sdk", "2.32", "--deny", "NKL106", "--fix", "--unsafe-fixes")
    assert fixed.exit_code == 0
    assert (
        file.read_bytes()
        == wrong.replace("is not", "!=").replace("\n", "\r\n").encode()
    )


def test_a_byte_order_mark_is_no_part_of_a_file(file):
    """Editors on Windows write one, and Python reads over it."""
    file.write_text(file.read_text(), "utf-8-sig")
    assert f"{file}:8:24: NKU302" in lint(file).stdout
    assert lint(file, "--fix").exit_code == 0
    assert file.read_text() == FIXED


def test_a_form_feed_ends_no_line_of_a_diff(file):
    """It does in ``str.splitlines``, and git applies no such patch."""
    file.write_text(file.read_text().replace("\n\n@", "\n\f\n@"))
    assert " \f\n @nki.jit\n" in lint(file, "--diff").stdout


def test_from_and_to_show_the_changes_between_two_releases(file):
    assert lint(file, "--from", "2.28", "--to", "2.33").exit_code == 1
    assert lint(file, "--from", "2.29", "--to", "2.33").exit_code == 0


def test_a_comment_silences_one_place(file):
    file.write_text(
        WRONG.format(comment="  # difftest: ignore[NKU302] until we have 2.29")
    )
    assert lint(file).exit_code == 0


def test_a_comment_that_suppresses_nothing_is_reported(file):
    file.write_text(WRONG.format(comment="  # difftest: ignore[NKU302, NKU304] old"))
    result = lint(file, "--deny", "NKX001")
    assert result.exit_code == 1
    assert "NKX001 [*] ignore[NKU304]" in result.stdout


def test_json_has_a_row_for_each(file):
    [row] = json.loads(lint(file, "--format", "json").stdout)
    assert (row["id"], row["line"], row["column"], row["level"]) == (
        "NKU302",
        8,
        24,
        "warn",
    )
    [edit] = row["fix"]["edits"]
    assert (row["fix"]["safe"], edit["text"], edit["column"]) == (True, "128", 24)
    assert edit["end_column"] - edit["column"] == len("nl.par_dim(128)")


def test_the_problem_matcher_takes_a_line_of_text_apart(file):
    how_to = Path(__file__).parents[3] / "docs" / "how-to"
    [matcher] = json.loads((how_to / "lint-problem-matcher.json").read_text())[
        "problemMatcher"
    ]
    [pattern] = matcher["pattern"]
    parts = re.fullmatch(pattern["regexp"], lint(file).stdout.rstrip("\n"))
    said = [parts[pattern[one]] for one in ("file", "line", "column", "code")]
    assert said == [str(file), "8", "24", "NKU302"]
    assert "nl.par_dim ended" in parts[pattern["message"]]
    assert json.dumps(pattern["regexp"]) in (how_to / "editor.md").read_text()


def test_the_hook_of_pre_commit_calls_the_command():
    hooks = (Path(__file__).parents[3] / ".pre-commit-hooks.yaml").read_text()
    assert "- id: difftest-lint\n" in hooks
    [entry] = re.findall(r"  entry: difftest (.+)\n", hooks)
    assert entry in main.list_commands(None)


def test_github_shows_it_at_the_line(file):
    [row] = lint(file, "--format", "github").stdout.splitlines()
    assert row.startswith(
        f"::warning file={file},line=8,col=24,endLine=8,title=NKU302::"
    )


def test_sarif_declares_every_rule_and_keeps_its_fingerprint_when_lines_move(file):
    def log():
        return json.loads(lint(file, "--format", "sarif").stdout)["runs"][0]

    first = log()
    file.write_text("\n\n" + file.read_text())
    second = log()
    precisions = {
        one["properties"]["precision"] for one in first["tool"]["driver"]["rules"]
    }
    assert precisions <= {"very-high", "high", "medium"}  # what GitHub knows
    declared = [one["id"] for one in first["tool"]["driver"]["rules"]]
    [before], [after] = first["results"], second["results"]
    assert declared == list(rules())
    assert declared[before["ruleIndex"]] == before["ruleId"] == "NKU302"
    assert before["partialFingerprints"] == after["partialFingerprints"]
    line = after["locations"][0]["physicalLocation"]["region"]["startLine"]
    assert line == 10


SHAPES = {  # of SARIF 2.1.0: required properties, and further properties that we use
    "log": ({"version", "runs"}, {"$schema"}),
    "run": ({"tool"}, {"results", "columnKind"}),
    "driver": ({"name"}, {"rules"}),
    "rule": (
        {"id"},
        {
            "shortDescription",
            "fullDescription",
            "help",
            "defaultConfiguration",
            "properties",
        },
    ),
    "result": (
        {"message"},
        {
            "ruleId",
            "ruleIndex",
            "level",
            "locations",
            "partialFingerprints",
            "fixes",
        },
    ),
    "fix": ({"artifactChanges"}, {"description", "properties"}),
    "change": ({"artifactLocation", "replacements"}, set()),
    "replacement": ({"deletedRegion"}, {"insertedContent"}),
    "region": (set(), {"startLine", "startColumn", "endLine", "endColumn"}),
}


def test_sarif_has_the_properties_of_its_schema_and_no_other(file):
    def check(kind, value):
        required, optional = SHAPES[kind]
        assert required <= set(value) <= required | optional
        return value

    log = check("log", json.loads(lint(file, "--format", "sarif").stdout))
    [run] = [check("run", one) for one in log["runs"]]
    for one in check("driver", run["tool"]["driver"])["rules"]:
        check("rule", one)
        assert set(one["help"]) == {"text", "markdown"}
        assert one["defaultConfiguration"]["level"] in (
            "none",
            "note",
            "warning",
            "error",
        )
    [result] = [check("result", one) for one in run["results"]]
    [fix] = [check("fix", one) for one in result["fixes"]]
    [change] = [check("change", one) for one in fix["artifactChanges"]]
    [replacement] = [check("replacement", one) for one in change["replacements"]]
    for place in (result["locations"][0]["physicalLocation"], change):
        assert place["artifactLocation"] == {"uri": str(file)}
    check("region", replacement["deletedRegion"])
    assert replacement["insertedContent"] == {"text": "128"}


def test_two_findings_with_one_text_have_two_fingerprints(file):
    line = "    tile = nl.ndarray((nl.par_dim(128), 64), x.dtype, nl.sbuf)\n"
    file.write_text(file.read_text().replace(line, line * 2))
    results = json.loads(lint(file, "--format", "sarif").stdout)["runs"][0]["results"]
    assert (
        len({one["partialFingerprints"]["kernel/v1"] for one in results})
        == len(results)
        == 2
    )


def test_a_file_that_is_no_python_is_reported_and_the_others_are_read(file, tmp_path):
    other = tmp_path / "broken.py"
    other.write_text("def kernel(:\n")
    # like a renamed folder: nothing is read, which is an error
    (tmp_path / "empty").mkdir()
    result = lint(tmp_path, tmp_path / "empty")
    assert result.exit_code == lint(tmp_path / "empty").exit_code == 2
    assert "broken.py: cannot be read" in result.stderr
    assert "nothing found" not in lint(other).stderr
    assert "empty has no Python file" in result.stderr
    assert "NKU302" in result.stdout


def test_a_folder_is_read_without_environments_and_hidden_folders(file, tmp_path):
    """Else ``--fix .`` and `migrate` rewrite packages; a folder of another Python ends in a 2."""
    for name in (".git", "env"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "old.py").write_text(file.read_text())
    (tmp_path / "env" / "pyvenv.cfg").touch()
    assert "1 finding, " in lint(tmp_path).stderr
    assert "1 finding, " in lint(tmp_path / "env").stderr, "what is named is read"
    CliRunner().invoke(
        main, ["migrate", str(tmp_path), "-o", str(new := tmp_path / "new")]
    )
    assert list(new.rglob("*")) == [new / "kernel.py"]


def test_a_rule_that_breaks_is_reported_and_the_others_run(file, monkeypatch):
    def broken(node, at):
        raise AttributeError("no args")

    monkeypatch.setitem(rules(), "NKL102", replace(rules()["NKL102"], check=broken))
    result = lint(file, "--sdk", "2.32")
    assert result.exit_code == 2
    assert "the rule NKL102 on" in result.stderr
    assert "crashed at test_lint.py" in result.stderr
    assert "NKU302" in result.stdout


def test_a_rule_is_explained():
    result = lint("--explain", "NKU302")
    assert result.exit_code == 0
    assert result.stdout == rules()["NKU302"].page


@pytest.mark.parametrize(
    ("args", "said"),
    [(["--explain", "NKZ999"], "'NKZ999' is not one of"), ([], "name a file")],
)
def test_invalid_options_are_usage_errors(args, said):
    result = lint(*args)
    assert result.exit_code == 2
    assert said in result.stderr


TRANSPOSE = """import nki
import nki.isa as nisa
import nki.language as nl


def turned(tile):
    result = nl.ndarray((64, 128), tile.dtype, nl.psum)
    nisa.nc_transpose(result, tile)
    return result


@nki.jit
def kernel(x):
    out = nl.ndarray((64, 128), x.dtype, nl.shared_hbm)
    tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    result = nl.ndarray((64, 128), x.dtype, nl.sbuf)
    nisa.tensor_copy(dst=result, src=turned(tile))
    nisa.dma_copy(dst=out, src=result)
    return out
"""


@pytest.fixture
def transpose(tmp_path):
    path = tmp_path / f"{tmp_path.name}.py"  # modules of one name are one module
    path.write_text(TRANSPOSE)
    return path


def traced(file, *args):
    return lint(
        "--kernel", f"{file}:kernel", "--shape", "128,64", "--dtype", "bfloat16", *args
    )


def test_the_run_of_a_kernel_is_read_with_the_line_of_the_call(transpose):
    result = traced(transpose, "--target", "trn1")
    assert result.exit_code == 1
    assert result.stdout.startswith(
        f"{transpose}:8:1: NKI505 nc_transpose writes bfloat16"
    )
    assert f"called at {transpose}:18" in result.stdout
    assert traced(transpose, "--target", "trn2").exit_code == 0


def test_a_kernel_with_collectives_runs_on_ranks(tmp_path):
    page = rules()["NKI511"].page
    file = tmp_path / f"{tmp_path.name}.py"
    file.write_text(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1])
    args = (
        "--kernel",
        f"{file}:kernel",
        "--shape",
        "128,64",
        "--ranks",
        "2",
        "--select",
        "NKI511",
    )
    assert lint(*args, "--target", "trn1").stdout.startswith(
        f"{file}:14:1: NKI511 all_reduce has"
    )
    assert lint(*args, "--target", "trn2").stdout == ""


@pytest.mark.parametrize("at", ["nc_transpose(result, tile)", "src=turned(tile))"])
def test_a_comment_silences_a_rule_of_traces_at_its_line_and_at_its_call(transpose, at):
    text = TRANSPOSE.replace(at, f"{at}  # difftest: ignore[NKI505] for trn2")
    transpose.write_text(text)
    assert traced(transpose, "--target", "trn1").exit_code == 0
    assert lint(transpose).exit_code == 0


def test_all_rules_are_listed():
    result = lint("--rules")
    assert result.exit_code == 0
    assert all(f"[{id}]" in result.stdout for id in rules())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("nl.store(out, nl.load(x))", "[*] 1 fixable with --fix"),
        (
            "nl.store(out, nl.load(x), mask=x.shape[0] % 2 == 0)",
            "1 more with --fix --unsafe-fixes",
        ),
    ],
)
def test_an_upgrade_names_the_changes_that_migrate_makes(tmp_path, body, said):
    path = tmp_path / "classic.py"
    head = "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n\n\n@nki.jit\n"
    made = "    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
    path.write_text(f"{head}def kernel(x):\n{made}    {body}\n    return out\n")
    result = lint(path, "--from", "2.27")
    assert result.exit_code == 1
    assert said in result.stderr
