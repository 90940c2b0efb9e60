import contextlib

import numpy as np
import pytest

from difftest.testing.backends.base import BackendMissingError, KernelCall
from difftest.testing.backends.device.core import ARTIFACTS, DeviceError
from difftest.testing.backends.device.selftest import UntrustedDeviceError
from difftest.testing.backends.device.timers import open_timer, p99_of
from tests.unit.testing.backends.nrtpy_standin import write_nrtpy
from tests.unit.testing.backends.sdk_standin import write_classic, write_newer

CAPTURE = """#!/bin/sh
# Stands in for neuron-explorer: capture writes a profile, view prints its summary.
if [ -n "$STANDIN_CAPTURE" ]; then echo "$STANDIN_CAPTURE" >&2; exit 3; fi
if [ "$1" = capture ]; then
    test -s "$3" || exit 4
    test "$6" = --profile-nth-exec=2 || exit 5
    test "$7" = a && test -s "$8" || exit 6
    echo "$NEURON_RT_VISIBLE_CORES" > "${5%.ntff}_exec_2.ntff"
else
    test -s "$5" || exit 7
    echo "$STANDIN_SUMMARY"
fi
"""


def add(a, b):
    return a + b


def keep_nothing(folder):
    """A newer SDK that leaves no NEFF."""
    package = folder / "nki" / "__init__.py"
    package.write_text(package.read_text().replace("kernel.neff", "kernel.txt"))


CALL = KernelCall(kernel=add, inputs=(np.ones((2, 2), np.float32),) * 2)


@pytest.fixture
def timer(site, chip, monkeypatch, tmp_path_factory):
    """Opens a timer, and closes it when the test ends."""
    monkeypatch.setenv(ARTIFACTS, str(tmp_path_factory.mktemp("artifacts")))
    monkeypatch.setenv("STANDIN_LATENCY", "100 110")
    with contextlib.ExitStack() as after:
        yield lambda: after.enter_context(open_timer(lambda: add))


def test_classic_kernels_are_timed_by_nki_benchmark(site, timer):
    write_classic(site)
    opened = timer()
    assert opened.metric == "nc_latency of nki.benchmark"
    assert opened.p99(CALL, warmup=5, iterations=20) == pytest.approx(109.9)


def test_newer_kernels_are_timed_by_nrtpy_where_it_is(site, timer, monkeypatch):
    write_newer(site, "0.6.0")
    monkeypatch.setenv("DIFFTEST_NRTPY_PYTHON", str(write_nrtpy(site)))
    opened = timer()
    assert opened.metric == "device time of nrtpy"
    assert opened.p99(CALL, warmup=5, iterations=20) == pytest.approx(110)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("out of bounds", r"nrtpy: NrtError: NRT Error NRT_EXEC_OOB\(1006\)"),
        ("crash", "nrtpy_host.py ended with 7"),
        ("no NEFF", "NKI_ARTIFACTS_DIR has 0"),
    ],
)
def test_a_kernel_that_nrtpy_cannot_time_has_a_reason(
    site, timer, monkeypatch, fault, message
):
    write_newer(site, "0.6.0")
    if fault == "no NEFF":
        keep_nothing(site)
    monkeypatch.setenv("STANDIN_NRTPY", fault)
    monkeypatch.setenv("DIFFTEST_NRTPY_PYTHON", str(write_nrtpy(site)))
    with pytest.raises(DeviceError, match=message):
        timer().p99(CALL, warmup=5, iterations=20)


def test_a_kernel_is_compiled_once_for_all_its_rounds(
    site, timer, monkeypatch, tmp_path
):
    write_newer(site, "0.6.0")
    monkeypatch.setenv("STANDIN_COUNT", str(tmp_path / "count"))
    monkeypatch.setenv("DIFFTEST_NRTPY_PYTHON", str(write_nrtpy(site)))
    opened = timer()
    for _ in range(3):
        opened.p99(CALL, warmup=5, iterations=20)
    lines = (tmp_path / "count").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["add", "add", "add", *["load"] * 3]


@pytest.fixture
def capture(site, monkeypatch):
    """A newer SDK without nrtpy, and the capture tool."""
    write_newer(site, "0.5.0")
    tools = site / "bin"
    tools.mkdir()
    (tools / "neuron-explorer").write_text(CAPTURE)
    (tools / "neuron-explorer").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    monkeypatch.setenv("STANDIN_SUMMARY", '{"profile": [{"total_time": 0.000123}]}')


def test_or_by_capture_where_it_is_not(capture, timer):
    opened = timer()
    assert opened.metric == "total_time of a profile"
    assert opened.p99(CALL, warmup=5, iterations=3) == pytest.approx(123)


def test_a_percentile_is_a_duration_that_was_measured():
    assert p99_of([float(one) for one in range(1, 21)]) == 20


@pytest.mark.parametrize(
    "durations", [[], [1.0, 0.0], [-1.0], [float("nan")], [float("inf")]]
)
def test_invalid_durations_are_an_error(durations):
    with pytest.raises(DeviceError, match="accepted: positive numbers"):
        p99_of(durations)


@pytest.mark.parametrize("summary", ["", "{}", "not JSON", '{"total_time": null}'])
def test_a_summary_without_a_time_is_an_error(capture, timer, monkeypatch, summary):
    monkeypatch.setenv("STANDIN_SUMMARY", summary)
    with pytest.raises(DeviceError, match="shows no total_time"):
        timer().p99(CALL, warmup=5, iterations=1)


def test_a_tool_that_fails_says_why(capture, timer, monkeypatch):
    monkeypatch.setenv("STANDIN_CAPTURE", "no device")
    with pytest.raises(DeviceError, match="capture ended with 3: no device"):
        timer().p99(CALL, warmup=5, iterations=1)


def test_without_any_tool_the_error_names_the_packages_to_install(
    site, timer, monkeypatch
):
    write_newer(site)
    monkeypatch.setenv("PATH", str(site))
    with pytest.raises(
        BackendMissingError, match=r"no neuron-explorer and no neuron-profile"
    ):
        timer()
    monkeypatch.setenv("DIFFTEST_NRTPY_PYTHON", "/no/python")
    with pytest.raises(
        BackendMissingError, match="no program /no/python, which DIFFTEST_NRTPY"
    ):
        timer()


def test_a_classic_sdk_without_benchmark_says_so(site, timer):
    write_classic(site)
    package = site / "neuronxcc" / "nki" / "__init__.py"
    package.write_text(package.read_text().replace("def benchmark", "def no_benchmark"))
    with pytest.raises(BackendMissingError, match=r"has no benchmark"):
        timer()


def test_a_device_that_is_wrong_is_not_timed(site, timer, monkeypatch):
    write_classic(site)
    monkeypatch.setenv("STANDIN_PROBE_FAULT", "zeros")
    with pytest.raises(UntrustedDeviceError):
        timer()


def test_a_kernel_that_does_not_compile_has_no_latency(site, timer, monkeypatch):
    write_classic(site)
    opened = timer()
    monkeypatch.setenv("STANDIN_FAULT", "compiler error")
    with pytest.raises(DeviceError, match="NCC_EVRF007"):
        opened.p99(CALL, warmup=5, iterations=20)
