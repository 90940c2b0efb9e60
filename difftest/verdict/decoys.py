"""What a kernel's Python is shown in the place of the data that it is judged on.

An honest kernel asks its arrays for their shapes and dtypes, and lets instructions read the rest.
So its instructions are the same whatever the values are, and nothing is lost if the values are
others: what a kernel computes on the host, keeps or guesses is then of the wrong numbers.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any

import numpy as np

from difftest.harness.case import Case
from difftest.simulator.dtypes import BOOL, INTEGERS, Array, is_float


class Shown(Enum):
    """How much of the data of a case a kernel's Python is shown."""

    NOTHING = "nothing"
    """Other floats, and other integers within the bounds of those that there are."""
    INTEGERS = "integers"
    """Other floats. Registers that are loaded from integers hold what they will."""
    ALL = "all"
    """The data themselves: registers follow what the kernel computes from floats."""


def decoys(arrays: tuple[Array, ...], shown: Shown, seed: int) -> tuple[Array, ...]:
    """Arrays of the same shapes and dtypes; their own memory."""
    random = np.random.default_rng(seed)

    def other(array: Array) -> Array:
        if shown is Shown.ALL or not array.size:
            return array.copy()
        if is_float(array.dtype):
            values = random.uniform(0.5, 2.0, array.shape) * random.choice((-1, 1), array.shape)
            return values.astype(np.float32).astype(array.dtype)
        if shown is Shown.NOTHING and array.dtype in (*INTEGERS, BOOL):
            return _integers(array, random)
        return array.copy()

    return tuple(map(other, arrays))


def _integers(array: Array, random: np.random.Generator) -> Array:
    """Others within the bounds of those that there are; of a single value a few more."""
    low, high = int(array.min()), int(array.max())
    most = 1 if array.dtype == BOOL else int(np.iinfo(array.dtype).max)
    high = min(high + 3 * (low == high), most)
    return random.integers(low, high, array.shape, array.dtype, endpoint=True)


def near(arrays: tuple[Array, ...], *, integers: bool, share: float) -> tuple[Array, ...]:
    """Arrays of which about a share of the elements are others, of the same size and bounds.

    Registers that hold some elements may well hold the same of these, and do where the integers
    are left as they are.
    """
    random = np.random.default_rng()
    integers = integers or not any(is_float(one.dtype) for one in arrays)

    def partly(array: Array) -> Array:
        changed = array.copy()
        chosen = random.random(array.shape) < share
        if is_float(array.dtype):
            wide, factors = array.astype(np.float64), random.uniform(0.5, 2.0, array.shape)
            with np.errstate(over="ignore", invalid="ignore"):
                others = np.where(wide == 0, factors, wide * factors).astype(np.float32)
                changed[chosen] = others.astype(array.dtype)[chosen]
        elif integers and array.dtype in (*INTEGERS, BOOL) and array.size:
            changed[chosen] = _integers(array, random)[chosen]
        return changed

    return tuple(map(partly, arrays))


def reseeded(case: Case, seed: int) -> Case:
    """The case with random data of the same kinds from other seeds.

    Hidden weights of a fixed recipe are others then, and so are the data of a spec's examples.
    """
    data: dict[str, Any] = dict(case.data)
    for name, recipe in data.items():
        own = getattr(recipe, "seed", None)
        if own is not None:
            mixed = np.random.default_rng((seed, own)).integers(2**16)
            data[name] = dataclasses.replace(recipe, seed=int(mixed))
    return dataclasses.replace(case, data=data)
