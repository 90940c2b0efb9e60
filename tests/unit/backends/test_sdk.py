import numpy as np
import pytest

from difftest.backends import select_backends
from difftest.backends.base import BackendMissingError, Call, Crashed, Ran, Rejected, poisoned
from difftest.backends.sdk import SdkSimulator, detect
from difftest.simulator.frontend.install import embedded
from tests.unit.backends.sdk_standin import SDK, STUB_TEXT, write_metadata, write_package


def test_nothing_installed(site):
    assert detect().module is None
    assert detect().found == "no package neuronxcc"


def test_the_empty_stub_is_named_as_a_stub(site):
    """The distribution neuronx-cc of PyPI holds a folder `neuronx-cc` that cannot be imported."""
    write_metadata(site, "neuronx-cc", "1.0.post1", STUB_TEXT)
    write_metadata(site, "nki", "0.0.1", STUB_TEXT)
    assert detect().module is None
    assert detect().found == (
        "neuronx-cc 1.0.post1 from PyPI, an empty stub that is not the SDK; "
        "nki 0.0.1 from PyPI, an empty stub that is not the SDK"
    )


def test_a_package_that_fails_to_import_is_not_the_sdk(site):
    write_package(site, "neuronxcc", None, f"raise ImportError({STUB_TEXT!r})")
    assert detect().module is None
    assert detect().found.startswith("the package neuronxcc, which fails to import: WRONG PACKAGE")


def test_a_package_without_nki_is_not_the_sdk(site):
    write_package(site, "neuronxcc", None)
    assert "No module named 'neuronxcc.nki'" in detect().found


def test_the_embedded_modules_are_not_the_sdk(site):
    with embedded():
        assert detect().found == "the embedded modules stand for neuronxcc in this process"


def test_an_sdk_is_found_with_its_version(site):
    write_package(site, "neuronxcc", SDK)
    write_metadata(site, "neuronx-cc", "2.21.18209.0", "The Neuron compiler.")
    assert detect().module is not None
    assert detect().found == "neuronxcc 2.21.18209.0"
    assert SdkSimulator().description == "the Neuron SDK's simulator (neuronxcc 2.21.18209.0)"


def test_a_missing_sdk_says_what_was_found_and_how_to_get_it(site):
    write_metadata(site, "neuronx-cc", "1.0.post1", STUB_TEXT)
    with pytest.raises(BackendMissingError) as caught:
        SdkSimulator()
    assert str(caught.value).splitlines() == [
        "the Neuron SDK's simulator (neuronxcc.nki.simulate_kernel) is not here.",
        "  found:  neuronx-cc 1.0.post1 from PyPI, an empty stub that is not the SDK",
        "  remedy: on Linux x86-64, install neuronx-cc from AWS's own package index",
        "          (awsdocs-neuron.readthedocs-hosted.com, Setup Guide),",
        "          after pip uninstall of a stub; or run on the embedded simulator:",
        "          --simulate=embedded",
    ]


def test_an_sdk_without_simulate_kernel_says_so(site):
    write_package(site, "neuronxcc", "")
    with pytest.raises(BackendMissingError, match=r"whose neuronxcc\.nki has no simulate_kernel"):
        SdkSimulator()


def add(a, b, scale=1):
    return (a + b) * scale


def test_it_runs_a_kernel_with_its_parameters(site):
    write_package(site, "neuronxcc", SDK)
    ones = np.ones(2, np.float32)
    outcome = SdkSimulator().run(Call(kernel=add, inputs=(ones, ones), parameters={"scale": 3}))
    assert isinstance(outcome, Ran)
    assert [output.tolist() for output in outcome.outputs] == [[6, 6]]


def test_it_launches_an_spmd_grid(site):
    class Kernel:
        def __getitem__(self, grid):
            return lambda a: a * len(grid)

    write_package(site, "neuronxcc", SDK)
    outcome = SdkSimulator().run(Call(kernel=Kernel(), inputs=(np.ones(2),), grid=(2, 3)))
    assert outcome.outputs[0].tolist() == [2, 2]


def test_outputs_written_in_place_are_returned_with_what_was_never_written(site):
    def half(a, result):
        result[:1] = a[:1]

    write_package(site, "neuronxcc", SDK)
    result = poisoned((2,), np.dtype("float32"))
    outcome = SdkSimulator().run(Call(kernel=half, inputs=(np.ones(2),), outputs=(result,)))
    assert outcome.outputs == (result,)
    assert outcome.unwritten[0].tolist() == [False, True]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(AssertionError, Rejected), (SyntaxError, Rejected), (NameError, Crashed)],
)
def test_errors_become_outcomes(site, error, outcome):
    def failing(a):
        raise error("no")

    write_package(site, "neuronxcc", SDK)
    result = SdkSimulator().run(Call(kernel=failing, inputs=(np.ones(2),)))
    assert isinstance(result, outcome)
    assert isinstance(result.error, error)


def test_auto_takes_the_sdk_where_there_is_one(site):
    write_package(site, "neuronxcc", SDK)
    assert [backend.name for backend in select_backends("auto", device=False)] == ["sdk"]
