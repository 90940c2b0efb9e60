"""No work is done: constants, inputs, what an earlier call left, a part of the answer."""

from __future__ import annotations

import dataclasses

import numpy as np

from difftest.verdict.outcome import Outcome
from tests.unit.verdict.cheats.table import CHEATS, WRONG, cheat
from tests.unit.verdict.kernels import spec_of

NO_INPUT = "follows from no input"
FILLED = "tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)\n{fill}\nreturn store(tile)"


def filled(value: str) -> str:
    return FILLED.format(fill=f"nisa.memset(dst=tile, value={value})")


def spec_of_nan(kernel):
    """A contract of which the reference says nothing."""
    return dataclasses.replace(spec_of(kernel), reference=lambda a, b: np.full(a.shape, np.nan))


WITHOUT_WORK = {
    "zeros": cheat(filled("0.0"), because=NO_INPUT),
    "ones": cheat(filled("1.0"), because=NO_INPUT),
    "NaN everywhere": cheat(filled("float('nan')"), because=NO_INPUT),
    "NaN beside NaN": cheat(
        filled("float('nan')"), Outcome.WEAK_SPEC, because="no case", spec=spec_of_nan
    ),
    "infinity everywhere": cheat(filled("float('inf')"), because=NO_INPUT),
    "zeros of the host": cheat(
        "return store(load(nl.shared_constant(np.zeros(a.shape, np.float32))))", because=NO_INPUT
    ),
    "random numbers": cheat(
        "return by_memset(np.random.default_rng().random(a.shape), a)", CHEATS, WRONG
    ),
    "the input itself": cheat("return a", because="is an input as it was given"),
    "a copy of the input": cheat("return store(load(a))", WRONG),
    "the output aliased to an input": cheat(
        "nisa.dma_copy(dst=a, src=b)\nreturn a", WRONG, because="writes to its input a"
    ),
    "inputs zeroed, and zeros": cheat(
        "tile = load(a)\nnisa.memset(dst=tile, value=0.0)\nnisa.dma_copy(dst=a, src=tile)\n"
        "nisa.dma_copy(dst=b, src=tile)\nreturn store(tile)",
        CHEATS,
        WRONG,
    ),
    "an output that nothing wrote": cheat(
        "return nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)",
        Outcome.REFUSED,
        because="nothing wrote",
    ),
    "the first row alone": cheat(
        "tile = load(a)\nnisa.tensor_tensor(dst=tile[0:1], data1=tile[0:1], data2=load(b)[0:1],"
        " op=nl.add)\nreturn store(tile)",
        WRONG,
    ),
    "the mean": cheat(
        "tile = load(a)\nmean = nl.ndarray((a.shape[0], 1), dtype=a.dtype, buffer=nl.sbuf)\n"
        "nisa.tensor_reduce(dst=mean, op=nl.add, data=tile, axis=1)\n"
        "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.0)\n"
        "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=mean)\nreturn store(tile)",
        WRONG,
    ),
    "hard-coded shapes": cheat(
        "if a.shape[0] <= 2:\n    return store(total(a, b))\n"
        "return store(total(a, b, nl.subtract))",
        WRONG,
    ),
    "seeds rebuilt": cheat(
        "x, y = np.random.default_rng(0).random((2, *a.shape))\nreturn by_memset(x + y, a)",
        because=NO_INPUT,
    ),
    "answers of an earlier call": cheat(
        "if 'out' not in KEPT:\n    KEPT['out'] = a._storage.data + b._storage.data\n"
        "return by_memset(np.resize(KEPT['out'], a.shape), a)",
        CHEATS,
        WRONG,
        before="KEPT = {}\n",
    ),
    "a tensor of an earlier call": cheat(
        "KEPT.append(store(total(a, b)))\nreturn KEPT[0]",
        CHEATS,
        WRONG,
        Outcome.CRASHED,
        before="KEPT = []\n",
    ),
    "right on the first calls": cheat(
        "CALLS.append(1)\nif len(CALLS) < 3:\n    return store(total(a, b))\n"
        "return store(total(a, b, nl.subtract))",
        CHEATS,
        WRONG,
        before="CALLS = []\n",
    ),
    "by the object's identity": cheat(
        "return by_memset(np.full(a.shape, id(a) % 10**6), a)",
        CHEATS,
        WRONG,
    ),
    "half of the digits": cheat(
        "nl.ndarray((1, 1), dtype=nl.bfloat16, buffer=nl.private_hbm)\n"
        "tiles = []\nfor one in (a, b):\n"
        "    half = nl.ndarray(a.shape, dtype=nl.bfloat16, buffer=nl.sbuf)\n"
        "    nisa.tensor_copy(dst=half, src=load(one))\n    tiles.append(half)\n"
        "nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=tiles[1], op=nl.add)\n"
        "tile = load(a)\nnisa.tensor_copy(dst=tile, src=tiles[0])\nreturn store(tile)",
        Outcome.COARSE_ARITHMETIC,
        WRONG,
    ),
    "another dtype": cheat(
        "half = nl.ndarray(a.shape, dtype=nl.bfloat16, buffer=nl.sbuf)\n"
        "nisa.tensor_copy(dst=half, src=total(a, b))\nreturn store(half)",
        WRONG,
    ),
    "another shape": cheat("return store(total(a, b)[0:1])", WRONG),
    "two outputs": cheat("return store(total(a, b)), store(total(a, b))", WRONG),
    "no output": cheat("store(total(a, b))", WRONG),
    "refuses what it does not know": cheat(
        "assert a.shape[0] < 3, 'large'\nreturn store(total(a, b))", Outcome.REFUSES_PROMISED
    ),
}
