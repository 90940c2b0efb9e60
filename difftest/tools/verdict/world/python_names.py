"""Python's own functions and classes, as a candidate has them."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from difftest.simulator.errors import NkiError
from difftest.tools.verdict.world import texts
from difftest.tools.verdict.world.attributes import read, writable
from difftest.tools.verdict.world.guard import GUARDS
from difftest.tools.verdict.world.held import (
    CLASSES,
    Facade,
    list_function,
)
from difftest.tools.verdict.world.instances import (
    TEXT,
    TYPE,
    is_instance,
    plain_kinds,
)
from difftest.tools.verdict.world.order import hash_of, id_of
from difftest.tools.verdict.world.refusal import (
    Absent,
    need,
    refusal,
    unavailable,
)

CLASS_NAMES = (
    "bool bytes classmethod complex dict enumerate filter float frozenset int list map object "
    "property range reversed set slice staticmethod super tuple zip"
)
"""Classes that a candidate has as Python has them."""
ERRORS = (
    "ArithmeticError AssertionError AttributeError DeprecationWarning Exception FutureWarning "
    "ImportError IndexError KeyError LookupError ModuleNotFoundError NameError "
    "NotImplementedError OSError OverflowError RecursionError RuntimeError RuntimeWarning "
    "StopIteration SyntaxWarning TypeError UserWarning ValueError Warning ZeroDivisionError"
)
FUNCTION_NAMES = (
    "abs all any bin callable chr divmod hex iter len max min next oct ord pow round "
    "sorted sum"
)
"""Functions of C that take and return listed values, and read no attribute by its name."""
CONSTANTS = ("Ellipsis", "False", "None", "NotImplemented", "True", "__debug__")


def _getattr(value: Any, name: Any, *default: Any) -> Any:
    if type(name) is not str:
        raise TypeError("getattr(): attribute name must be string")
    try:
        return read(value, name)
    except AttributeError as error:
        if isinstance(error, NkiError):
            what = f"a question for {name}"
            raise refusal(what, "name what AWS documents", is_question=True) from None
        if not default:
            raise
        return default[0]


def _hasattr(value: Any, name: Any) -> bool:
    if type(value) is Absent:
        need(value)
    try:
        found = _getattr(value, name)
    except AttributeError:
        return False
    if type(found) is Absent:
        need(found)
    return True


def _setattr(value: Any, name: Any, item: Any) -> None:
    if type(name) is not str or name.startswith("__"):
        raise refusal(f"the attribute {name!r:.40} is set")
    setattr(writable(value, name), name, item)


def _delattr(value: Any, name: Any) -> None:
    if type(name) is not str or name.startswith("__"):
        raise refusal(f"the attribute {name!r:.40} is deleted")
    delattr(writable(value, name), name)


def _is_subclass(kind: Any, kinds: Any) -> bool:
    return issubclass(plain_kinds(kind), plain_kinds(kinds))


def _hash(value: Any) -> int:
    """Return ``hash(value)``; an own ``__hash__`` asks the guards itself."""
    if texts.is_own_function(getattr(type(value), "__hash__", None)):
        return hash(value)
    return hash_of(value)


def _repr(value: Any) -> Any:
    return texts.text_of(value, repr)


def _vars(*args: Any) -> Any:
    if not args:
        return unavailable("vars()")
    return read(args[0], "__dict__")


def _format(value: Any, spec: Any = "") -> Any:
    return texts.formatted(value, -1, spec)


def printer(write: Callable[[str], object]) -> Callable[..., None]:
    """Return ``print``, which writes texts by a function."""

    def show(*parts: Any, sep: Any = " ", end: Any = "\n", **options: Any) -> None:
        for text in (sep, end):
            if text is not None and not isinstance(text, (str, texts.Opaque)):
                raise TypeError("sep and end of print are texts")
        shown = [
            repr(part) if type(part) is Absent else str(texts.text_of(part))
            for part in parts
        ]
        write((" " if sep is None else str(sep)).join(shown) + str(end or "\n"))

    return show


_OWN_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "getattr": _getattr,
    "hash": _hash,
    "id": id_of,
    "hasattr": _hasattr,
    "setattr": _setattr,
    "delattr": _delattr,
    "isinstance": is_instance,
    "issubclass": _is_subclass,
    "repr": _repr,
    "ascii": lambda value: texts.text_of(value, ascii),
    "format": _format,
    "vars": _vars,
}
CLASSES |= {getattr(builtins, name) for name in (*CLASS_NAMES.split(), *ERRORS.split())}
for _name in FUNCTION_NAMES.split():
    list_function(getattr(builtins, _name))


def _imported(name: str, *rest: Any, **more: Any) -> ModuleType:
    """Import a module for C code of NumPy; it takes the module from ``sys.modules`` itself."""
    if name.partition(".")[0] not in ("numpy", "ml_dtypes") and name not in sys.modules:
        raise ImportError(name)
    builtins.__import__(name)
    return ModuleType(name)


def builtin_names(write: Callable[[str], object]) -> dict[str, Any]:
    """Return the names that each file of a candidate has, and the guards.

    Parameters
    ----------
    write : writes the text of ``print``.
    """
    names: dict[str, Any] = {name: Absent(name) for name in _OTHERS}
    names |= {name: getattr(builtins, name) for name in CLASS_NAMES.split()}
    names |= {name: getattr(builtins, name) for name in ERRORS.split()}
    names |= {name: getattr(builtins, name) for name in FUNCTION_NAMES.split()}
    names |= {name: Facade(name, own) for name, own in _OWN_FUNCTIONS.items()}
    names |= {name: getattr(builtins, name) for name in CONSTANTS}
    names["str"] = TEXT
    names["type"] = TYPE
    names["print"] = Facade("print", printer(write))
    names["__build_class__"] = builtins.__build_class__
    names["__import__"] = _imported
    names["__name__"] = "builtins"
    return names | GUARDS


_OTHERS = tuple(
    name for name in dir(builtins) if not name.startswith("_") and name not in CONSTANTS
)
