"""The limit of the digits that a kernel may lose: honest kernels keep it, coarse ones do not.

Each kernel of the table runs as it is, and with its result rounded to fewer bits: a multiple of it
is added and subtracted. The exact run excuses that, since its bound follows from the instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import settings

from difftest import multiples, sizes
from difftest.simulator.entry.install import embedded
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Random
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.differential import evaluate_reference
from difftest.testing.harness.failures import DifferentialFailure
from difftest.tools.verdict.digits import (
    StrictRunner,
    allowances,
    error_in_order,
    sums_of,
)
from tests.every import every
from tests.meta.campaign import drawn
from tests.meta.operators import product_reference, softmax_of

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl

FLAT = {"P": sizes(1, 128), "N": sizes(1, 64)}
LONG = {"P": sizes(1, 128), "N": sizes(2, 2048)}
PAIR = {"a": "P N", "b": "P N"}
ONE = {"x": "P N"}
BITS = {"float32": 24, "bfloat16": 8, "float16": 11}
NIGHTLY = settings.get_current_profile_name() == "nightly"
CASES = 60 if NIGHTLY else 12


@dataclass(frozen=True)
class Task:
    """A computation on tiles, and its contract."""

    compute: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Mapping[str, str]
    domain: Mapping[str, Any]
    results: Callable[..., tuple[int, int]] = lambda *arrays: arrays[0].shape

    def spec(self, dtype: str, bits: int | None = None) -> KernelSpec:
        """Return the contract of the kernel whose result has so many bits; None for all."""
        compute, results = self.compute, self.results

        def result(*arrays):
            out = nl.ndarray(results(*arrays), arrays[0].dtype, buffer=nl.shared_hbm)
            value = compute(*arrays)
            if bits is not None:
                big = nl.multiply(value, 2.0 ** (24 - bits) + 1, dtype=nl.float32)
                value = nl.add(value, big, dtype=nl.float32)
                value = nl.subtract(value, big, dtype=nl.float32)
            nl.store(out, value)
            return out

        @nki.jit
        def kernel_of_one(x):
            return result(x)

        @nki.jit
        def kernel_of_two(a, b):
            return result(a, b)

        return KernelSpec(
            kernel=kernel_of_one if len(self.inputs) == 1 else kernel_of_two,
            reference=lambda *arrays: self.reference(
                *(array.astype(np.float64) for array in arrays)
            ),
            domain=dict(self.domain),
            inputs=dict(self.inputs),
            dtypes=(dtype,),
        )


def wide(array):
    return nl.load(array, dtype=nl.float32)


def softmax(x):
    tile = wide(x)
    top = nisa.tensor_reduce(np.max, tile, axis=(1,), negate=True)
    powers = nisa.activation(np.exp, tile, bias=top)
    return nl.divide(powers, nl.sum(powers, axis=1, keepdims=True))


def product(a, b):
    total = nl.zeros((a.shape[1], b.shape[1]), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(a.shape[0] // 128):
        rows = slice(k * 128, (k + 1) * 128)
        total += nisa.nc_matmul(nl.load(a[rows]), nl.load(b[rows]))
    return nl.copy(total)


def gelu(x):
    tile = wide(x)
    inner = nl.add(
        tile, nl.multiply(nl.multiply(tile, tile), nl.multiply(tile, 0.044715))
    )
    return nl.multiply(
        nl.multiply(tile, 0.5), nl.add(nl.tanh(nl.multiply(inner, 0.7978845608)), 1.0)
    )


def gelu_reference(x):
    with np.errstate(all="ignore"):
        return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def tanh_derivative(x):
    tile = nl.tanh(wide(x))
    return nl.subtract(1.0, nl.multiply(tile, tile))


def many_adds(x):
    tile = wide(x)
    total = nl.copy(tile)
    for _ in range(20):
        total = nl.add(total, tile)
    return total


def chain(x):
    tile = nl.tanh(wide(x))
    for scale in (1.1, 0.7, 1.3, 0.9, 1.7):
        tile = nl.add(nl.multiply(tile, scale), 0.1)
    return tile


def chain_reference(x):
    value = np.tanh(x)
    for scale in (1.1, 0.7, 1.3, 0.9, 1.7):
        value = value * scale + 0.1
    return value


def stencil(x):
    tile = wide(x)
    for _ in range(10):
        tile = nl.multiply(nl.add(tile, nl.multiply(tile, tile)), 0.25)
    return tile


def stencil_reference(x):
    with np.errstate(all="ignore"):
        for _ in range(10):
            x = (x + x * x) * 0.25
        return x


def narrow_chain(a, b):
    """Each result is rounded into the dtype of the arguments."""
    a, b = nl.load(a), nl.load(b)
    total = nl.multiply(nl.add(a, b, dtype=a.dtype), 0.3, dtype=a.dtype)
    total = nl.subtract(total, b, dtype=a.dtype)
    return nl.multiply(nl.add(total, a, dtype=a.dtype), 0.7, dtype=a.dtype)


TASKS = {
    "one less tanh": Task(
        lambda x: nl.subtract(1.0, nl.tanh(wide(x))),
        lambda x: 1 - np.tanh(x),
        ONE,
        FLAT,
    ),
    "the derivative of tanh": Task(
        tanh_derivative, lambda x: 1 - np.tanh(x) ** 2, ONE, FLAT
    ),
    "add": Task(lambda a, b: nl.add(wide(a), wide(b)), np.add, PAIR, FLAT),
    "multiply": Task(
        lambda a, b: nl.multiply(wide(a), wide(b)), np.multiply, PAIR, FLAT
    ),
    "tanh": Task(lambda x: nl.tanh(wide(x)), np.tanh, ONE, FLAT),
    "gelu": Task(gelu, gelu_reference, ONE, FLAT),
    "many adds": Task(many_adds, lambda x: 21 * x, ONE, FLAT),
    "a chain": Task(chain, chain_reference, ONE, FLAT),
    "a polynomial": Task(stencil, stencil_reference, ONE, FLAT),
    "a chain in the arguments' dtype": Task(
        narrow_chain, lambda a, b: ((a + b) * 0.3 - b + a) * 0.7, PAIR, FLAT
    ),
    "softmax": Task(softmax, softmax_of, ONE, {**LONG, "N": sizes(2, 640)}),
    "a sum of rows": Task(
        lambda x: nl.sum(wide(x), axis=1, keepdims=True),
        lambda x: x.sum(axis=1, keepdims=True),
        ONE,
        LONG,
        lambda x: (x.shape[0], 1),
    ),
    "a product": Task(
        product,
        product_reference,
        {"a": "K M", "b": "K N"},
        {"K": multiples(128, at_most=2048), "M": sizes(1, 8), "N": sizes(1, 32)},
        lambda a, b: (a.shape[1], b.shape[1]),
    ),
}


COARSE = {
    "add": {"float32": 18, "bfloat16": 6, "float16": 9},
    "multiply": {"float32": 18, "bfloat16": 5, "float16": 8},
    "tanh": {"float32": 18, "bfloat16": 6, "float16": 9},
    "gelu": {"float32": 18, "bfloat16": 5, "float16": 8},
    "many adds": {"float32": 18, "bfloat16": 6, "float16": 9},
    "a chain in the arguments' dtype": {"float32": 18, "bfloat16": 5, "float16": 8},
    "softmax": {"float32": 16, "bfloat16": 5, "float16": 8},
    "a sum of rows": {"float32": 18, "bfloat16": 6, "float16": 9},
    "a product": {"float32": 17, "bfloat16": 5, "float16": 8},
}
"""Bits of a result that are too few, by task and dtype."""


def reasons(spec: KernelSpec, count: int, *, first: bool = False) -> list[str]:
    """Return the messages of the drawn cases that fail; of the first one alone if ``first``."""
    runner = StrictRunner((EmbeddedSimulator(),))
    found: list[str] = []

    def ends(case: Any) -> bool:
        try:
            runner.check(spec, case)
        except DifferentialFailure as failure:
            found.append(str(failure))
        return first and bool(found)

    drawn(spec, count, 3, ends)
    return found


@every("dtype", BITS)
@every("name", TASKS)
def test_an_honest_kernel_keeps_its_digits(name, dtype):
    assert not reasons(TASKS[name].spec(dtype), CASES)


@every("dtype", BITS)
@every("name", COARSE)
def test_a_result_of_fewer_bits_is_too_coarse(name, dtype):
    spec = TASKS[name].spec(dtype, COARSE[name][dtype])
    (reason,) = reasons(spec, 2 * CASES, first=True)
    assert "the arithmetic is too coarse" in reason


def test_the_exact_run_alone_excuses_a_result_of_fewer_bits(monkeypatch):
    monkeypatch.setattr("difftest.tools.verdict.digits.lost_digits", lambda *_: None)
    assert not reasons(TASKS["add"].spec("float32", 14), CASES)


@every(
    "name,terms",
    {"add": 1, "softmax": 128, "a sum of rows": 128, "a product": 256}.items(),
)
def test_the_reference_shows_how_many_terms_an_element_has(name, terms):
    task = TASKS[name]
    values = {"P": 64, "N": 128} if "P" in task.domain else {"K": 256, "M": 4, "N": 8}
    if name == "add":
        values = {"P": 64, "N": 32}
    spec = task.spec("float32")
    data = dict.fromkeys(spec.inputs, Random(1, 0))
    reference = evaluate_reference(spec, Case(values, "float32", data))
    assert sums_of(reference, 0).terms == terms


@every("name", TASKS)
def test_each_limit_is_above_the_one_before_and_the_first_asks_no_reference(name):
    task = TASKS[name]
    calls: list[object] = []

    def counted(*arrays):
        calls.append(arrays)
        return task.reference(*arrays)

    values = {"P": 5, "N": 300} if "P" in task.domain else {"K": 256, "M": 4, "N": 8}
    spec = replace(task, reference=counted).spec("float32")
    data = dict.fromkeys(spec.inputs, Random(1, 0))
    reference = evaluate_reference(spec, Case(values, "float32", data))
    exact = reference.values[0]
    calls.clear()
    limits = []
    for limit in allowances(reference, 0, exact):
        limits.append(limit)
        assert bool(calls) == (len(limits) > 1)
    for before, after in pairwise(limits):
        assert all(one <= other for one, other in zip(before, after, strict=True))


@every("name", ("a sum of rows", "a product", "softmax"))
def test_the_error_of_sums_in_order_is_measured_if_the_reference_adds(name):
    task = TASKS[name]
    values = {"P": 4, "N": 512} if "P" in task.domain else {"K": 512, "M": 4, "N": 8}
    spec = task.spec("float32")
    data = dict.fromkeys(spec.inputs, Random(1, 0))
    found = error_in_order(evaluate_reference(spec, Case(values, "float32", data)), 0)
    if name == "softmax":
        assert found is None
    else:
        assert found is not None
        assert 0.5 < found < 0.5 * 512**0.5
