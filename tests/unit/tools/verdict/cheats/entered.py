"""Python learns from data which loops on the device have a turn; the loops themselves hide it.

The input is a permutation. Dummy integers are none, so a kernel can keep its numbers from them.
"""

import numpy as np

from difftest import Input, KernelSpec, Permutation, seeded
from tests.unit.tools.verdict.cheats.table import Cheat
from tests.unit.tools.verdict.kernels import HEAD

SEEN = """
n = a.shape[1]
t = nl.ndarray((1, n), dtype=nl.int32, buffer=nl.sbuf)
nisa.dma_copy(dst=t, src=a)
scratch = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
flags = {}
for j in range(n):
    def body(i, j=j):
        flags[j] = 1
        nisa.memset(dst=scratch, value=1.0)
    nl.fori_loop(0, register(t[0:1, j : j + 1]), body)
out = nl.ndarray((1, n), dtype=nl.int32, buffer=nl.sbuf)
nisa.memset(dst=out, value=0)
zero, one = number(0), number(1)
r = nisa.register_alloc(0)
"""
"""``j in flags`` says whether the element j is above 0."""
CHOSEN = {
    "a loop that only permutations enter": """
f = nl.ndarray((1, n), dtype=nl.float32, buffer=nl.sbuf)
nisa.tensor_copy(dst=f, src=t)
nisa.tensor_tensor(dst=f, data1=f, data2=f, op=nl.multiply)
s = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
nisa.tensor_reduce(dst=s, op=nl.add, data=f, axis=1)
squares = float(sum(i * i for i in range(n)))
nisa.tensor_scalar(dst=s, data=s, op0=nl.equal, operand0=squares)
is_permutation = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
nisa.tensor_copy(dst=is_permutation, src=s)
def last(i):
    for j in range(n):
        nisa.memset(dst=out[0:1, j : j + 1], value=flags.get(j, 0))
nl.fori_loop(0, register(is_permutation), last)
return store(out)
""",
    "one of two while statements": """
for j in range(n):
    nisa.register_load(r, one)
    if j in flags:
        while r:
            nisa.memset(dst=out[0:1, j : j + 1], value=1)
            nisa.register_load(r, zero)
    else:
        while r:
            nisa.memset(dst=out[0:1, j : j + 1], value=0)
            nisa.register_load(r, zero)
return store(out)
""",
    "one of two functions of a while loop": """
for j in range(n):
    nisa.register_load(r, one)
    def yes(q):
        nisa.memset(dst=out[0:1, j : j + 1], value=1)
        nisa.register_load(q, zero)
        return q
    def no(q):
        nisa.memset(dst=out[0:1, j : j + 1], value=0)
        nisa.register_load(q, zero)
        return q
    nl.while_loop(r, yes if j in flags else no)
return store(out)
""",
    "a loop with another number of turns": """
def add(i):
    nisa.tensor_scalar(dst=out, data=out, op0=nl.add, operand0=0)
for j in range(n):
    nl.fori_loop(0, 1, add)
    for _ in flags.get(j, 0) * [0]:
        nl.fori_loop(0, 1, lambda i: nisa.memset(dst=out[0:1, j : j + 1], value=1))
return store(out)
""",
}
HELPERS = """
def register(tile):
    r = nisa.register_alloc(0)
    nisa.register_load(r, tile)
    return r


def number(value):
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=value)
    return tile
"""


def spec_of_permutation(kernel):
    """The contract: which elements of a permutation are above 0."""
    return KernelSpec(
        kernel=kernel,
        reference=lambda a: (a >= 1).astype(np.int64),
        domain={"n": [8, 9]},
        inputs={"a": Input("1 n", dtype="int32", data=seeded(Permutation))},
        dtypes=("int32",),
    )


def _of(body: str) -> Cheat:
    lines = (SEEN + body).replace("\n", "\n    ")
    text = f"{HEAD}{HELPERS}\n\n@nki.jit\ndef add(a):{lines}\n"
    return Cheat(text, because="AWS's compiler traces", spec=spec_of_permutation)


OF_ENTERED = {f"entered: {name}": _of(body) for name, body in CHOSEN.items()}
