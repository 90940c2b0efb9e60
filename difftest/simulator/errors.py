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

from difftest.support.wording import did_you_mean

Value = TypeVar("Value")
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# A kernel calls both.
_PASSED: tuple[str, ...] = (_PACKAGE, os.path.dirname(np.__file__) + os.sep)
_LAUNCH: tuple[str, ...] = (_PACKAGE + "launch.py", _PACKAGE + "program_scheduler.py")
"""The files that call kernels."""


class _Code:
    """Cached facts about a code object. A trace needs them for each frame of each instruction."""

    __slots__ = ("code", "in_launch", "inside", "lines")

    def __init__(self, code: CodeType) -> None:
        self.code = code  # keeps the code alive, so that its id stays unique
        self.inside = code.co_filename.startswith(_PASSED)
        self.in_launch = code.co_filename in _LAUNCH
        self.lines: dict[int, Location] = {}
        """Offset of a bytecode instruction -> its line. CPython would search a table for it."""


_CODES: dict[int, _Code] = {}
"""By id, because the hash of a code object reads all of its bytecode."""


def _known(code: CodeType) -> _Code:
    entry = _CODES.get(id(code))
    if entry is None:
        entry = _CODES[id(code)] = _Code(code)
    return entry


def pass_through(folder: str) -> None:
    """Let kernels be called from functions of a folder: their lines are not lines of a kernel."""
    global _PASSED
    _PASSED = (*_PASSED, folder + os.sep)


frame_at: Callable[[int], FrameType] = sys._getframe
"""Returns the frame that many calls above its caller: CPython's own function."""


def is_inside(code: CodeType) -> bool:
    """Return whether a code object belongs to the simulator, not to a kernel."""
    return code.co_filename.startswith(_PACKAGE)


_name_of_file: Callable[[str], str | None] | None = None


def name_files(name: Callable[[str], str | None] | None) -> None:
    """Let a function name files that have no path for a reader, such as a notebook's cells.

    The function returns None for other files. None in its place names no file.
    """
    global _name_of_file
    _name_of_file = name


def relative_path(file: str) -> str:
    """Return the path of a file from the working directory, if the file is below it.

    A file that has a name (:func:`name_files`) has it in place of its path.
    """
    name = None if _name_of_file is None else _name_of_file(file)
    return name or file.removeprefix(os.getcwd() + os.sep)


