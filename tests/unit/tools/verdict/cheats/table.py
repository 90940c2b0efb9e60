"""A cheat: a kernel's file, the expected outcome, and the check that catches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from difftest.tools.verdict.outcome import Outcome
from tests.unit.tools.verdict.kernels import source, spec_of

HOST = '''
import numpy as np


def by_memset(values, like):
    """An answer of the host's, element by element."""
    tile = nl.ndarray(like.shape, dtype=like.dtype, buffer=nl.sbuf)
    for (p, n), value in np.ndenumerate(values):
        nisa.memset(dst=tile[p : p + 1, n : n + 1], value=float(value))
    return store(tile)
'''


@dataclass(frozen=True)
class Cheat:
    """A kernel that wants to be believed.

    Attributes
    ----------
    text : the file with the kernel ``add``.
    outcomes : accepted outcomes; several where drawn data decide.
    because : a part of the verdict's reason, or of one of its notes or findings.
    """

    text: str
    outcomes: tuple[Outcome, ...] = (Outcome.CHEATS,)
    because: str = ""
    spec: Callable[[Any], Any] = spec_of
    seconds: float = 30.0


def cheat(
    body: str, *outcomes: Outcome, because: str = "", before: str = "", **more: Any
) -> Cheat:
    """A cheat of this body, with :data:`HOST` before it."""
    text = source(body, HOST + before)
    return Cheat(text, outcomes or (Outcome.CHEATS,), because, **more)


WRONG = Outcome.WRONG_ALGORITHM
CHEATS = Outcome.CHEATS
CRASHED = Outcome.CRASHED
OUTSIDE = Outcome.OUTSIDE_LANGUAGE
