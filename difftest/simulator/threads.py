"""BLAS threads: one while a kernel is simulated.

The products of a kernel are those of tiles. Threads that wait for their share of one spin, and
where another process has the core, for hundreds of times as long as the product takes.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController

_LIMITED = threading.Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """A scope in which BLAS has one thread; after it, as many as before. It costs microseconds.

    The number is the process's. A scope inside another, or beside it in another thread, leaves it
    alone: so scopes that overlap cannot take the limit for the number to go back to.
    """
    if not _LIMITED.acquire(blocking=False):
        yield
        return
    try:
        with _blas().limit(limits=1):
            yield
    finally:
        _LIMITED.release()


@functools.cache
def _blas() -> ThreadpoolController:
    """The libraries that NumPy has loaded: it takes a millisecond to look for them."""
    return ThreadpoolController().select(user_api="blas")
