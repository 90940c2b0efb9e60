"""The levels of NKI: since which one a name exists, and with which one it ended.

Source: the release notes and the migration guide at v2.32.0; those of 0.7 as its pages say. A
launch takes a level (``launch(..., level="0.5")``): names of other levels raise then. Without one
all names exist, and those that have ended warn.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

from difftest.simulator.core import current
from difftest.simulator.errors import KernelError, kernel_location


class LevelWarning(UserWarning):
    """A kernel uses what a later level of NKI does not have."""


class Lifetime(NamedTuple):
    """The levels that have a name: from ``since`` up to, and without, ``ended``."""

    since: str
    ended: str | None
    instead: str


LEVELS = ("0.3", "0.4", "0.5", "0.6", "0.7")
LIFETIMES = {
    "nl.abs_max": Lifetime("0.4", None, "nl.abs, nl.maximum and nl.where"),
    "nl.abs_min": Lifetime("0.4", None, "nl.abs, nl.minimum and nl.where"),
    "nisa.activate2": Lifetime("0.4", None, "nisa.tensor_scalar and nisa.activation"),
    "nisa.topk": Lifetime("0.6", None, "nisa.max8"),
    "nl.dynamic_range": Lifetime("0.3", "0.7", "nl.fori_loop"),
    "nl.fori_loop": Lifetime("0.6", None, "nl.dynamic_range"),
    "nl.while_loop": Lifetime("0.6", None, "a loop over Python integers"),
    "nisa.scalar_load": Lifetime("0.7", None, "nisa.register_load"),
    "nisa.scalar_store": Lifetime("0.7", None, "nisa.register_store"),
}


def check_level(name: str) -> None:
    """Check a name against the level of the launch.

    Raises
    ------
    KernelError : the level does not have it. Without a level, a name that has ended gives a
        :class:`LevelWarning`.
    """
    since, ended, instead = LIFETIMES[name]
    level = current().level
    if level is None:
        if ended is not None:
            warnings.warn(
                LevelWarning(f"{name} ended with NKI {ended}: use {instead} ({kernel_location()})"),
                stacklevel=4,
            )
        return
    at = LEVELS.index(level)
    if at < LEVELS.index(since) or (ended is not None and at >= LEVELS.index(ended)):
        raise KernelError(
            f"{name} exists " + (f"until NKI {ended}" if ended else f"since NKI {since}"),
            happened=f"{name} was used at level {level}, which does not have it",
            received=f"{name} at level {level}",
            remedy=f"use {instead}, or launch with another level=",
        )


def is_before(level: str) -> bool:
    """Whether the launch has a level, and one before this one."""
    own = current().level
    return own is not None and LEVELS.index(own) < LEVELS.index(level)


def known_level(level: str | None) -> str | None:
    """``level`` itself, if it is one.

    Raises
    ------
    KernelError : there is no such level.
    """
    if level is not None and level not in LEVELS:
        raise KernelError(
            "level names a level of NKI",
            happened=f"a kernel was launched with level={level!r:.40}",
            received=f"level={level!r}",
            limit=", ".join(LEVELS),
        )
    return level
