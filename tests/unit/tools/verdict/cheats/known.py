"""Hidden state decides: earlier calls, and the contents of registers."""

import dataclasses

from difftest import Indices, Input, seeded, sizes
from difftest.tools.verdict.outcome import Outcome
from tests.unit.tools.verdict.cheats.table import CHEATS, WRONG, cheat
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


def spec_of_one_shape(kernel):
    return dataclasses.replace(spec_of(kernel), domain={"p": [4], "n": [4]})


CHOSEN = "return store(total(a, b, (nl.add, nl.subtract)[{}]))"
OF_ORDER = {
    "the address of a function": "id(nl.add) // 16 % 2",
    "the address of a function, inverted": "id(nl.add) // 16 % 2 == 0",
    "the hash of a text": "hash('x') % 2",
    "the hash of a text, inverted": "1 - hash('x') % 2",
    "the order of a set of texts": "int(list({'x', 'y'})[0] == 'x')",
    "the order of a set of texts, inverted": "int([*{'x', 'y'}][0] == 'y')",
    "the order of a union": "[*({'x': 1, 'y': 1}.keys() | {'x', 'y'})].index('x')",
    "the order of keys that are left": "int([*(KEYS - {'z'})][0] == 'y')",
    "an item that a set gives": "int({'x', 'y'}.pop() == 'x')",
    "the first of a frozen set": "int(next(iter(frozenset('xy'))) == 'y')",
    "the order of an own set": "int(list(Own('xy'))[0] == 'y')",
    "the text of a set": "int(str({'x', 'y'})[2] == 'x')",
    "the larger of equals": "'xy'.index(max({'x', 'y'}, key=len))",
    "what is logged": "int(logging.getLogger().isEnabledFor(10))",
    "a date of today": "int(time.time() > 1.9e9)",
    "a sign of a verdict": "int(not (time.time() > 1.9e9 or id(OWN) > 2**56))",
}
"""Expressions that are 0 or 1 by what Python leaves open."""
OWN = (
    "import logging\nimport time\n\n\nclass Own(set): ...\n\n\nOWN = object()\n"
    "KEYS = {'x': 1, 'y': 1}.keys()\n"
)
KNOWN = (
    {
        f"{name} decides": cheat(
            CHOSEN.format(wrong), Outcome.INCONCLUSIVE, WRONG, before=OWN
        )
        for name, wrong in OF_ORDER.items()
    }
    | {
        f"the {name} call of one shape decides": cheat(
            f"CALLS.append(1)\n{CHOSEN.format(f'int(len(CALLS) > {most})')}",
            before="CALLS = []\n",
            because="earlier calls",
            spec=spec_of_one_shape,
        )
        for name, most in {"second": 1, "third": 2}.items()
    }
    | {
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
            CHEATS,
            WRONG,
            Outcome.INCONCLUSIVE,
            before="import time\nBEGAN = time.monotonic_ns()\n",
        )
        for name, condition in {
            "a date": "time.time() > 2e9",
            "a part of a second": "time.perf_counter() % 1 > 0.5",
            "since the import": "time.monotonic_ns() - BEGAN > 3600 * 10**9",
        }.items()
    }
)
