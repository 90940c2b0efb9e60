import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

import difftest
from difftest.cli.main import main
from difftest.simulator.frontend.launchable import physical_cores
from difftest.simulator.frontend.levels import LevelWarning
from difftest.testing.host.loading import parse_grid
from difftest.testing.host.options import PICTURES
from difftest.timing import parameters
from tests.every import every

STREAM = "kernels.classic.vector_add:vector_add_stream"
TRANSPOSE = "kernels.classic.transpose:matrix_transpose"


def run(*arguments):
    return CliRunner().invoke(main, ["profile", *arguments])


def test_a_summary_tables_and_advice():
    result = run(
        STREAM, "--shape", "25600", "--shape", "25600", "--set", "FREE_DIM=200"
    )
    assert result.exit_code == 0, result.output
    third = result.stdout.splitlines()[2]  # as report, verdict and tune have it
    assert third == (
        "not measured; compiled as classic-benchmark: DMA descriptors all from one generator"
    )
    for part in (
        "nc_latency",
        "Engines (predicted)",
        "Source lines (us, predicted)",
        "Advice",
    ):
        assert part in result.stdout


def test_a_machine_without_timing_data(monkeypatch):
    monkeypatch.setattr(parameters, "_PARAMETERS", {"trn2": parameters.TRN2})
    result = run(STREAM, "--shape", "256", "--shape", "256", "--machine", "trn3")
    assert result.exit_code == 1
    assert "no timing data for machine 'trn3'; there are trn2" in result.output


def test_the_toolchain_of_the_profiler_lays_descriptors_down():
    toolchain = "--toolchain", "classic-profile"
    result = run(TRANSPOSE, "--shape", "256,128", "--dtype", "float16", *toolchain)
    assert result.exit_code == 0, result.output
    assert "DMA descriptors laid down" in result.stdout
    assert result.stdout.startswith("total_time ")


def test_a_case_of_a_kernel_test():
    case = {
        "values": {"M": 128, "K": 256, "N": 512},
        "dtype": "float16",
        "data": {
            name: {"random": {"seed": 0, "spread": 1}} for name in ("lhsT", "rhs")
        },
    }
    test = "tests/kernels/test_matmul.py::test_nki_matmul_tiled"
    result = run(test, "--case", json.dumps(case))
    assert result.exit_code == 0, result.output
    assert "compiled as classic-benchmark" in result.stdout
    assert "matmul.py:51" in result.stdout


def closed_pipe(*_):
    raise BrokenPipeError


def test_files_are_written_although_nobody_reads_the_output(tmp_path, monkeypatch):
    trace = tmp_path / "trace.json"
    report = tmp_path / "report.json"
    monkeypatch.setattr("difftest.cli.profile.print_profile", closed_pipe)
    result = run(
        TRANSPOSE, "--shape", "128,128", "--perfetto", str(trace), "--json", str(report)
    )
    assert result.exit_code == 1
    assert json.loads(trace.read_text())["traceEvents"]
    assert json.loads(report.read_text())["predicted"] is True


def test_bad_files_are_refused_before_anything_is_written(tmp_path):
    trace = tmp_path / "trace.json"
    common = (TRANSPOSE, "--shape", "128,128", "--perfetto", str(trace))
    result = run(*common, "--plot", str(tmp_path / "picture.gif"))
    assert f"its name ends in {', '.join(PICTURES)}; got picture.gif" in result.output
    result = run(*common, "--json", str(tmp_path / "none" / "report.json"))
    assert "the folder" in result.output
    assert not trace.exists()


