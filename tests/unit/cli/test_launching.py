"""A command on a kernel that ends the program, and on shapes that are invalid."""

import json
import re
import sys

import numpy as np
from click.testing import CliRunner

from difftest.cli import grade
from difftest.cli.launching import random_arrays
from difftest.cli.main import main
from difftest.simulator.dtypes import NAMES, NKI_NAMES
from difftest.simulator.dtypes import packed as pack
from difftest.simulator.instructions.mx import unpack
from difftest.testing.contract.limits import LIMITS
from difftest.testing.host import progress
from difftest.testing.host.loading import parse_shape
from difftest.tools.course.assignment import CorrectnessTest
from tests.unit import student

TRANSPOSE = "kernels.classic.transpose:matrix_transpose"
MATMUL = "tests/kernels/test_matmul.py::test_nki_matmul_tiled"
LEAVING = """
import sys

import nki
import nki.isa as nisa
import nki.language as nl
from difftest import kernel_test


@nki.jit
def leaves(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    {leave}
    return out


@kernel_test(kernel=leaves, reference=lambda x: x, domain={{"n": (4,)}}, inputs={{"x": "n n"}})
def test_leaves(case):
    case.check()
"""
CALL = "leaves on float32[4,4]"
LATE = f"the kernel ran for more than 0.25 s (--case-timeout): {CALL}"
CASE = json.dumps({"values": {"n": 4}, "dtype": "float32", "data": {"x": "iota"}})
HUGE = "10000000,10000000"


def test_a_kernel_that_ends_the_program_is_a_crash_of_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    leaves = {
        "all": "sys.exit(0)",
        "exit": "exit(0)",
        "skip": "__import__('pytest').skip('0')",
    }
    for name, leave in leaves.items():
        (tmp_path / f"leave_{name}.py").write_text(LEAVING.format(leave=leave))
    by_shape = ("leave_all.py:leaves", "--shape", "4,4")
    for arguments in (
        ("check", *by_shape),
        ("check", *by_shape, "--grid", "2"),
        ("profile", *by_shape),
        ("trace", *by_shape, "-o", "-"),
        ("bench", "own", *by_shape),
        ("check", "leave_all.py::test_leaves", "--case", CASE),
        ("check", "leave_exit.py:leaves", "--shape", "4,4"),
        ("check", "leave_skip.py:leaves", "--shape", "4,4"),
    ):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 1, arguments
        assert "KernelExit" in result.stderr, arguments
        assert re.search(r"where: +leave_(all|exit|skip)\.py:14: ", result.stderr), (
            arguments
        )


def test_a_kernel_that_forks_is_named_and_its_child_says_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fork = "import os; os.fork() and os.wait()"
    (tmp_path / "forking.py").write_text(LEAVING.format(leave=fork))
    result = CliRunner().invoke(main, ["check", "forking.py:leaves", "--shape", "4,4"])
    assert result.exit_code == 1
    assert (
        result.stderr.count("Error: the kernel forked, and its child would run what")
        == 1
    )
    assert result.stdout == ""


SLEEP = "__import__('time').sleep(1000)"


def test_a_kernel_that_does_not_end_is_named_and_stopped(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.04)
    monkeypatch.setattr(progress, "CHECK_SECONDS", 0.01)
    (tmp_path / "ending_sleeps.py").write_text(LEAVING.format(leave=SLEEP))
    (tmp_path / "ending_import.py").write_text(SLEEP)
    by_shape = ("ending_sleeps.py:leaves", "--shape", "4,4")
    by_case = ("ending_sleeps.py::test_leaves", "--case", CASE)
    # The first import may take as long as the limit; the later imports take no time.
    CliRunner().invoke(main, ["check", "ending_sleeps.py:none", "--shape", "4,4"])
    for arguments, said in (
        (
            ("check", "ending_import.py:leaves", *by_shape[1:]),
            "CaseLimitError: ran for more than",
        ),
        (("check", *by_shape), LATE),
        (("check", *by_case), LATE),
        (("lint", "--kernel", *by_shape), LATE),
    ):
        result = CliRunner().invoke(main, [*arguments, "--case-timeout=0.25"])
        assert result.exit_code == 1, arguments
        assert said in result.stderr, arguments
        case = "the import of ending_import.py" if "import" in arguments[1] else CALL
        assert f"difftest: {case} has run for 0 s\n" in capfd.readouterr().err
    assert (LIMITS.seconds, LIMITS.case) == (None, None)


def test_a_script_a_proof_and_a_grade_see_a_kernel_leave_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = CorrectnessTest(
        name="small", image=(6, 6), channels=((128, 128),), bias=True, pool_size=1
    )
    monkeypatch.setattr(grade, "correctness_tests", lambda **_: (small,))
    head, body = student.SOURCE.split("    batch, c_in", 1)
    leaving = f"import sys\n{head}    sys.exit(0)\n    batch, c_in{body}"
    (tmp_path / "conv2d.py").write_text(leaving)
    monkeypatch.delitem(sys.modules, "conv2d", raising=False)
    (tmp_path / "script.py").write_text(
        "import numpy as np\nfrom conv2d import fused_conv2d_maxpool as kernel\n"
        "kernel(*[np.eye(4, dtype=np.float32)] * 3)\n"
    )
    (tmp_path / "module.py").write_text("import sys\nsys.exit(0)\n")
    shapes = [
        word
        for shape in ("1,128,6,6", "128,128,3,3", "128")
        for word in ("--shape", shape)
    ]
    proof = ("--kernel", "fused_conv2d_maxpool", *shapes, "--cases", "1")
    for arguments, said in (
        (("run", "script.py"), "KernelExit: SystemExit: 0"),
        (("grade", "conv2d.py"), "KernelExit: SystemExit: 0"),
        (("migrate", "conv2d.py", *proof), "both kernels refuse all of 2 cases"),
        (("grade", "module.py"), "cannot import module.py"),
        (("migrate", "module.py", *proof), "does not load: 0"),
    ):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 1, arguments
        assert said in result.output, arguments


