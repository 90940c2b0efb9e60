"""Hidden state decides: earlier calls, and the contents of registers."""

import dataclasses

from difftest import Indices, Input, seeded, sizes
from difftest.tools.verdict.outcome import Outcome
from tests.unit.tools.verdict.cheats.table import cheat
from tests.unit.tools.verdict.kernels import spec_of

OF_CALLS = {
    "the second call": ("N = []\n", "N.append(1)", "len(N) - 1"),
    "the fourth call": (
        "import itertools\nN = itertools.count()\n",
        "",
        "next(N) // 3",
    ),
    "a default": (
        "def n(seen=[]):\n    seen.append(1)\n    return len(seen)\n",
        "",
        "n() // 4",
    ),
    "a global": ("N = 0\n", "global N\nN += 1", "N // 4"),
    "a class": ("class C:\n    n = 0\n", "C.n += 1", "C.n // 3"),
}
"""The state that is kept from call to call, its count, and the condition of the bug."""

TURNS = """
def register(x, p, n):
    bits = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=bits, src=x[p : p + 1, n : n + 1])
    register = nisa.register_alloc(0)
    nisa.register_load(register, bits)
    return register


def number(x, p, n):
    return len(list(nl.dynamic_range(0, register(x, p, n))))


def numbers(x):
    return np.array([[number(x, p, n) for n in range(x.shape[1])] for p in range(x.shape[0])])
"""
"""Python that counts the turns of a loop knows the number in a register."""
HONEST = "register(a, 0, 0)\nreturn store(total(a, b))"
HOST = "return by_memset(numbers(a) + numbers(b), a)"
OF_REGISTERS = {
    "wide cases": f"if a.shape[1] > 2:\n    {HOST}\n{HONEST}",
    "some data": f"if number(a, 0, 0) > 2:\n    {HOST}\n{HONEST}",
    "one element": "tile = total(a, b)\nvalue = number(a, 0, 0) + number(b, 0, 0)\n"
    "nisa.memset(dst=tile[0:1, 0:1], value=value)\nreturn store(tile)",
    "instructions": "tile = load(a)\nfor _ in range(number(b, 0, 0)):\n"
    "    nisa.tensor_scalar(dst=tile[0:1, 0:1], data=tile[0:1, 0:1], op0=nl.add, operand0=1)\n"
    "return store(tile if b.size == 1 else total(a, b))",
}


def spec_of_integers(kernel):
    small = Input("p n", data=seeded(Indices, below=6))
    domain = {"p": sizes(1, 4), "n": sizes(1, 3)}
    inputs = {"a": small, "b": small}
    return dataclasses.replace(
        spec_of(kernel), dtypes=("int32",), inputs=inputs, domain=domain
    )


KNOWN = (
    {
        f"{name} decides": cheat(
            f"{line}\nreturn store(total(a, b, (nl.add, nl.subtract)[min(1, {wrong})]))",
            before=before,
            because="earlier calls",
        )
        for name, (before, line, wrong) in OF_CALLS.items()
    }
    | {
        f"registers give {name}": cheat(
            body, before=TURNS, because="AWS's compiler traces", spec=spec_of_integers
        )
        for name, body in OF_REGISTERS.items()
    }
    | {
        f"a clock decides: {name}": cheat(
            f"late = {condition}\nreturn store(total(a, b, nl.subtract if late else nl.add))",
            Outcome.CHEATS,
            Outcome.WRONG_ALGORITHM,
            before="import time\nBEGAN = time.monotonic_ns()\n",
        )
        for name, condition in {
            "a date": "time.time() > 2e9",
            "a part of a second": "time.perf_counter() % 1 > 0.5",
            "since the import": "time.monotonic_ns() - BEGAN > 3600 * 10**9",
        }.items()
    }
)
