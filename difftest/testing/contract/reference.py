"""Call a reference on copies of its arguments, and classify its errors.

A reference may reject a case, by an ``assert`` or a ValueError in its own code. Any other error is
a defect of the reference, and so is a write to an argument. Then the reference cannot judge the
case.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from difftest.simulator.errors import Location, guarded
from difftest.support.rounding import Array, Float64
from difftest.support.signature import bind_reference, function_name
from difftest.support.tracebacks import format_error, inner_frames, is_own, is_raised_by
from difftest.testing.backends.sdk import function_of
from difftest.testing.contract.limits import (
    CaseLimitError,
    fault_of_machine,
    within_limits,
)

REFUSALS = (AssertionError, ValueError)


class ReferenceRefusal(Exception):
    """The reference rejects the case by an ``error``."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(error)


@dataclass(eq=False, repr=False)
class ReferenceDefect(Exception):
    """A wrong reference, which cannot judge a case.

    ``happened`` is one sentence that names the reference. ``where`` is its source line, if an error
    shows one.
    """

    happened: str
    rule: str = field(kw_only=True)
    received: str = field(kw_only=True)
    remedy: str = field(kw_only=True)
    where: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        super().__init__(self.happened)


def as_float64(outputs: tuple[Array, ...]) -> tuple[Float64, ...]:
    """Return a reference's outputs as float64, the dtype of comparisons."""
    return tuple(array.astype(np.float64, copy=False) for array in outputs)


def call_reference(
    function: Callable[..., Any],
    inputs: Mapping[str, Array],
    parameters: Mapping[str, Any],
    role: str = "reference",
) -> tuple[Array, ...]:
    """Call a reference on copies of its arguments, and return its outputs in its own dtypes.

    Parameters
    ----------
    function : the reference. It may read, return and make views of its inputs.
    inputs : the input arrays, by name.
    parameters : the kernel's parameters. The reference gets those that it accepts.
    role : the name of the function's role in errors.

    Raises
    ------
    ReferenceRefusal : a check in the reference's own code rejects the case.
    ReferenceDefect : it wrote to an argument, crashed, or did not return arrays of numbers.
    MemoryError, OSError : this computer cannot run it: see ``fault_of_machine``.
    """
    who = f"the {role} {function_name(function)}"
    own_inputs = {name: copy.deepcopy(value) for name, value in inputs.items()}
    own_parameters = {name: copy.deepcopy(value) for name, value in parameters.items()}
    args, kwargs = bind_reference(function, own_inputs, own_parameters)
    try:
        returned = within_limits(lambda: guarded(lambda: function(*args, **kwargs)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also pytest.skip, which would end the test quietly
        if fault_of_machine(error):
            raise
        raise _classified(error, function, who) from error
    written = _changed(inputs, own_inputs) + _changed(parameters, own_parameters)
    if written:
        raise _write_defect(written, function, who)
    several = returned if isinstance(returned, tuple) else (returned,)
    return tuple(_numbers(output, who) for output in several)


def _classified(
    error: BaseException, function: Callable[..., Any], who: str
) -> ReferenceRefusal | ReferenceDefect:
    """Return the error for a reference that did not return."""
    if isinstance(error, REFUSALS) and is_raised_by(error, function):
        return ReferenceRefusal(error)
    if isinstance(error, CaseLimitError):
        return ReferenceDefect(
            f"{who} {error}",
            rule="each call of a kernel and of a reference keeps the limits of the session",
            received=format_error(error),
            remedy="raise the limit, or let the reference need less",
            where=raising_line(error, function),
        )
    return ReferenceDefect(
        f"{who} crashed",
        rule="a reference rejects a case by an assert, or by raising ValueError, in code of "
        "its own; any other error is a bug in it",
        received=format_error(error),
        remedy="fix the reference, or reject the case in a check with a message",
        where=raising_line(error, function),
    )


def _write_defect(
    written: Sequence[str], function: Callable[..., Any], who: str
) -> ReferenceDefect:
    """Return the error for a reference that wrote to arguments."""
    noun = "arguments" if len(written) > 1 else "argument"
    place = Location.of_definition(function_of(function))
    return ReferenceDefect(
        f"{who} wrote to its {noun} {', '.join(written)}",
        rule="a reference only reads its arguments: values that it writes there are lost",
        received="values that differ from those passed",
        remedy=f"work on a copy, {written[0]} = {written[0]}.copy(), or compute a new array",
        where="" if place is None else str(place),
    )


def _arrays(value: Any) -> Iterator[Array]:
    """Yield the arrays in a value, at any depth of lists, tuples and dictionaries."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _arrays(item)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments that a reference has changed."""
    return [name for name in before if _differ(before[name], after[name])]


def _differ(value: Any, other: Any) -> bool:
    """Return whether two values differ in the bytes of their arrays."""
    for before, after in zip(_arrays(value), _arrays(other), strict=False):
        if not np.array_equal(array_bytes(before), array_bytes(after)):
            return True
    return False


def raising_line(error: BaseException, function: Callable[..., Any]) -> str:
    """Return the innermost line of the author's code: file, line and text; empty without one."""
    for entry in inner_frames(error):
        if is_own(entry, function):
            return str(Location(entry.tb_frame.f_code.co_filename, entry.tb_lineno))
    return ""


def array_bytes(array: Array) -> Array:
    """Return an array's bytes, without a copy if it is contiguous. Bytes of equal NaN are equal."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _numbers(returned: object, who: str) -> Array:
    """Return an output as an array of numbers; raise a ReferenceDefect if it is none."""
    try:
        array = np.asarray(returned)
    except ValueError:  # rows of several lengths
        array = np.asarray(None)
    if not np.can_cast(array.dtype, np.float64, casting="same_kind"):
        received = type(returned).__name__
        if isinstance(returned, np.ndarray):
            received = f"an array of {array.dtype}"
        raise ReferenceDefect(
            f"{who} returned no array of real numbers",
            rule="a reference returns an array, or a tuple of arrays, one for each output",
            received=received,
            remedy="return the expected outputs of the kernel, best in float64",
        )
    return array
