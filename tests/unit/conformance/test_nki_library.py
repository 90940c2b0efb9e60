"""The recipe for nki-library on a stand-in suite: its hook, one test that passes, one that fails.

Each run has a process of its own: a suite's conftest and a second pytest do not share one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conformance import nki_library

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
TESTS = """
import os
import time
import neuron_dtypes as dt
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from nki.isa import topk
from nki.compiler.frontend import NKIFrontend, ParserFrontend
from test.utils.scripts.remote_lock_scripts import LockStatus
from test.utils.test_orchestrator import Orchestrator

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

@pytest.mark.parametrize("use", [topk, LockStatus])
def test_what_is_absent_is_no_result(use):
    use(1)

def test_is_slow():
    while True:
        time.sleep(0)

def test_is_skipped():
    pytest.skip("not here")
"""


@pytest.fixture
def suite(tmp_path):
    files = {
        "test/__init__.py": "",
        "test/conftest.py": CONFTEST,
        "test/utils/__init__.py": "",
        "test/utils/simulation_setup.py": HOOK,
        "test/utils/test_orchestrator.py": "class Orchestrator: pass",
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
    done = recipe(suite, "--limit", 2, "test/test_kernels.py")
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "| test/test_kernels.py | 7 | 3 | 4 | 1 |" in lines
    assert "| **all** | 7 | 3 | 4 | 1 |" in lines
    for cause in (
        "AssertionError:",
        "difftest.simulator.errors.NotModelledError: nki.isa.topk is not modelled",
        "NotImplementedError: test.utils.scripts.remote_lock_scripts.LockStatus is not modelled",
        "TimeoutError: the test took longer than N s",
    ):
        assert any(line.startswith(f"| 1 | `{cause}") for line in lines), cause


def test_a_suite_that_passes_ends_with_0(suite):
    done = recipe(suite, "test/test_kernels.py", "-k", "passes or traces")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| **all** | 3 | 3 | 0 | 0 |" in done.stdout.splitlines()
    assert "python -m conformance.nki_library PATH test/test_kernels.py -k 'passes or traces'" in (
        done.stdout
    )


def test_a_file_that_does_not_load_is_a_failure(suite):
    (suite / "test" / "test_broken.py").write_text("import no_such_module")
    done = recipe(suite, "test", "-k", "passes or broken")
    assert done.returncode == 1
    assert "| test/test_broken.py | 1 | 0 | 1 | 0 |" in done.stdout.splitlines()
    assert "No module named 'no_such_module'" in done.stdout


@pytest.mark.parametrize("options", [["-k", "nothing_of_this_name"], ["--no-such-option"]])
def test_no_test_is_no_table(suite, options):
    done = recipe(suite, "test", *options)
    assert done.returncode == 2
    assert "conformance: pytest ended with" in done.stderr
    assert "| **all**" not in done.stdout


def test_another_folder_is_refused(tmp_path, capsys):
    assert nki_library.main([str(tmp_path)]) == 2
    assert "no checkout of nki-library" in capsys.readouterr().err
