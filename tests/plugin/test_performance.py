"""The hardware stage of tests/performance, run as a person would, against a stand-in."""

from pathlib import Path

import pytest

from difftest.testing.backends.device import core as device
from difftest.testing.backends.sdk import detect_sdk
from tests.performance.test_thresholds import folder_for
from tests.unit.testing.backends.conftest import PROBES, site
from tests.unit.testing.backends.sdk_standin import forget, write_classic, write_newer

__all__ = ["site"]

ROOT = Path(__file__).parents[2]
STAGE = ROOT / "tests" / "performance"


@pytest.fixture
def stage(pytester, in_process, tmp_path_factory, monkeypatch):
    """Runs the stage on a computer with a device and a classic SDK."""
    site, nodes = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("dev")
    (nodes / "neuron0").touch()
    write_classic(site)
    monkeypatch.setattr(device, "DEVICE_NODES", nodes)
    monkeypatch.setenv("DIFFTEST_LOCK_DIR", str(nodes))
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0")

    def run(*arguments, sdk=True):
        if sdk:
            forget(monkeypatch, "neuronxcc", "nki", *PROBES)
            monkeypatch.syspath_prepend(str(site))
        return in_process("-p", "no:cacheprovider", *arguments)

    return run


def test_it_measures_and_decides(stage, pytester, monkeypatch):
    monkeypatch.setenv("STANDIN_LATENCY", "100")
    result = stage(
        STAGE, "--device", "-k", "32x16 and no", f"--junit-xml={pytester.path}/j.xml"
    )
    result.assert_outcomes(passed=1, failed=1, deselected=7)
    result.stdout.fnmatch_lines(
        [
            "*latency thresholds*",
            "32x16, float32, no pool: full",
            "  measured: p99 100.0 us (nc_latency of nki.benchmark)",
            "  limits:   110 us relaxed, 110 us full (the course's assignment)",
            "32x16, float16, no pool: missed",
        ]
    )
    xml = (pytester.path / "j.xml").read_text()
    assert 'name="difftest_result" value="missed"' in xml
    assert 'name="difftest_p99_us" value="100.0"' in xml


def test_it_takes_the_kernels_that_the_sdk_runs(site):
    assert folder_for(detect_sdk()) == "kernels.classic"  # predictions, without any SDK
    write_newer(site, "0.6.0")
    assert folder_for(detect_sdk()) == "kernels.nki"


def test_it_takes_classic_kernels_where_the_sdk_runs_them(site):
    write_classic(site)
    assert folder_for(detect_sdk()) == "kernels.classic"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((STAGE,), "the hardware stage needs a device: --device"),
        ((STAGE, "--simulate"), "the hardware stage needs a device: --device"),
        (
            (STAGE, "--device", "-n", "2"),
            "the hardware stage uses one core: run it without -n",
        ),
        (
            (STAGE, f"{ROOT}/tests/unit/support/test_rounding.py", "--device"),
            "the hardware stage runs alone",
        ),
    ],
)
def test_it_runs_alone_and_on_a_device(stage, arguments, message):
    result = stage(*arguments)
    assert result.ret != 0
    assert message in result.stderr.str() + result.stdout.str()
    assert "passed" not in result.stdout.str()


def test_a_run_of_all_tests_leaves_it_out(stage):
    others = [
        each
        for each in STAGE.parent.iterdir()
        if each.name not in (STAGE.name, "reference")
    ]
    left = [f"--ignore={each}" for each in others]
    said = stage(STAGE.parent, "--collect-only", "-q", *left).stdout.str()
    assert "tests/reference" in said
    assert "tests/performance" not in said