def test_a_shape_has_one_form():
    assert [parse_shape(text) for text in ("4", "128,512", " 4 , 0128")] == [
        (4,),
        (128, 512),
        (4, 128),
    ]
    for text in (
        "4,x",
        "4x4",
        "4,",
        ",4",
        "4,,4",
        "(4,4)",
        "4 4",
        "4,0",
        "4,-4",
        "4.0",
        "",
        "٤",
    ):
        result = CliRunner().invoke(
            main, ["trace", TRANSPOSE, "--shape", text, "-o", "-"]
        )
        assert result.exit_code == 2, text
        assert f"as in 128,512; got {text!r}" in result.stderr


def test_arrays_that_no_computer_holds_are_rejected_before_they_are_made():
    case = {"values": {"M": 10**7, "K": 10**7, "N": 128}, "dtype": "bfloat16"}
    case["data"] = dict.fromkeys(("lhsT", "rhs"), "zeros")
    classic = "kernels/classic/transpose.py"
    for arguments, needed in (
        (("check", TRANSPOSE, "--shape", HUGE), 4 * 10**14),
        (("check", TRANSPOSE, "--shape", HUGE, "--dtype", "bfloat16"), 2 * 10**14),
        (
            ("trace", MATMUL, "--case", json.dumps(case), "-o", "-"),
            2 * (10**14 + 2 * 128 * 10**7),  # the output, which it writes in place, too
        ),
        (
            ("migrate", classic, "--kernel", "matrix_transpose", "--shape", HUGE),
            4 * 10**14,
        ),
        (("bench", "kernel", "naive", "-n", str(10**14)), 8 * 10**14),
    ):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == (1 if "bench" in arguments else 2), arguments
        assert f"the arrays take {needed:,} bytes" in result.stderr, arguments


COPY = """
import nki
import nki.isa as nisa
import nki.language as nl
from difftest import kernel_test


@nki.jit
def copied(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out


@kernel_test(
    kernel=copied,
    reference=lambda x: x,
    domain={"n": (4,)},
    inputs={"x": "n n"},
    dtypes=["float8_e4m3fn"],
)
def test_copied(case):
    case.check()
"""


def test_each_dtype_of_nki_is_one_of_a_command_and_is_explained(tmp_path, monkeypatch):
    """One list of dtypes: commands take the dtypes that a launch takes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy_any.py").write_text(COPY)
    for dtype in NKI_NAMES:
        arguments = [
            "copy_any.py:copied",
            "--shape",
            "8,4",
            "--dtype",
            dtype,
            "--machine",
            "trn3",
        ]
        result = CliRunner().invoke(main, ["check", *arguments])
        assert result.exit_code == 0, result.output
        told = CliRunner().invoke(main, ["explain", f"nl.{dtype}"])
        assert told.exit_code == 0, dtype
        assert (
            f"nki.language.{dtype}: a dtype of {NKI_NAMES[dtype].itemsize} bytes"
            in told.output
        )
        dialects = "both dialects" if dtype in NAMES else "`import nki` alone"
        assert dialects in told.output, dtype


def test_a_kernel_test_takes_the_float8_of_trn3(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy_float8.py").write_text(COPY)
    case = json.dumps(
        {"values": {"n": 4}, "dtype": "float8_e4m3fn", "data": {"x": "iota"}}
    )
    arguments = [
        "check",
        "copy_float8.py::test_copied",
        "--case",
        case,
        "--machine",
        "trn3",
    ]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output


def test_a_name_that_is_no_nki_dtype_is_rejected():
    shape = ["check", TRANSPOSE, "--shape", "8,8", "--dtype", "float64"]
    result = CliRunner().invoke(main, shape)
    assert result.exit_code == 2
    assert "float8_e4m3fn_x4" in result.output
    assert CliRunner().invoke(main, ["explain", "nl.float64"]).exit_code == 1


def test_random_arrays_of_the_dtypes_of_mx():
    scales, packed = random_arrays(
        [(64, 8), (64, 8)], ["float8_e8m0fnu", "float8_e4m3fn_x4"]
    )
    exponents = np.log2(scales.astype(np.float64))
    assert np.isfinite(exponents).all()
    assert len(np.unique(exponents)) > 2
    for name in ("float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4"):
        (packed,) = random_arrays([(64, 8)], [name])
        elements = unpack(packed, NKI_NAMES[name])
        assert elements.shape == (64, 8, 4)
        assert np.isfinite(elements).all()
        assert elements.std() > 0.5


def test_unpacking_returns_the_packed_elements():
    """The first of four is in the lowest bits."""
    values = np.array([[0.5, -1.0, 2.0, 4.0]], np.float32)
    for name, code in (
        ("float8_e4m3fn_x4", 0x4840B830),
        ("float4_e2m1fn_x4", 0x64A1),
    ):
        dtype = NKI_NAMES[name]
        made = pack(values, dtype)
        np.testing.assert_array_equal(unpack(made, dtype), values)
        assert int(made.view(f"u{dtype.itemsize}")[0]) == code
