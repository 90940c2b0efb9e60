import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator import ShapeError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles, written

BOUND = {"comp_op0": np.less, "comp_op1": np.less}
INTO = {  # name: an instruction of x [4, 6] with the second destination ``into``
    "activation": lambda x, into: nisa.activation(
        nl.copy, x, reduce_op=np.add, reduce_res=into, reduce_cmd=nisa.reduce_cmd.reset_reduce
    ),
    "activation_reduce": lambda x, into: nisa.activation_reduce(
        nl.copy, x, reduce_op=np.add, reduce_res=into
    ),
    "tensor_scalar_reduce": lambda x, into: nisa.tensor_scalar_reduce(
        data=x, op0=np.add, operand0=0.0, reduce_op=np.add, reduce_res=into
    ),
    "range_select": lambda x, into: nisa.range_select(
        on_true_tile=x, bound0=x[:, 0], bound1=x[:, 1], reduce_res=into, **BOUND
    ),
    "select_reduce": lambda x, into: nisa.select_reduce(
        dst=x, predicate=nl.ones((4, 6), nl.uint8), on_true=x, on_false=0.0, reduce_res=into,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    ),
}  # fmt: skip


@every("name", INTO)
@every("shape", [(4, 6), (1, 4), (1, 1), (4, 2), (5, 1)])
def test_a_reductions_destination_has_one_element_a_partition(name, shape):
    def compute(x):
        into = nl.zeros(shape, nl.float32)
        with pytest.raises(ShapeError) as caught:
            INTO[name](x, into)
        return nl.copy(x), into, str(caught.value.received), caught.value.rule

    texts = []

    def kernel(x):
        *tiles, received, rule = compute(nl.load(x))
        texts.extend((received, rule.split(" ", 1)[1]))
        return tuple(written(tile) for tile in tiles)

    data = normal(4, 6)
    unchanged, zeros = launch(kernel, [data]).outputs
    assert_array_equal(unchanged, data)
    assert not zeros.any()
    assert texts == [
        f"reduce_res = tile {list(shape)} float32 in sbuf",
        "writes reduce_res of shape [4, 1]",
    ]


def test_mean_and_var_and_softmax():
    data = normal(4, 50, dtype=np.float16)
    wide = data.astype(np.float64)
    mean, var, softmax = on_tiles(
        lambda x: (nl.mean(x, axis=1), nl.var(x, axis=1), nl.softmax(x, axis=1)), data
    )
    shares = np.exp(wide - wide.max(1, keepdims=True))
    assert mean.dtype == var.dtype == softmax.dtype == np.float16
    assert_allclose(mean[:, 0], wide.mean(1), rtol=1e-3, atol=1e-4)
    assert_allclose(var[:, 0], wide.var(1), rtol=1e-3)
    assert_allclose(softmax, shares / shares.sum(1, keepdims=True), rtol=1e-3)
