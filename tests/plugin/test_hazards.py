"""Kernels that agree with their reference here and can be wrong on a device."""

import pytest

KERNELS = """
import neuronxcc.nki.language as nl


def add(a, b):
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    {scratch}
    for i in nl.affine_range(2):
        {body}
    {last}
    return result
"""
LOOP = {
    "scratch": "scratch = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.private_hbm)",
    "body": "nl.store(scratch, nl.load(a)); nl.store(result, nl.add(nl.load(scratch), nl.load(b)))",
    "last": "",
}
SUM = {
    "scratch": "total = nl.add(nl.load(a), nl.load(b)); held = nl.copy(total)",
    "body": "total[...] = nl.maximum(total, held)",
    "last": "nl.store(result, total)",
}


OUTPUT = {
    "scratch": "total = nl.add(nl.load(a), nl.load(b))",
    "body": "spare = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)",
    "last": "nl.store(result, total)",
}


@pytest.fixture
def hazard(project):
    """A project whose kernel is right and has a hazard."""

    def write(parts):
        project.pytester.makepyfile(kernel=KERNELS.format(**parts))
        project.add_test()
        return project

    return write


def test_what_is_proven_wrong_fails_and_says_how_to_run_it_again(hazard):
    result = hazard(LOOP).run("--simulate")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "_* test_add _*",
            "add agrees with its reference here, and can be wrong on a device",
            "  case:        m=*, n=*, float*",
            "  a:           *",
            "  b:           *",
            "  run again:   pytest --simulate test_add.py::test_add --case '{*}'",
            "error affine-rewritten: iteration 1 of the affine_range at line 7 writes *",
            "  rule:     *",
            "  where:    *",
            "  and:      *",
            "  remedy:   create the tensor inside the loop*",
            "  more:     *",
            "error affine-written-twice: iteration 1 of the affine_range at line 7 writes *",
            *(f"  {label:9} *" for label in ("rule:", "where:", "and:", "remedy:", "more:")),
            "=* kernels against their references =*",
            "kernel *",
            "add *",
            "=* short test summary info =*",
            "FAILED test_add.py::test_add - add: affine-rewritten, *",
            "=* 1 failed in *",
        ],
        consecutive=True,
    )


def test_what_may_be_wrong_warns_and_fails_where_warnings_count(hazard):
    """So does what the compiler would refuse."""
    project = hazard(SUM)
    test = (project.pytester.path / "test_add.py").read_text().replace("from kernel", "from other")
    project.pytester.makepyfile(other=KERNELS.format(**OUTPUT), test_other=test)
    result = project.run("--simulate", "-W", "default")
    result.assert_outcomes(passed=2, warnings=2)
    result.stdout.fnmatch_lines(["*HazardWarning: warning affine-reduction: *"])
    result.stdout.fnmatch_lines(["*HazardWarning: warning NKT203: nl.ndarray makes shared HBM*"])
    strict = project.run("--simulate", "--difftest-strict")
    strict.assert_outcomes(failed=2)
    strict.stdout.fnmatch_lines(
        [
            "*run again:   pytest --simulate --difftest-strict test_add.py::test_add --case *",
            "*more:     difftest lint --explain NKT203, or *ignore*NKT203*",
        ]
    )


def test_a_wrong_value_comes_with_the_hazards_that_may_be_its_reason(hazard):
    wrong = SUM | {"scratch": SUM["scratch"].replace("nl.add", "nl.subtract")}
    result = hazard(wrong).run("--simulate", "-W", "default")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["add disagrees with its reference", "warning affine-reduction: iteration 1 of *"]
    )


def test_the_plain_mode_looks_for_them_too(hazard):
    hazard(LOOP).run("--simulate=plain", "--no-exact").assert_outcomes(failed=1)
