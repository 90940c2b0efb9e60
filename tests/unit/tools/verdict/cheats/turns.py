"""Python's state follows the turns of loops on the device, or a host's number is in a register."""

import dataclasses

import numpy as np

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


IN_TURNS = {
    f"turns: {name}": cheat(body, because="AWS's compiler traces", spec=spec_of_three)
    for name, body in WITHOUT.items()
} | {
    "turns: a number of a register, counted": cheat(
        "tile = total(a, b)\nbox = [0]\ndef body(i):\n    box[0] += 1\n"
        "    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.maximum)\n"
        "nl.fori_loop(0, register(a, 0, 0), body)\n"
        "nisa.memset(dst=tile[0:1, 0:1], value=box[0] + number(b, 0, 0))\nreturn store(tile)",
        before=HOST + TURNS,
        because="AWS's compiler traces",
        spec=spec_of_integers,
    )
}
