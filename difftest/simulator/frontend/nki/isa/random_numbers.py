"""``nki.isa``: random numbers. They are NumPy's, and the same in every run.

The engines' generators have states that kernels set and read (``set_rng_seed``,
``rand_set_state``, ``rand_get_state``); those are not modelled.
"""

from __future__ import annotations

from typing import Any

from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.constants import engine_of
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.instructions import random_numbers


@public
def rng(dst: Any, engine: Any = constants.engine.vector, name: str | None = None) -> NkiInstruction:
    """Every element of ``dst`` becomes random bits."""
    return issue(random_numbers.rng, dst, (), engine=engine_of(engine, "rng"))


@public
def rand2(dst: Any, min: Any, max: Any, name: str | None = None) -> NkiInstruction:
    """Every element of ``dst`` becomes uniformly random between two bounds."""
    return issue(random_numbers.rand2, dst, (min, max))
