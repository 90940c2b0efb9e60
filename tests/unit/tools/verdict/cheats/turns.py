"""Python's state follows the turns of loops on the device, or a host's number is in a register."""

import dataclasses

import numpy as np

from difftest import sizes
from difftest.tools.verdict.outcome import Outcome
from tests.unit.tools.verdict.cheats.known import TURNS, spec_of_integers
from tests.unit.tools.verdict.cheats.table import HOST, cheat
from tests.unit.tools.verdict.kernels import spec_of

BOX = "tile = load(a)\nbox = [0]\n"
WITHOUT = {
    "a memset of a counted number": BOX + "def body(i):\n    box[0] += 1\n"
    "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(box[0]))\n"
    "nl.fori_loop(0, 3, body)\nreturn store(tile)",
    "an instruction in the last turn alone": BOX
    + "def body(i):\n    box[0] += 1\n    if box[0] == 3:\n"
    "        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=3.0)\n"
    "nl.fori_loop(0, 3, body)\nreturn store(tile)",
    "an instruction in the first turn alone": BOX
    + "def body(i):\n    box[0] += 1\n    if box[0] == 1:\n"
    "        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=3.0)\n"
    "nl.fori_loop(0, 3, body)\nreturn store(tile)",
    "a number counted by turns, used afterwards": BOX
    + "def body(i):\n    box[0] += 1\n"
    "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=0.0)\n"
    "nl.fori_loop(0, 3, body)\n"
    "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(box[0]))\n"
    "return store(tile)",
    "a bound counted by turns": BOX + "def count(i):\n    box[0] += 1\n"
    "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=0.0)\n"
    "def body(i):\n"
    "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)\n"
    "nl.fori_loop(0, 3, count)\nnl.fori_loop(0, box[0], body)\nreturn store(tile)",
    "a register made of a number counted by turns": BOX
    + "def count(i):\n    box[0] += 1\n"
    "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=0.0)\n"
    "def body(i):\n"
    "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)\n"
    "nl.fori_loop(0, 3, count)\nnl.fori_loop(0, nisa.register_alloc(box[0]), body)\n"
    "return store(tile)",
    "a register moved to a number counted by turns": BOX
    + "r = nisa.register_alloc(0)\ndef count(i):\n    box[0] += 1\n"
    "    nisa.register_move(r, box[0])\n"
    "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=0.0)\n"
    "def body(i):\n"
    "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)\n"
    "nl.fori_loop(0, 3, count)\nnl.fori_loop(0, r, body)\nreturn store(tile)",
    "a stored register of a number counted by turns": "tile = load(a)\nbox = [0]\n"
    "held = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)\n"
    "def count(i):\n    box[0] += 1\n    r = nisa.register_alloc(box[0])\n"
    "    nisa.register_store(held, r)\nnl.fori_loop(0, 3, count)\n"
    "r = nisa.register_alloc(0)\nnisa.register_load(r, held)\ndef body(i):\n"
    "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)\n"
    "nl.fori_loop(0, r, body)\nreturn store(tile)",
    "another operator in each turn": "tile = load(a)\n"
    "ops = [(nl.subtract, -1.0), (nl.add, 2.0)]\ndef body(i):\n    op, n = ops.pop()\n"
    "    nisa.tensor_scalar(dst=tile, data=tile, op0=op, operand0=n)\n"
    "nl.fori_loop(0, 2, body)\nreturn store(tile)",
    "another part of a tensor in each turn": "tile = load(a)\nparts = list(range(a.shape[1]))\n"
    "def body(i):\n    n = parts.pop()\n"
    "    nisa.tensor_scalar(dst=tile[:, n : n + 1], data=tile[:, n : n + 1], op0=nl.add,"
    " operand0=3.0)\nnl.fori_loop(0, a.shape[1], body)\nreturn store(tile)",
    "turns of a while loop": "tile = load(a)\nbox = [0]\n"
    "r = nisa.register_alloc(1)\nzero = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)\n"
    "nisa.memset(dst=zero, value=0)\ndef body(i):\n    box[0] += 1\n"
    "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(box[0]))\n"
    "    nisa.register_load(i, zero)\n    return i\n"
    "nl.while_loop(r, body)\ndef more(i):\n"
    "    box[0] += 1\n    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add,"
    " operand0=float(box[0]))\nnl.fori_loop(0, 2, more)\n"
    "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=3.0)\nreturn store(tile)",
    "a generator that turns advance": "tile = load(a)\ndef steps():\n    yield 1.0\n"
    "    yield 2.0\ng = steps()\ndef body(i):\n"
    "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=next(g))\n"
    "nl.fori_loop(0, 2, body)\nreturn store(tile)",
    "a dynamic range": "tile = load(a)\nn = 0.0\nfor i in nl.dynamic_range(0, 3):\n    n += 0.5\n"
    "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=n)\nreturn store(tile)",
}
"""Right on the simulator, which runs Python in each turn; the sum is of ``a`` and three."""


