"""For all tests: pytester, which runs pytest; what CI deals to this Python; the fuzzer's time."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from difftest.testing.session.options import SESSION
from tests.deal import Deal

pytest_plugins = ["pytester"]
DEALT = pytest.StashKey[Deal]()
# Processes that tests start leave out what comes with other packages: a third of their time.
os.environ.setdefault("PYTEST_ADDOPTS", "-p no:anyio")
os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")

# No test here fails because the machine is busy; Hypothesis's usual deadline is 200 ms a case.
settings.register_profile("default", settings.get_profile("default"), deadline=None)
if settings.default.deadline is not None:
    settings.load_profile("default")


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Run the tests of the package itself without the inspection of their launches.

    Many launch kernels with a hazard on purpose.
    """
    session.config.stash[SESSION].launches = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of these tests themselves."""
    parser.addoption(
        "--fuzz-minutes",
        type=float,
        default=20.0,
        help="how long the nightly profile compares the simulator's two modes (tests/fuzz)",
    )
    parser.addoption(
        "--deal",
        action="store_true",
        help="of all files of tests, take those that fall to this Python at this commit",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what falls to another Python (tests/deal.py), in a run of all."""
    is_all = config.args_source.name == "TESTPATHS"
    if (
        not config.option.deal
        or not is_all
        or not collection_path.name.startswith("test_")
    ):
        return None
    if DEALT not in config.stash:
        config.stash[DEALT] = Deal.of_this_run(config.rootpath)
    file = collection_path.relative_to(config.rootpath).as_posix()
    return True if file not in config.stash[DEALT].files else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each worker but the first imports all tests from its own place on, before it collects them.

    Workers that collect in one order rewrite the assertions of each module at the same time. So
    each finds what the others have written. What cannot be imported is told by the collection.
    """
    worker = getattr(
        session.config, "workerinput", {"workerid": "gw0", "workercount": 1}
    )
    number = int(worker["workerid"].removeprefix("gw"))
    count = worker["workercount"]
    root = Path(__file__).parent
    is_all = session.config.args_source.name == "TESTPATHS"
    files = sorted((root / "tests").rglob("test_*.py")) if number and is_all else []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for file in files[len(files) * number // count :]:
            with contextlib.suppress(Exception):
                importlib.import_module(
                    ".".join(file.relative_to(root).with_suffix("").parts)
                )


def pytest_collection_finish() -> None:
    """Freeze the collected objects: a million, which the garbage collector need not look at."""
    gc.freeze()


@pytest.fixture(autouse=True)
def checks_that_hold(request: pytest.FixtureRequest) -> Iterator[None]:
    """No check of difftest breaks down in a test of its own: for users that is a line, here red."""
    yield
    from difftest.plugin.session import SESSION
    from difftest.support.internal_errors import drain_internal_errors

    runner = request.config.stash[SESSION].runner
    assert {*drain_internal_errors(), *(runner.tally.broken if runner else ())} == set()


@pytest.fixture
def pytester(
    pytester: pytest.Pytester, pytestconfig: pytest.Config
) -> Iterator[pytest.Pytester]:
    """Pytest's own; a session that it starts finds what Hypothesis has read of difftest already.

    Hypothesis reads the numbers in each module that is not installed, and keeps them below the
    working directory. To read difftest's takes two seconds of processor time.
    """
    storage = pytester.path / ".hypothesis"
    storage.mkdir()
    kept = pytestconfig.rootpath / ".hypothesis" / "constants"
    kept.mkdir(parents=True, exist_ok=True)
    (storage / "constants").symlink_to(kept, target_is_directory=True)
    yield pytester
    gc.freeze()  # the end of a session within this process has thawed what was collected
