"""A failing case once more, in a process of its own, so that its "run again" is true.

A kernel, a reference or a test that keeps something from one call to the next fails among other
cases and passes alone, or the other way round. A process takes seconds, most of them to start: the
first failing test of a session has one, the others go without.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from difftest.harness.failures import CaseFailure
from difftest.plugin.options import SESSION

_START = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]  # as the script `pytest` has it
import pytest
sys.exit(pytest.console_main())
"""
_PATIENCE = 600.0
"""Seconds after which nobody waits any longer."""


def fresh_run(config: pytest.Config, failure: CaseFailure) -> str:
    """What came of the case alone where that is not the same; empty, too, of a second failure."""
    again, session = failure.again, config.stash[SESSION]
    if again is None or session.ran_again:
        return ""
    session.ran_again = True
    words = [*again.arguments(failure.case), "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [sys.executable, "-c", _START, *words],
            cwd=config.invocation_params.dir,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not over after {_PATIENCE:g} s in a process of its own"
    except OSError as error:  # such as data drawn as arrays, which make a long line
        return f"the line above does not start in a process of its own: {error.strerror}"
    said = {
        int(pytest.ExitCode.TESTS_FAILED): "",
        int(pytest.ExitCode.OK): "passes in a process of its own: the kernel, its reference or the "
        "test keeps something from one call to the next, and the case needs the calls before it",
    }
    other = f"the line above ends with exit code {done.returncode} in a process of its own"
    return said.get(done.returncode, other)
