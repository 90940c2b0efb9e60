import pytest

from difftest.verdict.nursery import Limits, Nursery, Sandbox


@pytest.fixture(scope="session")
def nursery():
    with Nursery() as one:
        yield one


@pytest.fixture
def worker(nursery):
    with Sandbox(Limits(seconds=30.0), nursery) as one:
        yield one
