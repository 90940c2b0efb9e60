"""Counts and causes of outcomes, and the page that shows them."""

import subprocess

from conformance.outcomes import (
    FAILED,
    PASSED,
    SKIPPED,
    Outcome,
    by_cause,
    by_group,
    cause,
)
from conformance.table import commit_of, place, section
from tests.every import every


@every(
    "text, expected",
    [
        ("ValueError: 3 of 128 rows\nmore", "ValueError: N of N rows"),
        ("\n  \x1b[31mKernelError\x1b[0m: no", "KernelError: no"),
        ("no file /home/me/a/b.py", "no file b.py"),
        ("<Thing at 0x7f00aa>", "<Thing>"),
        ("float32 and gen3 stay", "float32 and gen3 stay"),
        ("", "no message"),
        ("x" * 300, "x" * 159 + "…"),
    ],
)
def test_a_cause_leaves_out_names_and_numbers(text, expected):
    assert cause(text) == expected


OUTCOMES = [
    Outcome("a.py", "a.py::one", PASSED),
    Outcome("a.py", "a.py::two", FAILED, "E: 2 | 3"),
    Outcome("b.py", "b.py::one", FAILED, "other"),
    Outcome("a.py", "a.py::three", FAILED, "E: 4 | 5"),
    Outcome("b.py", "b.py::two", SKIPPED, "slow"),
]


def test_outcomes_are_counted_by_group_and_by_cause():
    counts = by_group(OUTCOMES)
    assert [(g, c.tried, c.results[PASSED]) for g, c in counts.items()] == [
        ("a.py", 3, 1),
        ("b.py", 1, 0),
    ]
    assert [(why, len(found)) for why, found in by_cause(OUTCOMES)] == [
        ("E: N | N", 2),
        ("other", 1),
    ]


def test_a_section_shows_counts_causes_and_the_command(tmp_path):
    text = section("A suite", "python -m this PATH", tmp_path, OUTCOMES)
    assert text.startswith("## A suite\n")
    for line in (
        "python -m this PATH",
        "| a.py | 3 | 1 | 2 | 0 |",
        "| **all** | 4 | 1 | 3 | 1 |",
        "| 2 | `E: N \\| N` | `a.py::two` |",
    ):
        assert line in text.splitlines()


def test_all_passed_shows_no_causes(tmp_path):
    assert "cause" not in section("A suite", "x", tmp_path, OUTCOMES[:1])


def test_a_section_takes_the_place_of_its_predecessor(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nWords.\n")
    place("## One\n\nold\n", page)
    place("## Two\n\nkept\n", page)
    place("## One\n\nnew\n", page)
    assert page.read_text() == "# Page\n\nWords.\n\n## One\n\nnew\n\n## Two\n\nkept\n"


def test_the_commit_matches_the_checkout(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    assert commit_of(tmp_path) == "a folder that is no git checkout"
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "file").write_text("1")
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    clean = commit_of(tmp_path)
    assert clean.startswith("commit ")
    (tmp_path / "file").write_text("2")
    assert commit_of(tmp_path) == f"{clean}, changed since,"
    inner = tmp_path / "inner"
    inner.mkdir()
    assert commit_of(inner) == "a folder that is no git checkout"
