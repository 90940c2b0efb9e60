"""The contract of every backend, for every way to run the kernel.

The SDK and the device are not at hand: a package that stands in for the SDK gives the embedded
simulator's functions under the SDK's documented names.
"""

import numpy as np
import pytest

from difftest.simulator.entry.install import embedded
from difftest.testing.backends.base import (
    Completed,
    Crashed,
    KernelCall,
    Rejected,
    poisoned_array,
)
from difftest.testing.backends.device.core import device_backend
from difftest.testing.backends.embedded import EmbeddedSimulator, PlainSimulator
from difftest.testing.backends.sdk import CLASSIC, NEWER, SdkSimulator, detect_sdk
from tests.unit.testing.backends.sdk_standin import (
    EMBEDDED,
    NEWER_EMBEDDED,
    write_package,
)

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl
    import neuronxcc.nki.typing as nt

FLOAT32 = np.dtype("float32")

BACKENDS = {
    "embedded": lambda: EmbeddedSimulator(),
    "plain": lambda: PlainSimulator(),
    "classic simulator": lambda: SdkSimulator(detect_sdk().classic),
    "newer simulator": lambda: SdkSimulator(detect_sdk().newer),
    "classic device": lambda: device_backend().backends[CLASSIC],
    "newer device": lambda: device_backend().backends[NEWER],
}


@pytest.fixture(params=BACKENDS)
def backend(request, site, chip):
    if request.param.startswith("classic"):
        write_package(site, "neuronxcc", EMBEDDED)
    if request.param.startswith("newer"):
        (site / "nki").mkdir()
        (site / "nki" / "__init__.py").write_text(NEWER_EMBEDDED)
    backend = BACKENDS[request.param]()
    yield backend
    if backend.name == "device":
        backend.core.release()


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
def add_to(total: nt.mutable_tensor, a, gives):
    old = nl.load(total)
    more = nl.load(a)
    nl.store(total, nl.add(old, more))
    if gives == "nothing":
        return None
    twice = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(twice, nl.multiply(more, 2.0))
    return {"it": total, "another": twice, "both": (total, twice)}[gives]


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


def test_results_come_back_in_order_in_their_dtypes(backend):
    """Parameters are passed by name, a grid is launched, and inputs keep their values."""
    assert backend.name.isidentifier()
    assert "\n" not in backend.description
    values = ones(3, 2)
    for kernel, given, expected in (
        (scale, {}, [2 * values]),
        (scale, {"parameters": {"factor": 5.0}}, [5 * values]),
        (by_program, {"grid": (2,)}, [2 * ones(2, 3, 2)]),
        (both, {}, [values, values.astype("bfloat16")]),
    ):
        outcome = backend.run(KernelCall(kernel=kernel, inputs=(values,), **given))
        assert isinstance(outcome, Completed)
        for got, wanted in zip(outcome.outputs, expected, strict=True):
            assert got.dtype == wanted.dtype
            assert np.array_equal(got, wanted)
    assert np.array_equal(values, ones(3, 2))


def test_a_passed_output_is_written_in_place_and_unwritten_elements_are_found(
    backend,
):
    for columns, unwritten in ((2, None), (1, [[False, True]] * 3)):
        result = poisoned_array((3, 2), FLOAT32)
        given = {"outputs": (result,), "parameters": {"columns": columns}}
        outcome = backend.run(
            KernelCall(kernel=scale_into, inputs=(ones(3, 2),), **given)
        )
        assert outcome.outputs == (result,)
        assert np.array_equal(result[:, :columns], 2 * ones(3, columns))
        (mask,) = outcome.unwritten
        assert (mask if mask is None else mask.tolist()) == unwritten


def test_an_argument_that_is_read_and_written_is_one_result_whether_or_not_it_is_returned(
    backend,
):
    for gives, returned in (("nothing", 0), ("it", 0), ("another", 1), ("both", 1)):
        total = 3 * ones(3, 2)
        values = ones(3, 2)
        call = KernelCall(
            kernel=add_to,
            inputs=(total, values),
            parameters={"gives": gives},
            targets=(0,),
            results=1 + returned,
        )
        outcome = backend.run(call)
        assert isinstance(outcome, Completed), outcome
        wanted = [2 * ones(3, 2)] * returned + [4 * ones(3, 2)]
        assert [array.tolist() for array in outcome.outputs] == [
            one.tolist() for one in wanted
        ]
        assert outcome.unwritten == (None,) * (1 + returned)


def test_a_contract_and_a_rule_refuse_and_a_slip_crashes(backend):
    for kernel, shape, kind, said in (
        (scale, (3, 1), Rejected, "scale takes at least two columns"),
        (scale, (129, 2), Rejected, "128"),
        (misspelt, (3, 2), Crashed, "no_such_name"),
    ):
        outcome = backend.run(KernelCall(kernel=kernel, inputs=(ones(*shape),)))
        assert isinstance(outcome, kind)
        assert said in str(outcome.error)
    assert isinstance(outcome.error, NameError)


TRACING = ("embedded", "plain")


def test_a_trace_is_returned_on_request_by_backends_that_have_traces(backend):
    call = KernelCall(kernel=scale, inputs=(ones(3, 2),))
    assert backend.run(call).trace is None
    outcome = backend.run(call._replace(record=True))
    assert np.array_equal(outcome.outputs[0], 2 * ones(3, 2))
    if backend.name in TRACING:
        assert [event.opcode for event in outcome.trace] == [
            "dma_copy",
            "tensor_scalar",
            "dma_copy",
        ]
    else:
        assert outcome.trace is None
    result = poisoned_array((3, 2), FLOAT32)
    call = KernelCall(
        kernel=scale_into, inputs=(ones(3, 2),), outputs=(result,), record=True
    )
    assert (backend.run(call).trace is not None) == (backend.name in TRACING)