def spec_of_three(kernel):
    """The contract ``a + 3``: each cheat is right on the simulator."""
    spec = spec_of(kernel)
    return dataclasses.replace(
        spec, reference=lambda a, b: a.astype(np.float64) + 3.0, dtypes=("float32",)
    )


LEFT = {
    "break": "n = 0\nfor i in nl.dynamic_range(0, 5):\n    one()\n    n += 1\n    if n == 3:\n"
    "        break",
    "zip": "for _, i in zip([1, 2, 3], nl.dynamic_range(0, 8)):\n    one()",
    "islice": "import itertools\nfor i in itertools.islice(nl.dynamic_range(0, 8), 3):\n    one()",
    "islice, beside a loop without a turn,": "import itertools\n"
    "for i in itertools.islice(nl.dynamic_range(0, 8), 3):\n    one()\n"
    "nl.fori_loop(0, 0, lambda i: one())",
    "next": "turns = iter(nl.dynamic_range(0, 8))\nfor _ in range(3):\n    next(turns)\n    one()",
    "any": "left = [0, 0, 1]\nany(one() or left.pop(0) for i in nl.dynamic_range(0, 8))",
    "an error": "n = []\ndef body(i):\n    one()\n    n.append(1)\n    if len(n) == 3:\n"
    "        raise ValueError\ntry:\n    nl.fori_loop(0, 8, body)\nexcept ValueError:\n    pass",
    "return": "n = []\ndef f():\n    for i in nl.dynamic_range(0, 8):\n        one()\n"
    "        n.append(1)\n        if len(n) == 3:\n            return\nf()",
    "break of a while loop": "n = []\nr = nisa.register_alloc(1)\nwhile r:\n    one()\n"
    "    n.append(1)\n    if len(n) == 3:\n        break",
}
"""The kernel's Python leaves a loop on the device after three turns of more."""
ADDED = """tile = load(a)
def one():
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
"""
ROWS = """tile = nl.ndarray((1, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
nisa.memset(dst=tile, value=0.0)
box = []
def take(i):
    row = nl.ndarray((1, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
    pattern = [[a.shape[1], 1], [1, a.shape[1]]]
    nisa.dma_copy(dst=row, src=a.ap(pattern, offset=0, scalar_offset=i, indirect_dim=0))
    nisa.tensor_tensor(dst=tile, data1=tile, data2=row, op=nl.add)
"""
"""``take(i)`` adds a row of ``a``, which a register selects, to the sum in ``tile``."""
REGISTERS = """
def number(value):
    bits = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=bits, value=value)
    return bits


def register_of(value):
    register = nisa.register_alloc()
    nisa.register_load(register, number(value))
    return register
"""
FORI = "\nnl.fori_loop(0, 4, body)"
KEPT = {
    "the first turn": (
        "def body(i):\n    box.append(i)\n    take(box[0])" + FORI,
        "0000",
    ),
    "the turn before": (
        "def body(i):\n    box.append(i)\n    take(box[-2:][0])" + FORI,
        "0012",
    ),
    "the last turn, after it": (
        "def body(i):\n    box.append(i)\n    take(i)" + FORI + "\ntake(box[-1])",
        "01233",
    ),
    "another loop": (
        "def body(i):\n    box.append(i)\n    take(i)"
        + FORI
        + "\nfor j in nl.dynamic_range(0, 2):\n    take(box[2])",
        "012322",
    ),
    "the first turn of an outer loop": (
        "def body(i):\n    box.append(i)\n    nl.fori_loop(0, 2, lambda j: take(box[0]))"
        + FORI,
        "00000000",
    ),
    "the first turn, by a default": (
        "def body(i, at=[]):\n    at.append(i)\n    take(at[0])" + FORI,
        "0000",
    ),
    "the first turn, by a view": (
        "def body(i):\n    pattern = [[a.shape[1], 1], [1, a.shape[1]]]\n"
        "    box.append(a.ap(pattern, offset=0, scalar_offset=i, indirect_dim=0))\n"
        "    row = nl.ndarray((1, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)\n"
        "    nisa.dma_copy(dst=row, src=box[0])\n"
        "    nisa.tensor_tensor(dst=tile, data1=tile, data2=row, op=nl.add)" + FORI,
        "0000",
    ),
    "the first turn, by arithmetic": (
        "bits = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)\n"
        "nisa.memset(dst=bits, value=4)\ncount = nisa.scalar_load(bits)\n"
        "def body(i):\n    box.append(i + 0)\n    take(box[0])\nnl.fori_loop(0, count, body)",
        "0000",
    ),
}
"""The variable of a turn is used in another one; the rows whose sum the simulator computes."""
CHOSEN = {
    "an allocated register of the first turn": (
        "def body(i):\n    if not box:\n        box.append(nisa.register_alloc(0))\n"
        "        nisa.register_move(box[0], i)\n    take(box[0])" + FORI,
        "0000",
    ),
    "a register moved in the first turn alone": (
        "r = nisa.register_alloc(3)\ndef body(i):\n    if not box:\n"
        "        nisa.register_move(r, i)\n    box.append(1)\n    take(r)" + FORI,
        "0000",
    ),
    "another register in each turn": (
        "registers = [register_of(n % 4) for n in range(40)]\n"
        "def body(i):\n    take(registers.pop(0))" + FORI,
        "0123",
    ),
    "the variable of another loop in each turn": (
        "def body(i):\n    def inner(j):\n        box.append(1)\n"
        "        take(i if len(box) > 1 else j)\n    nl.fori_loop(0, 1, inner)" + FORI,
        "0123",
    ),
}
"""Python chooses the register of a turn; the rows whose sum the simulator computes."""


