"""The error for actions that a candidate may not take, absent values, and their messages."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NoReturn

from difftest.simulator.errors import NkiError, frame_at

INTERNAL = "\N{MIDDLE DOT}"
"""The first character of names that no source can spell."""


class OutsideLanguageError(BaseException):
    """A candidate reached something that its world does not have.

    It is not an Exception, so that few handlers catch it, and the world remembers the first one.
    """

    def __init__(self, what: str, remedy: str, file: str, line: int) -> None:
        super().__init__(f"{file}:{line}: {what}; {remedy}")
        self.file = file
        self.line = line
        self.what = what
        self.remedy = remedy


class UnavailableError(BaseException):
    """A file's top-level statement needs the value of something that is absent; it is skipped."""


C_CODE_KEEPS_TRACEBACKS = sys.version_info >= (3, 12)
"""Whether an error that C code handles keeps its traceback."""
_LEAST_SECONDS = 1e8  # 3 years
_MOST_SECONDS = 2e9  # 63 years


class RunState:
    """The state of the one candidate of this process.

    Attributes
    ----------
    builtins : the names that every file of the candidate has; its identity marks own functions.
    files : the candidate's files.
    loading : whether files of the candidate are being loaded, and no kernel runs.
    refused : the first refusal since the last request.
    is_open : whether ``--allow`` opens a module: values of any type may come from it.
    modules : the candidate's modules by their names.
    asked : names of absent modules and variables that the candidate asked for.
    clock_shift : the seconds that clocks are ahead; each run has other ones.
    is_inverted : whether the order of sets, ``hash()`` and ``id()`` are inverted.
    rejections : errors of the machine that reached the candidate's code, before Python 3.12.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the candidate."""
        self.builtins: dict[str, Any] = {}
        self.files: frozenset[str] = frozenset()
        self.loading = False
        self.refused: OutsideLanguageError | None = None
        self.asked: set[str] = set()
        self.is_open = False
        self.modules: Mapping[str, ModuleType] = {}
        self.clock_shift = 0.0
        self.is_inverted = False
        self.rejections: list[NkiError] = []

    def begin_run(self, *, is_inverted: bool) -> None:
        """Prepare a run: forget rejections, and let its files load at the time of the clock.

        An inverted run has another order of sets, and other numbers of ``hash()`` and ``id()``. A
        kernel that follows them issues other instructions there. The other run is ordinary in all
        of these, so that two questions together show no verdict either.
        """
        self.is_inverted = is_inverted
        self.clock_shift = 0.0
        self.rejections.clear()

    def begin_kernel(self) -> None:
        """Let clocks of an inverted run show a later time than when its files were loaded."""
        if self.is_inverted:
            seconds = random.SystemRandom().uniform(_LEAST_SECONDS, _MOST_SECONDS)
            self.clock_shift = seconds


STATE = RunState()


def refusal(
    what: str, remedy: str = "leave it out", *, is_question: bool = False
) -> BaseException:
    """Return the error of something that a candidate may not do, at its running line.

    While files load, the error ends the top-level statement alone, which is skipped; the verdict
    says so. The first refusal of a run is remembered.

    Parameters
    ----------
    is_question : whether the candidate asks where it runs. A skipped statement would answer, so it
        is refused while files load, too.
    """
    if STATE.loading and not is_question:
        STATE.asked.add(what)
        return UnavailableError(what)
    frame = frame_at(1)
    while frame.f_back is not None and frame.f_code.co_filename not in STATE.files:
        frame = frame.f_back
    error = OutsideLanguageError(what, remedy, frame.f_code.co_filename, frame.f_lineno)
    STATE.refused = STATE.refused or error
    return error


def unavailable(name: str, remedy: str = "leave it out") -> Absent:
    """Return an absent value while files load; raise OutsideLanguageError while a kernel runs."""
    if STATE.loading:
        return Absent(name)
    raise refusal(f"{name} is not available here", remedy)


def need(value: Absent, *_: object) -> NoReturn:
    """Raise an error because code needs the value of something absent.

    Raises
    ------
    UnavailableError : files are being loaded.
    OutsideLanguageError : a kernel runs.
    """
    if STATE.loading:
        STATE.asked.add(value._name)
        raise UnavailableError(value._name)
    raise refusal(f"{value._name} is not available here")


def is_of_others(value: Absent) -> bool:
    """Return whether an absent value is of a library that is not Python's own."""
    return value._name.partition(".")[0] not in sys.stdlib_module_names


def _derive(self: Absent, *_: object) -> Absent:
    return unavailable(self._name)


_OPERATORS = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift"),
)
_VALUES = (
    *("bool", "iter", "len", "contains", "int", "float", "index", "hash", "next"),
    *("eq", "ne", "lt", "le", "gt", "ge", "enter", "exit", "reversed", "format"),
)


class Absent:
    """A value of a module that is not here.

    While files load, it can be named, called and derived from. In a kernel, any use is refused.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name}, which is absent>"

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()

    for _word in _OPERATORS:
        vars()[f"__{_word}__"] = vars()[f"__r{_word}__"] = _derive
    for _word in ("neg", "pos", "invert", "getitem", "call"):
        vars()[f"__{_word}__"] = _derive
    for _word in _VALUES:
        vars()[f"__{_word}__"] = need
    del _word

    def __call__(self, *args: Any, **kwargs: Any) -> Absent:
        return unavailable(f"{self._name}()")


_ASKED_OF_CLASSES = ("_is_protocol", "_is_runtime_protocol", "_abc_impl")
"""Names by which a class of :mod:`typing` or :mod:`abc` decides what its instances are."""


def is_special(name: str) -> bool:
    """Return whether Python gives a name a meaning: two underscores on both sides, or listed."""
    if name in _ASKED_OF_CLASSES:
        return True
    return name.startswith("__") and name.endswith("__") and name.strip("_") != ""


def exact_text(value: Any, role: str) -> str:
    """Return a text that becomes a key or the name of an attribute.

    A text of an own class decides itself what it equals, and so which name is found.
    """
    if type(value) is not str:
        raise refusal(f"{role} that is not a plain str", "use a literal")
    return value
