"""The error rules of all records; a record without one is an error when this is imported."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable

from difftest.simulator.exact import elementwise as elementwise
from difftest.simulator.exact import microscaling as microscaling
from difftest.simulator.exact import moves as moves
from difftest.simulator.exact import selections as selections
from difftest.simulator.exact import sums as sums
from difftest.simulator.exact.shadow import RULES
from difftest.simulator.instructions import __path__ as folders
from difftest.simulator.instructions.record import INSTRUCTIONS


def require_rules(names: Iterable[str]) -> None:
    """Raise unless each of these instructions has an error rule."""
    missing = sorted(set(names) - set(RULES))
    if missing:
        raise TypeError(f"the exact run has no error rule for {', '.join(missing)}")


for module in pkgutil.iter_modules(folders, "difftest.simulator.instructions."):
    importlib.import_module(module.name)
require_rules(INSTRUCTIONS)
