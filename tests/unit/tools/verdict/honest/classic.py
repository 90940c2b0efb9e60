"""Honest kernels of the classic dialect."""

import numpy as np

from difftest import sizes
from tests.unit.tools.verdict.honest.table import CLASSIC, FREE, PARTS, Honest

ONE = {"a": "p n"}
MASK = "p < a.shape[0] and f < a.shape[1]"


def wide(function):
    def reference(a):
        return function(a.astype(np.float64))

    return reference


def of_one(body, function, **more):
    return Honest(body, reference=wide(function), inputs=ONE, head=CLASSIC, **more)


KERNELS = {
    "a sum": Honest(
        "out = empty(a)\nnl.store(out, nl.load(a) + nl.load(b))\nreturn out",
        head=CLASSIC,
    ),
    "nl.exp": of_one(
        "out = empty(a)\nnl.store(out, nl.exp(nl.load(a)))\nreturn out", np.exp
    ),
    "a mask": of_one(
        "out = empty(a)\ntile = nl.ndarray((nl.par_dim(128), 8), dtype=a.dtype, buffer=nl.sbuf)\n"
        "p, n = nl.mgrid[0:128, 0:8]\nmask = (p < a.shape[0]) & (n < a.shape[1])\n"
        "tile[p, n] = nl.load(a[p, n], mask=mask)\n"
        "nl.store(out[p, n], tile[p, n] + 1.0, mask=mask)\nreturn out",
        lambda x: x + 1,
    ),
    "a mask that is not a box": of_one(
        "out = empty(a)\ntile = nl.load(a)\np, n = nl.mgrid[0:a.shape[0], 0:a.shape[1]]\n"
        "nl.store(out, tile)\nnl.store(out[p, n], tile[p, n] * 3.0, mask=p >= n)\nreturn out",
        lambda x: np.where(np.tri(*x.shape, dtype=bool), 3 * x, x),
    ),
    "a mean": of_one(
        "out = nl.ndarray((a.shape[0], 1), dtype=a.dtype, buffer=nl.shared_hbm)\n"
        "nl.store(out, nl.mean(nl.load(a), axis=1, keepdims=True))\nreturn out",
        lambda x: x.mean(axis=1, keepdims=True),
    ),
    "softmax": of_one(
        "out = empty(a)\nx = nl.load(a)\nx = nl.exp(x - nl.max(x, axis=1, keepdims=True))\n"
        "nl.store(out, x / nl.sum(x, axis=1, keepdims=True))\nreturn out",
        lambda x: (
            np.exp(x - x.max(1, keepdims=True))
            / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)
        ),
    ),
    "a transpose": of_one(
        "out = nl.ndarray(a.shape[::-1], dtype=a.dtype, buffer=nl.shared_hbm)\n"
        "nl.store(out, nl.transpose(nl.load(a)))\nreturn out",
        lambda x: x.T,
    ),
    "a product": Honest(
        "out = nl.ndarray((a.shape[1], b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)\n"
        "nl.store(out, nl.matmul(nl.load(a), nl.load(b), transpose_x=True))\nreturn out",
        reference=lambda a, b: a.astype(np.float64).T @ b.astype(np.float64),
        inputs={"a": "p m", "b": "p n"},
        domain={"p": PARTS, "n": FREE, "m": sizes(1, 32)},
        head=CLASSIC,
    ),
    "products accumulated": Honest(
        "out = nl.ndarray((a.shape[1], b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)\n"
        "psum = nl.zeros(out.shape, dtype=nl.float32, buffer=nl.psum)\n"
        "for _ in nl.affine_range(2):\n    psum += nisa.nc_matmul(nl.load(a), nl.load(b))\n"
        "nl.store(out, nl.copy(psum, dtype=a.dtype))\nreturn out",
        reference=lambda a, b: 2 * a.astype(np.float64).T @ b.astype(np.float64),
        inputs={"a": "p m", "b": "p n"},
        domain={"p": PARTS, "n": FREE, "m": sizes(1, 32)},
        head=CLASSIC,
    ),
    "a constant": of_one(
        "out = empty(a)\ntable = nl.load(nl.shared_constant(np.full(a.shape, 0.5, np.float32)))\n"
        "nl.store(out, nl.load(a) * table)\nreturn out",
        lambda x: x / 2,
        more={"dtypes": ("float32",)},
    ),
    "the larger of two": Honest(
        "out = empty(a)\nx, y = nl.load(a), nl.load(b)\n"
        "nl.store(out, nl.where(nl.greater(x, y), x, y))\nreturn out",
        reference=lambda a, b: np.maximum(a.astype(np.float64), b),
        head=CLASSIC,
    ),
    "a loop in order": of_one(
        "out = empty(a)\nx = nl.load(a)\nfor _ in nl.sequential_range(3):\n    x[...] = x + 1.0\n"
        "nl.store(out, x)\nreturn out",
        lambda x: x + 3,
    ),
    "in place": Honest(
        "nl.store(out, nl.load(x) - 1.0)",
        reference=lambda x: x.astype(np.float64) - 1,
        inputs={"x": "p n"},
        parameters="x, out: nt.mutable_tensor",
        before="import neuronxcc.nki.typing as nt\n",
        head=CLASSIC,
        more={"outputs": {"out": "p n"}},
    ),
    "an argument that is updated and returned": Honest(
        "nl.store(x, nl.load(x) - 1.0)\nreturn x",
        reference=lambda x: x.astype(np.float64) - 1,
        inputs={"x": "p n"},
        parameters="x: nt.mutable_tensor",
        before="import neuronxcc.nki.typing as nt\n",
        head=CLASSIC,
        more={"outputs": {"x": "p n"}},
    ),
    "rows in another order": of_one(
        "out = empty(a)\nindex = nl.ndarray((a.shape[0], 1), dtype=nl.int32, buffer=nl.sbuf)\n"
        "p, n = nl.mgrid[0:a.shape[0], 0:a.shape[1]]\n"
        "index[...] = nisa.iota(a.shape[0] - 1 - nl.arange(a.shape[0])[:, None], dtype=nl.int32)\n"
        "tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)\n"
        "nisa.dma_copy(dst=tile, src=a[index[nl.arange(a.shape[0])[:, None], 0], n])\n"
        "nl.store(out, tile)\nreturn out",
        lambda x: x[::-1],
    ),
    "dropout of nothing": of_one(
        "out = empty(a)\nnl.store(out, nl.dropout(nl.load(a), rate=0.0))\nreturn out",
        lambda x: x,
    ),
    "a seed and noise without weight": of_one(
        "out = empty(a)\nnl.random_seed(7)\n"
        "nl.store(out, nl.load(a) + nl.rand(a.shape, dtype=nl.float32) * 0.0)\nreturn out",
        lambda x: x,
    ),
    "an activation with a scale": of_one(
        "out = empty(a)\nnl.store(out, nisa.activation(op=nl.tanh, data=nl.load(a), scale=0.5))\n"
        "return out",
        lambda x: np.tanh(x / 2),
    ),
    "tiles in a helper": Honest(
        "out = empty(a)\nnl.store(out, both(nl.load(a), nl.load(b)))\nreturn out",
        before="def both(x, y):\n    return nl.multiply(nl.add(x, y), 0.5)\n",
        reference=lambda a, b: (a.astype(np.float64) + b) / 2,
        head=CLASSIC,
    ),
    "a scalar of the instruction set": of_one(
        "out, x = empty(a), nl.load(a)\n"
        "nl.store(out, nisa.tensor_scalar(x, np.multiply, 3.0, op1=np.add, operand1=1.0))\n"
        "return out",
        lambda x: 3 * x + 1,
    ),
    "column after column": of_one(
        "out, p = empty(a), nl.arange(a.shape[0])[:, None]\nfor n in nl.affine_range(a.shape[1]):\n"
        "    column = nl.load(a[p, n + nl.arange(1)[None, :]])\n"
        "    nl.store(out[p, n + nl.arange(1)[None, :]], nl.negative(column))\nreturn out",
        lambda x: -x,
    ),
    "masks joined by and": Honest(
        "out, p, f = empty(a), nl.arange(128)[:, None], nl.arange(8)[None, :]\n"
        f"x, y = (nl.load(z[p, f], mask={MASK}) for z in (a, b))\n"
        f"nl.store(out[p, f], x + y, mask={MASK})\nreturn out",
        head=CLASSIC,
    ),
}
