import pytest

from difftest.simulator.entry.install import embedded


@pytest.fixture(scope="session", autouse=True)
def neuronxcc():
    """The embedded modules, so that kernels can be imported."""
    with embedded():
        yield
