"""The guards of a candidate's functions, handlers and ``with`` statements."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from difftest.simulator.errors import NkiError
from difftest.tools.verdict.world.held import HELD, kept
from difftest.tools.verdict.world.order import SETS
from difftest.tools.verdict.world.refusal import Absent, need, refusal
from difftest.tools.verdict.world.texts import Opaque, is_own_class, opaque_refusal


def enter(*values: Any) -> None:
    """Check the parameters of an own function, which C code or NKI may have called."""
    for value in values:
        if type(value) not in HELD or type(value) is np.ndarray:
            held = kept(value)
            if held is not value and type(value) not in SETS:
                raise refusal(f"{held!r} as an argument")


_PASSED_ON = (NkiError, RecursionError, MemoryError)
"""Errors that a candidate cannot handle: they depend on the machine that runs it."""


def _is_passed_on(error: BaseException) -> bool:
    return not isinstance(error, Exception) or isinstance(error, _PASSED_ON)


def leaving() -> None:
    """Raise an error again that a candidate cannot handle: the first statement of ``finally``.

    The rest of the block could end a generator or raise something else, which would replace it.
    """
    error = sys.exc_info()[1]
    if error is None or isinstance(error, GeneratorExit):
        return
    if _is_passed_on(error):
        raise error


def caught(error: BaseException) -> None:
    """Raise an error again that a candidate cannot handle: the first statement of a handler."""
    if _is_passed_on(error):
        raise error
    if isinstance(error, TypeError) and Opaque.__name__ in str(error):
        raise opaque_refusal()


class Context:
    """A context manager by guards: it gets no traceback, and only errors that it may handle."""

    def __init__(self, manager: Any) -> None:
        self.manager = kept(manager)
        if type(manager) is Absent:
            need(manager)

    def __enter__(self) -> Any:
        return kept(type(self.manager).__enter__(self.manager))

    def __exit__(self, kind: Any, error: Any, trace: object) -> Any:
        leave = type(self.manager).__exit__
        if error is None or _is_passed_on(error):
            leave(self.manager, None, None, None)
            return False
        caught(error)
        if is_own_class(type(self.manager)):
            kind = kept(kind)
        return bool(leave(self.manager, kind, error, None))
