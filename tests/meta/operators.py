"""Common operators, correct and with planted errors: kernels, references and their specs.

No spec says how its kernel rounds. The kernels hold float32 between the instructions and round into
the dtype of their inputs at the end, as kernels of these operators do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from difftest.simulator.entry.install import embedded
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.sizes import multiples, sizes

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl

DTYPES = ("float32", "bfloat16", "float16")
EPSILON = 1e-5
ROWS = 128
HEAD = 64


def _wide(*arrays: Any) -> Any:
    return tuple(array.astype(np.float64) for array in arrays)


# -- softmax ---------------------------------------------------------------------------------------


def softmax_of(scores: Any) -> Any:
    """Over the last axis, float64."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def softmax_reference(x):
    (x,) = _wide(x)
    return softmax_of(x)


def _softmax(x, total_of, divide=True):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x, dtype=nl.float32)
    top = nisa.tensor_reduce(np.max, tile, axis=(1,), negate=True)
    powers = nisa.activation(np.exp, tile, bias=top)
    total = total_of(powers)
    shares = (
        nl.divide(powers, total)
        if divide
        else nl.multiply(powers, nl.reciprocal(total))
    )
    nl.store(out, shares)
    return out


@nki.jit
def softmax(x):
    return _softmax(
        x, lambda powers: nl.sum(powers, axis=1, keepdims=True), divide=False
    )


@nki.jit
def softmax_in_bfloat16(x):
    """Adds the powers up in bfloat16, 64 columns at a time."""

    def total_of(powers):
        rows, columns = x.shape
        total = nl.zeros((rows, 1), nl.bfloat16)
        for start in range(0, columns, 64):
            part = nl.sum(
                powers[:, start : min(start + 64, columns)], axis=1, keepdims=True
            )
            total = nl.add(total, part, dtype=nl.bfloat16)
        return total

    return _softmax(x, total_of)


@nki.jit
def softmax_without_last(x):
    """Leaves the last column out of the sum."""
    last = x.shape[1] - 1
    return _softmax(x, lambda powers: nl.sum(powers[:, 0:last], axis=1, keepdims=True))


# -- variance, layernorm and rmsnorm ---------------------------------------------------------------


def variance_reference(x):
    (x,) = _wide(x)
    return x.var(axis=1, keepdims=True)


def _variance(x, count):
    out = nl.ndarray((x.shape[0], 1), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x, dtype=nl.float32)
    mean = nl.multiply(nl.sum(tile, axis=1, keepdims=True), 1.0 / x.shape[1])
    centred = nisa.tensor_scalar(tile, np.subtract, mean)
    squares = nl.sum(nl.multiply(centred, centred), axis=1, keepdims=True)
    nl.store(out, nl.multiply(squares, 1.0 / count))
    return out


@nki.jit
def variance(x):
    return _variance(x, x.shape[1])


@nki.jit
def variance_over_one_less(x):
    """Divides by the number of columns less one."""
    return _variance(x, x.shape[1] - 1)


@nki.jit
def variance_of_moments(x):
    """E[x**2] - E[x]**2: the algorithm is correct, and cancels."""
    out = nl.ndarray((x.shape[0], 1), x.dtype, buffer=nl.shared_hbm)
    columns = x.shape[1]
    tile = nl.load(x, dtype=nl.float32)
    mean = nl.multiply(nl.sum(tile, axis=1, keepdims=True), 1.0 / columns)
    square = nl.multiply(
        nl.sum(nl.multiply(tile, tile), axis=1, keepdims=True), 1.0 / columns
    )
    nl.store(out, nl.subtract(square, nl.multiply(mean, mean)))
    return out


def layernorm_reference(x, gamma, beta):
    x, gamma, beta = _wide(x, gamma, beta)
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt(x.var(axis=1, keepdims=True) + EPSILON) * gamma + beta


