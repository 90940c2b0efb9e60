"""Honest kernels of the current dialect."""

import numpy as np

from difftest import Indices, Input, seeded, sizes
from difftest.simulator.entry.install import embedded
from tests.unit.tools.verdict.cheats.known import TURNS
from tests.unit.tools.verdict.cheats.turns import REGISTERS, ROWS
from tests.unit.tools.verdict.honest.table import FREE, PARTS, Honest

with embedded():
    import nki.language as nl

ONE = {"a": "p n"}
COUNTS = {
    "a": "p n",
    "b": Input("m 1", dtype="int32", data=lambda p: seeded(Indices, below=p)),
}
FEW = {"p": sizes(1, 6), "n": sizes(1, 6), "m": sizes(1, 4)}
SUM = "return store(total(a, b))"


def wide(function):
    """A reference of one array, in float64."""

    def reference(a):
        return function(a.astype(np.float64))

    return reference


def over_rows(a):
    return np.sum(a.astype(np.float64), axis=1, keepdims=True)


KERNELS = {
    "a sum": Honest(SUM),
    "helpers, caches and closures": Honest(
        "sizes = limits(a.shape[1])\nwith_b = lambda x: total(x, b)\n"
        "assert sizes, f'{a.shape}'\nreturn store(with_b(a))",
        before="import functools\n\n@functools.lru_cache\ndef limits(n):\n"
        "    return tuple(range(n))\n",
    ),
    "a class and a dictionary": Honest(
        "plan = Plan(a.shape[0])\nreturn store(total(a, b, OPS[plan.op]))",
        before="import dataclasses\n\nOPS = {'sum': nl.add}\n\n@dataclasses.dataclass\n"
        "class Plan:\n    rows: int\n    op: str = 'sum'\n",
    ),
    "row after row": Honest(
        "x, y = load(a), load(b)\nfor p in nl.affine_range(a.shape[1]):\n"
        "    nisa.tensor_tensor(dst=x[:, p : p + 1], data1=x[:, p : p + 1],"
        " data2=y[:, p : p + 1], op=nl.add)\nreturn store(x)"
    ),
    "a loop on the device": Honest(
        "x, y = load(a), load(b)\ndef body(i):\n"
        "    nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)\n"
        "nl.fori_loop(0, 3, body)\nreturn store(x)",
        reference=lambda a, b: a.astype(np.float64) + 3 * b.astype(np.float64),
    ),
    "in place": Honest(
        "tile = load(x)\nnisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)\n"
        "nisa.dma_copy(dst=out, src=tile)",
        reference=lambda x: 2 * x.astype(np.float64),
        inputs={"x": "p n"},
        parameters="x, out",
        more={"outputs": {"out": "p n"}},
    ),
    "an argument that is updated and returned": Honest(
        "nisa.dma_copy(dst=a, src=total(a, b))\nreturn a",
        more={"outputs": {"a": "p n"}},
    ),
    "an argument that is updated, and a result": Honest(
        "less = total(a, b, nl.subtract)\nnisa.dma_copy(dst=a, src=total(a, b))\n"
        "return store(less)",
        reference=lambda a, b: (a.astype(np.float64) - b, a.astype(np.float64) + b),
        more={"outputs": {"a": "p n"}},
    ),
    "two outputs": Honest(
        "return store(total(a, b)), store(total(a, b, nl.subtract))",
        reference=lambda a, b: (a.astype(np.float64) + b, a.astype(np.float64) - b),
    ),
    "a parameter": Honest(
        "tile = load(a)\nnisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply,"
        " operand0=float(n))\nreturn store(tile)",
        reference=lambda a, n: n * a.astype(np.float64),
        inputs=ONE,
        parameters="a, n",
        more={"parameters": ("n",)},
    ),
    "a dtype in a text": Honest(  # NumPy imports a module where it prints one
        'assert a.shape == b.shape, "shapes"\nname = f"{a.dtype}"\nreturn store(total(a, b))'
    ),
    "an activation": Honest(
        "tile = load(a)\nnisa.activation(dst=tile, op=nl.tanh, data=tile)\nreturn store(tile)",
        reference=wide(np.tanh),
        inputs=ONE,
    ),
    "a reduction": Honest(
        "sums = nl.ndarray((a.shape[0], 1), dtype=a.dtype, buffer=nl.sbuf)\n"
        "nisa.tensor_reduce(dst=sums, op=nl.add, data=load(a), axis=1)\nreturn store(sums)",
        reference=over_rows,
        inputs=ONE,
    ),
    "a product": Honest(
        "psum = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)\n"
        "nisa.nc_matmul(dst=psum, stationary=load(a), moving=load(b))\n"
        "tile = nl.ndarray(psum.shape, dtype=a.dtype, buffer=nl.sbuf)\n"
        "nisa.tensor_copy(dst=tile, src=psum)\nreturn store(tile)",
        reference=lambda a, b: a.astype(np.float64).T @ b.astype(np.float64),
        inputs={"a": "p m", "b": "p n"},
        domain={"p": PARTS, "n": FREE, "m": sizes(1, 32)},
    ),
    "a constant table": Honest(
        "table = nl.shared_constant(np.arange(a.shape[1], dtype=np.float32)[None].repeat("
        "a.shape[0], 0))\nreturn store(total(a, table))",
        reference=wide(lambda x: x + np.arange(x.shape[1])),
        inputs=ONE,
        more={"dtypes": ("float32",)},
    ),
    "iota": Honest(
        "index = nl.ndarray(a.shape, dtype=nl.int32, buffer=nl.sbuf)\n"
        "nisa.iota(index, [[1, a.shape[1]]], 0, 0)\ntile = load(a)\n"
        "nisa.tensor_tensor(dst=tile, data1=tile, data2=index, op=nl.add)\nreturn store(tile)",
        reference=wide(lambda x: x + np.arange(x.shape[1])),
        inputs=ONE,
    ),
    "rows gathered": Honest(
        "rows = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)\n"
        "index = nl.ndarray((a.shape[0], 1), dtype=nl.int32, buffer=nl.sbuf)\n"
        "nisa.iota(index, [[0, 1]], a.shape[0] - 1, -1)\n"
        "nisa.dma_copy(dst=rows, src=a.vector_select(0, index))\nreturn store(rows)",
        reference=lambda a: a[::-1].astype(np.float64),
        inputs=ONE,
    ),
    "random numbers without weight": Honest(
        "noise = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)\nnoise[...] = nl.rand("
        "a.shape, nl.float32)\nnisa.tensor_scalar(dst=noise, data=noise, op0=nl.multiply,"
        " operand0=0.0)\ntile = total(a, b)\n"
        "nisa.tensor_tensor(dst=tile, data1=tile, data2=noise, op=nl.add)\nreturn store(tile)"
    ),
    "an offset in a register": Honest(
        "held = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)\nnisa.memset(held, 0)\n"
        "row = nisa.register_alloc(0)\nnisa.register_load(row, held)\n"
        "tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)\n"
        "nisa.dma_copy(dst=tile, src=a.ap([[a.shape[1], a.shape[0]], [1, a.shape[1]]],"
        " scalar_offset=row, indirect_dim=0))\nreturn store(tile)",
        reference=lambda a: a.astype(np.float64),
        inputs=ONE,
    ),
    "names of a counter": Honest(
        "tile = total(a, b)\nout = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm,"
        " name=name())\nnisa.dma_copy(dst=out, src=tile)\nreturn out",
        before="import uuid\nCOUNT = 0\n\ndef name():\n    global COUNT\n    COUNT += 1\n"
        "    return f'{COUNT}_{uuid.uuid4().hex}'\n",
    ),
    "an operator and a dtype as parameters": Honest(
        "assert kind == nl.float32\nreturn store(total(a, b, op))",
        reference=lambda a, b, op, kind: a + kind.type(1 if op is nl.add else -1) * b,
        domain={
            "p": PARTS,
            "n": FREE,
            "op": [nl.add, np.subtract],
            "kind": [nl.float32],
        },
        parameters="a, b, op, kind",
        more={"parameters": ("op", "kind")},
    ),
    "prints": Honest("print('shape', a.shape)\n" + SUM),
    "a generator of tiles": Honest(
        "x = load(a)\nfor tile in columns(x):\n"
        "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)\nreturn store(x)",
        reference=wide(lambda x: x + 1),
        inputs=ONE,
        before="def columns(x):\n    for n in range(x.shape[1]):\n        yield x[:, n : n + 1]\n",
    ),
    "by recursion": Honest(
        "x = load(a)\nhalved(x, 0, a.shape[1])\nreturn store(x)",
        reference=wide(lambda x: 2 * x),
        inputs=ONE,
        before="def halved(x, low, high):\n    if high - low == 1:\n"
        "        part = x[:, low:high]\n"
        "        nisa.tensor_tensor(dst=part, data1=part, data2=part, op=nl.add)\n"
        "        return\n    middle = (low + high) // 2\n    halved(x, low, middle)\n"
        "    halved(x, middle, high)\n",
    ),
    "several dtypes": Honest(SUM, more={"dtypes": ("float32", "bfloat16", "float16")}),
    "a shape that decides": Honest(
        "if a.shape[0] % 2 == 0:\n    return store(total(b, a))\nreturn store(total(a, b))"
    ),
    "an enumeration of operators": Honest(
        "return store(total(a, b, {Op.PLUS: nl.add, Op.MINUS: nl.subtract}[Op('plus')]))",
        before="from enum import Enum\n\n\nclass Op(Enum):\n"
        "    PLUS = 'plus'\n    MINUS = 'minus'\n",
    ),
    "a tuple with names": Honest(
        "pair = Pair(load(a), load(b))\nnisa.tensor_tensor(dst=pair.x, data1=pair.x, data2=pair.y,"
        " op=nl.add)\nreturn store(pair.x)",
        before="from typing import NamedTuple\n\n\nclass Pair(NamedTuple):\n"
        "    x: object\n    y: object\n",
    ),
    "AWS's own kind of object": Honest(
        "state = State()\nstate.tile = total(a, b)\nreturn store(state.tile)",
        before="class State(nl.NKIObject):\n    tile = None\n",
    ),
    "a partial and a reduction of tiles": Honest(
        "return store(reduce(partial(joined, nl.add), [load(a), load(b), load(a)]))",
        reference=lambda a, b: 2 * a.astype(np.float64) + b,
        before="from functools import partial, reduce\n\n\ndef joined(op, x, y):\n"
        "    nisa.tensor_tensor(dst=x, data1=x, data2=y, op=op)\n    return x\n",
    ),
    "tiles of a product of ranges": Honest(
        "x, y = load(a), load(b)\nfor p, n in itertools.product((0, 1), range(a.shape[1])):\n"
        "    if p == 0:\n        part = x[:, n : n + 1]\n"
        "        nisa.tensor_tensor(dst=part, data1=part, data2=y[:, n : n + 1], op=nl.add)\n"
        "return store(x)",
        before="import itertools\n",
    ),
    "a helper within the kernel": Honest(
        "def through(x):\n    tile = load(x)\n"
        "    nisa.activation(dst=tile, op=nl.copy, data=tile)\n    return tile\n"
        "x, y = through(a), through(b)\n"
        "nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)\nreturn store(x)"
    ),
    "defaults, keywords and stars": Honest(
        "sizes = dict(dtype=a.dtype, buffer=nl.sbuf)\nreturn store(summed(*[a, b], **sizes))",
        before="def summed(x, y, *, dtype, buffer, op=nl.add):\n"
        "    tile = nl.ndarray(x.shape, dtype=dtype, buffer=buffer)\n"
        "    nisa.tensor_tensor(dst=tile, data1=load(x), data2=load(y), op=op)\n    return tile\n",
    ),
    "a match of dtypes": Honest(
        "match str(a.dtype):\n    case 'float32':\n        tile = total(a, b)\n"
        "    case _:\n        tile = total(b, a)\nreturn store(tile)"
    ),
    "a walrus in a loop": Honest(
        "x, y, n = load(a), load(b), 0\nwhile (m := min(n + 3, a.shape[1])) > n:\n"
        "    part = x[:, n:m]\n"
        "    nisa.tensor_tensor(dst=part, data1=part, data2=y[:, n:m], op=nl.add)\n    n = m\n"
        "return store(x)"
    ),
    "a log of what it does": Honest(
        "log.info('%s', a.shape)\nlog.propagate = False\nwith warnings.catch_warnings():\n"
        "    warnings.simplefilter('ignore')\n    return store(total(a, b))",
        before="import logging\nimport warnings\n\nlog = logging.getLogger(__name__)\n",
    ),
    "plain classes": Honest(
        "assert a.shape[0] <= Sizes.P\nreturn store(Adder(a, b)())",
        before="class Sizes:\n    P = 128\n\n\nclass Adder:\n    def __init__(self, *tensors):\n"
        "        self._tensors = tensors\n\n    def __call__(self):\n"
        "        return total(*self._tensors)\n",
    ),
    "a named tuple that is replaced": Honest(
        "pair = Pair(a, a)._replace(y=b)\nassert pair._fields\nreturn store(total(*pair))",
        before="from collections import namedtuple\n\nPair = namedtuple('Pair', 'x y')\n",
    ),
    "a global, a deleted name and a decorator of an expression": Honest(
        f"global COUNT\nCOUNT += 1\n{SUM}",
        before="COUNT = unused = 0\ndel unused\n\n\n@(lambda f: f)\ndef f(): ...\n",
    ),
    "an integer of many digits": Honest(SUM, before="MOST = 1 << 100_000\n"),
    "arrays compared": Honest(
        "mask = np.arange(a.shape[1]) >= np.arange(a.shape[0])[:, None]\n"
        "x, y = total(a, b), load(nl.shared_constant(mask.astype(np.float32)))\n"
        "nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.multiply)\nreturn store(x)",
        reference=lambda a, b: np.triu(a.astype(np.float64) + b),
        more={"dtypes": ("float32",)},
    ),
    "rows by registers": Honest(
        "out = nl.ndarray((b.shape[0], a.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)\n"
        "for m in range(b.shape[0]):\n    row = [[a.shape[1], 1], [1, a.shape[1]]]\n"
        "    row = a.ap(row, scalar_offset=register(b, m, 0), indirect_dim=0)\n"
        "    nisa.dma_copy(dst=out[m : m + 1], src=row)\nreturn out",
        reference=lambda a, b: a.astype(np.float64)[b[:, 0]],
        inputs=COUNTS,
        domain=FEW,
        before=TURNS,
    ),
    "turns by registers": Honest(
        "x = load(a)\ndef body(i):\n    y = load(a)\n    nisa.tensor_copy(dst=y, src=x)\n"
        "    nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)\n"
        "for m in range(b.size):\n    nl.fori_loop(0, register(b, m, 0), body)\nreturn store(x)",
        reference=lambda a, b: a.astype(np.float64) * 2.0 ** b.sum(),
        inputs=COUNTS,
        domain=FEW,
        before=TURNS,
    ),
}


