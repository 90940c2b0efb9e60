"""Find out from a traceback which code raised an error."""

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
"""The folders of Python's standard library and of this package."""
_INSTALLED = {"site-packages", "dist-packages"}
_RAISE = opcode.opmap["RAISE_VARARGS"]
"""The opcode of ``raise`` and ``assert``; an error raised in C has no such instruction."""
_MOST_REPEATS = 3
_INNER = ("__wrapped__", "function", "func", "fn")
"""Attributes that hold the decorated function."""
_MOST_DECORATORS = 10
_TRACEBACK: Any = BaseException.__dict__["__traceback__"]


def function_of(kernel: Callable[..., Any]) -> FunctionType | None:
    """Return the Python function inside a decorated kernel, or None if it cannot be found."""
    candidate: Any = kernel
    for _ in range(_MOST_DECORATORS):
        if isinstance(candidate, FunctionType) and not hasattr(
            candidate, "__wrapped__"
        ):
            return candidate
        inner = (getattr(candidate, name, None) for name in _INNER)
        candidate = next((value for value in inner if callable(value)), None)
        if candidate is None:
            break
    return None


def format_error(error: BaseException) -> str:
    """Return an error's class and text; if ``str`` of it raises, name the class of that error."""
    try:
        text = str(error)
    except Exception as broken:
        text = f"its text raises {type(broken).__name__}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def inner_frames(error: BaseException) -> list[TracebackType]:
    """Return the traceback's entries, the innermost first."""
    traces = []
    entry = _TRACEBACK.__get__(error)  # the error's class may override the attribute
    while entry is not None:
        traces.append(entry)
        entry = entry.tb_next
    return traces[::-1]


def without_files(
    error: BaseException, files: tuple[str, ...] = (PACKAGE,)
) -> TracebackType | None:
    """Return an error's traceback without the frames of some files.

    A recursive function keeps its last three frames, because there may be thousands.

    Parameters
    ----------
    files : prefixes of the file names to leave out; by default this package.
    """
    repeats = Counter[CodeType]()
    rest: TracebackType | None = None
    for entry in inner_frames(error):
        repeats[code := entry.tb_frame.f_code] += 1
        if repeats[code] <= _MOST_REPEATS and not code.co_filename.startswith(files):
            rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest


def hide_frames(error: BaseException | None, files: tuple[str, ...]) -> None:
    """Remove frames whose file begins with ``files`` from tracebacks of an error and its causes."""
    while error is not None:
        error.__traceback__ = without_files(error, files)
        error = error.__cause__ or error.__context__


def hide_package(error: BaseException, *others: str) -> None:
    """Remove the frames of this package, and of other files, from the traceback of an error.

    An error that this package raised may be its own bug, and keeps every frame.
    """
    frames = inner_frames(error)
    if frames and not frames[0].tb_frame.f_code.co_filename.startswith(PACKAGE):
        hide_frames(error, (PACKAGE, *others))


def is_own(entry: TracebackType, function: Callable[..., Any]) -> bool:
    """Return whether an entry is in code by the author of ``function``.

    Such code is the top-level package or module of ``function``, and every file outside Python's
    standard library, installed packages and this package.
    """
    home = getattr(function, "__module__", None) or type(function).__module__
    module = str(entry.tb_frame.f_globals.get("__name__", ""))
    if module.split(".")[0] == home.split(".")[0]:
        return True
    file = entry.tb_frame.f_code.co_filename
    return not (file.startswith("<frozen ") or is_library(file) or is_installed(file))


@functools.cache
def is_library(file: str) -> bool:
    """Return whether a file belongs to Python's standard library or to this package."""
    return file.startswith(_LIBRARIES) or _real(file).startswith(_LIBRARIES)


@functools.cache
def is_installed(file: str) -> bool:
    """Return whether a file belongs to an installed package."""
    return not _INSTALLED.isdisjoint(_real(file).split(os.sep))


def is_user_file(file: str) -> bool:
    """Return whether a file belongs to the user: neither a library nor an installed package."""
    return not (file.startswith("<") or is_library(file) or is_installed(file))


def is_raised_by(error: BaseException, function: Callable[..., Any]) -> bool:
    """Return whether a ``raise`` or an ``assert`` by the author of ``function`` made the error.

    Errors that Python, NumPy or another library raises do not count.
    """
    return any(
        is_own(entry, function)
        and entry.tb_frame.f_code.co_code[entry.tb_lasti] == _RAISE
        for entry in inner_frames(error)[:1]
    )