def _layernorm(x, gamma, beta, *, epsilon=EPSILON, count=None, narrow=None):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rows, columns = x.shape
    dtype = nl.float32 if narrow is None else narrow
    tile = nl.load(x, dtype=nl.float32)
    mean = nl.multiply(
        nl.sum(tile, axis=1, keepdims=True), 1.0 / (count or columns), dtype=dtype
    )
    centred = nisa.tensor_scalar(tile, np.subtract, mean)
    squares = nl.sum(nl.multiply(centred, centred), axis=1, keepdims=True)
    spread = nisa.tensor_scalar(
        squares, np.multiply, 1.0 / columns, op1=np.add, operand1=epsilon
    )
    scaled = nisa.tensor_scalar(centred, np.multiply, nl.rsqrt(spread))
    weights = nl.load(gamma.reshape((1, columns)), dtype=nl.float32)
    offsets = nl.load(beta.reshape((1, columns)), dtype=nl.float32)
    weighted = nl.multiply(scaled, weights.broadcast_to((rows, columns)))
    nl.store(out, nl.add(weighted, offsets.broadcast_to((rows, columns))))
    return out


@nki.jit
def layernorm(x, gamma, beta):
    return _layernorm(x, gamma, beta)


@nki.jit
def layernorm_without_epsilon(x, gamma, beta):
    return _layernorm(x, gamma, beta, epsilon=1e-6)


@nki.jit
def layernorm_with_wrong_count(x, gamma, beta):
    return _layernorm(x, gamma, beta, count=x.shape[1] + 1)


@nki.jit
def layernorm_with_narrow_mean(x, gamma, beta):
    return _layernorm(x, gamma, beta, narrow=nl.bfloat16)


def rmsnorm_reference(x, gamma):
    x, gamma = _wide(x, gamma)
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPSILON) * gamma


def _rmsnorm(x, gamma, epsilon):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rows, columns = x.shape
    tile = nl.load(x, dtype=nl.float32)
    squares = nisa.activation(np.square, tile)
    total = nl.sum(squares, axis=1, keepdims=True)
    mean = nisa.tensor_scalar(
        total, np.multiply, 1.0 / columns, op1=np.add, operand1=epsilon
    )
    scaled = nisa.tensor_scalar(tile, np.multiply, nl.rsqrt(mean))
    weights = nl.load(gamma.reshape((1, columns)), dtype=nl.float32)
    nl.store(out, nl.multiply(scaled, weights.broadcast_to((rows, columns))))
    return out


@nki.jit
def rmsnorm(x, gamma):
    return _rmsnorm(x, gamma, EPSILON)


@nki.jit
def rmsnorm_without_epsilon(x, gamma):
    return _rmsnorm(x, gamma, 1e-12)


# -- rope ------------------------------------------------------------------------------------------


def rope_reference(x, cosines, sines):
    x, cosines, sines = _wide(x, cosines, sines)
    half = x.shape[1] // 2
    left = x[:, :half]
    right = x[:, half:]
    return np.concatenate(
        [left * cosines - right * sines, right * cosines + left * sines], axis=1
    )


def _rope(x, cosines, sines, combine):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    half = x.shape[1] // 2
    tile = nl.load(x, dtype=nl.float32)
    cosine = nl.load(cosines, dtype=nl.float32)
    sine = nl.load(sines, dtype=nl.float32)
    left = tile[:, 0:half]
    right = tile[:, half : 2 * half]
    first = nl.subtract(nl.multiply(left, cosine), nl.multiply(right, sine))
    nl.store(out[:, 0:half], first)
    nl.store(
        out[:, half : 2 * half],
        combine(nl.multiply(right, cosine), nl.multiply(left, sine)),
    )
    return out


@nki.jit
def rope(x, cosines, sines):
    return _rope(x, cosines, sines, nl.add)


@nki.jit
def rope_with_wrong_sign(x, cosines, sines):
    return _rope(x, cosines, sines, nl.subtract)


