import os
import re

import numpy as np
import pytest

from difftest.testing.backends.base import (
    BackendMissingError,
    Completed,
    Crashed,
    KernelCall,
    Rejected,
)
from difftest.testing.backends.device.core import (
    FAULTS,
    CoreLease,
    DeviceError,
    InfrastructureError,
    NoCoreError,
    device_backend,
)
from difftest.testing.backends.device.selftest import UntrustedDeviceError
from difftest.testing.backends.selection import select_backends
from tests.every import every
from tests.unit.testing.backends.sdk_standin import (
    STUB_TEXT,
    write_classic,
    write_metadata,
    write_newer,
    write_package,
)


def test_without_device_and_sdk_the_error_names_both(site, nodes):
    write_metadata(site, "neuronx-cc", "1.0.post1", STUB_TEXT)
    with pytest.raises(BackendMissingError) as caught:
        device_backend()
    assert str(caught.value).splitlines() == [
        "a Neuron device cannot be used here.",
        f"  found:  no Neuron device: {nodes} shows no neuron0",
        "  found:  neuronx-cc 1.0.post1 from PyPI, an empty stub that is not the SDK",
        "  found:  no package nki",
        "  remedy: run on a Trn1, Trn2 or Inf2 instance with the Neuron driver and SDK",
        "          (awsdocs-neuron.readthedocs-hosted.com, Setup Guide),",
        "          of 2.29 or later for kernels of nki;",
        "          without one, --simulate runs the same tests on a simulator",
    ]


def test_an_sdk_without_a_device_is_not_enough(site, nodes):
    write_classic(site)
    with pytest.raises(BackendMissingError, match="shows no neuron0\n  remedy"):
        device_backend()


def test_an_sdk_without_baremetal_is_not_enough(site, chip):
    write_package(site, "neuronxcc", "")
    with pytest.raises(
        BackendMissingError, match=r"whose neuronxcc\.nki has no baremetal"
    ):
        device_backend()


def test_a_baremetal_that_returns_zeros_is_not_used(site, chip):
    """SDK 2.32 with the classic namespace alone: aws-neuron/nki-samples#134."""
    write_classic(site, "2.27.5334.0")
    with pytest.raises(BackendMissingError, match=r"with 2\.32 its outputs are zeros"):
        device_backend()


def test_a_newer_sdk_before_numpy_arrays_is_not_enough(site, chip):
    (site / "nki").mkdir()
    (site / "nki" / "__init__.py").write_text(
        "def jit(fn): return fn\n__version__ = '0.2.0'"
    )
    with pytest.raises(
        BackendMissingError, match=r"nki 0\.2\.0, whose nki has no simulate\n"
    ):
        device_backend()


@pytest.fixture(params=["classic", "newer"])
def backend(request, site, chip, monkeypatch):
    """A device of either generation, as the stand-in for its SDK shows it."""
    {"classic": write_classic, "newer": write_newer}[request.param](site)
    monkeypatch.setenv("DIFFTEST_DEVICE_TIMEOUT", "5")
    devices = device_backend()
    yield devices
    devices.close()


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """The words of each run on the device so far."""
    count = tmp_path / "count"
    monkeypatch.setenv("STANDIN_COUNT", str(count))
    return lambda: [line.split() for line in count.read_text().splitlines()]


def add(a, b):
    return a + b


def run(backend, kernel=add, value=3.0):
    values = np.full((2, 2), value, np.float32)
    return backend.run(
        KernelCall(kernel=kernel, inputs=(values, np.ones((2, 2), np.float32)))
    )


def test_one_process_serves_many_data_draws_on_the_leased_core_after_the_known_kernel(
    backend, ran
):
    """Which runs once, on two inputs."""
    for value in (1, 2, 3):
        outcome = run(backend, value=value)
        assert isinstance(outcome, Completed)
        assert outcome.outputs[0].tolist() == [[value + 1] * 2] * 2
    assert [words[0] for words in ran()] == ["add"] * (2 + 3)
    assert {words[2] for words in ran()} == {"0"}
    (process,) = {words[-1] for words in ran()[2:]}
    assert int(process) != os.getpid()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("zeros", "all zero, the reference's is not"),
        ("wrong", "8192 of 8192 elements are wrong"),
        ("stale", "same, bit for bit, as for other inputs"),
        ("compiler error", "NCC_EVRF007"),
    ],
)
def test_a_device_that_is_wrong_about_known_kernels_is_not_believed(
    backend, fault, message, monkeypatch
):
    monkeypatch.setenv("STANDIN_PROBE_FAULT", fault)
    with pytest.raises(UntrustedDeviceError, match=message):
        run(backend)


def test_an_untrusted_device_is_tested_once(backend, ran, monkeypatch):
    monkeypatch.setenv("STANDIN_PROBE_FAULT", "zeros")
    for _ in range(2):
        with pytest.raises(UntrustedDeviceError):
            run(backend)
    assert len(ran()) == 1


def test_a_core_that_another_holds_is_an_error_until_it_is_free(backend):
    taken = CoreLease()
    with pytest.raises(NoCoreError, match=r"core 0 by process"):
        run(backend)
    taken.release()
    assert isinstance(run(backend), Completed)
    backend.close()
    taken = CoreLease()
    with pytest.raises(NoCoreError):
        run(backend)
    taken.release()


