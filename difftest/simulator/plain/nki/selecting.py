"""Today's dialect in plain mode: selection by the position of an element."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.plain import rules
from difftest.simulator.plain.meanings import means
from difftest.simulator.plain.nki.computing import same_count
from difftest.simulator.plain.nki.moves import tile
from difftest.simulator.plain.nki.running import TODAYS
from difftest.simulator.plain.operators import apply, math_operator
from difftest.simulator.plain.rounding import Array, rounded, to_float32
from difftest.simulator.plain.tensors import PlainTensor


def affine(shape: tuple[int, ...], pattern: Any, offset: int, channel_multiplier: int) -> Array:
    """``offset + p * channel_multiplier + sum of step * index`` for each element of ``shape``."""
    counts = tuple(int(count) for _, count in pattern)
    values = np.full((shape[0], *counts), offset, np.int64)
    values += np.arange(shape[0]).reshape(-1, *[1] * len(counts)) * channel_multiplier
    for axis, (step, count) in enumerate(pattern, 1):
        index = np.arange(count).reshape([-1 if a == axis else 1 for a in range(values.ndim)])
        values += index * int(step)
    return values.reshape(shape)


@means(
    f"{TODAYS}nisa.affine_select",
    dst=tile,
    on_true_tile=tile,
    on_false_value=rules.number,
    cmp_op=math_operator,
)
def affine_select(
    dst: PlainTensor,
    pattern: Any,
    channel_multiplier: int,
    on_true_tile: PlainTensor,
    on_false_value: Any,
    cmp_op: str,
    offset: int,
) -> None:
    """``dst = on_true_tile`` where ``cmp_op(affine value, 0)`` holds, else a constant."""
    same_count(dst, on_true_tile)
    index = affine(dst.shape, pattern, offset, channel_multiplier)
    holds = apply(cmp_op, index, np.zeros_like(index)).astype(bool)
    taken = to_float32(on_true_tile.read().reshape(dst.shape))
    dst.write(rounded(np.where(holds, taken, np.float32(on_false_value)), dst.dtype))
