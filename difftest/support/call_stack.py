"""Room on CPython's stack for the frames of deep calls.

In Python 3.11 to 3.13, frames are in chunks of 16 KiB. A call that does not fit into the current
chunk maps a new one, and its return unmaps it, which takes 10 microseconds. A loop whose calls
begin near the end of a chunk pays this again and again: a case of a small kernel made 40 such
calls. A frame that is larger than a chunk gets a larger chunk, and calls within it use the rest of
that. Python 3.14.8 does not show this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

__tracebackhide__ = True  # a failure is the called function's

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_FRAME = 2**16
"""The values in a large frame. It takes half a MiB, of which nothing is touched. Its chunk is a
power of two, 1 MiB, so that half a MiB is left for a thousand frames."""


def call_with_room(
    function: Callable[Arguments, Result],
    *args: Arguments.args,
    **named: Arguments.kwargs,
) -> Result:
    """Call a function that makes many calls, with room for their frames; return its result."""
    return function(*args, **named)


call_with_room.__code__ = call_with_room.__code__.replace(co_stacksize=_FRAME)
