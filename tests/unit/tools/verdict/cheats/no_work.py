"""The kernel works less: constants, inputs, results of an earlier call, a part of the answer."""

from __future__ import annotations

import dataclasses

import numpy as np

from difftest.tools.verdict.outcome import Outcome
from tests.unit.tools.verdict.cheats.table import CHEATS, OUTSIDE, WRONG, cheat
from tests.unit.tools.verdict.kernels import spec_of

FILLED = "tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)\n{fill}\nreturn store(tile)"


def filled(value: str) -> str:
    return FILLED.format(fill=f"nisa.memset(dst=tile, value={value})")


def in_place(kernel):
    """A contract whose sum replaces ``a``."""
    return dataclasses.replace(spec_of(kernel), outputs={"a": "p n"})


def spec_of_nan(kernel):
    """A contract whose reference gives no values."""
    return dataclasses.replace(
        spec_of(kernel), reference=lambda a, b: np.full(a.shape, np.nan)
    )


def rounded(bits: int) -> str:
    """The sum, less ``bits`` bits: a large number is added to it, and taken away again."""
    lines = [
        "tile, big = total(a, b), load(a)",
        f"nisa.tensor_scalar(dst=big, data=tile, op0=nl.multiply, operand0={2.0**bits + 1})",
        "nisa.tensor_tensor(dst=tile, data1=tile, data2=big, op=nl.add)",
        "nisa.tensor_tensor(dst=tile, data1=tile, data2=big, op=nl.subtract)",
        "return store(tile)",
    ]
    return "\n".join(lines)


WITHOUT_WORK = {
    **{
        f"{bits} bits rounded away": cheat(
            rounded(bits), Outcome.COARSE_ARITHMETIC, because="too coarse"
        )
        for bits in (8, 10, 15, 20)
    },
    "zeros": cheat(filled("0.0"), WRONG),
    "ones": cheat(filled("1.0"), WRONG),
    "NaN everywhere": cheat(filled("float('nan')"), WRONG),
    "NaN beside NaN": cheat(
        filled("float('nan')"), Outcome.WEAK_SPEC, because="no case", spec=spec_of_nan
    ),
    "infinity everywhere": cheat(filled("float('inf')"), WRONG),
    "zeros of the host": cheat(
        "return store(load(nl.shared_constant(np.zeros(a.shape, np.float32))))", WRONG
    ),
    "random numbers": cheat(
        "x = [uuid4().int % 999_983 for _ in range(a.size)]\n"
        "return by_memset(np.reshape(x, a.shape), a)",
        before="from uuid import uuid4\n",
    ),
    "the input itself": cheat("return a", WRONG),
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
        because="no element was written",
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
    **{
        f"a wrong corner, {shape}": cheat(
            f"wrong = a.shape == {shape}\n"
            "return store(total(a, b, nl.subtract if wrong else nl.add))",
            WRONG,
        )
        for shape in ((128, 8), (1, 1))
    },
    "NumPy on the host": cheat(
        "return np.add(a, b)", Outcome.CRASHED, Outcome.REFUSED, WRONG
    ),
    "NumPy's array of a tensor": cheat(
        "return by_memset(np.asarray(a) + np.asarray(b), a)",
        Outcome.REFUSED,
        Outcome.CRASHED,
    ),
    "a float of a tensor": cheat(
        "return by_memset(np.full(a.shape, float(a[0:1, 0:1])), a)", Outcome.REFUSED
    ),
    "NumPy by another name": cheat("m = np\nreturn m.load('x')", OUTSIDE),
    "an address in a text": cheat(
        "return by_memset(np.full(a.shape, int(f'{object()}'[-6:-1], 16)), a)",
        OUTSIDE,
    ),
    "memory that nothing wrote": cheat(
        "return by_memset(np.empty(a.shape, a.dtype), a)", CHEATS, WRONG
    ),
    "its own name for a private one": cheat(
        "return by_memset(Own(a).look(), a)",
        OUTSIDE,
        before="import dataclasses\n\n\n@dataclasses.dataclass\nclass Own:\n"
        "    _storage: object\n\n    def look(self):\n"
        "        return self._storage._storage.data\n",
    ),
    "NumPy's own imports, tried": cheat(
        "system.getpid()\nreturn store(total(a, b))",
        Outcome.CRASHED,
        because="NoneType",
        before="try:\n    from numpy._core._methods import os as system\n"
        "except ImportError:\n    system = None\n",
    ),
    "wraps that copies what it is told": cheat(
        "wraps(nl.load, assigned=(), updated=('__globals__',))(load)\nreturn store(total(a, b))",
        OUTSIDE,
        because="functools.wraps with options",
        before="from functools import wraps\n",
    ),
    **{
        f"a patch of {name}": cheat(
            f"{lines}\nreturn store(total(a, b))",
            OUTSIDE,
            because=" is set",
            before="import sys\n",
        )
        for name, lines in {
            "NKI": "m = nl\nm.add = nl.subtract",
            "a class of it": "t = nl.NkiTensor\nt.x = 1",
            "NumPy, in a list": "[np][0].add = 1",
            "an argument": "def f(m):\n    m.dma_copy = 1\nf(nisa)",
            "its output": "s = sys.stdout\ns.count = 'x'",
        }.items()
    },
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
    "an argument that stays as it was": cheat(
        "total(a, b)\nreturn a", WRONG, because="wrote nothing to a", spec=in_place
    ),
    "an argument that gets another one": cheat(
        "nisa.dma_copy(dst=a, src=load(b))\nreturn a", WRONG, spec=in_place
    ),
    "a result beside the argument": cheat(
        "nisa.dma_copy(dst=a, src=total(a, b))\nreturn store(load(b))",
        WRONG,
        because="the kernel returned 1 array that is not under outputs=",
        spec=in_place,
    ),
    "no output": cheat("store(total(a, b))", WRONG),
    "refuses what it does not know": cheat(
        "assert a.shape[0] < 3, 'large'\nreturn store(total(a, b))",
        Outcome.REFUSES_PROMISED,
    ),
}
