import json
import sys

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from tests.unit.testing.backends.conftest import chip, nodes, site
from tests.unit.testing.backends.sdk_standin import write_classic

__all__ = ["chip", "nodes", "site"]

KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def fused_conv2d_maxpool(X, W, bias, pool_size=1):
    out = nl.ndarray((1, 1), dtype=X.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(bias[0:1]).reshape((1, 1)))
    return out
"""
ONE = "32x16, float16, no pool"


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "conv2d", raising=False)
    path = tmp_path / "conv2d.py"
    path.write_text(KERNEL)
    return path


def measure(*arguments):
    result = CliRunner().invoke(main, ["measure", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        result.exception
    )
    return result.exit_code, result.output


@pytest.fixture
def machine(site, chip, monkeypatch):
    """A classic SDK that runs each kernel in about so many microseconds."""
    write_classic(site)

    def takes(*microseconds):
        monkeypatch.setenv("STANDIN_LATENCY", " ".join(map(str, microseconds)))

    return takes


@pytest.mark.parametrize(
    ("latency", "result", "code"),
    [(83.9, "full", 0), (84, "full", 0), (84.1, "missed", 1)],
)
def test_the_measured_latency_decides_result_and_exit_code(
    machine, file, latency, result, code
):
    machine(latency)
    got, output = measure(file, "-k", ONE)
    assert output.splitlines()[0] == f"{ONE}: {result}"
    assert f"p99 {latency:,.1f} us (nc_latency of nki.benchmark)" in output
    assert got == code


def test_the_results_as_json(machine, file, tmp_path):
    machine(80)
    measure(file, "-k", ONE, "--json", tmp_path / "results.json")
    (result,) = json.loads((tmp_path / "results.json").read_text())
    assert (result["test"], result["result"]) == (ONE, "full")
    assert result["p99_us"] == 80


def test_without_a_device_it_measures_nothing(site, nodes, file):
    code, output = measure(file)
    assert code == 1
    assert "a Neuron device cannot be used here" in output


def test_a_kernel_that_fails_is_no_measurement(machine, file, monkeypatch):
    machine(80)
    monkeypatch.setenv("STANDIN_FAULT", "compiler error")
    code, output = measure(file, "-k", ONE)
    assert code == 1
    assert "NCC_EVRF007" in output
