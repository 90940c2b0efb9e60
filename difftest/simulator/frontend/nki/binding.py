"""Calls of the API: arguments that do not fit its signature get an error with the kernel's line.

Each public function has the signature of AWS's stub (v2.32.0), and Python binds the arguments;
:func:`public` is the one place that turns Python's refusal into an error of ours.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from difftest.simulator.core import entering
from difftest.simulator.errors import NkiError

Function = TypeVar("Function", bound=Callable[..., Any])

_ENDED = {
    "mask": "slice the operands: masks ended with NKI 0.2",
    "dtype": "give dst the dtype that you want: instructions write into an existing dst since "
    "NKI 0.2",
    "precise_schedule": "leave it out: loops are unrolled, and the compiler schedules",
    "dst_rmw_op": "use nisa.dma_compute: dma_copy's dst_rmw_op ended with NKI 0.3",
    "unique_indices": "use nisa.dma_compute, which has it",
    "use_gpsimd_dma": "write dma_engine=nisa.dma_engine.gpsimd_dma (NKI 0.3)",
    "imm": "write src= (NKI 0.3)",
}
"""Arguments that kernels of earlier levels have, and what became of them (migration guide)."""


class SignatureError(NkiError, TypeError):
    """The arguments of a call do not fit the function's signature."""


def public(function: Function) -> Function:
    """``function`` with a :class:`SignatureError` for arguments that do not fit it."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            trace = error.__traceback__
            if trace is None or trace.tb_next is not None:
                raise  # from inside the function
            raise _misfit(function, error, kwargs) from None

    return cast(Function, functools.wraps(function)(entering(checked)))


def _misfit(
    function: Callable[..., Any], error: TypeError, kwargs: dict[str, Any]
) -> SignatureError:
    signature = inspect.signature(function)
    extra = next((name for name in kwargs if name not in signature.parameters), None)
    return SignatureError(
        str(error),
        received=", ".join(f"{name}={value!r:.60}" for name, value in kwargs.items())
        or "positional arguments",
        limit=f"{function.__name__}({', '.join(signature.parameters)})",
        remedy=_ENDED.get(extra) if extra else None,
    )
