import json
import xml.etree.ElementTree as ElementTree
from importlib import metadata

import pytest
from hypothesis.internal import observability

from difftest.testing.report.replay import replay_lines, rerun_saved
from difftest.testing.report.saved import read_saved
from tests.plugin.conftest import KERNEL, MORE


@pytest.fixture
def report(project):
    def run(*arguments):
        result = project.run("--difftest-report=out/report.json", *arguments)
        return result, json.loads(
            (project.pytester.path / "out/report.json").read_text()
        )

    return run


def test_the_report_has_the_tests_and_their_comparisons(project, report):
    project.add_test()
    result, document = report("--simulate=embedded", "--difftest-save=saved")
    assert result.ret == document["exit_code"] == 0
    assert not (project.pytester.path / "saved").exists(), "what passes is not saved"
    assert document["format"] == 7
    assert [one["name"] for one in document["backends"]] == ["embedded"]
    (kernel,) = document["kernels"]
    assert (kernel["kernel"], kernel["backend"]) == ("add", "embedded")
    assert kernel["elements"] > 0
    (test,) = document["tests"]
    assert (test["id"], test["outcome"]) == ("test_add.py::test_add", "passed")
    assert {"python", "numpy", "nki-difftest"} <= set(document["versions"])


def test_a_failure_has_its_case_its_text_and_its_place(project, report):
    """All that a page has but predictions; JUnit's report names the backend and the case."""
    project.add_test("subtract")
    result, document = report("--simulate=embedded", "--junit-xml=junit.xml")
    assert result.ret == document["exit_code"] == 1
    (test,) = document["tests"]
    assert test["outcome"] == "failed"
    assert test["case"]["values"] == {"m": 1, "n": 1}
    assert "subtract disagrees with its reference" in test["failure"]
    assert test["kernels"] == ["subtract"]
    assert "performance" not in test["details"]
    failure = test["details"]["failure"]
    assert failure["outputs"][0]["maps"][0]["rows"] == ["7"]
    (where,) = failure["where"]
    assert where["why"] == "dma_copy wrote output 0 at [0, 0] here, last"
    assert any(
        "op=nl.subtract" in text for n, text in where["lines"] if n == where["line"]
    )
    root = ElementTree.parse(project.pytester.path / "junit.xml").getroot()
    properties = {one.get("name"): one.get("value") for one in root.iter("property")}
    assert properties["difftest_backend_embedded"].startswith("the embedded simulator")
    assert json.loads(properties["difftest_case"]) == test["case"]
    assert json.loads(properties["difftest"])["rows"]
    case = json.dumps(test["case"])
    again = project.run("--simulate=embedded", "test_add.py::test_add", "--case", case)
    again.assert_outcomes(failed=1)


def test_without_a_report_no_versions_are_read(project, monkeypatch):
    """To read them takes a twentieth of the start: the standard library parses an e-mail."""
    read = []
    monkeypatch.setattr(metadata, "version", lambda name: read.append(name) or "1")
    project.add_test()
    assert project.run("--simulate=embedded").ret == 0
    assert "numpy" not in read
    assert project.run("--simulate=embedded", "--junit-xml=junit.xml").ret == 0
    assert "numpy" in read


def test_an_error_before_the_test_is_in_it(project, report):
    project.pytester.makepyfile(
        test_broken="import pytest\n@pytest.fixture\ndef x(): 1/0\ndef test_it(x): pass"
    )
    _, document = report()
    assert [one["outcome"] for one in document["tests"]] == ["setup failed"]


def test_a_file_that_cannot_be_written_is_reported_before_the_run(project):
    project.add_test()
    project.pytester.makefile("", there="")
    for place in (".", "there/report.json", ""):
        result = project.run(f"--difftest-report={place}", "--simulate=embedded")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["ERROR: --difftest-report: cannot write *: [FI]*"])
        assert "collected" not in result.stdout.str()


def test_uncollected_modules_are_named(project, report):
    project.add_test()
    _, document = report()
    assert document["not_collected"] == ["test_add.py"]
    assert document["backends"] == document["tests"] == []


def test_a_page_and_a_github_summary(project, monkeypatch):
    summary = project.pytester.path / "summary"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    # Drawn data may be zeros and ones, which show no pattern.
    project.add_test("subtract", 'examples=[{"m": 4, "n": 3}],')
    project.add_test(name="test_well")
    result = project.run("--simulate=embedded", "--difftest-report=page.html")
    result.assert_outcomes(failed=3, passed=1)
    page = (project.pytester.path / "page.html").read_text()
    for part in (
        "subtract disagrees with its reference",
        "Looks like: ",
        "Predicted timeline of",
        'class="map"',
        "nisa.dma_copy(src=nisa.tensor_tensor(",
        "test_well.py::test_add",
    ):
        assert part in page, part
    told = summary.read_text()
    assert told.startswith("before\n## Kernels")
    assert "| ❌ | subtract | embedded |" in told
    assert "| ✅ | add | embedded |" in told


