"""The functions that a kernel is made of: its own, and those of its author's that it calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from difftest.harness.frames import is_authors
from difftest.report.mutants.mutant import codes_in, functions_in, source_of
from difftest.simulator.frontend.launchable import function_in


def functions_of(kernel: Callable[..., Any]) -> tuple[FunctionType, ...]:
    """The functions whose source may be changed, the kernel's own first.

    Those are what the code names, directly and on the way, and what is no library's.
    """
    reached: dict[int, FunctionType] = {}
    left: list[Any] = [kernel]
    while left:
        value = left.pop(0)
        function = function_in(value) if callable(value) else None
        if function is None or id(function) in reached or not _is_authors(function):
            continue
        reached[id(function)] = function
        left += _named(function)
    return tuple(reached.values())


def _is_authors(function: FunctionType) -> bool:
    file = function.__code__.co_filename
    if not is_authors(file):
        return False
    try:
        lines = {line for line, _ in functions_in(source_of(file).tree)}
    except (OSError, SyntaxError, UnicodeDecodeError):
        return False
    return function.__code__.co_firstlineno in lines


def _named(function: FunctionType) -> Iterator[Any]:
    """What stands under the names in a function's code; of a module what the code may take."""
    names = list(code_names(function.__code__))
    yield from (cell.cell_contents for cell in function.__closure__ or () if cell != CellType())
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            yield from (vars(value).get(name) for name in names)
        elif isinstance(value, (tuple, list)):
            yield from value
        elif isinstance(value, dict):
            yield from value.values()
        else:
            yield value


def code_names(code: CodeType) -> Iterator[str]:
    """The global names and attributes in a function's code, and in that of those inside it."""
    for part in (code, *codes_in(code)):
        yield from part.co_names


def name_of(function: FunctionType) -> str:
    """What a mutant calls a function: its qualified name, and its first line."""
    return f"{function.__qualname__}:{function.__code__.co_firstlineno}"
