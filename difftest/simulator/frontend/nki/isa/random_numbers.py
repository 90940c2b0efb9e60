"""``nki.isa``: random numbers. They are NumPy's, and the same in every run."""

from __future__ import annotations

from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.calls import call
from difftest.simulator.instructions import random_numbers

_GPSIMD = constants.engine.gpsimd


@call(random_numbers.rng)
def rng(dst, engine=constants.engine.vector, name=None):
    """Every element of ``dst`` becomes random bits."""


@call(random_numbers.rand2)
def rand2(dst, min, max, name=None):
    """Every element of ``dst`` becomes uniformly random between two bounds."""


@call(random_numbers.set_rng_seed)
def set_rng_seed(src_seeds, name=None):
    """Let the numbers begin anew from a seed of 32 bits, a (1, 1) tensor on chip."""


@call(random_numbers.rand_set_state)
def rand_set_state(src_seeds, engine=_GPSIMD, name=None):
    """Let the numbers begin anew from the states of an engine's lanes, [P, words] in SBUF."""


@call(random_numbers.rand_get_state)
def rand_get_state(dst, engine=_GPSIMD, name=None):
    """States for the lanes of an engine, from which its numbers go on: [P, words]."""
