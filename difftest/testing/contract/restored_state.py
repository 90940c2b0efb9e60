"""Global state that a kernel or a reference may change, and that is restored after its call.

The state is NumPy's settings and the random states of NumPy and Python.
"""

from __future__ import annotations

import ctypes
import functools
import random
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from difftest.support.signature import function_name

_OF_PYTHON: Any = random.getstate.__self__  # type: ignore[attr-defined]
_OF_NUMPY: Any = np.random.get_state.__self__  # type: ignore[attr-defined]
_HEAD = object.__basicsize__
"""The number of bytes before an object's own data; they hold a reference count that changes."""


@functools.lru_cache(maxsize=8)
def _bytes_at(owner: Any) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * (type(owner).__basicsize__ - _HEAD)).from_address(
        id(owner) + _HEAD
    )


def _memory(owner: Any) -> object:
    """Return a quick mark of a random state: its raw memory. To read the 624 numbers is slower."""
    return _bytes_at(owner).raw, {**getattr(owner, "__dict__", {})}


class _State(NamedTuple):
    """Global state that a call may change: how to read and restore it.

    Attributes
    ----------
    mark : return a value that differs after a change; it is quick.
    value : return the value.
    restore : set the value.
    """

    mark: Callable[[], object]
    value: Callable[[], Any]
    restore: Callable[[Any], object]


_STATES = {
    "NumPy's error settings": _State(
        np.geterr, np.geterr, lambda errors: np.seterr(**errors)
    ),
    "NumPy's print options": _State(
        np.get_printoptions,
        np.get_printoptions,
        lambda shown: np.set_printoptions(**shown),
    ),
    "NumPy's random state": _State(
        lambda: (_memory(_OF_NUMPY), _memory(np.random.get_bit_generator())),
        functools.partial(np.random.get_state, legacy=False),
        np.random.set_state,
    ),
    "Python's random state": _State(
        lambda: _memory(_OF_PYTHON), random.getstate, random.setstate
    ),
}
"""The global state that is restored after a call, by its name in the warning."""
_LAST: dict[str, tuple[object, Any]] = {}
"""The last mark and value of each state. The value is read again only if the mark differs."""


def read_state() -> dict[str, tuple[object, Any]]:
    """Return the mark and the value of each global state, by its name."""
    for name, state in _STATES.items():
        mark = state.mark()
        if name not in _LAST or _LAST[name][0] != mark:
            _LAST[name] = mark, state.value()
    return {**_LAST}


def restore_state(before: dict[str, tuple[object, Any]], case: Any) -> None:
    """Restore the states that a call has changed since ``before``, and warn of the change.

    ``case`` is the name of the call, or its KernelCall; None for a reference.
    """
    changed = [
        name for name, state in _STATES.items() if state.mark() != before[name][0]
    ]
    for name in changed:
        _, value = before[name]
        _STATES[name].restore(value)
    if changed:
        # Without a line: the lines of the harness do not help the author.
        text = (
            f"{_caller(case)} changed {' and '.join(changed)}, put back after the call"
        )
        warnings.warn_explicit(text, UserWarning, "difftest", 0)


def _caller(case: Any) -> str:
    """Return the name of a call in warnings."""
    if case is None:
        return "a reference"
    kernel = getattr(case, "kernel", case)
    return kernel if isinstance(kernel, str) else function_name(kernel)
