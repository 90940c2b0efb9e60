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
from difftest.support.tracebacks import PACKAGE, hide_frames, inner_frames
from difftest.testing.host.installation import embedded_with_predictions

_RUNPY = (runpy.__file__, "<frozen runpy>")


def run_script(
    script: str, arguments: Sequence[str] = (), level: str | None = None, *, strict: bool = False
) -> int:
    """Run `script` as `python script *arguments` would, on the embedded simulator; its exit code.

    Each launch is looked at for hazards that a run in order hides; what is found is printed to
    standard error when the script is over, and the code is 1 instead of 0 if a hazard counts as a
    failure: one that is not proven does with `strict`. What the script does not catch ends it with
    1, as in Python: an NkiError is printed as its own text, anything else as a traceback that
    begins in the script. `level` is that of NKI, for kernels of today's dialect; None for all.
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
    """Run a script where the embedded modules are installed; its exit code."""
    with _command_line(script, arguments):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as error:
            return _exit_code(error)
        except NkiError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
        except Exception as error:
            # What was raised inside this package may be a fault of ours: it keeps every frame.
            if not inner_frames(error)[0].tb_frame.f_code.co_filename.startswith(PACKAGE):
                hide_frames(error, (PACKAGE, *_RUNPY))
            sys.excepthook(type(error), error, error.__traceback__)
            return 1
    return 0


def _exit_code(exit: SystemExit) -> int:
    """The process's exit code for what was given to `sys.exit`: another object is a message."""
    if exit.code is None or isinstance(exit.code, int):
        return exit.code or 0
    print(exit.code, file=sys.stderr)
    return 1


@contextmanager
def _command_line(script: str, arguments: Sequence[str]) -> Iterator[None]:
    """Set `sys.argv` and `sys.path` as for a script, and set them back."""
    argv = sys.argv
    path = sys.path
    sys.argv = [script, *arguments]
    sys.path = [os.path.dirname(os.path.abspath(script)), *path]
    try:
        yield
    finally:
        sys.argv = argv
        sys.path = path
