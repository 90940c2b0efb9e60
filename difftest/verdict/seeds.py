"""Cases with other random data than their seeds say: the seeds of a test can be known."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from difftest.harness.case import Case

_SEEDS = 2**16
"""How many there are."""


def reseeded(case: Case, seed: int) -> Case:
    """The case with random data of the same kinds from other seeds.

    Hidden weights of a fixed recipe are others then, and so are the data of a spec's examples.
    """
    data: dict[str, Any] = dict(case.data)
    for name, recipe in data.items():
        own = getattr(recipe, "seed", None)
        if own is not None:
            mixed = np.random.default_rng((seed, own)).integers(_SEEDS)
            data[name] = dataclasses.replace(recipe, seed=int(mixed))
    return dataclasses.replace(case, data=data)
