"""The files that GitHub, pre-commit and package indexes read agree with pyproject.toml and tox."""

from __future__ import annotations

import configparser
import re
import sys
from pathlib import Path

import pytest
import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = ("unsupported", "wrong-result")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def of_yaml(file: Path):
    return yaml.safe_load(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def project():
    return tomllib.loads(text_of("pyproject.toml"))["project"]


@pytest.fixture(scope="module")
def tox():
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "tox.ini", encoding="utf-8")
    return settings


def jobs_with_matrix(key: str):
    """The lists of values of a matrix, by workflow."""
    for file in WORKFLOWS:
        for job in of_yaml(file)["jobs"].values():
            values = job.get("strategy", {}).get("matrix", {}).get(key)
            if values:
                yield file.stem, values


def test_each_action_is_pinned_to_one_commit_with_its_version():
    assert [file.stem for file in WORKFLOWS] == ["docs", "nightly", "release", "test"]
    used = re.findall(
        r"uses: ([^\s.]\S+)(.*)", "".join(file.read_text() for file in WORKFLOWS)
    )
    assert len(used) > 10
    pinned = re.compile(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [each for each in map("".join, used) if not pinned.fullmatch(each)] == []
    commits = {action.partition("@")[0]: set() for action, _ in used}
    for action, _ in used:
        commits[action.partition("@")[0]].add(action)
    assert {name: len(each) for name, each in commits.items() if len(each) > 1} == {}


def test_the_workflows_run_each_python_of_the_package(project, tox):
    name = "Programming Language :: Python :: "
    pythons = [
        each.removeprefix(name)
        for each in project["classifiers"]
        if each.startswith(name)
    ]
    assert dict(jobs_with_matrix("python")) == {"test": pythons, "nightly": pythons}
    environments = [f"py{version.replace('.', '')}" for version in pythons]
    (checks,) = (values for _, values in jobs_with_matrix("environment"))
    listed = tox["tox"]["env_list"].split(", ")
    assert sorted(listed) == sorted([*environments, *checks])


def test_each_workflow_is_held_to_its_schema(tox):
    commands = tox["testenv:lint"]["commands"]
    checked = re.findall(r"\.github/workflows/(\w+)\.yml", commands)
    assert checked == [file.stem for file in WORKFLOWS]
    forms = re.findall(r"ISSUE_TEMPLATE/([\w-]+)\.yml", commands)
    assert sorted(forms) == sorted([*FORMS, "config"])


def test_tools_have_one_version(project, tox):
    of_lint = tox["testenv:lint"]["deps"].split("\n")
    for name in ("ruff", "codespell"):
        (wanted,) = (
            each for each in project["optional-dependencies"]["lint"] if name in each
        )
        (of_tox,) = (each for each in of_lint if each.startswith(name))
        assert of_tox.replace("[toml]", "") == wanted
        of_hooks = {
            each
            for repository in of_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
            for hook in repository["hooks"]
            for each in hook.get("additional_dependencies", ())
            if name in each
        }
        assert of_hooks == {of_tox}


def test_the_citation_has_the_version_and_the_license_of_the_package(project):
    cited = of_yaml(ROOT / "CITATION.cff")
    assert cited["version"] == project["version"]
    assert cited["license"] == project["license"]
    assert [each["name"] for each in cited["authors"]] == [
        each["name"] for each in project["authors"]
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_asks_for_the_environment_and_the_case(form):
    fields = {
        field.get("id"): field
        for field in of_yaml(ROOT / ".github" / "ISSUE_TEMPLATE" / f"{form}.yml")[
            "body"
        ]
    }
    assert "difftest doctor" in fields["doctor"]["attributes"]["label"]
    assert "--case" in fields["case"]["attributes"]["description"]
    assert all(fields[name]["validations"]["required"] for name in ("doctor", "case"))
