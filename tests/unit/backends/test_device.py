import re

import numpy as np
import pytest

from difftest.backends import device, select_backends
from difftest.backends.base import BackendMissingError, Call, Crashed, Ran, Rejected
from difftest.backends.device import Device
from tests.unit.backends.sdk_standin import SDK, STUB_TEXT, write_metadata, write_package


@pytest.fixture
def nodes(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("dev")
    monkeypatch.setattr(device, "DEVICE_NODES", folder)
    return folder


def test_without_device_and_sdk_the_error_names_both(site, nodes):
    write_metadata(site, "neuronx-cc", "1.0.post1", STUB_TEXT)
    with pytest.raises(BackendMissingError) as caught:
        Device()
    assert str(caught.value).splitlines() == [
        "a Neuron device cannot be used here.",
        f"  found:  no Neuron device: {nodes} shows no neuron0",
        "  found:  no Neuron SDK: neuronx-cc 1.0.post1 from PyPI, an empty stub that is not the "
        "SDK",
        "  remedy: run on a Trn1, Trn2 or Inf2 instance with the Neuron driver and SDK",
        "          (awsdocs-neuron.readthedocs-hosted.com, Setup Guide);",
        "          without one, --simulate runs the same tests on a simulator",
    ]


def test_an_sdk_without_a_device_is_not_enough(site, nodes):
    write_package(site, "neuronxcc", SDK)
    with pytest.raises(BackendMissingError, match="shows no neuron0\n  remedy"):
        Device()


def test_an_sdk_without_baremetal_is_not_enough(site, nodes):
    write_package(site, "neuronxcc", "")
    (nodes / "neuron0").touch()
    with pytest.raises(BackendMissingError, match=r"whose neuronxcc\.nki has no baremetal"):
        Device()


@pytest.fixture
def ready(site, nodes):
    write_package(site, "neuronxcc", SDK)
    (nodes / "neuron0").touch()
    (nodes / "neuron10").touch()
    (nodes / "neuron_core").touch()
    return nodes


def test_devices_are_found(ready):
    assert device.find_devices() == (str(ready / "neuron0"), str(ready / "neuron10"))
    assert Device().description.startswith(f"{ready / 'neuron0'} through nki.baremetal (neuronxcc")


def test_it_runs_a_kernel(ready):
    outcome = Device().run(Call(kernel=lambda a, s: a * s, inputs=(np.ones(2), np.full(2, 3.0))))
    assert isinstance(outcome, Ran)
    assert outcome.outputs[0].tolist() == [3, 3]


def test_outputs_written_in_place(ready):
    def copy(a, result):
        result[...] = a

    result = np.zeros(2)
    outcome = Device().run(Call(kernel=copy, inputs=(np.ones(2),), outputs=(result,)))
    assert outcome.outputs[0].tolist() == [1, 1]


@pytest.mark.parametrize(("error", "kind"), [(RuntimeError, Rejected), (AttributeError, Crashed)])
def test_errors_become_outcomes(ready, error, kind):
    def failing(a):
        raise error("no")

    assert isinstance(Device().run(Call(kernel=failing, inputs=(np.ones(2),))), kind)


def test_simulator_and_device_together(ready):
    names = [backend.name for backend in select_backends("auto", device=True)]
    assert names == ["sdk", "device"]


def test_the_embedded_simulator_and_the_device_cannot_share_a_run(ready):
    with pytest.raises(BackendMissingError, match=re.escape("--simulate=sdk --device, or one run")):
        select_backends("embedded", device=True)


def test_a_missing_device_is_never_replaced_by_a_simulator(site, nodes):
    with pytest.raises(BackendMissingError, match="a Neuron device cannot be used here"):
        select_backends("auto", device=True)
