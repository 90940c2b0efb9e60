"""Run a Python script in this process, with the embedded simulator as its `neuronxcc`."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from difftest.analysis.finding import Severity
from difftest.analysis.inspection import Inspector, finding_text
from difftest.simulator import NkiError
from difftest.simulator.launch_listeners import listening
from difftest.support.tracebacks import hide_package
from difftest.testing.host.installation import embedded_with_predictions

_RUNPY = (runpy.__file__, "<frozen runpy>")


def run_script(
    script: str,
    arguments: Sequence[str] = (),
    level: str | None = None,
    *,
    strict: bool = False,
) -> int:
    """Run `python script *arguments` on the embedded simulator, and return its exit code.

    Each launch is checked for hazards that a run in order hides. They are printed to standard error
    after the script, and the exit code is then 1 if a hazard counts as a failure. With `strict`,
    hazards that are not proven count too. An error that the script does not catch ends it with 1,
    as in Python. An NkiError is printed as its text, other errors as a traceback that begins in the
    script. `level` is the level of NKI for kernels of the current dialect; None for all levels.
    """
    if not os.path.isfile(script):
        raise FileNotFoundError(f"no script at {script}")
    inspector = Inspector(strict=strict)
    with embedded_with_predictions(level), listening(inspector):
        code = _run(script, arguments)
    for finding in inspector.findings:
        if finding.severity is not Severity.NOTE:
            print(finding_text(finding), file=sys.stderr)
    return code or int(bool(inspector.failures))


def _run(script: str, arguments: Sequence[str]) -> int:
    """Run a script with the embedded modules, and return its exit code."""
    with _command_line(script, arguments):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as error:
            return _exit_code(error)
        except NkiError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
        except Exception as error:
            hide_package(error, *_RUNPY)
            sys.excepthook(type(error), error, error.__traceback__)
            return 1
    return 0


def _exit_code(exit: SystemExit) -> int:
    """Return the exit code of a SystemExit; print its argument if that is a message."""
    if exit.code is None or isinstance(exit.code, int):
        return exit.code or 0
    print(exit.code, file=sys.stderr)
    return 1


@contextmanager
def _command_line(script: str, arguments: Sequence[str]) -> Iterator[None]:
    """Set `sys.argv` and `sys.path` as for a script within the block."""
    argv = sys.argv
    path = sys.path
    sys.argv = [script, *arguments]
    sys.path = [os.path.dirname(os.path.abspath(script)), *path]
    try:
        yield
    finally:
        sys.argv = argv
        sys.path = path
