"""Each file of tests falls to one Python at a commit, and to each within as many commits."""

from __future__ import annotations

import configparser
import fnmatch
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from tests.deal import PYTHONS, Deal, number_of_commit, pythons_here

ROOT = Path(__file__).parents[2]
FILES = [
    file.relative_to(ROOT).as_posix()
    for file in sorted(ROOT.glob("tests/**/test_*.py"))
]


def shares(pythons: list[str], commit: int) -> list[set[str]]:
    return [Deal(pythons, name, commit, FILES[::-1]).files for name in pythons]


@pytest.mark.parametrize("count", range(1, len(PYTHONS) + 1))
def test_each_file_falls_to_one_and_meets_all_in_turn(count):
    pythons = list(PYTHONS[-count:])
    deals = [shares(pythons, commit) for commit in range(7, 7 + count)]
    for dealt in (*deals, *zip(*deals, strict=True)):  # at one commit; to one Python
        assert Counter(file for share in dealt for file in share) == Counter(FILES)
    assert all(share & set(FILES[:count]) for share in deals[0])  # neighbours go apart


def test_a_file_left_out_on_one_python_runs_on_another(pytestconfig):
    house = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py"))

    def taken(own, deal=True, named="TESTPATHS"):
        config = SimpleNamespace(
            rootpath=ROOT,
            option=SimpleNamespace(deal=deal),
            args_source=SimpleNamespace(name=named),
            stash={
                house.DEALT: Deal(list(PYTHONS), own, number_of_commit(ROOT), FILES)
            },
        )
        return [
            file
            for file in FILES
            if not house.pytest_ignore_collect(ROOT / file, config)
        ]

    shares = [taken(name) for name in PYTHONS]
    assert Counter(file for share in shares for file in share) == Counter(FILES)
    assert {len(share) for share in shares} <= {
        len(FILES) // len(PYTHONS),
        len(FILES) // len(PYTHONS) + 1,
    }
    assert taken("3.12", deal=False) == taken("3.12", named="ARGS") == FILES


def test_a_clone_without_history_has_numbers_that_vary(tmp_path):
    def git(*words, at=tmp_path / "all"):
        options = ["-c", "user.name=a", "-c", "user.email=a@b", "-C", str(at)]
        subprocess.run(["git", *options, *words], check=True, capture_output=True)

    (tmp_path / "all").mkdir()
    git("init")
    numbers = []
    for name in "abc":
        git("commit", "--allow-empty", "-m", name)
        git(
            "clone",
            "--depth=1",
            (tmp_path / "all").as_uri(),
            str(tmp_path / name),
            at=tmp_path,
        )
        numbers.append(number_of_commit(tmp_path / name))
    assert number_of_commit(tmp_path / "all") == 3
    assert number_of_commit(tmp_path) == 0
    assert len(set(numbers)) == 3


def test_the_pythons_are_found_by_uv(tmp_path, monkeypatch):
    uv = tmp_path / "uv"
    uv.write_text(
        '#!/bin/sh\ncase "$*" in *only-system\\ 3.1[134]) exit 0;; esac\nexit 2\n'
    )
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert pythons_here() == ["3.11", "3.13", "3.14"]


def test_all_files_name_the_same_pythons():
    """Each is tested, promised, and looked for by CI."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    named = (
        one.rpartition(":: ")[2]
        for one in project["classifiers"]
        if ":: Python ::" in one
    )
    assert tuple(named) == PYTHONS
    assert project["requires-python"] == f">={PYTHONS[0]}"
    tox = configparser.RawConfigParser()
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    environments = [f"py{python.replace('.', '')}" for python in PYTHONS]
    assert tox["tox"]["env_list"].split(", ") == [
        *environments,
        "type",
        "lint",
        "package",
    ]
    labels = dict(
        line.split(" = ") for line in tox["tox"]["labels"].strip().splitlines()
    )
    assert labels["dealt"].split(", ") == environments
    nightly = [f"{environment}-nightly" for environment in environments]
    assert labels["nightly"].split(", ") == [*nightly, "docs"]
    minors = ",".join(python.partition(".")[2] for python in PYTHONS)
    assert f"testenv:py3{{{minors}}}-nightly" in tox
    (pattern,) = re.findall(r"versions/([^/]+)/bin", (ROOT / ".ci/run").read_text())
    for python in PYTHONS:
        assert fnmatch.fnmatchcase(f"{python}.7", pattern)
    for page in ("README.md", "CONTRIBUTING.md", "tests/README.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert re.findall(r"3\.\d\d to 3\.\d\d", text) == [
            f"{PYTHONS[0]} to {PYTHONS[-1]}"
        ], page
