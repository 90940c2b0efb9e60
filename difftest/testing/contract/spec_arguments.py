"""Checks of single arguments of a KernelSpec, before the checks that they fit each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from difftest.testing.contract.recipes import is_plain_integer

_MAPPINGS = {
    "domain": "a mapping of names to where their values come from, e.g. {'n': sizes(1, 128)}",
    "inputs": "a mapping of the kernel's arguments to their dimensions, e.g. {'a': 'm n'}",
    "outputs": "a mapping of the kernel's arguments to their dimensions, e.g. {'result': 'm n'}",
}
_SEQUENCES = {
    "parameters": "a sequence of names of the domain, e.g. ['factor']",
    "dtypes": "a tuple of dtype names, e.g. ('float32', 'bfloat16')",
    "rejects": "a sequence of Rejections",
    "examples": "a sequence of Cases, or of mappings with a value for each name of the domain",
}


class SpecError(ValueError):
    """A KernelSpec contradicts itself; the text names the argument and the accepted values."""

    __module__ = "difftest"  # the public module; with a longer name pytest would cut the text off


def validate_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check the kind of each argument of a spec, and return them with sequences as tuples."""
    switches = ("edges", "exact", "nonfinite", "allow_inconclusive")
    words = (str, Mapping)  # they are iterable, but their items are not elements
    kinds: tuple[tuple[Callable[[Any], bool], Mapping[str, str]], ...] = (
        (lambda value: isinstance(value, Mapping), _MAPPINGS),
        (
            lambda value: isinstance(value, Iterable) and not isinstance(value, words),
            _SEQUENCES,
        ),
        (callable, dict.fromkeys(("kernel", "reference"), "a function")),
        (
            lambda value: isinstance(value, bool),
            dict.fromkeys(switches, "True or False"),
        ),
        (
            lambda value: value is None or callable(value),
            {"magnitude": "a function, or None"},
        ),
    )
    for fits, names in kinds:
        for name, accepted in names.items():
            if not fits(arguments[name]):
                raise argument_error(name, arguments[name], accepted)
    return {**arguments, **{name: tuple(arguments[name]) for name in _SEQUENCES}}


def validate_size(
    argument: str, value: Any, accepted: str = "an integer, at least 0"
) -> int:
    """Check that a value is a size, and return it as an int."""
    if not is_plain_integer(value) or value < 0:
        raise argument_error(argument, value, accepted)
    return int(value)


def validate_grid(argument: str, value: Any) -> tuple[int, ...]:
    """Check that a value is an SPMD grid, and return it as a tuple of ints."""
    is_row = isinstance(value, (tuple, list))
    if not is_row or not all(is_plain_integer(size) and size > 0 for size in value):
        accepted = "a tuple of positive integers, or a function that returns one"
        raise argument_error(argument, value, accepted)
    return tuple(map(int, value))


def check_integers(function: str, **arguments: Any) -> None:
    """Check that the arguments of a function for sources of sizes are integers."""
    for name, value in arguments.items():
        if not is_plain_integer(value):
            raise argument_error(f"{function}: {name}", value, "an integer")


def validate_pattern(argument: str, pattern: Any) -> None:
    """Check that a pattern is a regular expression that is not empty."""
    fault = ""
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        fault = f", which is no regular expression ({error})"
    if fault or not pattern or not isinstance(pattern, str):
        raise SpecError(
            f"{argument}: received match={pattern!r}{fault}; accepted: a part of the error's text, "
            "in which re.escape guards brackets and the like"
        )


def argument_error(argument: str, value: object, accepted: str) -> SpecError:
    """Return the error for a wrong argument."""
    return SpecError(f"{argument}: received {value!r:.80}; accepted: {accepted}")
