"""A function of the API as kernels call it: the launch knows which frame called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from difftest.simulator.core import RUNNING

_running = RUNNING.get
_frame = sys._getframe

Refit = Callable[
    [TypeError, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]
]


def entering(function: Callable[..., Any], refit: Refit | None = None) -> Callable[..., Any]:
    """``function`` as kernels call it: the launch knows meanwhile which frame called it.

    Looking for the kernel's line from within would make an object of each frame on the way, for
    each instruction. ``refit`` gives other arguments for those that do not fit, or raises.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        core = _running(None)
        if core is not None:
            outer, core.caller = core.caller, _frame(1)
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if refit is None or type(error) is not TypeError:
                raise
            args, kwargs = refit(error, args, kwargs)
            return call(*args, **kwargs)
        finally:
            if core is not None:
                core.caller = outer

    return call
