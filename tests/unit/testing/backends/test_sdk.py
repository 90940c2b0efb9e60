import numpy as np
import pytest

from difftest.testing.backends.base import (
    BackendMissingError,
    Crashed,
    KernelCall,
    Rejected,
    Unsupported,
    poisoned_array,
)
from difftest.testing.backends.sdk import SdkSimulator, detect_sdk, sdk_simulator
from difftest.testing.backends.selection import select_backends
from tests.unit.testing.backends.sdk_standin import (
    SDK,
    STUB_TEXT,
    write_classic,
    write_metadata,
    write_newer,
    write_package,
)


@pytest.fixture(params=["classic", "newer"])
def simulator(request, site):
    if request.param == "classic":
        write_classic(site)
        return SdkSimulator(detect_sdk().classic)
    write_newer(site)
    return SdkSimulator(detect_sdk().newer)


def test_the_description_has_the_version(site):
    write_classic(site)
    assert sdk_simulator().description == (
        "the Neuron SDK's simulator neuronxcc.nki.simulate_kernel (neuronxcc 2.21.18209.0)"
    )


def test_the_error_of_a_missing_sdk_has_the_state_and_the_remedy(site):
    write_metadata(site, "neuronx-cc", "1.0.post1", STUB_TEXT)
    with pytest.raises(BackendMissingError) as caught:
        sdk_simulator()
    assert str(caught.value).splitlines() == [
        "the Neuron SDK's simulator is not here.",
        "  found:  neuronx-cc 1.0.post1 from PyPI, an empty stub that is not the SDK",
        "  found:  no package nki",
        "  remedy: on Linux x86-64, install neuronx-cc from AWS's own package index",
        "          (awsdocs-neuron.readthedocs-hosted.com, Setup Guide),",
        "          after pip uninstall of a stub; or run on the embedded simulator:",
        "          --simulate=embedded",
    ]


def test_a_classic_sdk_without_simulate_kernel_says_so(site):
    write_package(site, "neuronxcc", "")
    with pytest.raises(
        BackendMissingError, match=r"whose neuronxcc\.nki has no simulate_kernel"
    ):
        sdk_simulator()


def test_a_newer_sdk_without_simulate_says_so(site):
    """As of SDK 2.28: a package nki with jit and without a simulator."""
    (site / "nki").mkdir()
    (site / "nki" / "__init__.py").write_text(
        "def jit(fn): return fn\n__version__ = '0.2.0'"
    )
    with pytest.raises(
        BackendMissingError, match=r"nki 0\.2\.0, whose nki has no simulate"
    ):
        sdk_simulator()


def test_returned_outputs_count_and_not_the_passed_ones(simulator):
    def copy(a, result):
        return a.copy()

    result = poisoned_array((2,), np.dtype("float32"))
    outcome = simulator.run(
        KernelCall(kernel=copy, inputs=(np.ones(2, np.float32),), outputs=(result,))
    )
    assert [output.tolist() for output in outcome.outputs] == [[1, 1]]
    assert outcome.unwritten == (None,)


def test_a_copy_that_comes_back_of_an_argument_that_is_written_counts_once(simulator):
    """AWS's idiom on an API that returns copies, and may or may not update the array passed."""

    def updated(a, gives, also):
        result = a + 1
        if also:
            a[...] = result
        other = np.full_like(a, 7)
        return {"it": result.copy(), "both": (other, result.copy()), "other": other}[
            gives
        ]

    for gives, also, results, expected in (
        ("it", True, 1, [[2, 2]]),
        ("it", False, 1, [[2, 2]]),
        ("both", True, 2, [[7, 7], [2, 2]]),
        ("other", True, 2, [[7, 7], [2, 2]]),
        # more than the reference has: that must be reported
        (
            "other",
            True,
            1,
            [[7, 7], [2, 2]],
        ),
        ("it", True, None, [[2, 2]]),
        ("other", True, None, [[7, 7], [2, 2]]),
    ):
        call = KernelCall(
            kernel=updated,
            inputs=(np.ones(2, np.float32),),
            parameters={"gives": gives, "also": also},
            targets=(0,),
            results=results,
        )
        outcome = simulator.run(call)
        assert [output.tolist() for output in outcome.outputs] == expected


def test_an_array_that_equals_an_argument_is_another_where_the_reference_has_both(
    simulator,
):
    def copied(a):
        a += 1
        return a.copy()

    call = KernelCall(
        kernel=copied, inputs=(np.ones(2, np.float32),), targets=(0,), results=2
    )
    assert [output.tolist() for output in simulator.run(call).outputs] == [[2, 2]] * 2


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (AssertionError, Rejected),
        (SyntaxError, Rejected),
        (NameError, Crashed),
        (AttributeError, Crashed),
        (ZeroDivisionError, Crashed),
        (ImportError, Crashed),
        (NotImplementedError, Unsupported),
    ],
)
def test_errors_become_outcomes(simulator, error, outcome):
    def failing(a):
        raise error("no")

    result = simulator.run(KernelCall(kernel=failing, inputs=(np.ones(2),)))
    assert isinstance(result, outcome)
    assert isinstance(result.error, error)


def test_auto_takes_the_sdk_where_there_is_one(site):
    write_package(site, "neuronxcc", SDK)
    assert [backend.name for backend in select_backends("auto", device=False)] == [
        "sdk"
    ]


def test_auto_takes_the_newer_sdk_too(site):
    write_newer(site)
    (backend,) = select_backends("auto", device=False)
    assert backend.description == "the Neuron SDK's simulator nki.simulate (nki 0.3.0)"
