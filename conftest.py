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
