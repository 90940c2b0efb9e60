"""Calls of the API: arguments that do not fit its signature get an error with the kernel's line.

Each public function has the signature of AWS's stub (v2.32.0), and Python binds the arguments;
:func:`public` is the one place that turns Python's refusal into an error of ours, and that asks
the table of levels whether the launch's level has the function and its arguments.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from difftest.simulator.entering import entering
from difftest.simulator.errors import SignatureError
from difftest.simulator.frontend.nki.idioms import todays
from difftest.simulator.frontend.nki.levels import LIFETIMES, arguments_of, check_level

Function = TypeVar("Function", bound=Callable[..., Any])

_ENDED = {
    "mask": "slice the operands: masks ended with NKI 0.2",
    "dtype": "give dst the dtype that you want: instructions write into an existing dst since "
    "NKI 0.2",
    "precise_schedule": "leave it out: loops are unrolled, and the compiler schedules",
    "dst_rmw_op": "use nisa.dma_compute: dma_copy's dst_rmw_op ended with NKI 0.3",
}
"""Arguments that kernels of earlier levels have, and what became of them (migration guide)."""
_PREFIXES = {
    "isa": "nisa",
    "collectives": "ncc",
    "kernel": "nki",
    **dict.fromkeys(("language", "tensor", "views"), "nl"),
}
"""By a module of this package: what kernels call the module that its functions are in, and by a
class what they call the class."""
_CLASSES = {"Views": "NkiTensor"}
_PACKAGE = __name__.rpartition(".")[0]


def public(function: Function) -> Function:
    """``function`` with a :class:`SignatureError` for arguments that do not fit it.

    Where the table of levels has rows of it, each call asks for them.
    """
    name = _api_name(function)

    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            trace = error.__traceback__
            if trace is None or trace.tb_next is not None:
                raise  # from inside the function
            translated = todays(name, args, kwargs)
            if translated is not None:
                return call(*args, **translated)
            raise _misfit(function, error, kwargs) from None

    call: Callable[..., Any] = functools.wraps(function)(entering(checked))
    return cast(Function, _leveled(function, name, call))


def _leveled(
    function: Callable[..., Any], name: str, call: Callable[..., Any]
) -> Callable[..., Any]:
    """``call``, after a look at the rows of the function and of the arguments that it gets."""
    parameters = list(inspect.signature(function).parameters)
    rows = {
        argument: (parameters.index(argument), row)
        for argument, row in arguments_of(name).items()
        if argument in parameters
    }
    if name not in LIFETIMES and not rows:
        return call

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if name in LIFETIMES:
            check_level(name)
        for argument, (place, row) in rows.items():
            if argument in kwargs or len(args) > place:
                check_level(row)
        return call(*args, **kwargs)

    return checked


def _api_name(function: Callable[..., Any]) -> str:
    """The name under which kernels know a function: ``nisa.dma_copy``, ``nl.NkiTensor.ap``."""
    module = function.__module__.removeprefix(f"{_PACKAGE}.").partition(".")[0]
    owner, dot, name = function.__qualname__.rpartition(".")
    return f"{_PREFIXES.get(module, module)}.{_CLASSES.get(owner, owner)}{dot}{name}"


def _misfit(
    function: Callable[..., Any], error: TypeError, kwargs: dict[str, Any]
) -> SignatureError:
    signature = inspect.signature(function)
    extra = next((name for name in kwargs if name not in signature.parameters), None)
    return SignatureError(
        "a call takes the parameters that its function is documented with",
        happened=str(error),
        received=", ".join(f"{name}={value!r:.60}" for name, value in kwargs.items())
        or "positional arguments",
        limit=f"{function.__name__}({', '.join(signature.parameters)})",
        remedy=_ENDED.get(extra) if extra else None,
    )