def _rows(taken: str, body: str) -> Honest:
    """Return a kernel that adds rows of ``a`` by registers; ``taken`` are the rows."""
    rows = list(map(int, taken))
    return Honest(
        f"{ROWS}{body}\nreturn store(tile)",
        lambda a, b: a.astype(np.float64)[rows].sum(0, keepdims=True),
        domain={"p": sizes(4, 4), "n": FREE},
        before=REGISTERS,
    )


_COUNT = "count = register_of(3)\n"
_LESS = (
    "left, less = number(3), number(-1)\n"
    "def step(register):\n"
    "    nisa.tensor_tensor(dst=left, data1=left, data2=less, op=nl.add)\n"
    "    nisa.register_load(register, left)\n"
)
KERNELS |= {
    "a loop of rows": _rows("0123", "nl.fori_loop(0, 4, take)"),
    "rows until a register": _rows("012", _COUNT + "nl.fori_loop(0, count, take)"),
    "a register that each turn sets": _rows(
        "01233",
        "r = nisa.register_alloc(0)\ndef body(i):\n    nisa.register_move(r, i)\n    take(r)\n"
        "nl.fori_loop(0, 4, body)\ntake(r)",
    ),
    "a register of each turn": _rows(
        "2222", "nl.fori_loop(0, 4, lambda i: take(register_of(2)))"
    ),
    "many registers": _rows(
        "01230123",
        "registers = [register_of(n % 4) for n in range(20)]\ndef body(i):\n"
        "    for register in registers[:4]:\n        take(register)\nnl.fori_loop(0, 2, body)",
    ),
    "loops in loops": _rows(
        "0010" + "1011",
        "def outer(i):\n    def inner(j):\n        take(i)\n        take(j)\n"
        "    nl.fori_loop(0, 2, inner)\nnl.fori_loop(0, 2, outer)",
    ),
    "a loop without a turn": _rows(
        "0123", "nl.fori_loop(0, 0, take)\nnl.fori_loop(0, 4, take)"
    ),
    "a loop in a generator": _rows(
        "0123",
        "def turns():\n    for i in nl.dynamic_range(0, 4):\n        yield i\n"
        "for i in turns():\n    take(i)",
    ),
    "a loop in a list": _rows("0123", "[take(i) for i in nl.dynamic_range(0, 4)]"),
    "arithmetic of a scalar": _rows(
        "1111",
        "count = nisa.scalar_load(number(4))\n"
        "nl.fori_loop(0, count, lambda i: take(i * 0 + 1))",
    ),
    "a while loop of a register": _rows(
        "321", _LESS + "r = nisa.register_alloc(3)\nwhile r:\n    take(r)\n    step(r)"
    ),
    "a while loop of a function": _rows(
        "321",
        _LESS
        + "def body(r):\n    take(r)\n    step(r)\n    return r\n"
        + "nl.while_loop(nisa.register_alloc(3), body)",
    ),
}