class Location(NamedTuple):
    """A line of the kernel: file name, line number (1-based) and the line's text."""

    file: str
    line: int

    @classmethod
    def of_definition(cls, function: object) -> Location | None:
        """Return the first line of a function's definition; None for an object without code."""
        code = getattr(function, "__code__", None)
        return None if code is None else cls(code.co_filename, code.co_firstlineno)

    @property
    def text(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    @property
    def place(self) -> str:
        """The file, relative to the working directory, and the line.

        >>> Location("scale.py", 12).place
        'scale.py:12'
        """
        return f"{relative_path(self.file)}:{self.line}"

    @property
    def short_place(self) -> str:
        """The name of the file, without its folder, and the line."""
        return f"{os.path.basename(relative_path(self.file))}:{self.line}"

    @property
    def calls(self) -> tuple[Location, ...]:
        """The callers of the helper that contains this line, innermost first."""
        return ()

    def __str__(self) -> str:
        if text := self.text:
            return f"{self.place}: {text}"
        return self.place


Stack = tuple[Location, ...]
"""A kernel's line, and the callers of the helper that contains it, innermost first."""


class HelperLine(Location):
    """A line of a helper, with its caller. It equals the line itself, for any caller."""

    called_at: Location

    @property
    def calls(self) -> tuple[Location, ...]:
        return (self.called_at, *self.called_at.calls)

    def __str__(self) -> str:
        called = [f", called at {line.place}" for line in self.calls]
        return f"{super().__str__()}{''.join(called)}"


_PLACES: dict[tuple[Location, ...], Location] = {}


def innermost_location(stack: tuple[Location, ...]) -> Location | None:
    """Return the first of a kernel's lines; it knows its callers, in order."""
    if len(stack) < 2:
        if stack:
            return stack[0]
        return None
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
    """Return the innermost line outside the simulator: the kernel's current line.

    The search begins at ``frame``, if no line of a kernel is further in.
    """
    frame = frame or frame_at(1)
    while frame is not None:
        entry = _CODES.get(id(frame.f_code)) or _known(frame.f_code)
        if not entry.inside:
            return entry.lines.get(frame.f_lasti) or _line(frame, entry)
        frame = frame.f_back
    return None


def kernel_stack(
    frame: FrameType | None = None, around: Any = None
) -> tuple[Location, ...]:
    """Return the current lines outside the simulator, innermost first, up to the launch.

    Without a launch, return the innermost line alone. For ``frame``, see :func:`kernel_location`.
    ``around`` are the callers of the innermost line, if they are already found.
    """
    lines = []
    frame = frame or frame_at(1)
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
    line = entry.lines[frame.f_lasti] = Location(
        frame.f_code.co_filename, frame.f_lineno
    )
    return line


_RECORDED: ContextVar[list[NkiError] | None] = ContextVar("recorded", default=None)


@contextlib.contextmanager
def recording_errors() -> Iterator[list[NkiError]]:
    """Yield a list of the errors that are made within the block, without warnings."""
    with set_to(_RECORDED, list[NkiError]()) as errors:
        yield errors


def forget_error(error: NkiError) -> None:
    """Remove an error that is reported as a warning from the recorded errors."""
    recorded = _RECORDED.get()
    if recorded is not None and error in recorded:
        recorded.remove(error)


class NkiError(Exception):
    """A kernel broke a rule of NKI or of the hardware.

    Attributes
    ----------
    rule : the rule of the machine, in one sentence.
    happened : the kernel's violation in one sentence: the error's headline.
    received : the kernel's input, with shapes, dtypes and names.
    limit : the accepted number or set, if there is one.
    remedy : how to fix the kernel.
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
        recorded = _RECORDED.get()
        if recorded is not None:
            recorded.append(self)
        super().__init__(happened)

    def __str__(self) -> str:
        rows = [
            ("rule", self.rule),
            ("received", self.received),
            ("limit", self.limit),
            ("where", str(self.location) if self.location else None),
            ("remedy", self.remedy),
        ]
        lines = [self.happened] + [
            f"  {name + ':':<10}{text}" for name, text in rows if text
        ]
        return "\n".join(lines)


class LimitError(NkiError, ValueError):
    """A size exceeds the machine's limit."""


class ShapeError(NkiError, ValueError):
    """Operands' shapes do not fit each other or the instruction."""


class DtypeError(NkiError, TypeError):
    """The instruction, or NKI as a whole, lacks this dtype."""


class BufferError(NkiError, ValueError):
    """A tensor is in the wrong memory for the instruction."""


class OutOfBoundsError(NkiError, IndexError):
    """An access leaves its tensor."""


class UnwrittenError(NkiError, ValueError):
    """An instruction reads, or a kernel returns, unwritten elements."""


class KernelError(NkiError, RuntimeError):
    """The kernel uses the API in a way that NKI does not allow."""


class SignatureError(NkiError, TypeError):
    """The arguments of a call do not fit the function's signature."""


class MissingNameError(NkiError, AttributeError):
    """A part of NKI has no such name. ``hasattr`` and ``getattr`` work as usual."""


class KernelExit(RuntimeError):
    """A kernel raised an exception that ends a program or a test, such as SystemExit."""

    def __init__(self, error: BaseException) -> None:
        said = f": {error}" if str(error) else ""
        super().__init__(
            f"{type(error).__name__}{said} (a kernel returns, and ends no program)"
        )


class OpaqueError(RuntimeError):
    """A replacement for an error that keeps no traceback; Python and pytest fail on such errors.

    An example is a frozen dataclass that is an exception: Python must set the traceback of an
    error.
    """

    def __init__(self, error: BaseException) -> None:
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
        super().__init__(f"{said} (an error that refuses its __traceback__)")


def guarded(function: Callable[[], Any]) -> Any:
    """Return the result of a call; raise an :class:`OpaqueError` for an error without a traceback.

    Nothing between the error and this call may set its traceback, such as a context manager.
    """
    __tracebackhide__ = True
    try:
        return function()
    except Exception as error:
        opaque = _opaque(error)
        if opaque is None:
            raise
    # without the error as its context, because Python reads the traceback of a context
    raise opaque


def _opaque(error: Exception) -> OpaqueError | None:
    """Return the replacement for the current error; None if it accepts a traceback."""
    trace = sys.exc_info()[2]  # even if the error defines its own __traceback__
    try:
        error.__traceback__ = trace
    except Exception:
        return OpaqueError(error).with_traceback(trace)
    return None


class NotModelledError(NkiError, NotImplementedError):
    """A feature that the simulator does not model, and does not silently ignore."""


class OracleError(RuntimeError):
    """The oracle and the simulator differ at an instruction: one of them has a bug."""

    def __init__(self, happened: str, received: str) -> None:
        self.location = innermost_location(kernel_stack())
        super().__init__(
            f"{happened}\n  received: {received}\n  where:    {self.location}"
        )


def warn(warning: Warning, location: Location | None = None) -> None:
    """Warn at the kernel's line, which is an unknown number of frames away.

    ``location`` is the line to use instead, for example if no kernel is running.
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
    """Declare that a listener reports the hazards of the launches within the block."""
    return set_to(_REPORTED, True)


def are_hazards_reported() -> bool:
    """Return whether a listener reports the hazards of the running launch."""
    return _REPORTED.get()


def warn_of_hazard(warning: Warning) -> None:
    """Warn of a hazard that a detector reports, too, unless a listener reports it anyway."""
    if not are_hazards_reported():
        warn(warning)


_WARNED: dict[str, dict[Any, Any]] = {}
"""The warnings that were issued, by file, as Python keeps them in each module."""


def missing_name(
    owner: str,
    name: str,
    names: Iterable[str],
    *,
    ended: str = "",
    kind: str = "module",
) -> MissingNameError:
    """Return the error for a name that a module of the API does not have.

    ``names`` are the existing names. ``ended`` says why a former name is gone. ``kind`` is the kind
    of the owner, such as a class or an enumeration.
    """
    nearest = ""
    # pytest, for example, tries each name of a test's module
    if not (ended or name.startswith("_")):
        nearest = did_you_mean(name, names, 0.7)
    return MissingNameError(
        f"a kernel uses the names that {owner} has",
        happened=f"{kind} {owner!r} has no attribute {name!r}{ended}",
        received=f"{owner}.{name}",
        remedy=nearest or None,
    )


def host_array(make: Callable[..., Any], shape: tuple[int, ...], dtype: object) -> Any:
    """Return ``make(shape, dtype)``; raise :class:`LimitError` if NumPy cannot make the array."""
    try:
        return make(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise LimitError(
            "a simulated tensor fits the memory of this computer",
            happened=f"a tensor of {list(shape)} {dtype} was to be made",
            received=str(error),
            remedy="check the sizes of its shape",
        ) from None


def call_error(
    caller: str, rule: str, did: str, received: str, **more: Any
) -> NkiError:
    """Return the error of a call: its name with the rule, and with its behaviour.

    The error is a :class:`KernelError`, or of the class ``error``. Other keywords are passed to it.
    """
    error: type[NkiError] = more.pop("error", KernelError)
    return error(
        f"{caller} {rule}", happened=f"{caller} {did}", received=received, **more
    )


@contextlib.contextmanager
def set_to(variable: ContextVar[Any], value: Value) -> Iterator[Value]:
    """Set a context variable to a value within the block."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def not_modelled(
    feature: str, received: str, remedy: str | None = None
) -> NotModelledError:
    """Return the error for an argument or name that the simulator does not model."""
    return NotModelledError(
        "a feature that the simulator does not model raises, and is never ignored",
        happened=f"{feature} is not modelled by the embedded simulator",
        received=received,
        remedy=remedy,
    )