@every("text", ["soon", "0", "-1", "inf", "nan"])
def test_a_time_that_is_none_names_the_variable(chip, monkeypatch, text):
    monkeypatch.setenv("DIFFTEST_DEVICE_TIMEOUT", text)
    with pytest.raises(
        BackendMissingError, match=rf"TIMEOUT: received '{text}'; accepted"
    ):
        device_backend()


@every("text, seconds", [("", "60"), ("7", "7")])
def test_an_execution_is_always_limited(backend, monkeypatch, text, seconds):
    monkeypatch.setenv("NEURON_RT_EXEC_TIMEOUT", text)
    assert backend.core.environment()["NEURON_RT_EXEC_TIMEOUT"] == seconds


def test_the_newer_runtime_gets_the_kernels_lnc(site, chip, monkeypatch):
    write_newer(site)
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG", raising=False)
    backend = device_backend()

    class Kernel:
        def __init__(self, lnc=None):
            self.lnc = lnc

        def __getitem__(self, lnc):
            return Kernel(lnc)

        def __call__(self, a, b):
            return np.array([int(os.environ["NEURON_LOGICAL_NC_CONFIG"])])

    ones = np.ones(2)
    for grid, expected in (((), 1), ((2,), 2)):
        outcome = backend.run(
            KernelCall(kernel=Kernel(), inputs=(ones, ones), grid=grid)
        )
        assert outcome.outputs[0].tolist() == [expected]
    backend.close()


def test_a_compiler_error_is_a_refusal_with_its_hint_and_log(backend, monkeypatch):
    monkeypatch.setenv("STANDIN_FAULT", "compiler error")
    outcome = run(backend)
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, DeviceError)
    lines = str(outcome.error).splitlines()
    assert lines[:4] == [
        "RuntimeError: Compilation failed, see the log",
        f"hint: NCC_EVRF007 (kernel): {FAULTS['NCC_EVRF007'].hint}",
        "log:",
        "  NCC_EVRF007: too many instructions",
    ]


def test_a_kernels_fault_at_run_time_is_a_crash_and_not_run_again(
    backend, ran, monkeypatch
):
    monkeypatch.setenv("STANDIN_FAULT", "out of bounds")
    outcome = run(backend)
    assert isinstance(outcome, Crashed)
    assert (
        "hint: NRT_EXEC_OOB(1006) (kernel): an indirect DMA went out of bounds"
        in str(outcome.error)
    )
    assert "TDRV: nd0 nc0 reported an error" in str(outcome.error)
    assert len(ran()) == 2 + 1


def test_a_busy_core_is_tried_once_more(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_FLAG", str(tmp_path / "flag"))
    monkeypatch.setenv("STANDIN_FAULT", "busy once")
    assert isinstance(run(backend), Completed)


def test_a_core_that_stays_busy_is_not_the_kernels_fault(backend, ran, monkeypatch):
    monkeypatch.setenv("STANDIN_FAULT", "busy")
    with pytest.raises(InfrastructureError, match=r"NRT_EXEC_NC_BUSY\(1005\)"):
        run(backend)
    assert len(ran()) == 2 + 2
    with pytest.raises(
        InfrastructureError, match="the device failed 2 times, not the kernel"
    ):
        run(backend)
    assert len(ran()) == 2 + 2, "it is asked no more"


def test_a_hung_kernel_ends_only_its_own_process(backend, monkeypatch):
    run(backend)
    monkeypatch.setattr(backend.core, "seconds", 0.3)
    monkeypatch.setenv("STANDIN_FAULT", "hang")

    def hanging(a, b):
        return a

    outcome = run(backend, hanging)
    assert isinstance(outcome, Crashed)
    assert "no answer within 0.3 s: the process was killed" in str(outcome.error)
    monkeypatch.delenv("STANDIN_FAULT")
    assert isinstance(run(backend), Completed), "the core serves the next kernel"


def test_a_crash_ends_only_the_kernels_process(backend, monkeypatch):
    monkeypatch.setenv("STANDIN_FAULT", "crash")
    outcome = run(backend)
    assert isinstance(outcome, Crashed)
    assert "killed by SIGSEGV" in str(outcome.error)
    monkeypatch.delenv("STANDIN_FAULT")
    assert isinstance(run(backend), Completed)


def test_a_module_that_is_patched_between_two_tests_is_seen(backend, monkeypatch):
    """Two tests may share a kernel and patch its module: the process of before is not asked."""

    def shifted(a, b):
        return a + b + SHIFT

    assert run(backend, shifted).outputs[0][0, 0] == 4
    monkeypatch.setitem(globals(), "SHIFT", 10.0)
    backend.rest()
    assert run(backend, shifted).outputs[0][0, 0] == 14


SHIFT = 0.0


def test_simulator_and_device_together(site, chip):
    write_classic(site)
    names = [backend.name for backend in select_backends("auto", device=True)]
    assert names == ["sdk", "device"]


def test_the_embedded_simulator_and_the_device_cannot_share_a_run(site, chip):
    write_classic(site)
    with pytest.raises(
        BackendMissingError, match=re.escape("--simulate=sdk --device, or one run")
    ):
        select_backends("embedded", device=True)


def test_a_missing_device_is_never_replaced_by_a_simulator(site, nodes):
    with pytest.raises(
        BackendMissingError, match="a Neuron device cannot be used here"
    ):
        select_backends("auto", device=True)
