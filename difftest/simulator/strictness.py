"""The strictness setting of a launch: whether a broken rule is an error or a warning.

Kernels can break two kinds of rules and still run on a device:

- A *note*: compilers and devices accept more than the documentation promises, or the violation
  affects a value that may never be used, such as one in a padded row.
- A *doubt*: an instruction reads unwritten elements, or AWS's simulator accepts what its compiler
  rejects.

All other violations are errors under every setting.
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
    forget_error,
    set_to,
    warn,
)
from difftest.simulator.index import as_choice


class Strictness(Enum):
    """The setting: ``launch(..., strictness=...)``, ``difftest run --strictness``."""

    DOCUMENTED = "documented"
    """Notes and doubts are errors: only documented behaviour runs."""
    SEEN = "seen"
    """Notes are warnings, doubts are errors: kernels run if a compiler or a device accepts them."""
    RELAXED = "relaxed"
    """Notes and doubts are warnings."""


class RuleWarning(UserWarning):
    """A rule is broken and the kernel continues. It has the text of the corresponding error."""


class _Launch:
    """The violations that one launch has reported, and whether it is silent."""

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
    """Return the setting of a name.

    Raises
    ------
    KernelError : no setting has that name.
    """
    names = [member.value for member in Strictness]
    return Strictness(as_choice(getattr(value, "value", value), names, "strictness"))


def strictness(value: str | Strictness) -> AbstractContextManager[Strictness]:
    """Set the default strictness of launches within the block."""
    return set_to(_CHOSEN, as_strictness(value))


def strictness_scope(value: str | Strictness | None) -> AbstractContextManager[_Launch]:
    """Judge one launch by a setting (None: the default), and report each violation once."""
    return set_to(
        _RUNNING, _Launch(_CHOSEN.get() if value is None else as_strictness(value))
    )


def reported_violations() -> tuple[NkiError, ...]:
    """Return the broken rules that the current launch continued after, in order."""
    launch = _RUNNING.get()
    if launch is None:
        return ()
    return tuple(launch.said.values())


def muted() -> AbstractContextManager[_Launch]:
    """Ignore notes and doubts within the block: its computations are not the kernel's own."""
    return set_to(_RUNNING, _Launch(Strictness.RELAXED, silent=True))


def report_violation(error: NkiError, *, detected: bool = False) -> None:
    """Report, or raise, that a kernel does more than the documentation promises.

    ``detected`` means that a detector reports the same hazard to a listener.
    """
    _judge(error, Strictness.DOCUMENTED, detected=detected)


def report_undefined(error: NkiError) -> None:
    """Report, or raise, a read of unwritten elements, or code that only a compiler rejects."""
    _judge(error, Strictness.DOCUMENTED, Strictness.SEEN)


def _judge(error: NkiError, *strict: Strictness, detected: bool = False) -> None:
    """Raise an error if the strictness is one of ``strict``, else warn of it once."""
    launch = _RUNNING.get()
    if (_CHOSEN.get() if launch is None else launch.strictness) in strict:
        raise error
    forget_error(error)
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
        before.add(key)  # if warnings are errors, warn() has raised


_WARNED: tuple[object, set[tuple[str, Location | None]]] = (None, set())
"""The warnings issued since the warning filters last changed; a test has its own filters."""


def _warned() -> set[tuple[str, Location | None]]:
    """Return the lines that have broken a rule before, with other shapes in other launches."""
    global _WARNED
    if _WARNED[0] is not warnings.filters:
        _WARNED = warnings.filters, set()
    return _WARNED[1]
