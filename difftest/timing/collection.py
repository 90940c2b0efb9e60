"""The work of a prediction without garbage collection: it makes many objects, and no garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from functools import cache

_frozen = cache(gc.get_freeze_count)  # counts one by one: ten milliseconds in a session


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Run without garbage collection within the block; a search for garbage doubles the time.

    New objects then count as old, so that the next collection does not visit all of them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not _frozen():  # otherwise the program keeps something frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
