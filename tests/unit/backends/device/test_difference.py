import sys

import numpy as np
import pytest

from difftest.backends.base import KernelCall
from difftest.backends.device.difference import difference_text, embedded_outputs
from difftest.backends.device.embedding import ran_beside
from difftest.simulator.exact.run import ExactSettings
from tests.unit.backends.sdk_standin import write_classic

KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

@nki.jit
def matrix_transpose(a):
    result = nl.ndarray(a.shape[::-1], dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(result, nisa.nc_transpose(nl.load(a)))
    return result
"""

ONE = np.ones((2, 2), np.float32)
ULP = np.float32(2**-23)


def text(**parties):
    return difference_text([np.ones((2, 2))], {name: [one] for name, one in parties.items()})


def test_every_pair_once_in_units_in_the_last_place():
    assert text(sdk=ONE, device=ONE + 3 * ULP).splitlines() == [
        "  pairs:       largest difference, in units in the last place of the output's dtype",
        "    reference - sdk: 0",
        "    reference - device: 3",
        "    sdk - device: 3",
        "  float64:     device is farther: 3 ULP, against sdk 0",
    ]


def test_the_simulator_may_be_the_one_that_is_farther():
    assert text(sdk=ONE + 4 * ULP, device=ONE + ULP).endswith(
        "sdk is farther: 4 ULP, against device 1"
    )


def test_equally_far():
    assert text(sdk=ONE + ULP, device=ONE + ULP).endswith("sdk and device are equally far, 1 ULP")


def test_a_nan_that_stands_alone_is_infinitely_far():
    got = ONE.copy()
    got[1, 1] = np.nan
    assert "reference - device: inf" in text(device=got)


def test_those_who_have_nothing_to_say_give_their_reason():
    lines = difference_text([np.ones((2, 2))], {"embedded": "no such kernel", "device": [ONE]})
    assert "    embedded: not compared, no such kernel" in lines
    assert lines.endswith("only device was compared with it, 0 ULP away")


@pytest.fixture
def kernel(site, monkeypatch):
    """A classic kernel that was imported with an SDK."""
    write_classic(site)
    (site / "one_kernel.py").write_text(KERNEL)
    monkeypatch.delitem(sys.modules, "one_kernel", raising=False)
    import importlib

    yield importlib.import_module("one_kernel").matrix_transpose
    sys.modules.pop("one_kernel", None)


def test_the_embedded_simulator_runs_a_kernel_that_was_imported_with_the_sdk(kernel):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    (output,) = embedded_outputs(KernelCall(kernel=kernel, inputs=(values,)))
    assert np.array_equal(output, values.T)
    assert not hasattr(sys.modules["neuronxcc"], "__difftest_embedded__"), "this one keeps the SDK"


def test_it_says_how_far_rounding_may_lead_the_kernel(kernel):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    call = KernelCall(kernel=kernel, inputs=(values,), exact=ExactSettings())
    (output,) = ran_beside(call).exact.outputs
    assert np.array_equal(output.value, values.T)
    assert output.error is None


def test_its_refusal_is_its_reason(kernel):
    reason = embedded_outputs(KernelCall(kernel=kernel, inputs=(np.ones((129, 2), np.float32),)))
    assert reason.startswith("it refuses the case: ")


def test_kernels_of_the_newer_dialect_are_not_for_it():
    assert "runs kernels of neuronxcc.nki alone" in embedded_outputs(
        KernelCall(kernel=lambda a: a, inputs=())
    )
