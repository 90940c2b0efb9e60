"""What the README shows is what happens: its kernel, its test, and the failure it prints."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(?:python)?\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def block(start: str) -> str:
    """The one code block of the README that begins so."""
    (found,) = (text for text in BLOCKS if text.lstrip().startswith(start))
    return found


@pytest.fixture
def repository(pytester, monkeypatch):
    """The repository that the README describes."""
    monkeypatch.delenv("CI", raising=False)
    pytester.makepyfile(scale=block("import nki\n"), test_scale=block("import numpy as np"))
    return pytester


def test_the_example_passes(repository):
    result = repository.runpytest_subprocess("--simulate", "--hypothesis-seed=1")
    result.assert_outcomes(passed=2)  # drawn, edges


def test_the_example_in_the_classic_dialect_passes(repository):
    (repository.path / "scale.py").write_text(block("import neuronxcc.nki as nki"))
    result = repository.runpytest_subprocess("--simulate", "--hypothesis-seed=1")
    result.assert_outcomes(passed=2)  # drawn, edges


def test_the_broken_example_fails_as_shown(repository):
    kernel = repository.path / "scale.py"
    source = kernel.read_text()
    right, wrong = "src=x[first : first + count, :]", "src=x[0:count, :]"
    assert right in source
    assert wrong in README
    kernel.write_text(source.replace(right, wrong))
    result = repository.runpytest_subprocess("--simulate", "--hypothesis-seed=1")
    result.assert_outcomes(failed=1, passed=1)  # a wrong second block fills no memory
    shown = block("scale_rows disagrees with its reference").splitlines()
    said = [line.removeprefix("E").strip() for line in result.outlines]
    assert [line for line in shown if line.strip() not in "\n".join(said)] == []
