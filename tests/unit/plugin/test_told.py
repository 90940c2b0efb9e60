"""A warning about a kernel's line is told once, whatever its case; others are left alone."""

import ast
from pathlib import Path
from types import SimpleNamespace

import difftest
from difftest.plugin.told import OF_KERNELS, warned_once
from tests.every import every

PLACE = ("kernel.py", 8)
TEXT = "nc_matmul adds to tile [4, 12] float32 in psum, which another instruction wrote"


def warning(text=TEXT, category="AccumulationWarning", place=PLACE):
    message = f"{place[0]}:{place[1]}: {category}: {text}\n  the kernel's line\n"
    return SimpleNamespace(fslocation=place, message=message)


@every(
    "other",
    [
        warning(),
        warning(TEXT.replace("4, 12", "128, 1")),
        warning(TEXT.replace("float32", "bfloat16")),
    ],
)
def test_another_case_of_a_warning_is_left_out(other):
    first = warning()
    assert warned_once([first, other]) == [first]


@every(
    "other",
    [
        warning(place=("kernel.py", 9)),
        warning(place=("other.py", 8)),
        warning("another rule"),
        warning(category="RuleWarning"),
    ],
)
def test_another_warning_is_told(other):
    first = warning()
    assert warned_once([first, other]) == [first, other]


def test_warnings_of_others_are_told_as_pytest_does():
    several = [warning(category="UserWarning"), warning(category="UserWarning")]
    assert warned_once(several) == several


def test_the_warnings_about_kernels_are_known_by_their_names():
    classes = {
        node.name
        for file in (Path(difftest.__file__).parent / "simulator").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Warning")
    }
    assert classes | {"HazardWarning"} == OF_KERNELS
