"""The functions of the API, as kernels call them.

Each has the signature of AWS's stub (v2.32.0), and Python binds the arguments. :func:`public` is
the one wrapper: it tells the launch which frame called, asks the table of levels, gives arguments
of earlier levels as today's (migration guide at v2.32.0, "Migrating from NKI 0.2.0 to NKI 0.3.0"),
and turns Python's refusal of arguments into an error of ours.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeVar, cast

from difftest.simulator.dtypes import as_nki_dtype
from difftest.simulator.errors import SignatureError
from difftest.simulator.frontend.arguments import fits, same_dtype
from difftest.simulator.frontend.dispatch import entering
from difftest.simulator.frontend.nki.constants import dma_engine
from difftest.simulator.frontend.nki.levels import LIFETIMES, arguments_of, check_level

Function = TypeVar("Function", bound=Callable[..., Any])

Arguments = tuple[Any, ...]
API: dict[str, dict[str, Any]] = {"nl": {}, "nisa": {}, "ncc": {}}
"""The functions of each module of the API, by what kernels call the module."""
_ENDED = {
    "mask": "slice the operands: masks ended with NKI 0.2",
    "dtype": "give dst the dtype that you want: instructions write into an existing dst since "
    "NKI 0.2",
    "precise_schedule": "leave it out: loops are unrolled, and the compiler schedules",
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


def _copied(dtype: Any, dst: Any) -> dict[str, Any]:
    """What ``dtype=`` said of a copy into a dst: no more than the dst does."""
    same_dtype(as_nki_dtype(dtype), dst, "nisa.tensor_copy")
    return {}


READ_AS: dict[str, Callable[[Any, Any], dict[str, Any]]] = {
    "nisa.dma_copy(unique_indices)": lambda value, dst: {},
    "nisa.register_move(imm)": lambda value, dst: {"src": value},
    "nisa.sendrecv(use_gpsimd_dma)": lambda value, dst: {
        "dma_engine": dma_engine.gpsimd_dma if value else dma_engine.dma
    },
    "nl.NkiTensor.reshape(new_shape)": lambda value, dst: {"shape": value},
    "nisa.tensor_copy(dtype)": _copied,
    "ncc.collective_permute_implicit_current_processing_rank_id(num_channels)": (
        lambda value, dst: {}
    ),
}
"""By its row: the arguments that one which has ended stands for, beside the call's dst."""


def public(function: Function, runs: Callable[..., Any] | None = None) -> Function:
    """``function`` as kernels call it; ``runs`` is called instead, if its signature is all it has.

    Raises
    ------
    SignatureError : when it is called with arguments that do not fit it.
    """
    name = _api_name(function)
    module, _, own = name.partition(".")
    of_module = module in API and "." not in own
    signature = inspect.signature(function)
    run = function if runs is None else runs
    rows = _rows(name, list(signature.parameters))

    def leveled(*args: Any, **kwargs: Any) -> Any:
        for argument, place, row in rows:
            if len(args) > place or argument in kwargs:
                check_level(row)
        return run(*args, **kwargs)

    def refit(error: TypeError, args: Arguments, kwargs: dict[str, Any]) -> Any:
        if fits(signature, args, kwargs):
            raise error
        given = _todays(name, args, kwargs)
        if given is None:
            raise _misfit(function.__name__, signature, error, kwargs) from None
        return args, given

    made = functools.wraps(function)(entering(leveled if rows else run, refit))
    if of_module:
        API[module][own] = made
    return cast(Function, made)


def named(function: Callable[..., Any], name: str, summary: str) -> Callable[..., Any]:
    """A function of a table under its name in the API, by which instructions know operators."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = summary
    made = public(function)
    made.nki_name = name  # type: ignore[attr-defined]
    return made


def api_of(package: ModuleType, module: str) -> dict[str, Any]:
    """The functions of a module of the API, which the parts of a package of ours make."""
    for part in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{part.name}")
    return API[module]


def _rows(name: str, parameters: list[str]) -> tuple[tuple[str, int, str], ...]:
    """The rows of the levels that a call asks: an argument, its place, and the row.

    The function's own row is that of an argument before the first, which each call has.
    """
    rows = [(name, -1, name)] if name in LIFETIMES else []
    for argument, row in arguments_of(name).items():
        if argument in parameters:
            rows.append((argument, parameters.index(argument), row))
    return tuple(rows)


def _api_name(function: Callable[..., Any]) -> str:
    """The name under which kernels know a function: ``nisa.dma_copy``, ``nl.NkiTensor.ap``."""
    module = function.__module__.removeprefix(f"{_PACKAGE}.").partition(".")[0]
    owner, dot, name = function.__qualname__.rpartition(".")
    return f"{_PREFIXES.get(module, module)}.{_CLASSES.get(owner, owner)}{dot}{name}"


def _todays(function: str, args: Arguments, kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Keyword arguments of an earlier level as today's; None if none of them has ended."""
    rows = arguments_of(function).items()
    ended = {name: row for name, row in rows if name in kwargs and LIFETIMES[row].ended}
    if not ended:
        return None
    result = {name: value for name, value in kwargs.items() if name not in ended}
    for argument, row in ended.items():
        check_level(row)
        if row not in READ_AS:
            return None
        result |= READ_AS[row](kwargs[argument], args[0] if args else kwargs.get("dst"))
    return result


def _misfit(
    name: str, signature: inspect.Signature, error: TypeError, kwargs: dict[str, Any]
) -> SignatureError:
    extra = next((given for given in kwargs if given not in signature.parameters), None)
    return SignatureError(
        "a call takes the parameters that its function is documented with",
        happened=str(error),
        received=", ".join(f"{given}={value!r:.60}" for given, value in kwargs.items())
        or "positional arguments",
        limit=f"{name}({', '.join(signature.parameters)})",
        remedy=_ENDED.get(extra) if extra else None,
    )