# -- attention -------------------------------------------------------------------------------------


def attention_reference(q, k, v):
    q, k, v = _wide(q, k, v)
    return softmax_of(q.T @ k / math.sqrt(HEAD)) @ v


def _attention(q, k, v, *, keys=None, narrow=nl.float32):
    """q [HEAD, ROWS], k [HEAD, keys], v [keys, HEAD]: softmax(q.T @ k / sqrt(HEAD)) @ v, online."""
    count = (keys or k.shape[1]) // ROWS
    out = nl.ndarray((ROWS, HEAD), q.dtype, buffer=nl.shared_hbm)
    queries = nl.load(q)
    top = nl.full((ROWS, 1), -1e30, nl.float32)
    total = nl.zeros((ROWS, 1), nl.float32)
    sums = nl.zeros((ROWS, HEAD), narrow)
    for block in range(count):
        columns = slice(block * ROWS, (block + 1) * ROWS)
        scores = nl.copy(nisa.nc_matmul(queries, nl.load(k[:, columns])))
        scores = nl.multiply(scores, 1.0 / math.sqrt(HEAD))
        higher = nl.maximum(top, nl.max(scores, axis=1, keepdims=True))
        powers = nisa.activation(np.exp, scores, bias=nl.multiply(higher, -1.0))
        shrink = nl.exp(nl.subtract(top, higher))
        total = nl.add(
            nl.multiply(total, shrink), nl.sum(powers, axis=1, keepdims=True)
        )
        turned = nl.copy(nisa.nc_transpose(powers), dtype=q.dtype)
        product = nisa.nc_matmul(turned, nl.load(v[columns, :]))
        sums = nl.add(
            nisa.tensor_scalar(sums, np.multiply, shrink), product, dtype=narrow
        )
        top = higher
    nl.store(out, nisa.tensor_scalar(sums, np.multiply, nl.reciprocal(total)))
    return out


@nki.jit
def attention(q, k, v):
    return _attention(q, k, v)


@nki.jit
def attention_in_bfloat16(q, k, v):
    return _attention(q, k, v, narrow=nl.bfloat16)


@nki.jit
def attention_without_last_keys(q, k, v):
    return _attention(q, k, v, keys=max(k.shape[1] - ROWS, ROWS))


# -- cross-entropy ---------------------------------------------------------------------------------


def cross_entropy_reference(logits, labels):
    logits, labels = _wide(logits, labels)
    top = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - top).sum(axis=1, keepdims=True)) + top
    return total - (logits * labels).sum(axis=1, keepdims=True)


def _cross_entropy(logits, labels, *, keeps_top):
    out = nl.ndarray((logits.shape[0], 1), logits.dtype, buffer=nl.shared_hbm)
    tile = nl.load(logits, dtype=nl.float32)
    weights = nl.load(labels, dtype=nl.float32)
    top = nl.max(tile, axis=1, keepdims=True)
    powers = nisa.activation(np.exp, tile, bias=nl.multiply(top, -1.0))
    logarithm = nl.log(nl.sum(powers, axis=1, keepdims=True))
    total = nl.add(logarithm, top) if keeps_top else logarithm
    picked = nl.sum(nl.multiply(tile, weights), axis=1, keepdims=True)
    nl.store(out, nl.subtract(total, picked))
    return out


@nki.jit
def cross_entropy(logits, labels):
    return _cross_entropy(logits, labels, keeps_top=True)


@nki.jit
def cross_entropy_without_top(logits, labels):
    return _cross_entropy(logits, labels, keeps_top=False)


# -- matrix products -------------------------------------------------------------------------------


def product_reference(a, b):
    a, b = _wide(a, b)
    return a.T @ b


