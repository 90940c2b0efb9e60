"""Mistakes of new users, command by command: one clear error, and the right exit code."""

import os
import shlex
from pathlib import Path

from click.testing import CliRunner

from difftest.cli.main import main

FILES = {
    "wrong_now.py": """
import nki, nki.isa as nisa, nki.language as nl


@nki.jit
def copy(x, n=1):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


def nothing(x):
    return x


def number(x):
    return 3
""",
    "wrong_old.py": """
import neuronxcc.nki as nki, neuronxcc.nki.language as nl


@nki.jit
def copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out
""",
    "conv2d.py": "def fused_conv2d_maxpool(X, W, bias, pool_size=1): ...\n",
    "broken.py": "def f(:\n",
}
COPY = "wrong_now.py:copy --shape 4,4"
TRANSPOSE = "kernels.classic.transpose:matrix_transpose --shape 128,128"
STREAM = "kernels.classic.vector_add:vector_add_stream"
TESTS = f"{Path(__file__).parents[2]}/kernels/test_matmul.py"
CASE = """--case '{"values": {}, "dtype": "float32", "data": {}}'"""
PROOF = "migrate wrong_old.py --kernel copy --shape 4,n"
WRONG = {
    f"check {COPY} --set n=1 --set n=2": (2, "n is set twice"),
    **{
        f"{command} {COPY} --set n=abc": (
            2,
            "--set n=abc: n received a word; accepted: a literal",
        )
        for command in ("check", "profile", "bench own")
    },
    f"check {COPY} --set m=1": (1, "unexpected keyword argument 'm'"),
    f"check {COPY} --grid 100000000": (2, "a grid has at most 4096 programs"),
    f"check {COPY} --ranks 1000000": (2, "not in the range 1<=x<=4096"),
    f"check {COPY} --dtype int32 --bound x=²": (2, "a bound is NAME=N"),
    f"check {COPY} --dtype float64": (2, "NKI has no such dtype"),
    f"check wrong_now.py:copy --shape {'1,' * 64}1": (2, "1 to 32 positive sizes"),
    "check wrong_old.py:copy --shape 4,4 --ranks 2": (2, "this kernel is classic"),
    "check wrong_now.py:nothing --shape 4,4": (1, "nothing to check"),
    "check wrong_now.py:number --shape 4,4": (1, "a kernel returns tensors"),
    "check .wrong_now:copy --shape 4,4": (2, "a kernel is named MODULE:KERNEL"),
    f"profile {COPY} --json a.json --perfetto a.json": (2, "a file of their own"),
    "profile kernels.nothing:k --shape 8": (2, "cannot import kernels.nothing"),
    "profile kernels/nothing.py:k --shape 8": (2, "no file at kernels/nothing.py"),
    f"profile {TRANSPOSE[:-7]}100,128": (1, "the kernel rejects this"),
    f"profile {TRANSPOSE} --dtype int7": (2, "int7"),
    f"profile {TRANSPOSE} --set tile": (2, "an argument is NAME=VALUE"),
    f"profile {TRANSPOSE} {CASE}": (
        2,
        "give a --shape for each array of MODULE:KERNEL, or a",
    ),
    "profile kernels.nki.vector_add:vector_add_naive --shape 8,1": (
        1,
        "an array by --shape",
    ),
    f"profile {STREAM} --shape 256 --dtype float32 --dtype float32": (
        2,
        "got 2 for 1",
    ),
    **{
        f"profile {TRANSPOSE} --grid {grid}": (
            2,
            "a grid is positive sizes, as in 4,2, or 4,nc2",
        )
        for grid in ("0", "nc", "4,nc0", "two", "4x2")
    },
    f"profile tests/kernels/none.py::t {CASE}": (2, "no file at tests/kernels/none.py"),
    f"profile {TESTS}::t {CASE}": (2, "has no kernel test 't'"),
    f"profile {TESTS}::test_nki_matmul_tiled {CASE}": (2, "values: received nothing"),
    f"check {TESTS}::test_matmul --case {{}} --grid 2": (
        2,
        "--grid does not go with a kernel test",
    ),
    f"check {TESTS}::test_matmul --case {{}} --ranks 2": (
        2,
        "--ranks does not go with a kernel test",
    ),
    f"lint --kernel {STREAM} --shape 4,4 --ranks 4097": (
        2,
        "4097 is not in the range 1<=x<=4096",
    ),
    f"check {TESTS}::test_matmul --case {{}} --bound a=2": (
        2,
        "--bound does not go with a kernel test",
    ),
    f"check {TESTS}::test_matmul --case {{}} --dtype int8": (
        2,
        "--dtype does not go with a kernel test",
    ),
    f"profile {TESTS}::test_matmul --case {{}} --set a=2": (
        2,
        "--set does not go with a kernel test",
    ),
    "lint wrong_now.py --shape 4,4": (2, "--shape is for a --kernel to run"),
    "lint wrong_now.py --ranks 1": (2, "--ranks is for a --kernel to run"),
    "lint wrong_now.py --case-timeout 9": (2, "--case-timeout is for a --kernel"),
    "lint wrong_now.py --unsafe-fixes": (2, "--unsafe-fixes goes with --fix or --diff"),
    f"lint --kernel {STREAM} --shape 4,4 --diff": (
        2,
        "name a file, or a folder, to fix",
    ),
    f"lint --kernel {STREAM} --shape 4,4 --fix": (
        2,
        "name a file, or a folder, to fix",
    ),
    f"trace {TRANSPOSE}": (2, "Missing option '-o'"),
    f"trace {STREAM} -o -": (
        2,
        "give a --shape for each array of MODULE:KERNEL, or a --case of",
    ),
    f"trace {TRANSPOSE} -o none/trace.json": (2, "the folder none does not exist"),
    f"trace {TRANSPOSE} -o {TESTS[:-15]}": (2, "is a directory"),
    f"trace {TRANSPOSE} -o {'x' * 300}": (2, "File name too long"),
    f"bench own {STREAM}": (
        2,
        "give a --shape for each array of MODULE:KERNEL, or a --case of",
    ),
    f"bench own {TRANSPOSE[:-7]}100,128": (1, "the kernel rejects this"),
    "bench kernel tiled -n 128 -m 128": (2, "-m is for transpose"),
    "bench reference --size huge": (
        2,
        "'huge' is not one of 'tiny', 'small', 'medium', 'large'",
    ),
    "simulate": (2, "No such command 'simulate'"),
    "run absent.py": (2, "Invalid value for 'SCRIPT.py': File 'absent.py'"),
    f"run {os.devnull}": (2, "is not a file: a pipe can be read only once"),
    "run --level 0.8 wrong_now.py": (
        2,
        "'0.8' is not one of '0.3', '0.4', '0.5', '0.6', '0.7'",
    ),
    "grade broken.py": (1, "cannot import broken.py: invalid syntax"),
    "grade nowhere.py": (2, "does not exist"),
    "grade conv2d.py --seed -1": (2, "not in the range 0<=x<=4294967295"),
    "measure conv2d.py --json nowhere/a.json": (2, "the folder nowhere does not exist"),
    "measure conv2d.py -k 64x64": (
        2,
        "no test has '64x64' in its name: 224x224, float32, no pool; 2",
    ),
    "timing validate -k nobody": (2, "no measured kernel has 'nobody' in its name"),
    "timing validate -k matmul_hoisted": (2, "only slow ones, which --all has"),
    f"{PROOF} --sizes n=0:4": (2, "sizes are NAME=1:300"),
    f"{PROOF} --sizes n=-3": (2, "sizes are NAME=1:300"),
    "migrate wrong_old.py --test t.py::t --dtype float16": (
        2,
        "--dtype does not go with --test",
    ),
    f"{PROOF} --sizes n=4 --dtype floaty": (2, "NKI has no such dtype"),
    "migrate wrong_old.py --kernel kopy --shape 4,4": (
        1,
        "; it has copy; did you mean copy?",
    ),
}


def test_each_ends_in_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for line, (code, said) in WRONG.items():
        result = CliRunner().invoke(main, shlex.split(line))
        assert isinstance(result.exception, SystemExit), (line, result.exception)
        assert result.exit_code == code, (line, result.output)
        assert said in " ".join(result.stderr.split()), (line, result.stderr)
        assert result.output.count("Error:") <= 1, (line, result.output)
        assert "Traceback" not in result.output, line
        assert "/difftest/" not in result.output, line
    assert sorted(path.name for path in tmp_path.glob("*.*")) == sorted(FILES)


LACKING = {
    "migrate wrong_old.py -o new.py": "migrating needs libcst: pip install '/path/to/nki-dif",
    f"profile {TRANSPOSE} --plot picture.png": "a picture needs matplotlib",
}


def test_a_missing_package_is_reported_before_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("difftest.support.choices.find_spec", lambda name: None)
    (tmp_path / "wrong_old.py").write_text(FILES["wrong_old.py"])
    for line, said in LACKING.items():
        result = CliRunner().invoke(main, shlex.split(line))
        assert result.exit_code == 2, line
        assert said in result.output, line
    assert [file.name for file in tmp_path.iterdir()] == ["wrong_old.py"]
