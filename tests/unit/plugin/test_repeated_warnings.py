"""A warning about a line of a kernel is printed once a session; other warnings stay."""

import re
from pathlib import Path
from types import SimpleNamespace

import difftest
from difftest.plugin.repeated_warnings import OWN_WARNINGS, unique_warnings
from tests.every import every


def warning(text, line=7, name="RuleWarning", test="test_a.py::test_a"):
    """A warning as pytest keeps it for its summary."""
    message = f"kernel.py:{line}: {name}: {text}\n  nl.exp(x)"
    return SimpleNamespace(message=message, fslocation=("kernel.py", line), nodeid=test)


def rule(received, text="nl.exp computes in a range"):
    return f"nl.exp got {received}\n  rule:     {text}\n  received: {received}"


FOREIGN = (
    "warning psum-foreign: nc_matmul adds to element {} of t\n  rule:     a matmul adds"
)
CHAINS = "warning psum-chains: two accumulations\n  rule:     a matmul adds"


@every(
    "warnings, kept",
    [
        ([warning(rule(1.0)), warning(rule([2, 3]), test="test_a.py::test_b")], 1),
        ([warning(rule(1.0)), warning(rule(1.0), line=8)], 2),
        ([warning(rule(1.0)), warning(rule(1.0, "another rule"))], 2),
        (
            [
                warning(FOREIGN.format(at), name="HazardWarning")
                for at in ([0, 1], [2, 5])
            ],
            1,
        ),
        ([warning(text, name="HazardWarning") for text in (FOREIGN, CHAINS)], 2),
        ([warning(f"took {n} rows", name="TopKWarning") for n in (3, 4)], 1),
        ([warning(f"took {n} rows", name="UserWarning") for n in (3, 4)], 2),
        (
            [
                warning("nc_matmul adds to t", name="AccumulationWarning"),
                warning(FOREIGN.format([0]), name="HazardWarning"),
            ],
            1,
        ),
        (
            [
                warning("nc_matmul adds to t", name="AccumulationWarning"),
                warning(CHAINS, name="HazardWarning"),
            ],
            2,
        ),
        (
            [
                warning("nl.arange ended with NKI 0.3", name="LevelWarning"),
                warning(
                    "warning NKU302: nl.arange ended with NKI 0.3", name="HazardWarning"
                ),
            ],
            1,
        ),
    ],
)
def test_a_line_of_a_kernel_warns_once_a_session(warnings, kept):
    assert len(unique_warnings(warnings)) == kept


def test_the_first_of_equal_warnings_stays():
    first = warning(rule(1.0))
    second = warning(rule(2.0))
    assert unique_warnings([first, second]) == [first]


def test_all_warnings_of_the_package_are_known():
    found = set()
    for file in Path(difftest.__file__).parent.rglob("*.py"):
        found |= set(
            re.findall(r"^class (\w+Warning)\(", file.read_text("utf-8"), re.MULTILINE)
        )
    assert found == OWN_WARNINGS


PLACE = ("kernel.py", 8)
TEXT = "nc_matmul adds to tile [4, 12] float32 in psum, which another instruction wrote"


def accumulation(text=TEXT, category="AccumulationWarning", place=PLACE):
    message = f"{place[0]}:{place[1]}: {category}: {text}\n  the kernel's line\n"
    return SimpleNamespace(fslocation=place, message=message)


@every(
    "other",
    [
        accumulation(),
        accumulation(TEXT.replace("4, 12", "128, 1")),
        accumulation(TEXT.replace("float32", "bfloat16")),
    ],
)
def test_another_case_of_a_warning_is_left_out(other):
    first = accumulation()
    assert unique_warnings([first, other]) == [first]


@every(
    "other",
    [
        accumulation(place=("kernel.py", 9)),
        accumulation(place=("other.py", 8)),
        accumulation("another rule"),
        accumulation(category="RuleWarning"),
    ],
)
def test_another_warning_is_printed(other):
    first = accumulation()
    assert unique_warnings([first, other]) == [first, other]


def test_warnings_of_others_are_printed_by_pytest():
    several = [
        accumulation(category="UserWarning"),
        accumulation(category="UserWarning"),
    ]
    assert unique_warnings(several) == several
