import os
import sys

import numpy as np
import pytest

from difftest.backends.base import BackendMissingError, Crashed, KernelCall, Ran, poisoned
from difftest.backends.detection import NEWER
from difftest.backends.device.backend import device_backend
from difftest.backends.device.core import InfrastructureError
from difftest.backends.device.handover import ARTIFACTS, prepare_artifacts
from difftest.backends.device.selftest import UntrustedDeviceError
from tests.unit.backends.nrtpy_standin import write_nrtpy
from tests.unit.backends.sdk_standin import write_newer


@pytest.fixture
def count(tmp_path, monkeypatch):
    """The log of what ran on the device, and with what."""
    monkeypatch.setenv("STANDIN_COUNT", str(tmp_path / "count"))

    def read():
        lines = (tmp_path / "count").read_text().splitlines()
        return [line.split()[0] for line in lines]

    return read


@pytest.fixture
def backend(site, chip, count, tmp_path_factory, monkeypatch):
    """A newer SDK, and nrtpy in an environment of its own."""
    write_newer(site, "0.6.0")
    monkeypatch.setenv("DIFFTEST_NRTPY_PYTHON", str(write_nrtpy(site)))
    monkeypatch.setenv("DIFFTEST_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv(ARTIFACTS, str(tmp_path_factory.mktemp("artifacts")))
    monkeypatch.setenv("DIFFTEST_DEVICE_TIMEOUT", "10")
    made = device_backend()
    yield made
    made.close()


def add(a, b):
    return a + b


def call(value=3.0, dtype="float32", rows=2, kernel=add):
    values = np.full((rows, 2), value, dtype)
    return KernelCall(kernel=kernel, inputs=(values, np.ones((rows, 2), dtype)))


def test_a_kernel_is_compiled_once_and_run_by_nrtpy_on_many_draws(backend, count):
    backend.run(call())
    before = count()
    for value in (1.0, 2.0, 5.0):
        outcome = backend.run(call(value))
        assert isinstance(outcome, Ran)
        assert outcome.outputs[0].tolist() == [[value + 1] * 2] * 2
    assert count()[len(before) :] == ["load", "execute", "execute", "execute"]


def test_the_known_kernels_go_through_nrtpy_too(backend, count, monkeypatch):
    monkeypatch.setenv("STANDIN_NRTPY", "zeros")
    with pytest.raises(UntrustedDeviceError, match="all zero"):
        backend.run(call())


def test_another_session_finds_the_compiled_kernel(backend, count):
    backend.run(call())
    backend.close()
    other = device_backend()
    before = count()
    assert other.run(call(9.0)).outputs[0][0, 0] == 10
    other.close()
    assert "add" not in count()[len(before) :], "nothing was compiled"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_dtypes_that_the_runtime_forgets_come_back(backend, dtype):
    backend.run(call(dtype=dtype))
    (output,) = backend.run(call(4, dtype)).outputs
    assert output.dtype == np.dtype(dtype)
    assert output.shape == (2, 2)


def test_another_shape_is_another_program(backend, count):
    backend.run(call())
    backend.run(call(rows=3))
    assert count().count("add") == 1 + 2


def test_a_process_of_nrtpy_is_on_the_leased_core_alone(backend, count, tmp_path):
    backend.run(call())
    backend.run(call())
    last = (tmp_path / "count").read_text().splitlines()[-1]
    assert last.startswith("execute on 0 in ")
    assert int(last.split()[-1]) != os.getpid()


def run_compiled(backend, monkeypatch, fault):
    backend.run(call())
    monkeypatch.setenv("STANDIN_NRTPY", fault)
    return backend.run(call())


def test_a_kernels_fault_under_nrtpy_has_its_hint(backend, monkeypatch):
    outcome = run_compiled(backend, monkeypatch, "out of bounds")
    assert isinstance(outcome, Crashed)
    assert "hint: NRT_EXEC_OOB(1006) (kernel)" in str(outcome.error)
    assert "a line that the runtime prints" in str(outcome.error), "the log is kept"


def test_a_busy_core_under_nrtpy_is_tried_once_more_and_is_not_the_kernels_fault(
    backend, monkeypatch, count
):
    with pytest.raises(InfrastructureError, match="failed 2 times, not the kernel"):
        run_compiled(backend, monkeypatch, "busy")
    assert count()[-4:] == ["load", "execute", "load", "execute"]


def test_a_crash_of_nrtpy_is_reported(backend, monkeypatch):
    outcome = run_compiled(backend, monkeypatch, "crash")
    assert isinstance(outcome, Crashed)
    assert "with exit code 7" in str(outcome.error)


def test_a_kernel_that_hangs_under_nrtpy_is_killed(backend, monkeypatch):
    backend.run(call())
    device = backend.backend_for(NEWER)
    monkeypatch.setenv("STANDIN_NRTPY", "hang")
    settings = device.core.settings
    monkeypatch.setattr(
        device.core, "settings", type(settings)(2.0, nrtpy_python=settings.nrtpy_python)
    )
    outcome = backend.run(call())
    assert isinstance(outcome, Crashed)
    assert "no answer within 2 s" in str(outcome.error)


def test_latencies_are_in_microseconds(backend, monkeypatch):
    monkeypatch.setenv("STANDIN_LATENCY", "100 101")
    device = backend.backend_for(NEWER)
    durations = device.benchmark(call(), warmup=1, iterations=4)
    assert durations == pytest.approx([100, 101, 100, 101])


def test_a_kernel_that_writes_its_arguments_is_not_handed_over(backend, count):
    def copy(a, result):
        result[...] = a

    result = poisoned((2,), np.dtype("float32"))
    for _ in range(2):
        outcome = backend.run(
            KernelCall(kernel=copy, inputs=(np.ones(2, np.float32),), outputs=(result,))
        )
        assert outcome.outputs[0].tolist() == [1, 1]
    assert count()[-2:] == ["copy", "copy"]


def test_without_a_neff_kernels_run_as_without_nrtpy(backend, count, monkeypatch):
    """An SDK that does not know NKI_ARTIFACTS_DIR."""
    kernel_type = sys.modules["nki"].Kernel
    monkeypatch.setattr(kernel_type, "__call__", lambda kernel, *args: kernel.fn(*args))
    for value in (1.0, 2.0):
        assert backend.run(call(value)).outputs[0][0, 0] == value + 1
    assert not os.path.exists(os.environ["STANDIN_COUNT"]), "nrtpy got nothing"


def test_the_artifacts_folder_is_set_before_nki_is_imported(monkeypatch, site):
    monkeypatch.delenv(ARTIFACTS, raising=False)
    assert prepare_artifacts()
    assert os.path.isdir(os.environ[ARTIFACTS])
    monkeypatch.delenv(ARTIFACTS)


def test_once_nki_is_imported_it_is_too_late(monkeypatch, site):
    monkeypatch.delenv(ARTIFACTS, raising=False)
    write_newer(site)
    __import__("nki")
    assert not prepare_artifacts()


def test_a_missing_python_is_a_usage_error(site, chip, monkeypatch, tmp_path):
    write_newer(site)
    monkeypatch.setenv("DIFFTEST_NRTPY_PYTHON", str(tmp_path / "no-such-python"))
    with pytest.raises(BackendMissingError, match=r"no-such-python is no program"):
        device_backend()
