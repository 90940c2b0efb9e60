"""The recipe for nki-library on a small suite: its hook, a test that passes, a test that fails.

Each run has a process of its own: a suite's conftest and a second pytest do not share one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conformance import nki_library
from conformance.outcomes import PASSED, Outcome
from conformance.stand_ins import neuron_dtypes
from difftest.simulator.frontend.nki import language
from tests.every import every

ROOT = Path(__file__).parents[3]

CONFTEST = """
import nki.isa
import pytest
from test.utils import test_orchestrator

def pytest_addoption(parser):
    parser.addoption("--test-mode")
    parser.addoption("--output-directory")
    parser.addini("artifacts_dir", "", type="string")

def pytest_configure(config):
    assert config.getoption("--test-mode") == "simulation"
    from test.utils.simulation_setup import setup_simulation_mode
    setup_simulation_mode()
"""
HOOK = """
import sys
import nki_cpu_simulator.nki.builtin
import nki_cpu_simulator.nki.compiler
import nki_cpu_simulator.nki.isa.constants
import nki_cpu_simulator.nki.language.dtypes
import nki_cpu_simulator.nki.tensor
import nki_cpu_simulator.nki.typing
from nki_cpu_simulator import nki as simulator

def setup_simulation_mode():
    sys.modules["nki"] = simulator
"""
ORCHESTRATOR = """
INF_ARTIFACT_DIR_NAME = "results"

class InferenceException(Exception):
    pass

def normalize_golden_output(golden, rank_id):
    return golden.for_rank(rank_id) if hasattr(golden, "for_rank") else golden

class Orchestrator:
    def _run_simulator_inference(self, test):
        return "alone"
"""
TESTS = """
import os
import time
import neuron_dtypes as dt
import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from types import SimpleNamespace
from nki.language import int64
from nki.compiler.frontend import NKIFrontend, ParserFrontend
from test.utils.scripts.remote_lock_scripts import LockStatus
from test.utils.test_orchestrator import InferenceException, Orchestrator

@nki.jit
def double(x):
    tile = nl.ndarray(x.shape, x.dtype)
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out

def simulated():
    os.environ["NKI_NC_VERSION"] = "gen3"
    x = dt.static_cast(np.arange(8).reshape(4, 2), dt.bfloat16)
    return x, nki.cpu_simulate(double)[1](x=x)

def test_passes():
    x, result = simulated()
    assert Orchestrator()._compiled_kernel is None
    assert dt.is_float_type(x.dtype) and not dt.is_float_type(np.int8)
    np.testing.assert_array_equal(np.asarray(result, np.float32), 2 * x.astype(np.float32))

def test_traces():
    frontend = ParserFrontend()
    assert isinstance(frontend, NKIFrontend)
    frontend.compile(double, inputs={"x": np.zeros((4, 2), np.float32)}, target="trn2", lnc=1)
    assert "NEURON_PLATFORM_TARGET_OVERRIDE" not in os.environ

def test_fails():
    x, result = simulated()
    np.testing.assert_array_equal(np.asarray(result, np.float32), x.astype(np.float32))

def test_traces_an_error():
    with pytest.raises(Exception, match="partition"):
        ParserFrontend().compile(
            double, inputs={"x": np.zeros((129, 2), np.float32)}, target="trn2", lnc=1
        )

@pytest.mark.parametrize("use", [int64, LockStatus])
def test_what_is_absent_is_no_result(use):
    use(1)

class PerRank:
    def for_rank(self, rank):
        return {"x.must_alias_input": np.full((4, 2), rank, np.float32), "count": 3}

@nki.jit
def summed(x, count, factor=2.0):
    tile = nl.ndarray(x.shape, x.dtype)
    result = nl.ndarray(x.shape, x.dtype)
    nisa.dma_copy(tile, x)
    group = ncc.ReplicaGroup([list(range(count))])
    ncc.all_reduce([tile], [result], group, nl.add)
    nisa.tensor_scalar(result, result, nl.multiply, factor)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, result)
    nisa.dma_copy(x, result)
    return out

def on_ranks(tmp_path, kernel, given, ranks, cores=2):
    target = SimpleNamespace(get_nc_gen=lambda: "gen3")
    orchestrator = Orchestrator()
    orchestrator.fs_config = SimpleNamespace(artifacts_output_directory_path=str(tmp_path))
    return orchestrator._run_simulator_inference(
        SimpleNamespace(
            inference_args=SimpleNamespace(collective_ranks=ranks),
            compiler_input=SimpleNamespace(logical_nc_config=cores, platform_target=target),
            validation_args=SimpleNamespace(golden_output={"out": np.zeros(1, np.float16)}),
            kernel_func=kernel,
            kernel_input=given,
        )
    )

