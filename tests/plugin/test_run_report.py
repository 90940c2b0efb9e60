import json
import xml.etree.ElementTree as ElementTree

import pytest


@pytest.fixture
def report(project):
    def run(*arguments):
        result = project.run("--difftest-report=out/report.json", *arguments)
        return result, json.loads((project.pytester.path / "out/report.json").read_text())

    return run


def test_what_ran_and_what_was_compared(project, report):
    project.add_test()
    result, document = report("--simulate=embedded")
    assert result.ret == document["exit_code"] == 0
    assert document["format"] == 2
    assert [one["name"] for one in document["backends"]] == ["embedded"]
    (kernel,) = document["kernels"]
    assert (kernel["kernel"], kernel["backend"]) == ("add", "embedded")
    assert kernel["elements"] > 0
    (test,) = document["tests"]
    assert (test["id"], test["outcome"]) == ("test_add.py::test_add", "passed")
    assert {"python", "numpy", "nki-difftest"} <= set(document["versions"])


def test_a_failure_has_its_case_and_its_text(project, report):
    project.add_test("subtract")
    result, document = report("--simulate=embedded")
    assert result.ret == document["exit_code"] == 1
    (test,) = document["tests"]
    assert test["outcome"] == "failed"
    assert test["case"]["values"] == {"m": 1, "n": 1}
    assert "subtract disagrees with its reference" in test["failure"]
    again = project.run(
        "--simulate=embedded", "test_add.py::test_add", "--case", json.dumps(test["case"])
    )
    again.assert_outcomes(failed=1)


def test_an_error_before_the_test_is_in_it(project, report):
    project.pytester.makepyfile(
        test_broken="import pytest\n@pytest.fixture\ndef x(): 1/0\ndef test_it(x): pass"
    )
    _, document = report()
    assert [one["outcome"] for one in document["tests"]] == ["setup failed"]


def test_a_place_that_cannot_be_written_is_told_before_the_run(project):
    project.add_test()
    project.pytester.makefile("", there="")
    for place in (".", "there/report.json", ""):
        result = project.run(f"--difftest-report={place}", "--simulate=embedded")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["ERROR: --difftest-report: *"])
        assert "collected" not in result.stdout.str()


def test_what_was_not_collected_is_named(project, report):
    project.add_test()
    _, document = report()
    assert document["not_collected"] == ["test_add.py"]
    assert document["backends"] == document["tests"] == []


def test_the_junit_report_names_backends_and_cases(project):
    project.add_test("subtract")
    project.run("--simulate=embedded", "--junit-xml=junit.xml")
    root = ElementTree.parse(project.pytester.path / "junit.xml").getroot()
    properties = {one.get("name"): one.get("value") for one in root.iter("property")}
    assert properties["difftest_backend_embedded"].startswith("the embedded simulator")
    assert json.loads(properties["difftest_case"])["dtype"] == "float32"
    assert json.loads(properties["difftest"])["rows"]
