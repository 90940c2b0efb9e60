"""The instructions of a NeuronCore: one record and one short function each."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable

from difftest.simulator.instructions.record import INSTRUCTIONS


def require_rules(names: Iterable[str], follower: str) -> None:
    """Raise a TypeError unless a follower of launches has a rule for each record."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    missing = sorted(set(INSTRUCTIONS) - set(names))
    if missing:
        raise TypeError(f"{follower} for {', '.join(missing)}")
