import sys

import pytest

from difftest.testing.backends.device import core as device
from tests.unit.testing.backends.sdk_standin import forget

PROBES = (
    "difftest.testing.backends.device.probes_classic",
    "difftest.testing.backends.device.probes_newer",
)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages, searched first; its modules are forgotten afterwards."""
    forget(monkeypatch, "neuronxcc", "nki")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for module in [
        name for name in sys.modules if name.split(".")[0] in ("neuronxcc", "nki")
    ]:
        del sys.modules[module]
    for module in PROBES:
        sys.modules.pop(module, None)


@pytest.fixture
def nodes(tmp_path_factory, monkeypatch):
    """An empty /dev, and locks of this test's own."""
    folder = tmp_path_factory.mktemp("dev")
    monkeypatch.setattr(device, "DEVICE_NODES", folder)
    monkeypatch.setenv("DIFFTEST_LOCK_DIR", str(tmp_path_factory.mktemp("locks")))
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0")
    return folder


@pytest.fixture
def chip(nodes):
    """A /dev with one Neuron device."""
    (nodes / "neuron0").touch()
    return nodes
