"""The branches and loops of a kernel's own code that no case took."""

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
def twice_classic(a):
    rows, columns = a.shape
    result = classic_nl.ndarray(a.shape, dtype=a.dtype, buffer=classic_nl.shared_hbm)
    for start in classic_nl.affine_range(columns // 4):
        tile = classic_nl.load(a[:, start * 4 : start * 4 + 4])
        tile = classic_isa.tensor_scalar(tile, classic_nl.multiply, scale_of(rows))
        classic_nl.store(result[:, start * 4 : start * 4 + 4], tile)
    return result


@nki.jit
def twice(a):
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
from kernels_of_mine import twice, twice_classic


@kernel_test(
    {kernel},
    reference=lambda a: a.astype(float) * 2,
    domain={{"m": sizes(1, {most}), "n": {columns}}},
    inputs={{"a": "m n"}},
)
def test_twice(case):
    case.check()
"""


@pytest.fixture
def run(project):
    """The lines of the summary about branches and loops, for a domain."""

    def run(kernel, most, columns, *options, large="2.0"):
        project.pytester.makepyfile(
            kernels_of_mine=KERNELS.replace("{large}", large),
            test_twice=TEST.format(kernel=kernel, most=most, columns=columns),
        )
        arguments = ("--simulate", "-p", "no:cacheprovider", "--hypothesis-seed=1", *options)
        # Hypothesis warns where its own place in sys.monitoring is taken.
        arguments += ("-W", "error::hypothesis.errors.HypothesisWarning")
        result = project.run_apart(*arguments)
        return re.findall("^no case: (.*)", result.stdout.str(), re.MULTILINE)

    return run


CLASSIC, TODAYS = "kernel=twice_classic", "kernel=twice"
BOTH = "kernels=(twice_classic, twice)"


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_narrow_domain_leaves_branches_and_turns(run, workers):
    assert run(TODAYS, 4, "(4, 8)", *workers) == [
        "kernels_of_mine.py:10: never true (twice)",
        "kernels_of_mine.py:30: never a third turn (twice)",
        "kernels_of_mine.py:33: never true (twice)",
    ]


def test_a_wide_domain_leaves_nothing(run):
    assert run(TODAYS, 128, "(4, 8, 12)") == []


def test_classic_kernels(run):
    assert run(CLASSIC, 128, "(4,)") == [
        "kernels_of_mine.py:19: never a second turn (twice_classic)"
    ]


def test_kernels_of_one_contract(run):
    """The function that both call is named once."""
    assert run(BOTH, 4, "(4,)", "-v") == [
        "kernels_of_mine.py:10: never true (twice, twice_classic)",
        "kernels_of_mine.py:19: never a second turn (twice_classic)",
        "kernels_of_mine.py:30: never a second turn (twice)",
        "kernels_of_mine.py:33: never true (twice)",
    ]


def test_of_several_kernels_the_first_is_named(run):
    assert run(BOTH, 4, "(4,)")[0] == "kernels_of_mine.py:10: never true (twice and 1 more)"


def test_nothing_is_said_of_a_kernel_that_fails(run):
    """Its cases end with the failure."""
    assert run(TODAYS, 128, "(4, 8)", large="3.0") == []


def test_nothing_is_said_of_a_single_case(run, project):
    run(TODAYS, 4, "(4,)")
    case = {"values": {"m": 1, "n": 4}, "dtype": "float32", "data": {"a": ["Zeros", {}]}}
    for options in (["--case", json.dumps(case)], ["-k", "edges"]):
        assert "no case" not in project.run("--simulate", *options).stdout.str()


def test_the_report_for_machines_has_them(run, project):
    run(CLASSIC, 128, "(4,)", "--difftest-report=out.json")
    (found,) = json.loads((project.pytester.path / "out.json").read_text())["not_reached"]
    assert found == {
        "file": "kernels_of_mine.py",
        "line": 19,
        "kernels": ["twice_classic"],
        "what": "never a second turn",
        "source": "for start in classic_nl.affine_range(columns // 4):",
    }
