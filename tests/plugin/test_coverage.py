"""Coverage of the branches and loops in a kernel's own code."""

import json
import re

import pytest

KERNELS = """
import neuronxcc.nki as classic
import neuronxcc.nki.isa as classic_isa
import neuronxcc.nki.language as classic_nl
import nki
import nki.isa as nisa
import nki.language as nl


def scale_of(m):
    if m > 4:
        return 2.0
    return 2.0


@classic.jit
def NAME_classic(a):
    rows, columns = a.shape
    result = classic_nl.ndarray(a.shape, dtype=a.dtype, buffer=classic_nl.shared_hbm)
    for start in classic_nl.affine_range(columns // 4):
        tile = classic_nl.load(a[:, start * 4 : start * 4 + 4])
        tile = classic_isa.tensor_scalar(tile, classic_nl.multiply, scale_of(rows))
        classic_nl.store(result[:, start * 4 : start * 4 + 4], tile)
    return result


@nki.jit
def NAME(a):
    rows, columns = a.shape
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in nl.affine_range(columns // 4):
        tile = nl.ndarray((rows, 4), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[:, start * 4 : start * 4 + 4])
        if rows > 100:
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0={large})
        else:
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=scale_of(rows))
        nisa.dma_copy(dst=result[:, start * 4 : start * 4 + 4], src=tile)
    return result
"""

TEST = """
from difftest import kernel_test, sizes
from {name}_kernels import {name}, {name}_classic


@kernel_test(
    {kernel},
    reference=lambda a: a.astype(float) * 2,
    domain={{"m": sizes(1, {most}), "n": {columns}}},
    inputs={{"a": "m n"}},
    allow_inconclusive=True,  # of some domains each column fits into one tile
)
def test_{name}(case):
    case.check()
"""

CLASSIC = "kernel={0}_classic"
TODAYS = "kernel={0}"
BOTH = "kernels=({0}_classic, {0})"
DOMAINS = {
    "narrow": (TODAYS, 4, "(4, 8)"),
    "wide": (TODAYS, 128, "(4, 8, 12)"),
    "single": (CLASSIC, 128, "(4,)"),
    "both": (BOTH, 4, "(4,)"),
    "wrong": (TODAYS, 128, "(4, 8)"),
}
"""Each name has its own kernels. The kernels of `wrong` fail: their cases end with the failure."""
NARROW = [
    "narrow_kernels.py:10: never true (narrow)",
    "narrow_kernels.py:30: never a third iteration (narrow)",
    "narrow_kernels.py:33: never true (narrow)",
]
SINGLE = ["single_kernels.py:19: never a second iteration (single_classic)"]


@pytest.fixture
def run(project, whole_profiles):
    """The lines of the summary about branches and loops, for the domains named."""

    def run(names, *options):
        for name in names:
            kernel, most, columns = DOMAINS[name]
            large = "3.0" if name == "wrong" else "2.0"
            given = {"kernel": kernel.format(name), "most": most, "columns": columns}
            test = TEST.format(name=name, **given)
            kernels = KERNELS.replace("{large}", large).replace("NAME", name)
            project.pytester.makepyfile(
                **{f"{name}_kernels": kernels, f"test_{name}": test}
            )
        arguments = (
            "--simulate",
            "-p",
            "no:cacheprovider",
            "--hypothesis-seed=4",
            *options,
        )
        # Hypothesis warns where its own place in sys.monitoring is taken.
        arguments += ("-W", "error::hypothesis.errors.HypothesisWarning")
        result = project.run(*arguments)
        result.assert_outcomes(
            failed=int("wrong" in names), passed=2 * len(names) - int("wrong" in names)
        )
        lines = re.findall("^no case: (.*)", result.stdout.str(), re.MULTILINE)
        project.tried = dict(
            re.findall(r"(.*\)): nearest of the last \d+ cases: (.*)", "\n".join(lines))
        )
        return [
            line.partition("): ")[0] + ")" if "): " in line else line for line in lines
        ]

    return run


def test_a_domain_that_needs_one_tile_alone_proves_too_little(project):
    given = {"name": "one", "kernel": CLASSIC.format("one"), "most": 9}
    test = TEST.format(columns="(4,)", **given).replace("allow_inconclusive=True,", "")
    kernels = KERNELS.replace("{large}", "2.0").replace("NAME", "one")
    project.pytester.makepyfile(one_kernels=kernels, test_one=test)
    result = project.run("--simulate")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        [
            "the test of one_classic proves too little: no case runs a loop over sizes twice",
            "  first:  one_kernels.py:19: never a second iteration",
            "  remedy: widen the domain until a second tile is needed; allow_inconclusive=True *",
        ]
    )


def test_branches_that_no_case_took_are_reported(run, project):
    """A wide domain and a failing kernel have no lines; a shared function has its lines once."""
    assert run(DOMAINS, "-v", "--difftest-report=out.json") == [
        "both_kernels.py:10: never true (both, both_classic)",
        "both_kernels.py:19: never a second iteration (both_classic)",
        "both_kernels.py:30: never a second iteration (both)",
        "both_kernels.py:33: never true (both)",
        *NARROW,
        *SINGLE,
    ]
    assert {line.partition(":")[2] for line in project.tried} == {
        "10: never true (both, both_classic)",
        "33: never true (both)",
        "10: never true (narrow)",
        "33: never true (narrow)",
    }
    assert re.fullmatch(
        "m=4, n=[48]", project.tried["narrow_kernels.py:33: never true (narrow)"]
    )
    said = json.loads((project.pytester.path / "out.json").read_text())["not_reached"]
    (loop,) = (one for one in said if one["file"] == "single_kernels.py")
    assert loop == {
        "file": "single_kernels.py",
        "line": 19,
        "kernels": ["single_classic"],
        "what": "never a second iteration",
        "source": "for start in classic_nl.affine_range(columns // 4):",
        "tried": "",
    }


def test_the_report_names_the_first_of_several_kernels(run):
    """The branches that cases were aimed at come first."""
    assert run(["both"]) == [
        "both_kernels.py:10: never true (both and 1 more)",
        "both_kernels.py:33: never true (both)",
        "both_kernels.py:19: never a second iteration (both_classic)",
        "both_kernels.py:30: never a second iteration (both)",
    ]


def test_a_single_case_has_no_report_of_branches(run, project):
    assert run(["single"]) == SINGLE
    case = {
        "values": {"m": 1, "n": 4},
        "dtype": "float32",
        "data": {"a": ["Zeros", {}]},
    }
    for options in (["--case", json.dumps(case)], ["-k", "edges"]):
        assert "no case" not in project.run("--simulate", *options).stdout.str()
