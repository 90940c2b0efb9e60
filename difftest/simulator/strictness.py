"""What a rule that is broken means: an error, or a warning. One setting for a launch.

Two kinds of rules can be broken by kernels that run on a device all the same:

- the documentation promises less than compilers and devices were seen to accept, or what breaks the
  rule is a value that may lie where nobody looks: in a padded row (a *note*);
- an instruction reads what nothing wrote, or AWS's simulator takes what its compiler refuses (a
  *doubt*).

Everything else is an error whatever the setting.
"""

from __future__ import annotations

import contextvars
import warnings
from contextlib import AbstractContextManager
from enum import Enum

from difftest.simulator.errors import (
    Location,
    NkiError,
    are_hazards_reported,
    set_to,
    warn,
)
from difftest.simulator.index import as_choice


class Strictness(Enum):
    """The setting: ``launch(..., strictness=...)``, ``difftest run --strictness``."""

    DOCUMENTED = "documented"
    """Notes and doubts are errors: only what the documentation promises runs."""
    SEEN = "seen"
    """Notes are warnings, doubts errors: what a compiler or a device was seen to accept runs."""
    RELAXED = "relaxed"
    """Both are warnings."""


class RuleWarning(UserWarning):
    """A rule is broken and the kernel goes on; the text is that of the error it could be."""


class _Launch:
    """What one launch said already, and whether it says anything."""

    def __init__(self, strictness: Strictness, *, silent: bool = False) -> None:
        self.strictness = strictness
        self.silent = silent
        self.said: dict[tuple[str, Location | None], NkiError] = {}


_CHOSEN: contextvars.ContextVar[Strictness] = contextvars.ContextVar(
    "difftest_strictness", default=Strictness.SEEN
)
_RUNNING: contextvars.ContextVar[_Launch | None] = contextvars.ContextVar(
    "difftest_said", default=None
)


def as_strictness(value: object) -> Strictness:
    """The setting by its name.

    Raises
    ------
    KernelError : there is none of that name.
    """
    names = [member.value for member in Strictness]
    return Strictness(as_choice(getattr(value, "value", value), names, "strictness"))


def strictness(value: str | Strictness) -> AbstractContextManager[Strictness]:
    """Choose the setting of the launches that say nothing else, while it lasts."""
    return set_to(_CHOSEN, as_strictness(value))


def strictness_scope(value: str | Strictness | None) -> AbstractContextManager[_Launch]:
    """Judge one launch by this setting (None: what is chosen), and say each thing once."""
    return set_to(_RUNNING, _Launch(_CHOSEN.get() if value is None else as_strictness(value)))


def reported_violations() -> tuple[NkiError, ...]:
    """The broken rules that the launch being judged went on from, in order."""
    launch = _RUNNING.get()
    return () if launch is None else tuple(launch.said.values())


def muted() -> AbstractContextManager[_Launch]:
    """Let notes and doubts pass: what is computed meanwhile is not what the kernel computes."""
    return set_to(_RUNNING, _Launch(Strictness.RELAXED, silent=True))


def report_violation(error: NkiError, *, detected: bool = False) -> None:
    """Say, or raise, that a kernel does what the documentation does not promise.

    ``detected`` says that a detector reports the same hazard: a witness hears it from there.
    """
    _judge(error, Strictness.DOCUMENTED, detected=detected)


def report_undefined(error: NkiError) -> None:
    """Say, or raise, that what nothing wrote is read, or that a compiler refuses what runs here."""
    _judge(error, Strictness.DOCUMENTED, Strictness.SEEN)


def _judge(error: NkiError, *strict: Strictness, detected: bool = False) -> None:
    launch = _RUNNING.get()
    if (_CHOSEN.get() if launch is None else launch.strictness) in strict:
        raise error
    key = (error.rule, error.location)
    if launch is not None:
        if launch.silent or key in launch.said:
            return
        launch.said[key] = error
    if detected and are_hazards_reported():
        return
    before = _warned()
    if key not in before:
        warn(RuleWarning(str(error)), error.location)
        before.add(key)  # where warnings are errors, it has raised


_WARNED: tuple[object, set[tuple[str, Location | None]]] = (None, set())
"""What warned already since the filters of warnings are these: a test has its own."""


def _warned() -> set[tuple[str, Location | None]]:
    """The lines that have broken a rule before, with other shapes in other launches."""
    global _WARNED
    if _WARNED[0] is not warnings.filters:
        _WARNED = warnings.filters, set()
    return _WARNED[1]
