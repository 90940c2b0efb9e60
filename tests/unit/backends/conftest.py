import sys

import pytest

from tests.unit.backends.sdk_standin import forget


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages, searched first; what is imported from it is forgotten afterwards."""
    forget(monkeypatch, "neuronxcc", "nki")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for module in [name for name in sys.modules if name.split(".")[0] in ("neuronxcc", "nki")]:
        del sys.modules[module]
