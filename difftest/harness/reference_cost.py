"""What a reference will cost on a large case, foreseen from two small ones.

Nobody can interrupt a reference. ``np.eye(n)[indices]`` is a fine one of a one-hot encoding for all
sizes that are drawn, and takes 21 GiB where the kernel's tile fills SBUF.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MOST_BYTES = 2**30
"""That a reference may take."""
MOST_SECONDS = 60.0
"""That a reference may take."""
_SMALL = (128, 256)
"""Sizes on which a reference is tried."""
_TIMES = 3
"""Calls of which the shortest counts: the others were held up."""


@dataclass(frozen=True)
class ReferenceCost:
    """Of a call.

    Attributes
    ----------
    bytes : that it had at one time, beside what there was.
    seconds : of processor time.
    """

    bytes: int
    seconds: float

    @property
    def is_bearable(self) -> bool:
        """Whether to wait for it."""
        return self.bytes <= MOST_BYTES and self.seconds <= MOST_SECONDS

    def __str__(self) -> str:
        if self.bytes > MOST_BYTES:
            return f"about {self.bytes / 2**30:.2g} GiB"
        return f"about {self.seconds:.2g} s"


def foreseen(prepare: Callable[[int], Callable[[], object]], size: int, step: int) -> ReferenceCost:
    """What ``prepare(size)()`` will cost.

    Parameters
    ----------
    prepare : makes the call of a size.
    step : that all sizes are multiples of.
    """
    small, large = (max(step, count // step * step) for count in _SMALL)
    if large == small:
        large = 2 * small
    if size <= large:
        return ReferenceCost(0, 0.0)
    prepare(small)()  # what is made once is made here
    first, second = measured(prepare(small)), measured(prepare(large))
    return ReferenceCost(
        int(_grown(first.bytes, second.bytes, small, large, size)),
        _grown(first.seconds, second.seconds, small, large, size),
    )


def measured(call: Callable[[], object]) -> ReferenceCost:
    """What a call costs."""
    return ReferenceCost(peak_of(call), min(_seconds(call) for _ in range(_TIMES)))


def peak_of(call: Callable[[], object]) -> int:
    """The most bytes that a call holds at one time, beside what there was."""
    with _tracing():
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before


def _seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


@contextmanager
def _tracing() -> Iterator[None]:
    """NumPy tells ``tracemalloc`` of its arrays."""
    if tracemalloc.is_tracing():
        tracemalloc.reset_peak()
        yield
        return
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def _grown(first: float, second: float, small: int, large: int, size: int) -> float:
    """A part that grows as the size, and one that grows as its square, through two points."""
    square = max(0.0, (second / large - first / small) / (large - small))
    return (second / large - square * large) * size + square * size**2