def _product(a, b, *, depth=None, narrow=nl.float32):
    out = nl.ndarray((a.shape[1], b.shape[1]), a.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((a.shape[1], b.shape[1]), narrow)
    depth = depth or a.shape[0]
    for start in range(0, depth, ROWS):
        part = slice(start, min(start + ROWS, depth))
        partial = nisa.nc_matmul(nl.load(a[part, :]), nl.load(b[part, :]))
        total = nl.add(total, partial, dtype=narrow)
    nl.store(out, total)
    return out


@nki.jit
def product(a, b):
    return _product(a, b)


@nki.jit
def product_without_last_term(a, b):
    return _product(a, b, depth=a.shape[0] - 1)


@nki.jit
def product_in_bfloat16(a, b):
    return _product(a, b, narrow=nl.bfloat16)


@nki.jit
def product_in_float16(a, b):
    return _product(a, b, narrow=nl.float16)


# -- specs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operator:
    """A reference, the domain of its cases, its correct kernel and wrong ones.

    Attributes
    ----------
    planted : kernels with one error each, and the question that finds it.
    """

    kernel: Any
    reference: Any
    domain: dict[str, Any]
    inputs: dict[str, str]
    dtypes: tuple[str, ...] = DTYPES
    planted: dict[Any, str] = field(default_factory=dict)

    def spec(self, kernel: Any = None) -> KernelSpec:
        """Return the spec of the correct kernel or of another; it says nothing about rounding."""
        return KernelSpec(
            kernel=self.kernel if kernel is None else kernel,
            reference=self.reference,
            domain=self.domain,
            inputs=self.inputs,
            dtypes=self.dtypes,
        )


TABLE = {"P": sizes(1, ROWS), "N": sizes(2, 640)}
KEYS = {"S": multiples(ROWS, at_most=512)}
DEEP = {"K": multiples(ROWS, at_most=8192), "M": sizes(1, 8), "N": sizes(1, 32)}
HALVES = {"P": sizes(1, ROWS), "H": sizes(1, 64), "N": lambda H: (2 * H,)}

OPERATORS = {
    "softmax": Operator(
        softmax,
        softmax_reference,
        TABLE,
        {"x": "P N"},
        planted={softmax_without_last: "algorithm", softmax_in_bfloat16: "arithmetic"},
    ),
    "variance": Operator(
        variance,
        variance_reference,
        TABLE,
        {"x": "P N"},
        planted={variance_over_one_less: "algorithm"},
    ),
    "layernorm": Operator(
        layernorm,
        layernorm_reference,
        TABLE,
        {"x": "P N", "gamma": "N", "beta": "N"},
        planted={
            layernorm_without_epsilon: "algorithm",
            layernorm_with_wrong_count: "algorithm",
            layernorm_with_narrow_mean: "arithmetic",
        },
    ),
    "rmsnorm": Operator(
        rmsnorm,
        rmsnorm_reference,
        TABLE,
        {"x": "P N", "gamma": "N"},
        planted={rmsnorm_without_epsilon: "algorithm"},
    ),
    "rope": Operator(
        rope,
        rope_reference,
        HALVES,
        {"x": "P N", "cosines": "P H", "sines": "P H"},
        planted={rope_with_wrong_sign: "algorithm"},
    ),
    "attention": Operator(
        attention,
        attention_reference,
        KEYS,
        {"q": f"{HEAD} {ROWS}", "k": f"{HEAD} S", "v": f"S {HEAD}"},
        planted={
            attention_without_last_keys: "algorithm",
            attention_in_bfloat16: "arithmetic",
        },
    ),
    "cross_entropy": Operator(
        cross_entropy,
        cross_entropy_reference,
        TABLE,
        {"logits": "P N", "labels": "P N"},
        planted={cross_entropy_without_top: "algorithm"},
    ),
    "product": Operator(
        product,
        product_reference,
        DEEP,
        {"a": "K M", "b": "K N"},
        planted={
            product_without_last_term: "algorithm",
            product_in_bfloat16: "arithmetic",
            product_in_float16: "arithmetic",
        },
    ),
}