def spec_of_rows(rows):
    """The contract: the sum of these rows of ``a``."""

    def make(kernel):
        return dataclasses.replace(
            spec_of(kernel),
            domain={"p": sizes(4, 4), "n": sizes(1, 4)},
            reference=lambda a, b: a.astype(np.float64)[list(map(int, rows))].sum(
                0, keepdims=True
            ),
            dtypes=("float32",),
        )

    return make


def of_rows(rows: tuple[str, str], because: str):
    body, taken = rows
    text = f"{ROWS}{body}\nreturn store(tile)"
    return cheat(text, before=REGISTERS, because=because, spec=spec_of_rows(taken))


def spec_of_two_products(kernel):
    """The contract of two products, added: each of two turns adds one."""
    return dataclasses.replace(
        spec_of(kernel),
        reference=lambda a, b: 2 * a.astype(np.float64).T @ b.astype(np.float64),
        domain={"p": sizes(1, 64), "n": sizes(1, 8)},
        dtypes=("float32",),
    )


FIRST_TILE = """x, y = load(a), load(b)
box = []
out = nl.ndarray((a.shape[1], b.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
def body(i):
    box.append(nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.psum))
    nisa.nc_matmul(dst=box[0], stationary=x, moving=y)
    nisa.tensor_copy(dst=out, src=box[0])
nl.fori_loop(0, 2, body)
return store(out)"""
"""A product is added to that of the turn before, in the tile of the first turn."""
IN_TURNS = {
    f"turns: {name}": cheat(body, because="AWS's compiler traces", spec=spec_of_three)
    for name, body in WITHOUT.items()
} | {
    **{
        f"turns: a loop that {name} leaves": cheat(
            f"{ADDED}{body}\nreturn store(tile)",
            because="leaves a loop on the device",
            spec=spec_of_three,
        )
        for name, body in LEFT.items()
    },
    **{
        f"turns: the variable of {name}": of_rows(rows, "is used in another turn")
        for name, rows in KEPT.items()
    },
    **{
        f"turns: {name}": of_rows(rows, "turns of a loop issue different")
        for name, rows in CHOSEN.items()
    },
    **{
        f"turns: a mark of a loop without a turn, by {name}": cheat(
            f"marks = []\nr = nisa.register_alloc(0)\n{loop}\n"
            "return store(total(a, b, nl.subtract if marks else nl.add))",
            because="a run with one turn for each loop",
        )
        for name, loop in {
            "a function": "nl.fori_loop(0, 0, lambda i: marks.append(1))",
            "a range": "for _ in nl.dynamic_range(0, r):\n    marks.append(1)",
            "a while statement": "while r:\n    marks.append(1)",
        }.items()
    },
    "turns: the tile of the first turn": cheat(
        FIRST_TILE,
        because="turns of a loop issue different",
        spec=spec_of_two_products,
    ),
    "turns: a condition on the line of a while loop": cheat(
        "tile, wrong = load(a), []\nr, q = nisa.register_alloc(1), nisa.register_alloc(1)\n"
        "zero = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)\n"
        "nisa.memset(dst=zero, value=0)\n"
        "while r: wrong.append(1 if q else 0); nisa.register_load(r, zero)\n"
        "return store(total(a, b, (nl.subtract, nl.add)[wrong[0]]))",
        Outcome.REFUSED,
        because="a register's value was used",
    ),
    "turns: a number of a register, counted": cheat(
        "tile = total(a, b)\nbox = [0]\ndef body(i):\n    box[0] += 1\n"
        "    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.maximum)\n"
        "nl.fori_loop(0, register(a, 0, 0), body)\n"
        "nisa.memset(dst=tile[0:1, 0:1], value=box[0] + number(b, 0, 0))\nreturn store(tile)",
        before=HOST + TURNS,
        because="AWS's compiler traces",
        spec=spec_of_integers,
    ),
}