OWN = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def f(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    n = 0
    tile = nl.load(x[n:128, :])  # a comment with a [/bracket]
    nl.store(out[0:128, :], tile)
    return out


@nki.jit
def spmd(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    row = nl.program_id(0)
    nl.store(out[row, :], nl.load(x[row, :]))
    return out
"""
TEST = """
from difftest import kernel_test
from {kernels} import f, spmd


@kernel_test(
    kernel=spmd,
    reference=lambda x: x,
    domain={{"n": (4,)}},
    inputs={{"x": "n 8"}},
    grid=lambda n: (n,),
)
def test_spmd(case):
    case.check()
"""
SPMD_CASE = json.dumps({"values": {"n": 4}, "dtype": "float32", "data": {"x": "iota"}})


def run_in(folder, *arguments, **environment):
    """As in a separate process: modules of the folder are forgotten."""
    own = ("kernels", "mine", "own", "deep", "test_own", "other")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        before = list(sys.path)
        patch.setattr(sys, "path", list(before))
        hidden = {
            name: sys.modules.pop(name)
            for name in list(sys.modules)
            if name.split(".")[0] in own
        }
        try:
            result = CliRunner(env=environment).invoke(main, ["profile", *arguments])
            assert sys.path[-len(before) :] == before
            return result
        finally:
            for name in [name for name in sys.modules if name.split(".")[0] in own]:
                del sys.modules[name]
            sys.modules.update(hidden)


def run_apart(folder, *arguments, **environment):
    """In a process of its own, as a user of the installed package does."""
    return subprocess.run(
        [sys.executable, "-m", "difftest", "profile", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(difftest.__file__).parents[1]),
            **environment,
        },
        capture_output=True,
        text=True,
    )


@every("layout", ["kernels/x.py", "src/kernels/x.py", "kernels.py"])
def test_the_users_package_comes_before_the_shipped_one(tmp_path, layout):
    file = tmp_path / layout
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(OWN)
    module = "kernels" if layout == "kernels.py" else "kernels.x"
    result = run_in(tmp_path, f"{module}:f", "--shape", "128,64")
    assert result.exit_code == 0, result.stderr
    assert file.name in result.stdout


@every("file", ["own.py", "plain/own.py", "src/mine/deep/own.py"])
def test_a_kernel_is_named_by_its_file(tmp_path, file):
    for folder in ("src/mine", "src/mine/deep", "plain"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for package in ("src/mine", "src/mine/deep"):
        (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / "src/mine/other.py").write_text("")
    relative = "from .. import other\n" if "deep" in file else ""
    (tmp_path / file).write_text(relative + OWN)
    result = run_in(tmp_path, f"{file}:f", "--shape", "128,64")
    assert result.exit_code == 0, result.stderr
    assert "own.py:" in result.stdout


@every(
    "file, source, error",
    [
        (
            "own.py",
            "def f(:\n",
            "cannot import own.py: invalid syntax (own.py, line 1)",
        ),
        ("json.py", OWN, "json is also the name of the module at "),
    ],
)
def test_a_file_that_does_not_load(tmp_path, file, source, error):
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / file).write_text(source)
    result = run_in(tmp_path, f"deep/{file}:f", "--shape", "128,64")
    assert result.exit_code == (1 if file == "own.py" else 2)
    assert error.replace("own.py:", "deep/own.py:") in result.stderr
    assert "Traceback" not in result.stderr


def test_the_shipped_kernels_are_there_where_the_user_has_none(tmp_path):
    result = run_apart(tmp_path, TRANSPOSE, "--shape", "128,128", COLUMNS="40")
    assert result.returncode == 0, result.stderr
    row = next(
        line for line in result.stdout.splitlines() if line.startswith("│ tensor ")
    )
    assert len(row) == 100 or row.rstrip().endswith("│"), (
        "numbers are whole in a narrow terminal"
    )


def test_source_lines_are_printed_as_they_are(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    result = run_in(tmp_path, "own:f", "--shape", "128,64", COLUMNS="200")
    assert result.exit_code == 0, result.stderr
    assert "tile = nl.load(x[n:128, :])  # a comment with a [/bracket]" in result.stdout


def test_the_output_of_a_kernel_stays_on_its_stream(tmp_path, monkeypatch):
    """A file, for example, while rich prints captured text on the terminal next to a bar."""
    monkeypatch.setattr(Console, "is_terminal", True)
    (tmp_path / "own.py").write_text(
        OWN.replace("    tile =", "    print('hello')\n    tile =")
    )
    assert run_in(tmp_path, "own:f", "--shape", "128,64").stdout.startswith("hello\n")


def test_a_grid_over_two_cores():
    assert parse_grid("4,nc2") == (4, 2)
    assert physical_cores(parse_grid("2, nc2")) == (0, 1, 0, 1)
    assert physical_cores(parse_grid("4,2")) == ()


@every(
    "files, test",
    [
        ({"own.py": OWN, "test_own.py": TEST.format(kernels="own")}, "test_own.py"),
        (
            {
                "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['src']\n",
                "src/mine/__init__.py": "",
                "src/mine/own.py": OWN,
                "tests/test_own.py": TEST.format(kernels="mine.own"),
            },
            "tests/test_own.py",
        ),
        (
            {
                "mine/__init__.py": "",
                "mine/own.py": OWN,
                "mine/tests/__init__.py": "",
                "mine/tests/test_own.py": TEST.format(kernels="..own"),
            },
            "mine/tests/test_own.py",
        ),
    ],
)
def test_a_case_of_a_test_that_pytest_finds(tmp_path, files, test):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    result = run_in(tmp_path, f"{test}::test_spmd", "--case", SPMD_CASE)
    assert result.exit_code == 0, result.stderr
    assert "own.py" in result.stdout


def test_a_test_that_cannot_be_imported_is_shown(tmp_path):
    (tmp_path / "test_own.py").write_text(TEST.format(kernels="nowhere"))
    result = run_in(tmp_path, "test_own.py::test_spmd", "--case", SPMD_CASE)
    assert result.exit_code == 1
    assert "No module named 'nowhere'" in result.stderr
    assert "kernel.py" not in result.stderr


TODAYS = """
import nki
import nki.language as nl

@nki.jit(platform_target="trn1")
def named(a):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a))
    return out

unknown = nki.jit(named.function, platform_target="trn9")

@nki.jit
def misspelt(a):
    return nl.ndaray(a.shape, a.dtype)

class Kernel:
    pass
"""


def test_a_broken_kernel_is_one_error_of_the_kernel(tmp_path):
    file = tmp_path / "kernel_of_todays.py"
    file.write_text(TODAYS)
    with pytest.warns(LevelWarning, match="platform_target ended with NKI 0.3"):
        result = run(f"{file}:named", "--shape", "4,4")
    assert "predicted for trn1" in result.stdout.splitlines()[0], result.output
    for name, options, said in (
        ("named", ("--level", "0.3"), f'{file}:5: @nki.jit(platform_target="trn1")'),
        ("unknown", (), "platform_target is trn9, which is not modelled"),
        (
            "misspelt",
            (),
            f"{file}:15: return nl.ndaray(a.shape, a.dtype)\n  remedy:   did you mean",
        ),
        ("Kernel", (), "has no function Kernel; its Kernel is of type type"),
    ):
        result = run(f"{file}:{name}", "--shape", "4,4", *options)
        assert isinstance(result.exception, SystemExit), name
        assert said in result.output, result.output
