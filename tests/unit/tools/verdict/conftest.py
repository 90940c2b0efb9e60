import pytest

from difftest.tools.verdict.fork_server import ForkServer, Limits, Sandbox


@pytest.fixture(scope="session")
def nursery():
    with ForkServer() as one:
        yield one


@pytest.fixture
def worker(nursery):
    with Sandbox(Limits(seconds=30.0), nursery) as one:
        yield one