@pytest.mark.parametrize("cores", [1, 2])
def test_passes_on_ranks(tmp_path, cores):
    folder = on_ranks(tmp_path, summed, PerRank(), 3, cores)
    for rank in range(3):
        found = np.fromfile(f"{folder}/output_worker_{rank}/out.bin", np.float16)
        np.testing.assert_array_equal(found, [6.0] * 8)

def test_passes_on_ranks_that_are_given_one_array(tmp_path):
    given = {"x": np.ones((4, 2), np.float32), "count": 2}
    on_ranks(tmp_path, summed, given, 2)
    assert given["x"].max() == 1
    assert on_ranks(tmp_path, summed, given, 1) == "alone"
    with pytest.raises(InferenceException, match="names a rank that was not launched"):
        on_ranks(tmp_path, summed, {**given, "count": 3}, 2)

def test_is_slow():
    time.sleep(60)

def test_is_skipped():
    pytest.skip("not here")

def test_left_out():
    raise AssertionError
"""


@pytest.fixture
def suite(tmp_path):
    files = {
        "test/__init__.py": "",
        "test/conftest.py": CONFTEST,
        "test/utils/__init__.py": "",
        "test/utils/simulation_setup.py": HOOK,
        "test/utils/test_orchestrator.py": ORCHESTRATOR,
        "test/test_kernels.py": TESTS,
        "pytest.ini": "[pytest]",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    return tmp_path


def recipe(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "conformance.nki_library", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_a_suite_is_counted_with_its_causes(suite):
    """A file that does not load is a failure too."""
    (suite / "test" / "test_broken.py").write_text("import no_such_module")
    done = recipe(suite, "--limit", 1, "test", "-k", "not left_out")
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "| test/test_kernels.py | 10 | 6 | 4 | 1 |" in lines
    assert "| test/test_broken.py | 1 | 0 | 1 | 0 |" in lines
    assert "| **all** | 11 | 6 | 5 | 1 |" in lines
    assert "No module named 'no_such_module'" in done.stdout
    for cause in (
        "AssertionError:",
        "difftest.simulator.errors.NotModelledError: nki.language.int64 is not modelled",
        "NotImplementedError: test.utils.scripts.remote_lock_scripts.LockStatus is not modelled",
        "TimeoutError: the test took longer than N s",
    ):
        assert any(line.startswith(f"| 1 | `{cause}") for line in lines), cause


def test_a_suite_that_passes_ends_with_0(monkeypatch, tmp_path, capsys):
    passed = [Outcome("test", "test_kernels.py::test_it", PASSED)]
    monkeypatch.setattr(nki_library, "outcomes", lambda *_: passed)
    assert nki_library.main([str(tmp_path), "test", "-k", "passes or traces"]) == 0
    printed = capsys.readouterr().out
    assert "| **all** | 1 | 1 | 0 | 0 |" in printed
    assert (
        "python -m conformance.nki_library PATH test -k 'passes or traces'" in printed
    )


def test_no_test_is_no_table(suite, monkeypatch, capsys):
    monkeypatch.setattr(
        pytest, "main", lambda *_, **__: pytest.ExitCode.NO_TESTS_COLLECTED
    )
    assert nki_library.main([str(suite), "test"]) == 2
    printed = capsys.readouterr()
    assert "conformance: pytest ended with NO_TESTS_COLLECTED" in printed.err
    assert "| **all**" not in printed.out


def test_another_folder_is_refused(tmp_path, capsys):
    assert nki_library.main([str(tmp_path)]) == 2
    assert "no checkout of nki-library" in capsys.readouterr().err


@every(
    "name, bits",
    [
        # 0.5, -1, 1.5, 2: the first in the lowest bits
        (
            "float8_e4m3fn_x4",
            0x403CB830,
        ),
        ("float8_e5m2_x4", 0x403EBC38),
        ("float4_e2m1fn_x4", 0x43A1),
    ],
)
def test_four_elements_are_packed_in_one(name, bits):
    dtypes = neuron_dtypes(language)
    packed = getattr(dtypes, name)
    numbers = np.array([[0.5, -1, 1.5, 2], [2, 1.5, -1, 0.5]])
    cast = dtypes.static_cast(numbers, packed)
    assert cast.shape == (2, 1)
    assert cast.view(f"u{packed.itemsize}")[0, 0] == bits
    assert dtypes.static_cast(cast, packed) is cast
    np.testing.assert_array_equal(dtypes.static_cast(cast, np.float32), numbers)
