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
TENSOR = "[[]*[]] float*"
SAID = [
    "  rule:     iterations of nl.affine_range claim to be independent: the compiler may run them "
    "in any order, or at once; only a matmul's accumulation in PSUM may go on from one to the next",
    f"  where:    kernel.py:8: {LOOP['body']}",
    "  and:      kernel.py:7: for i in nl.affine_range(2):",
]
MORE = "  more:     docs/reference/detectors/order-of-iterations.md#"


@pytest.fixture
def hazard(project):
    """A project whose kernel is right and has a hazard."""

    def write(parts):
        project.pytester.makepyfile(kernel=KERNELS.format(**parts))
        project.add_test()
        return project

    return write


def test_the_whole_text_of_a_hazard(hazard):
    """A proven error fails, with the smallest case that shows the first of its hazards."""
    result = hazard(LOOP).run("--simulate")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "_* test_add _*",
            "add agrees with its reference here, and can be wrong on a device",
            "  case:        m=1, n=1, float32",
            "  a:           (1, 1) Zeros()",
            "  b:           (1, 1) Zeros()",
            "  minimal:     no case with smaller m or n fails",
            "  run again:   pytest --simulate test_add.py::test_add --case '{*}'",
            "error affine-rewritten: iteration 1 of the affine_range at line 7 writes element "
            f"[[]0, 0[]] of tensor 3 {TENSOR} in private_hbm, which iteration 0 wrote too; "
            "iteration 1 reads it back",
            *SAID,
            "  remedy:   create the tensor inside the loop, so that each iteration has its own",
            f"{MORE}affine-rewritten, or # difftest: allow[[]affine-rewritten[]] on the line",
            "error affine-written-twice: iteration 1 of the affine_range at line 7 writes element "
            f"[[]0, 0[]] of tensor 2 {TENSOR} in shared_hbm, which iteration 0 wrote too",
            *SAID,
            "  remedy:   write disjoint parts, or use nl.sequential_range, which keeps the order",
            f"{MORE}affine-written-twice, or # difftest: allow[[]affine-written-twice[]] on the "
            "line",
            "=* kernels against their references =*",
            "kernel *",
            "add *",
            "=* short test summary info =*",
            "FAILED test_add.py::test_add - add: affine-rewritten, affine-written-twice at m=1, "
            "n=1, float32",
            "=* 1 failed in *",
        ],
        consecutive=True,
    )


def test_the_case_of_a_hazard_is_minimal_and_keeps_the_other_findings(hazard):
    """The hazards need three rows and five columns."""
    parts = {
        "scratch": f"{LOOP['scratch']}; nl.store(result, nl.add(nl.load(a), nl.load(b)))",
        "body": "if a.shape[0] > 2 and a.shape[1] > 4: " + LOOP["body"],
        "last": "",
    }
    result = hazard(parts).run("--simulate")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "  case:        m=3, n=5, float32",
            "  minimal:     no case with smaller m or n fails",
            "error affine-rewritten: *",
            "error affine-written-twice: *",
        ]
    )


def test_a_possible_hazard_warns_and_fails_where_warnings_count(hazard):
    """So does code that the compiler would reject."""
    project = hazard(SUM)
    test = (
        (project.pytester.path / "test_add.py")
        .read_text()
        .replace("from kernel", "from other")
    )
    project.pytester.makepyfile(other=KERNELS.format(**OUTPUT), test_other=test)
    result = project.run("--simulate", "-W", "default")
    result.assert_outcomes(passed=2, warnings=2)
    result.stdout.fnmatch_lines(["*HazardWarning: warning affine-reduction: *"])
    result.stdout.fnmatch_lines(
        ["*HazardWarning: warning NKT203: nl.ndarray makes shared HBM*"]
    )
    strict = project.run("--simulate", "--difftest-strict")
    strict.assert_outcomes(failed=2)
    strict.stdout.fnmatch_lines(
        [
            "*run again:   pytest --simulate --difftest-strict test_add.py::test_add --case *",
            "*more:     difftest lint --explain NKT203, or *ignore*NKT203*",
        ]
    )


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_a_line_of_a_kernel_warns_once_a_session(hazard, workers):
    """In each test that runs the kernel, with its own shapes and dtypes, and on each worker."""
    project = hazard(SUM)
    test = (project.pytester.path / "test_add.py").read_text()
    narrow = test.replace("sizes(1, 8)", "sizes(9, 12)").replace(
        '"float32", "float16"', '"float16",'
    )
    assert narrow.count("sizes(9, 12)") == narrow.count('("float16",)') == 1
    project.pytester.makepyfile(
        test_narrow=narrow,
        other=KERNELS.format(**SUM),
        test_other=test.replace("from kernel", "from other"),
    )
    result = project.run_apart("--simulate", "-W", "default", *workers)
    result.assert_outcomes(passed=3, warnings=2)
    text = result.stdout.str()
    for file in ("kernel", "other"):
        assert (
            text.count(f"{file}.py:8: HazardWarning: warning affine-reduction: ") == 1
        )


def test_a_removed_name_is_reported_once(hazard):
    """By lint's rule, which says more; the simulator warns of it in each run."""
    body = "nl.store(result, nl.add(nl.load(a), nl.load(b)))"
    project = hazard({"scratch": "", "body": body, "last": ""})
    kernel = project.pytester.path / "kernel.py"
    todays = kernel.read_text().replace("neuronxcc.nki", "nki")
    kernel.write_text(todays.replace("affine_range(2)", "dynamic_range(1)"))
    result = project.run("--simulate", "-W", "default")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*HazardWarning: warning NKU302: nl.dynamic_range ended with *"]
    )


TWICE = """
import numpy as np
from difftest import kernel_test, sizes
from kernel import product


def reference(a):
    return a.T.astype(np.float64) @ a


@kernel_test(
    kernel=product,
    reference=reference,
    domain={"m": sizes(1, 9)},
    inputs={"a": "m m"},
    dtypes=["float32"],
)
def test_first(case):
    case.check()


@kernel_test(
    kernel=product,
    reference=reference,
    domain={"m": sizes(10, 19)},
    inputs={"a": "m m"},
    dtypes=["float32"],
)
def test_second(case):
    case.check()
"""
FOREIGN = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def product(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    bank = nl.zeros(a.shape, dtype=nl.float32, buffer=nl.psum)
    nisa.dma_copy(dst=tile, src=a)
    nisa.nc_matmul(bank, tile, tile, accumulate=True)
    nisa.tensor_copy(dst=tile, src=bank)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


def test_a_hazard_of_a_line_is_reported_once_in_a_session(project):
    """By the detector, though the simulator warns of it in a launch that nobody looks at."""
    project.pytester.makepyfile(kernel=FOREIGN)
    project.pytester.makepyfile(test_twice=TWICE)
    result = project.run("--simulate", "-W", "default", "test_twice.py")
    result.assert_outcomes(passed=4, warnings=1)  # two tests, and the edges of each
    result.stdout.fnmatch_lines(
        ["*HazardWarning: warning psum-foreign: nc_matmul adds to *"]
    )


def test_a_wrong_value_comes_with_the_hazards_that_may_be_its_reason(hazard):
    wrong = SUM | {"scratch": SUM["scratch"].replace("nl.add", "nl.subtract")}
    result = hazard(wrong).run("--simulate", "-W", "default")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "add disagrees with its reference",
            "warning affine-reduction: iteration 1 of *",
        ]
    )


def test_the_plain_mode_looks_for_them_too(hazard):
    hazard(LOOP).run("--simulate=plain", "--no-exact").assert_outcomes(failed=1)
