"""The README's kernel and test run, and their failure is printed as shown."""

import html
import re
from pathlib import Path

import pytest

from difftest.testing.contract.recipes import RECIPES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```[a-z ]*\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PICTURES = ROOT / "docs" / "pictures"
PICTURE = (PICTURES / "failure.svg").read_text(encoding="utf-8")
STALE = "stale: python docs/pictures/make.py"
LINES = 115
"""A screen and a half, the pictures apart."""


def block(start: str) -> str:
    """The one code block of the README that begins so."""
    (code,) = (text for text in BLOCKS if text.lstrip().startswith(start))
    return code


def words(text: str) -> str:
    """A text without blanks, wherever its lines were broken."""
    return "".join(text.split())


@pytest.fixture
def repository(pytester, in_process, whole_profiles):
    """The repository that the README describes."""
    pytester.makepyfile(
        scale=block("import nki\n"), test_scale=block("import numpy as np")
    )
    return pytester


def test_the_example_passes(repository, in_process):
    result = in_process("--simulate", "--hypothesis-seed=2")
    result.assert_outcomes(passed=2)  # drawn, edges


def test_the_broken_example_fails_as_shown(repository, in_process):
    kernel = repository.path / "scale.py"
    source = kernel.read_text()
    right = "src=x[first : first + count, :]"
    wrong = "src=x[0:count, :]"
    assert right in source
    assert wrong in README
    kernel.write_text(source.replace(right, wrong))
    result = in_process(
        "--simulate", "--hypothesis-seed=2", "--difftest-report=page.html"
    )
    result.assert_outcomes(failed=1, passed=1)  # a wrong second block fills no memory
    said = [line.strip() for line in result.outlines]
    first = next(
        n for n, line in enumerate(said) if "disagrees with its reference" in line
    )
    report = said[
        first : 1
        + next(n for n, line in enumerate(said) if line.startswith("run again"))
    ]
    drawn = html.unescape("".join(re.findall(r"<text[^>]*>(.*?)</text>", PICTURE)))
    assert words("".join(report)) in words(drawn), STALE
    page = (repository.path / "page.html").read_text(encoding="utf-8")
    shown = re.sub(r"(?s)<(script|style).*?</\1>|<[^>]+>", " ", page)
    now = set(re.findall("[A-Za-z]{3,}", shown))
    before = set(text_of("report.png", "page").split())
    drawn = (
        word
        for kind in RECIPES.values()
        for word in (kind.__name__, *kind.__dataclass_fields__)
    )
    # the loaded modules influence the data
    assert (now ^ before).difference(drawn) == set(), STALE


def test_the_tutorials_timelines_are_of_the_times_that_it_prints():
    tutorial = (ROOT / "docs" / "tutorial" / "first-profile.md").read_text(
        encoding="utf-8"
    )
    own = re.findall(
        r"predicted for trn2, of it the kernel's own part ([\d.]+) us", tutorial
    )
    kernels = [text_of(f"{name}.png", "Title") for name in ("scale_rows", "scale_flat")]
    for name, time, title in zip(
        ("scale_rows", "scale_flat"), own, kernels, strict=True
    ):
        assert title == f"{name}: {time} us predicted for trn2", STALE


def text_of(picture: str, key: str) -> str:
    """Return the text of a PNG under a key."""
    raw = (PICTURES / picture).read_bytes()
    head = f"tEXt{key}\0".encode()
    start = raw.index(head)
    end = start + 4 + int.from_bytes(raw[start - 4 : start], "big")
    return raw[start + len(head) : end].decode("latin-1")


def test_the_readme_fits_a_screen_and_a_half():
    assert README.count("\n") <= LINES
