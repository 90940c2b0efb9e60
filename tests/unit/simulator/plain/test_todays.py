"""Today's dialect in plain mode: the calls that the fuzzer does not draw, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from difftest.simulator import KernelError, NkiError, NotModelledError, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.kernel import jit
from difftest.simulator.frontend.nki.levels import LevelWarning

A = np.arange(96, dtype=np.float32).reshape(4, 24) * 7 % 31
A -= np.arange(4, dtype=np.float32)[:, None]


def tile(shape=(4, 24), dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype, buffer=buffer)


def into(shape, dtype, call):
    """A new tile that `call` fills."""
    made = tile(shape, dtype)
    call(made)
    return made


def masked(x):
    mask = into((4, 24), nl.uint8, lambda t: nisa.tensor_scalar(t, x, nl.greater, 3.0))
    kept = into((4, 24), nl.float32, lambda t: nisa.memset(t, 1.0))
    nisa.tensor_copy_predicated(kept, x, mask)
    return kept


CALLS = {
    "scalar_tensor_tensor": lambda x: into(
        (4, 12, 2),
        nl.bfloat16,
        lambda t: nisa.scalar_tensor_tensor(t, x, nl.multiply, 2.0, nl.subtract, x),
    ),
    "reciprocal": lambda x: into((4, 24), nl.float16, lambda t: nisa.reciprocal(t, nl.add(x, 4.5))),
    "tensor_copy_predicated": masked,
    "tensor_partition_reduce": lambda x: into(
        (1, 24), nl.float32, lambda t: nisa.tensor_partition_reduce(t, nl.add, x)
    ),
    "max8": lambda x: into((4, 8), nl.float32, lambda t: nisa.max8(t, x.reshape((4, 2, 12)))),
    "activation with bias and scale": lambda x: into(
        (4, 24),
        nl.float32,
        lambda t: nisa.activation(t, nl.relu, x, bias=x[:, 0:1], scale=0.5),
    ),
    "a unary operator": lambda x: into(
        (4, 24), nl.float32, lambda t: nisa.tensor_scalar(t, x, nl.logical_not, None)
    ),
    "nl.sum": lambda x: nl.sum(x, 1),
    "nl.max, dims kept": lambda x: nl.max(x, 1, keepdims=True),
    "nl.min": lambda x: nl.min(x, 1),
    "nl.square": lambda x: nl.square(x),
    "nl.maximum of two": lambda x: nl.maximum(x, nl.copy(x, dtype=nl.float32)),
    "nl.full": lambda x: nl.full((4, 24), 2.5, nl.bfloat16),
    "nl.ones": lambda x: nl.ones((4, 24), nl.int32),
}


def result(compute, *, plain):
    @jit
    def kernel(a):
        made = compute(nl.load(a))
        out = nl.ndarray(made.shape, made.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, made)
        return out

    return launch(kernel, (A,), plain=plain).outputs[0]


@pytest.mark.parametrize("name", CALLS)
def test_both_modes_agree(name):
    fast, plain = (result(CALLS[name], plain=mode) for mode in (False, True))
    assert fast.dtype == plain.dtype
    np.testing.assert_array_equal(fast, plain)
    assert np.unique(plain).size > 1 or name in ("nl.full", "nl.ones")


WRONG = [
    lambda x: nisa.tensor_tensor(tile(), x, x[:, 0:1], nl.add),
    lambda x: nisa.tensor_tensor(tile((4, 12)), x, x, nl.add),
    lambda x: nisa.tensor_scalar(tile(), x, nl.add, None),
    lambda x: nisa.tensor_scalar(tile(), x, nl.add, nl.copy(x[:, 0:1], dtype=nl.float16)),
    lambda x: nisa.tensor_scalar(tile(), x, nl.add, 1.0, operand1=2.0),
    lambda x: nisa.memset(tile(dtype=nl.int32), 1.5),
    lambda x: nisa.nc_matmul(tile((24, 24)), x, x),
    lambda x: nisa.nc_matmul(tile((24, 24), nl.bfloat16, nl.psum), x, x),
    lambda x: nisa.nc_matmul(tile((24, 24), buffer=nl.psum), x, x, accumulate=True),
    lambda x: nisa.nc_matmul(tile((24, 24), buffer=nl.psum), x, nl.copy(x, dtype=nl.bfloat16)),
    lambda x: nisa.nc_matmul(tile((24, 600), buffer=nl.psum)[:, 500:524], x, x),
    lambda x: nisa.nc_transpose(tile((24, 4), nl.bfloat16, nl.psum), x),
    lambda x: nisa.dma_transpose(tile((24, 4, 1)), x),
    lambda x: nisa.tensor_copy(tile((4, 24), buffer=nl.psum), x, engine=nisa.engine.gpsimd),
    lambda x: nisa.tensor_copy(tile(), tile()),
    lambda x: nl.ndarray((129, 4), nl.float32),
    lambda x: nisa.iota(tile(), [[1, 23]]),
    lambda x: nisa.tensor_copy(dst=tile(), src=x, mask=None),
    lambda x: x + x,
]


@pytest.mark.parametrize("wrong", WRONG)
def test_both_modes_refuse(wrong):
    for plain in (False, True):
        with pytest.raises(NkiError):
            result(lambda x: wrong(x) or x, plain=plain)


def test_inputs_are_written_in_place_and_left_alone_after_an_error():
    @jit
    def kernel(a, fails):
        nl.store(a, nl.add(nl.load(a), 1.0))
        if fails:
            raise LookupError

    array = A.copy()
    launch(kernel, (array, False), plain=True)
    np.testing.assert_array_equal(array, A + 1)
    with pytest.raises(LookupError):
        launch(kernel, (array, True), plain=True)
    np.testing.assert_array_equal(array, A + 1)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: nl.softmax(x),
        lambda x: nisa.tensor_scalar_reduce(
            tile(), x, nl.add, 1.0, nl.add, reduce_cmd=nisa.reduce_cmd.reduce
        ),
        lambda x: nisa.exponential(tile(), x),
        lambda x: nl.ndarray((4, 4), nl.float32, address=(0, 0)),
    ],
)
def test_what_the_plain_mode_lacks_raises(use):
    with pytest.raises(NotModelledError, match="plain mode"):
        result(lambda x: use(x) or x, plain=True)


def test_two_cores_are_not_in_the_plain_mode():
    with pytest.raises(NotModelledError, match="two cores"):
        launch(jit(lambda: None), grid=(2,), plain=True)


def test_levels_hold_in_the_plain_mode_too():
    with pytest.raises(KernelError, match="exists until NKI"):
        launch(jit(lambda: nl.par_dim(4)), level="0.3", plain=True)
    with pytest.warns(LevelWarning, match="nl.par_dim ended"):
        launch(jit(lambda: [nl.par_dim(4)].clear()), plain=True)
