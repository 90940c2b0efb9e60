"""Whose code raised an error, read off its traceback."""

from __future__ import annotations

import functools
import opcode
import os
from collections import Counter
from collections.abc import Callable
from types import CodeType, FunctionType, TracebackType
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_real = functools.cache(os.path.realpath)
_LIBRARIES = tuple(_real(at) + os.sep for at in (os.path.dirname(os.__file__), PACKAGE))
"""Python's, and this package itself, which calls what others wrote."""
_INSTALLED = {"site-packages", "dist-packages"}
_RAISE = opcode.opmap["RAISE_VARARGS"]
"""What ``raise`` and ``assert`` compile to; an error out of C has no such instruction."""
_TURNS = 3
_INNER = ("__wrapped__", "function", "func", "fn")
"""Attributes in which decorators keep the function they were given."""
_MOST_DECORATORS = 10
_TRACEBACK: Any = BaseException.__dict__["__traceback__"]


def function_of(kernel: Callable[..., Any]) -> FunctionType | None:
    """The Python function inside a kernel, whatever a decorator made of it; None if none shows."""
    candidate: Any = kernel
    for _ in range(_MOST_DECORATORS):
        if isinstance(candidate, FunctionType) and not hasattr(candidate, "__wrapped__"):
            return candidate
        inner = (getattr(candidate, name, None) for name in _INNER)
        candidate = next((value for value in inner if callable(value)), None)
    return None


def format_error(error: BaseException) -> str:
    """An error's class and text; that of the error that its text raises, if it has none."""
    try:
        text = str(error)
    except Exception as broken:
        text = f"its text raises {type(broken).__name__}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def inner_frames(error: BaseException) -> list[TracebackType]:
    """The traceback's entries, the innermost first."""
    traces = []
    entry = _TRACEBACK.__get__(error)  # whatever the error's class makes of it
    while entry is not None:
        traces.append(entry)
        entry = entry.tb_next
    return traces[::-1]


def without_files(
    error: BaseException, files: tuple[str, ...] = (PACKAGE,)
) -> TracebackType | None:
    """An error's traceback without the frames of files that begin so, by default our own.

    A function that calls itself keeps its last frames: without an end there are thousands.
    """
    turns = Counter[CodeType]()
    rest: TracebackType | None = None
    for entry in inner_frames(error):
        turns[code := entry.tb_frame.f_code] += 1
        if turns[code] <= _TURNS and not code.co_filename.startswith(files):
            rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest


def hide_frames(error: BaseException | None, files: tuple[str, ...]) -> None:
    """Leave frames of files that begin so out of the tracebacks of an error and its causes."""
    while error is not None:
        error.__traceback__ = without_files(error, files)
        error = error.__cause__ or error.__context__


def is_own(entry: TracebackType, function: Callable[..., Any]) -> bool:
    """Whether an entry lies in the code of whoever wrote ``function``.

    That is the top-level package or module of ``function``, and every file that belongs neither to
    Python's standard library, nor to an installed package, nor to this one.
    """
    home = getattr(function, "__module__", None) or type(function).__module__
    module = str(entry.tb_frame.f_globals.get("__name__", ""))
    if module.split(".")[0] == home.split(".")[0]:
        return True
    file = entry.tb_frame.f_code.co_filename
    return not (file.startswith("<frozen ") or is_library(file) or is_installed(file))


@functools.cache
def is_library(file: str) -> bool:
    """Whether a file is of Python's standard library, or of this package."""
    return file.startswith(_LIBRARIES) or _real(file).startswith(_LIBRARIES)


@functools.cache
def is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package."""
    return not _INSTALLED.isdisjoint(_real(file).split(os.sep))


def is_user_file(file: str) -> bool:
    """Whether a file is of whoever wrote the kernels and the tests."""
    return not (file.startswith("<") or is_library(file) or is_installed(file))


def is_raised_by(error: BaseException, function: Callable[..., Any]) -> bool:
    """Whether a ``raise`` or an ``assert`` in ``function`` or in code of its own made the error.

    An error that Python, NumPy or another library raises on the way is none: no statement of the
    author's asked for it.
    """
    return any(
        is_own(entry, function) and entry.tb_frame.f_code.co_code[entry.tb_lasti] == _RAISE
        for entry in inner_frames(error)[:1]
    )
