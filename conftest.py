"""For all tests: pytester, which tests the plugin by running pytest; the fuzzer's time."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option of these tests themselves."""
    parser.addoption(
        "--fuzz-minutes",
        type=float,
        default=20.0,
        help="how long the nightly profile compares the simulator's two modes (tests/fuzz)",
    )
