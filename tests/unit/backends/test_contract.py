"""What every backend does, whatever runs the kernel.

The SDK and the device are not at hand: a package that stands in for the SDK gives the embedded
simulator's functions under the SDK's documented names.
"""

from dataclasses import replace

import numpy as np
import pytest

from difftest.backends.base import Crashed, KernelCall, Ran, Rejected, poisoned
from difftest.backends.device.backend import device_backend
from difftest.backends.embedded import EmbeddedSimulator, PlainSimulator
from difftest.backends.sdk import CLASSIC, NEWER, SdkSimulator, close_backend, detect_sdk
from difftest.simulator.frontend.install import embedded
from tests.unit.backends.sdk_standin import EMBEDDED, NEWER_EMBEDDED, write_package

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl
    import neuronxcc.nki.typing as nt

FLOAT32 = np.dtype("float32")

BACKENDS = {
    "embedded": lambda: EmbeddedSimulator(),
    "plain": lambda: PlainSimulator(),
    "classic simulator": lambda: SdkSimulator(detect_sdk().classic, "classic"),
    "newer simulator": lambda: SdkSimulator(detect_sdk().newer, "newer"),
    "classic device": lambda: device_backend().backend_for(CLASSIC),
    "newer device": lambda: device_backend().backend_for(NEWER),
}


@pytest.fixture(params=BACKENDS)
def backend(request, site, chip):
    if request.param.startswith("classic"):
        write_package(site, "neuronxcc", EMBEDDED)
    if request.param.startswith("newer"):
        (site / "nki").mkdir()
        (site / "nki" / "__init__.py").write_text(NEWER_EMBEDDED)
    made = BACKENDS[request.param]()
    yield made
    close_backend(made)


def ones(*shape):
    return np.ones(shape, np.float32)


@nki.jit
def scale(a, factor=2.0):
    assert a.shape[1] > 1, "scale takes at least two columns"
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(result, nl.load(a) * factor)
    return result


@nki.jit
def scale_into(a, result: nt.mutable_tensor, columns=2):
    part = slice(0, columns)
    nl.store(result[:, part], nl.load(a[:, part]) * 2.0)


@nki.jit
def both(a):
    first = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    second = nl.ndarray(a.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nl.store(first, nl.load(a))
    nl.store(second, nl.load(a, dtype=nl.bfloat16))
    return first, second


@nki.jit
def misspelt(a):
    return no_such_name  # noqa: F821


@nki.jit
def by_program(a):
    result = nl.ndarray((2, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(result[nl.program_id(0)], nl.load(a) * 2.0)
    return result


def test_it_has_a_name_and_a_description(backend):
    assert backend.name.isidentifier()
    assert "\n" not in backend.description


def test_the_kernels_result_comes_back_in_its_dtype(backend):
    outcome = backend.run(KernelCall(kernel=scale, inputs=(ones(3, 2),)))
    assert isinstance(outcome, Ran)
    (output,) = outcome.outputs
    assert output.dtype == FLOAT32
    assert np.array_equal(output, 2 * ones(3, 2))


def test_several_results_come_back_in_order(backend):
    first, second = backend.run(KernelCall(kernel=both, inputs=(ones(3, 2),))).outputs
    assert (first.dtype, second.dtype) == (FLOAT32, np.dtype("bfloat16"))


def test_parameters_are_passed_by_name(backend):
    call = KernelCall(kernel=scale, inputs=(ones(3, 2),), parameters={"factor": 5.0})
    assert np.array_equal(backend.run(call).outputs[0], 5 * ones(3, 2))


def test_a_grid_is_launched(backend):
    outcome = backend.run(KernelCall(kernel=by_program, inputs=(ones(3, 2),), grid=(2,)))
    assert np.array_equal(outcome.outputs[0], 2 * ones(2, 3, 2))


def test_an_output_that_is_passed_is_written_in_place(backend):
    result = poisoned((3, 2), FLOAT32)
    outcome = backend.run(KernelCall(kernel=scale_into, inputs=(ones(3, 2),), outputs=(result,)))
    assert outcome.outputs == (result,)
    assert np.array_equal(result, 2 * ones(3, 2))
    assert outcome.unwritten == (None,)


def test_what_is_not_written_of_it_is_found(backend):
    result = poisoned((3, 2), FLOAT32)
    call = KernelCall(
        kernel=scale_into, inputs=(ones(3, 2),), outputs=(result,), parameters={"columns": 1}
    )
    (mask,) = backend.run(call).unwritten
    assert mask.tolist() == [[False, True]] * 3


def test_the_kernels_own_contract_is_a_rejection(backend):
    outcome = backend.run(KernelCall(kernel=scale, inputs=(ones(3, 1),)))
    assert isinstance(outcome, Rejected)
    assert "scale takes at least two columns" in str(outcome.error)


def test_a_rule_of_the_machine_is_a_rejection(backend):
    outcome = backend.run(KernelCall(kernel=scale, inputs=(ones(129, 2),)))
    assert isinstance(outcome, Rejected)
    assert "128" in str(outcome.error)


def test_a_slip_in_the_kernels_python_is_a_crash(backend):
    outcome = backend.run(KernelCall(kernel=misspelt, inputs=(ones(3, 2),)))
    assert isinstance(outcome, Crashed)
    assert isinstance(outcome.error, NameError)


def test_inputs_stay_what_they_were(backend):
    values = ones(3, 2)
    backend.run(KernelCall(kernel=scale, inputs=(values,)))
    assert np.array_equal(values, ones(3, 2))


TRACING = ("embedded", "plain")


def test_a_trace_comes_back_where_there_are_traces_and_only_when_asked(backend):
    call = KernelCall(kernel=scale, inputs=(ones(3, 2),))
    assert backend.run(call).trace is None
    outcome = backend.run(replace(call, record=True))
    assert np.array_equal(outcome.outputs[0], 2 * ones(3, 2))
    if backend.name in TRACING:
        assert [event.opcode for event in outcome.trace] == [
            "dma_copy",
            "tensor_scalar",
            "dma_copy",
        ]
    else:
        assert outcome.trace is None


def test_a_trace_of_an_output_that_is_passed(backend):
    result = poisoned((3, 2), FLOAT32)
    call = KernelCall(kernel=scale_into, inputs=(ones(3, 2),), outputs=(result,), record=True)
    trace = backend.run(call).trace
    assert (trace is not None) == (backend.name in TRACING)
