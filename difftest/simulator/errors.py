"""The simulator's errors: what happened, rule, received, limit, the kernel's line, remedy.

Each class also derives from the builtin exception that Python code would expect
(``IndexError`` for an access out of bounds, ``TypeError`` for a dtype, and so on).
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

import numpy as np

Value = TypeVar("Value")
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PASSED = (_PACKAGE, os.path.dirname(np.__file__) + os.sep)  # a kernel calls them
_LAUNCH = (_PACKAGE + "launch.py", _PACKAGE + "baton.py")
"""Whence kernels are called."""


class _Code:
    """What is known of a code object: asked for each frame of each instruction of a trace."""

    __slots__ = ("code", "in_launch", "inside", "lines")

    def __init__(self, code: CodeType) -> None:
        self.code = code  # keeps it alive, so that its id stays its own
        self.inside = code.co_filename.startswith(_PASSED)
        self.in_launch = code.co_filename in _LAUNCH
        self.lines: dict[int, Location] = {}
        """Offset of a bytecode instruction -> its line. CPython would count through a table."""


_CODES: dict[int, _Code] = {}
"""By id: the hash of a code object reads all of its bytecode."""


def _known(code: CodeType) -> _Code:
    entry = _CODES.get(id(code))
    if entry is None:
        entry = _CODES[id(code)] = _Code(code)
    return entry


def is_inside(code: CodeType) -> bool:
    """Whether a code object belongs to the simulator, not to a kernel."""
    return code.co_filename.startswith(_PACKAGE)


def relative_path(file: str) -> str:
    """The file from the working directory, if it lies below it."""
    return file.removeprefix(os.getcwd() + os.sep)


class Location(NamedTuple):
    """A line of the kernel: file name, line number (1-based) and the line's text."""

    file: str
    line: int

    @property
    def text(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    @property
    def place(self) -> str:
        """The file, from the working directory, and the line.

        >>> Location("scale.py", 12).place
        'scale.py:12'
        """
        return f"{relative_path(self.file)}:{self.line}"

    @property
    def calls(self) -> tuple[Location, ...]:
        """The lines that called the helper in which it stands, innermost first."""
        return ()

    def __str__(self) -> str:
        return f"{self.place}: {text}" if (text := self.text) else self.place


Stack = tuple[Location, ...]
"""A kernel's line, and the lines that called the helper in which it stands, innermost first."""


class HelperLine(Location):
    """A line of a helper, and whence it was called: equal to the line, whoever called it."""

    called_at: Location

    @property
    def calls(self) -> tuple[Location, ...]:
        return (self.called_at, *self.called_at.calls)

    def __str__(self) -> str:
        called = [f", called at {line.place}" for line in self.calls]
        return f"{super().__str__()}{''.join(called)}"


_PLACES: dict[tuple[Location, ...], Location] = {}


def innermost_location(stack: tuple[Location, ...]) -> Location | None:
    """The first of a kernel's lines, which knows the others: those that called it, in order."""
    if len(stack) < 2:
        return stack[0] if stack else None
    place = _PLACES.get(stack)
    if place is None:
        rest = innermost_location(stack[1:])
        assert rest is not None
        if rest == stack[0]:  # a comprehension or a lambda has a frame of its own
            return rest
        place = HelperLine(*stack[0])
        place.called_at = rest
        _PLACES[stack] = place
    return place


def kernel_location(frame: FrameType | None = None) -> Location | None:
    """The innermost line outside the simulator: the kernel's line that is being executed.

    ``frame`` is one to begin with, where it is known that no kernel's line lies further in.
    """
    frame = frame or sys._getframe(1)
    while frame is not None:
        entry = _CODES.get(id(frame.f_code)) or _known(frame.f_code)
        if not entry.inside:
            return entry.lines.get(frame.f_lasti) or _line(frame, entry)
        frame = frame.f_back
    return None


def kernel_stack(frame: FrameType | None = None, around: Any = None) -> tuple[Location, ...]:
    """The lines outside the simulator that are being executed, innermost first, up to the launch.

    Where nothing was launched there is the innermost alone. ``frame`` is as in
    :func:`kernel_location`; ``around`` are the lines that called the innermost, if they are known.
    """
    lines = []
    frame = frame or sys._getframe(1)
    while frame is not None:
        entry = _CODES.get(id(frame.f_code)) or _known(frame.f_code)
        if not entry.inside:
            lines.append(entry.lines.get(frame.f_lasti) or _line(frame, entry))
            if around is not None:
                return (lines[0], *around)
        elif entry.in_launch:
            return tuple(lines)
        frame = frame.f_back
    return tuple(lines[:1])


def _line(frame: FrameType, entry: _Code) -> Location:
    line = entry.lines[frame.f_lasti] = Location(frame.f_code.co_filename, frame.f_lineno)
    return line


class NkiError(Exception):
    """A kernel broke a rule of NKI or of the hardware.

    Attributes
    ----------
    rule : what holds on the machine, in one sentence.
    happened : what the kernel did, in one sentence: the error's headline.
    received : what the kernel did instead, with shapes, dtypes and names.
    limit : the number or set that is accepted, where there is one.
    remedy : what to do about it.
    location : the kernel's source line.
    """

    def __init__(
        self,
        rule: str,
        *,
        happened: str,
        received: str,
        limit: str | None = None,
        remedy: str | None = None,
        location: Location | None = None,
    ) -> None:
        self.rule = rule
        self.happened = happened
        self.received = received
        self.limit = limit
        self.remedy = remedy
        self.location = location or innermost_location(kernel_stack())
        super().__init__(happened)

    def __str__(self) -> str:
        rows = [
            ("rule", self.rule),
            ("received", self.received),
            ("limit", self.limit),
            ("where", str(self.location) if self.location else None),
            ("remedy", self.remedy),
        ]
        lines = [self.happened] + [f"  {name + ':':<10}{text}" for name, text in rows if text]
        return "\n".join(lines)


class LimitError(NkiError, ValueError):
    """A size exceeds what the machine has."""


class ShapeError(NkiError, ValueError):
    """Operands' shapes do not fit each other or the instruction."""


class DtypeError(NkiError, TypeError):
    """An instruction does not take, or NKI does not have, this dtype."""


class BufferError(NkiError, ValueError):
    """A tensor is in the wrong memory for the instruction."""


class OutOfBoundsError(NkiError, IndexError):
    """An access leaves its tensor."""


class UnwrittenError(NkiError, ValueError):
    """An instruction reads, or a kernel returns, what was never written."""


class KernelError(NkiError, RuntimeError):
    """The kernel uses the API in a way that NKI does not allow."""


class SignatureError(NkiError, TypeError):
    """The arguments of a call do not fit the function's signature."""


class MissingNameError(NkiError, AttributeError):
    """A part of NKI has no such name; ``hasattr`` and ``getattr`` may ask."""


class KernelExit(RuntimeError):
    """A kernel was left by what ends a program or a test, such as SystemExit: a bug in it."""

    def __init__(self, error: BaseException) -> None:
        said = f": {error}" if str(error) else ""
        super().__init__(f"{type(error).__name__}{said} (a kernel returns, and ends no program)")


class OpaqueError(RuntimeError):
    """Stands for an error that keeps no traceback: Python and pytest break down on such errors.

    A frozen dataclass that is an exception is one: an error's traceback is set on its way.
    """

    def __init__(self, error: BaseException) -> None:
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
        super().__init__(f"{said} (an error that refuses its __traceback__)")


def guarded(function: Callable[[], Any]) -> Any:
    """Return the result of a call; raise an :class:`OpaqueError` for an error that needs one.

    Nothing between the error and this call may set its traceback, such as a context manager.
    """
    __tracebackhide__ = True
    try:
        return function()
    except Exception as error:
        opaque = _opaque(error)
        if opaque is None:
            raise
    raise opaque  # without the error as its context, of which Python reads the traceback


def _opaque(error: Exception) -> OpaqueError | None:
    """Return what stands for the error that is handled; None if it takes a traceback."""
    trace = sys.exc_info()[2]  # whatever the error makes of its own
    try:
        error.__traceback__ = trace
    except Exception:
        return OpaqueError(error).with_traceback(trace)
    return None


class NotModelledError(NkiError, NotImplementedError):
    """The simulator does not model this, and says so instead of ignoring it."""


class OracleError(RuntimeError):
    """The oracle and the simulator part at an instruction: a bug of one of them."""

    def __init__(self, happened: str, received: str) -> None:
        self.location = innermost_location(kernel_stack())
        super().__init__(f"{happened}\n  received: {received}\n  where:    {self.location}")


def warn(warning: Warning, location: Location | None = None) -> None:
    """Warn at the kernel's line, which is a number of frames away that nobody can count.

    ``location`` is another one, where no kernel runs.
    """
    location = location or kernel_location()
    if location is None:
        warnings.warn(warning, stacklevel=3)
        return
    warnings.warn_explicit(
        warning,
        type(warning),
        location.file,
        location.line,
        registry=_WARNED.setdefault(location.file, {}),
    )


_REPORTED: ContextVar[bool] = ContextVar("difftest_hazards_reported", default=False)


def hazards_reported() -> AbstractContextManager[bool]:
    """Hold that a witness looks at the launches within the block, and reports their hazards."""
    return set_to(_REPORTED, True)


def are_hazards_reported() -> bool:
    """Return whether a witness reports the hazards of the launch that runs."""
    return _REPORTED.get()


def warn_of_hazard(warning: Warning) -> None:
    """Warn of a hazard that a detector reports too, unless a witness reports it anyway."""
    if not are_hazards_reported():
        warn(warning)


_WARNED: dict[str, dict[Any, Any]] = {}
"""What warned already, by file, as Python keeps it in each module."""


def missing_name(
    owner: str, name: str, names: Iterable[str], *, ended: str = "", kind: str = "module"
) -> MissingNameError:
    """The error for a name that a module of the API does not have: a slip of the kernel's.

    ``names`` are what it has, ``ended`` what became of one that it had. The ``kind`` may
    be another: a class, an enumeration.
    """
    alike = []
    if not (ended or name.startswith("_")):  # pytest, say, asks each name of a test's module
        from difflib import get_close_matches

        alike = get_close_matches(name, names, 1, 0.7)
    return MissingNameError(
        f"a kernel uses the names that {owner} has",
        happened=f"{kind} {owner!r} has no attribute {name!r}{ended}",
        received=f"{owner}.{name}",
        remedy=f"did you mean {alike[0]}?" if alike else None,
    )


def host_array(make: Callable[..., Any], shape: tuple[int, ...], dtype: object) -> Any:
    """``make(shape, dtype)``, a tensor's array; if NumPy cannot, a :class:`LimitError`."""
    try:
        return make(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise LimitError(
            "a simulated tensor fits the memory of this computer",
            happened=f"a tensor of {list(shape)} {dtype} was to be made",
            received=str(error),
            remedy="check the sizes of its shape",
        ) from None


def call_error(caller: str, rule: str, did: str, received: str, **more: Any) -> NkiError:
    """The error of a call: its name with the rule, with what it did, and what else an error has.

    It is a :class:`KernelError`, or an ``error`` of another class.
    """
    error: type[NkiError] = more.pop("error", KernelError)
    return error(f"{caller} {rule}", happened=f"{caller} {did}", received=received, **more)


@contextlib.contextmanager
def set_to(variable: ContextVar[Any], value: Value) -> Iterator[Value]:
    """Let a variable of the context have a value while this lasts."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def not_modelled(feature: str, received: str, remedy: str | None = None) -> NotModelledError:
    """The error for an argument or name that the simulator does not honour."""
    return NotModelledError(
        "what the simulator does not model raises, and is never ignored",
        happened=f"{feature} is not modelled by the embedded simulator",
        received=received,
        remedy=remedy,
    )
