"""The cost of adding and rounding as devices do, against instructions of the same size.

Each group holds an instruction that adds from the first element to the last, or rounds a
multiply-add once, and the same call with an operator to which neither matters.
"""

import numpy as np
import pytest

from difftest.simulator import launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl

CALLS = 8
SHAPE = (128, 512)

INSTRUCTIONS = {
    "tensor_reduce": {
        "maximum": lambda x, _: nisa.tensor_reduce(np.max, x, 1),
        "add": lambda x, _: nisa.tensor_reduce(np.add, x, 1),
    },
    "tensor_scalar_reduce": {
        op.__name__: lambda x, into, op=op: nisa.tensor_scalar_reduce(
            data=x, op0=np.multiply, operand0=2.0, reduce_op=op, reduce_res=into
        )
        for op in (np.maximum, np.add)
    },
    "activation_reduce": {
        "exp": lambda x, _: nisa.activation(nl.exp, x),
        "exp and add": lambda x, into: nisa.activation_reduce(
            nl.exp, x, reduce_op=np.add, reduce_res=into
        ),
    },
    "activation": {
        "scale": lambda x, _: nisa.activation(nl.copy, x, scale=3.0),
        "scale and bias": lambda x, into: nisa.activation(
            nl.copy, x, scale=3.0, bias=into
        ),
    },
}
CASES = [
    pytest.param(call, marks=pytest.mark.benchmark(group=name), id=f"{name}: {form}")
    for name, forms in INSTRUCTIONS.items()
    for form, call in forms.items()
]


@pytest.mark.parametrize("call", CASES)
def test_sums(benchmark, call):
    np.ones(2**23)  # or the C library takes each result from the system and returns it
    data = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)

    def kernel(x):
        tile = nl.load(x)
        into = nl.zeros((SHAPE[0], 1), nl.float32, buffer=nl.sbuf)
        for _ in range(CALLS):
            call(tile, into)

    benchmark.pedantic(
        lambda: launch(kernel, [data], record=False), rounds=300, warmup_rounds=3
    )
