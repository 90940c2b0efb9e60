"""Today's dialect in plain mode: the calls that the fuzzer does not draw, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from difftest.simulator import KernelError, NkiError, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.isa.arithmetic import TopKWarning
from difftest.simulator.frontend.nki.kernel import jit
from difftest.simulator.frontend.nki.levels import LevelWarning
from tests.every import every

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


def bounds(value):
    return into((4, 1), nl.float32, lambda t: nisa.memset(t, float(value)))


def gathered_in_cores(x):
    wide = into((16, 24), nl.float32, lambda t: nisa.iota(t, [[3, 24]], 0, 7))
    index = into((16, 1), nl.uint16, lambda t: nisa.iota(t, [[0, 1]], 1, 1))
    return into((16, 5, 2), nl.float32, lambda t: nisa.local_gather(t, wide, index, 2, 5))


def aggregated(x):
    stats = into((4, 6), nl.float32, lambda t: nisa.bn_stats(t, x))
    return into((4, 2), nl.float32, lambda t: nisa.bn_aggr(t, stats))


def reduced(x):
    total = tile((4, 1))
    nisa.tensor_scalar_reduce(tile(), x, nl.multiply, 2.0, nl.add, total)
    return total


def largest(x):
    wide = into((16, 6), nl.bfloat16, lambda t: nisa.iota(t, [[5, 6]], 0, 3))
    values, places = nl.zeros((16, 16), nl.bfloat16), nl.zeros((16, 16), nl.uint32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopKWarning)
        nisa.topk(values, places, wide, 90)
    return nl.add(nl.copy(values, dtype=nl.float32), nl.copy(places, dtype=nl.float32))


def counted_down(x):
    kept, left = nl.zeros((1, 1), nl.int32), nisa.register_alloc(3)
    out = nl.zeros((4, 24), nl.float32)

    def body(register):
        nisa.tensor_copy(out.select(1, register), x.select(1, register))
        nisa.register_store(kept, register)
        nisa.tensor_scalar(kept, kept, nl.subtract, 1)
        nisa.register_load(left, kept)
        return left

    nl.while_loop(left, body)
    return out


def in_older_loops(x):
    out, start = nl.zeros((4, 24), nl.float32), nisa.register_alloc()
    nisa.register_move(start, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelWarning)
        for i in nl.dynamic_range(start, 9, 3):
            nisa.tensor_copy(out.select(1, i), x.select(1, i))
    return out


CALLS = {
    "range_select": lambda x: into(
        (4, 24),
        nl.float32,
        lambda t: nisa.range_select(
            t, x, nl.greater_equal, nl.less, bounds(3), bounds(9), reduce_res=tile((4, 1))
        ),
    ),
    "local_gather": gathered_in_cores,
    "bn_aggr": aggregated,
    "tensor_scalar_reduce": reduced,
    "topk": largest,
    "sequence_bounds": lambda x: into(
        (1, 2, 24),
        nl.float32,
        lambda t: nisa.sequence_bounds(t, nl.copy(nl.greater(x[0:1], 8.0), dtype=nl.int32)),
    ),
    "nonzero_with_count": lambda x: into(
        (4, 25), nl.int32, lambda t: [nisa.memset(t, 7), nisa.nonzero_with_count(t, x, 5)]
    ),
    "while_loop": counted_down,
    "dynamic_range": in_older_loops,
    "nl.zeros_like": lambda x: nl.add(nl.zeros_like(x, nl.float32), x),
    "what a launch is asked": lambda x: nl.full(
        (2, 2 + nl.num_programs() + nl.program_id(0) + nl.is_sbuf(x.buffer)),
        float(int(nisa.get_nc_version())),
        nl.float32,
    ),
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


@every("name", CALLS)
def test_both_modes_agree(name):
    fast, plain = (result(CALLS[name], plain=mode) for mode in (False, True))
    assert fast.dtype == plain.dtype
    np.testing.assert_array_equal(fast, plain)
    assert np.unique(plain).size > 1 or name in ("nl.full", "nl.ones", "what a launch is asked")


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
    lambda x: nisa.nc_match_replace8(tile(), x, nl.full((4, 8), 99.0, nl.float32), 0.0),
    lambda x: nisa.nc_find_index8(tile((4, 8), nl.int32), x, x[:, 0:8]),
    lambda x: nisa.nc_n_gather(tile((4, 1)), x, nl.full((4, 1), 24, nl.uint32)),
    lambda x: nisa.affine_select(tile(), [[1, 23]], 1, x, 0.0),
    lambda x: nl.fori_loop(0, 4, lambda i: nisa.register_move(i, 3)),
    lambda x: nl.fori_loop(0, 4, lambda i: None, step=0),
    lambda x: nisa.register_load(nisa.register_alloc(), nl.zeros((1, 2), nl.int32)),
    lambda x: nisa.register_store(nl.zeros((1, 1), nl.int32), nisa.register_alloc()),
    lambda x: nisa.register_alloc(1 << 32),
    lambda x: int(nisa.register_alloc(1)),
]


@every("wrong", WRONG)
def test_both_modes_refuse(wrong):
    with pytest.raises(NkiError):
        result(lambda x: wrong(x) or x, plain=True)


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


def test_levels_hold_in_the_plain_mode_too():
    with pytest.raises(KernelError, match="exists until NKI"):
        launch(jit(lambda: nl.par_dim(4)), level="0.3", plain=True)
    with pytest.warns(LevelWarning, match="nl.par_dim ended"):
        launch(jit(lambda: [nl.par_dim(4)].clear()), plain=True)
