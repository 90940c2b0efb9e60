import pytest

from difftest.tools.verdict.fork_server import ForkServer, Limits, Sandbox


@pytest.fixture(scope="session")
def fork_server():
    with ForkServer() as one:
        yield one


@pytest.fixture
def worker(fork_server):
    with Sandbox(Limits(seconds=30.0), fork_server) as one:
        yield one
