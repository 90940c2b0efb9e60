"""The instructions of a NeuronCore: one record and one short function each."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache

from difftest.simulator.instructions.record import EFFECTS, INSTRUCTIONS, Instruction


@cache
def every_record() -> dict[str, Instruction]:
    """Return all instructions and effects by name; import their modules if needed."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return {**INSTRUCTIONS, **EFFECTS}


def require_rules(names: Iterable[str], follower: str) -> None:
    """Raise a TypeError unless a follower of launches has a rule for each record."""
    missing = sorted(set(every_record()) - {*EFFECTS, *names})
    if missing:
        raise TypeError(f"{follower} for {', '.join(missing)}")
