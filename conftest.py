"""For all tests: pytester, which tests the plugin by running pytest; the fuzzer's time."""

from __future__ import annotations

import pytest
from hypothesis import settings

pytest_plugins = ["pytester"]

# No test here fails because the machine is busy; Hypothesis's usual deadline is 200 ms a case.
settings.register_profile("default", settings.get_profile("default"), deadline=None)
if settings.default.deadline is not None:
    settings.load_profile("default")
# Where the whole suite runs beside it: tests/README.md says which profile is for what.
settings.register_profile("few", settings.get_profile("ci"), max_examples=5)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option of these tests themselves."""
    parser.addoption(
        "--fuzz-minutes",
        type=float,
        default=20.0,
        help="how long the nightly profile compares the simulator's two modes (tests/fuzz)",
    )


@pytest.fixture
def pytester(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> pytest.Pytester:
    """Pytest's own; a session that it starts finds what Hypothesis has read of difftest already.

    Hypothesis reads the numbers in each module that is not installed, and keeps them below the
    working directory. To read difftest's takes two seconds of processor time.
    """
    storage = pytester.path / ".hypothesis"
    storage.mkdir()
    kept = pytestconfig.rootpath / ".hypothesis" / "constants"
    kept.mkdir(parents=True, exist_ok=True)
    (storage / "constants").symlink_to(kept, target_is_directory=True)
    return pytester
