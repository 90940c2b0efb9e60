"""``nl.rand``, ``nl.random_seed`` and ``nisa.dropout``: the launch's own generator."""
# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.classic.calls import ISA, LANGUAGE
from difftest.simulator.frontend.classic.masking import as_truth
from difftest.simulator.frontend.classic.shapes import as_shape
from difftest.simulator.index import as_integer
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions import scan
from difftest.simulator.tile import Tile

SEED_BITS = 32


@LANGUAGE.issues(copies.rand)
def rand(shape, dtype=FLOAT32):
    """A tile of uniform random values in [0, 1); the launch's own seed makes it repeatable."""
    shape, _ = as_shape(shape, "nl.rand")
    return locals()


@LANGUAGE.by_hand
def random_seed(seed, *, mask=None):
    """Seed the launch's random generator."""
    if not as_truth(mask, "nl.random_seed"):
        return
    value = _seed_held(seed) if isinstance(seed, Tile) else as_integer(seed, "seed")
    if not 0 <= value < 2**SEED_BITS:
        raise KernelError(
            f"a seed has {SEED_BITS} bits and no sign",
            happened=f"the seed is {value}",
            received=f"{value}",
            limit=f"0 to {2**SEED_BITS - 1}",
        )
    current().random = np.random.default_rng(value)


def _seed_held(seed: Tile) -> int:
    """A seed that lies in a tile."""
    values = seed.values()
    if values.size != 1 or not float(values.item()).is_integer():
        raise KernelError(
            "a seed is one integer",
            happened="the seed is not one integer",
            received=f"{seed!r}" + (f" with {values.item()!r}" if values.size == 1 else ""),
        )
    return int(values.item())


@ISA.issues(scan.dropout)
def dropout(data, prob, *, mask=None, dtype=None):
    """``data`` with elements replaced by 0 at the given probability."""
    return locals()
