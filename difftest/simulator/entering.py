"""A function of the API as kernels call it: the launch knows which frame called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from difftest.simulator.core import RUNNING, PlainMode

_running = RUNNING.get
_frame = sys._getframe

InPlainMode = Callable[[PlainMode, tuple[Any, ...], dict[str, Any]], Any]
Refit = Callable[
    [TypeError, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]
]


def entering(
    function: Callable[..., Any],
    in_plain_mode: InPlainMode | None = None,
    refit: Refit | None = None,
) -> Callable[..., Any]:
    """``function`` as kernels call it: the launch knows meanwhile which frame called it.

    Looking for the kernel's line from within would make an object of each frame on the way, for
    each instruction. In a launch in plain mode the call is ``in_plain_mode(mode, args, kwargs)``.
    ``refit`` gives other arguments for those that do not fit, or raises.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        core = _running(None)
        if core is None:
            return function(*args, **kwargs)
        outer = core.caller
        core.caller = _frame(1)
        try:
            if core.plain is not None and in_plain_mode is not None:
                return in_plain_mode(core.plain, args, kwargs)
            return function(*args, **kwargs)
        except TypeError as error:
            if refit is None or type(error) is not TypeError:
                raise
            args, kwargs = refit(error, args, kwargs)
            return call(*args, **kwargs)
        finally:
            core.caller = outer

    return call
