"""What a compiled kernel depends on, as one digest: its code and everything the code refers to.

The source text of the kernel alone would not do: a helper function or a constant of the module may
change while the kernel's text stays, and a cache would serve the program of before.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from difftest.backends.base import KernelCall
from difftest.backends.dialect import function_of

_SDK = ("neuronxcc", "nki", "numpy", "ml_dtypes", "difftest.simulator")
"""Their own versions are a part of the key, their insides are not."""
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


class UnknownStateError(Exception):
    """The kernel refers to something whose value cannot be told from outside: do not cache it."""


def fingerprint(call: KernelCall, versions: dict[str, str]) -> str:
    """The digest of all that decides what the compiler makes of a call.

    That is the kernel's code, what its code refers to, the shapes and dtypes of its arrays, its
    parameters and grid, the versions of the SDK, and Python's.

    Raises
    ------
    UnknownStateError : the kernel refers to an object that has no readable value.
    """
    digest = hashlib.sha256()
    function = function_of(call.kernel)
    if function is None:
        raise UnknownStateError(f"the function inside {call.kernel!r:.80} does not show")
    facts: tuple[object, ...] = (
        sys.version_info[:2],
        sorted(versions.items()),
        [(array.shape, str(array.dtype)) for array in (*call.inputs, *call.outputs)],
        call.names,
        sorted(call.parameters.items()),
        call.grid,
    )
    for fact in facts:
        digest.update(repr(fact).encode() + b"\0")
    for part in _function(function, set()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    """The function's code, defaults, closure, and the globals that it names."""
    if id(function) in seen:
        return
    seen.add(id(function))
    yield from _code(function.__code__)
    yield from _value("defaults", (function.__defaults__, function.__kwdefaults__), seen)
    for cell in function.__closure__ or ():
        yield from _value("closure", cell.cell_contents, seen)
    for name in sorted(set(_names(function.__code__))):
        if name in function.__globals__:
            yield from _value(name, function.__globals__[name], seen)


def _code(code: CodeType) -> Iterator[str]:
    yield repr((code.co_code.hex(), code.co_names, code.co_varnames))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield repr(constant)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _value(name: str, value: Any, seen: set[int]) -> Iterator[str]:
    """What stands under a name: a plain value, a function, a module, or containers of them."""
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if isinstance(value, _PLAIN):
        yield f"{name}={value!r}"
    elif isinstance(value, (tuple, list)):
        for number, one in enumerate(value):
            yield from _value(f"{name}[{number}]", one, seen)
    elif isinstance(value, dict):
        for key in value:
            yield from _value(f"{name}[{key!r}]", value[key], seen)
    elif isinstance(home, str) and f"{home}.".startswith(tuple(f"{one}." for one in _SDK)):
        yield f"{name} of {home}"
    elif isinstance(value, ModuleType):
        yield from _module(value, seen)
    elif (function := function_of(value) if callable(value) else None) is not None:
        yield from _function(function, seen)
    else:
        raise UnknownStateError(f"{name} = {value!r:.80}")


def _module(module: ModuleType, seen: set[int]) -> Iterator[str]:
    """A module of the user's: its file, and the plain values that it holds now."""
    if id(module) in seen or module.__name__.partition(".")[0] in sys.stdlib_module_names:
        yield module.__name__
        return
    seen.add(id(module))
    if module.__file__ is None:
        raise UnknownStateError(f"the module {module.__name__} has no file")
    yield hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest()
    for name, value in sorted(vars(module).items()):
        if isinstance(value, _PLAIN) and not name.startswith("__"):
            yield f"{module.__name__}.{name}={value!r}"