def test_a_page_without_jinja_is_an_error_before_the_run(project, monkeypatch):
    monkeypatch.setattr("difftest.support.choices.find_spec", lambda name: None)
    project.add_test()
    result = project.run("--difftest-report=page.html", "--simulate=embedded")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --difftest-report: a page needs jinja2: pip install *"]
    )


def test_a_failure_is_saved_and_replayed(project):
    """With all that it needs: the file alone, elsewhere, does the same."""
    project.add_test("subtract")
    result = project.run(
        "--simulate=embedded", "--nki-level=0.5", "--difftest-save=out/of/it"
    )
    file = "out/of/it/failure_test_add_py_test_add.py"
    result.stdout.fnmatch_lines([f"*replay:      difftest replay {file}"])
    saved = read_saved(project.pytester.path / file)
    assert saved.test == "test_add:test_add"
    assert sorted(saved.modules) == ["kernel", "reference_add", "test_add"]
    assert saved.level == "0.5"
    for one in ("kernel", "reference_add", "test_add"):
        (project.pytester.path / f"{one}.py").unlink()
    told = []
    rerun_saved(saved, lambda made: told.extend(replay_lines(made)))
    assert "the reference disagrees first at instruction 3, dma_copy" in told


def test_a_call_at_the_edges_fails_as_any_other(project, report):
    """A call of a shape that a spec cannot express has a line, a saved file, and runs again."""
    project.pytester.makepyfile(
        kernel=KERNEL.replace(
            'len(a.shape) == 2, "add takes matrices"', "len(a.shape) == 2"
        ).replace("src=b,", "src=b[0 : a.shape[0], 0 : a.shape[1]],")
    )
    refused = 'rejects=[Rejection({"m": 129, "n": 2}, match="partition")]'
    project.add_test(more=refused, edges=True)
    _, document = report("--simulate=embedded", "--difftest-save=out")
    (failed,) = (one for one in document["tests"] if one["outcome"] == "failed")
    assert failed["message"] == "add: wrong shape at m=1, n=1, float32, b of (2, 1)"
    assert "case" not in failed
    failure = failed["details"]["failure"]
    assert ["b", "(2, 1) Random(seed=1, spread=0)"] in failure["rows"]
    assert (
        failure["again"] == "pytest --simulate=embedded 'test_add.py::test_add[edges]'"
    )
    assert failure["saved"] == "out/failure_test_add_py_test_add_edges.py"
    told = []
    saved = read_saved(project.pytester.path / failure["saved"])
    rerun_saved(saved, lambda made: told.extend(replay_lines(made)))
    assert "call:        b of shape (2, 1)" in told[0]
    again = project.run("--simulate=embedded", "test_add.py::test_add[edges]")
    again.assert_outcomes(failed=1)


def test_hypothesis_gets_the_features_of_cases(project, monkeypatch):
    """As Tyche reads it; without observability nothing is written."""
    monkeypatch.setenv("HYPOTHESIS_EXPERIMENTAL_OBSERVABILITY", "1")
    # two seconds
    monkeypatch.setattr(observability, "OBSERVABILITY_COLLECT_COVERAGE", False)
    project.add_test("subtract")
    seen = []
    with observability.with_observability_callback(seen.append):
        project.run("--simulate=embedded")
        monkeypatch.delenv("HYPOTHESIS_EXPERIMENTAL_OBSERVABILITY")
        silent = len(seen)
        project.run("--simulate=embedded")
    cases = [one for one in seen[:silent] if one.type == "test_case" and one.features]
    assert {one.status for one in cases} == {"passed", "failed"}
    for one in cases:
        assert {"m", "n", "dtype", "data of a", "data of b"} <= set(one.features)
        is_wrong = one.features["verdict on embedded"] == "Mismatch"
        assert is_wrong == (one.status == "failed")
    assert not any(one.features for one in seen[silent:] if one.type == "test_case")


def test_github_shows_a_failure_at_the_line_that_wrote_it(project, monkeypatch):
    """One annotation a bug, with the report; JUnit's file and other systems stay as they are."""
    project.add_test("subtract", MORE)
    assert "::error" not in project.run("--simulate=embedded").stdout.str()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.pytester.path))
    result = project.run("--simulate=embedded")
    (command,) = [line for line in result.outlines if line.startswith("::error")]
    line = (
        KERNEL.strip()
        .splitlines()
        .index(
            "    nisa.dma_copy(src=nisa.tensor_tensor(left, right, op=nl.subtract), dst=result)"
        )
    )
    title = "subtract disagrees with its reference"
    assert command.startswith(f"::error file=kernel.py,line={line + 1},title={title}::")
    assert "%0A  first wrong: out[0, 0]: got " in command


def test_github_shows_a_hazard_of_another_test_at_its_line(project, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.pytester.path))
    project.pytester.makepyfile(
        test_it="""
        import numpy as np
        from kernel import add

        def test_on_a_grid():
            x = np.ones((2, 8), np.float32)
            add[2](x, x)
        """
    )
    result = project.run("--simulate=embedded", "--difftest-strict")
    result.assert_outcomes(failed=1)
    (command,) = [line for line in result.outlines if line.startswith("::error")]
    assert command.startswith("::error file=kernel.py,line=")
    assert "program-id-ignored" in command
