"""The current dialect in plain mode: calls that the fuzzer does not draw, and rejections."""

import warnings

import numpy as np
import pytest

from difftest.simulator import KernelError, NkiError, launch
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.levels import LevelWarning
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
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
    out = nl.zeros((4, 24), nl.float32)
    start = nisa.register_alloc()
    nisa.register_move(start, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelWarning)
        for i in nl.dynamic_range(start, 9, 3):
            nisa.tensor_copy(out.select(1, i), x.select(1, i))
    return out


def partly_negative_zeros(x):
    kept = nl.copy(x)
    nisa.memset(kept[:, 0:9], -0.0)
    return into(
        (1, 24), nl.float32, lambda t: nisa.tensor_partition_reduce(t, nl.add, kept)
    )


def product_of_subnormals(x):
    small = nl.multiply(x, 1e-23)
    made = tile((24, 24), buffer=nl.psum)
    nisa.nc_matmul(made, small, small)
    return nl.copy(made)


def sum_into_its_own_result(x):
    made = tile()
    adds = {"reduce_op": nl.add, "reduce_cmd": nisa.reduce_cmd.reset_reduce}
    nisa.activation(made, nl.copy, x, reduce_res=made[:, 2:3], **adds)
    return made


def cumulative_over_two_calls(x):
    command = nisa.reduce_cmd
    first, second = tile(), tile()
    for made, how in ((first, command.reset_reduce), (second, command.reduce)):
        nisa.tensor_scalar_cumulative(made, x, nl.multiply, nl.add, 1.0, reduce_cmd=how)
    return second


CALLS = {
    "a hole that a copy moves and fills": lambda x: into(
        (4, 7),
        nl.float32,
        lambda t: [
            nisa.tensor_copy(t[:, 0:4], x[:, 0:4]),
            nisa.tensor_copy(t[:, 3:7], t[:, 1:5]),
        ],
    )[:, 0:6],
    "E8M0 has no zero": lambda x: into(
        (4, 24),
        nl.float8_e8m0fnu,
        lambda t: [nisa.memset(t, 2), nisa.memset(t[:, 0:3], 0)],
    ).view(nl.uint8),
    "a sum of -0.0": partly_negative_zeros,
    "a product of subnormals": product_of_subnormals,
    "results that overlap": sum_into_its_own_result,
    "a second cumulative sum continues the first": cumulative_over_two_calls,
    "nonzero_with_count": lambda x: into(
        (4, 25),
        nl.int32,
        lambda t: [nisa.memset(t, 7), nisa.nonzero_with_count(t, x, 5)],
    ),
    "while_loop": counted_down,
    "dynamic_range": in_older_loops,
    "nl.zeros_like": lambda x: nl.add(nl.zeros_like(x, nl.float32), x),
    "what a launch is asked": lambda x: nl.full(
        (2, 2 + nl.num_programs() + nl.program_id(0) + nl.is_sbuf(x.buffer)),
        float(int(nisa.get_nc_version())),
        nl.float32,
    ),
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
    assert np.unique(plain).size > 1 or name == "what a launch is asked"


WRONG = [
    lambda x: nisa.tensor_tensor(tile(), x, x[:, 0:1], nl.add),
    lambda x: nisa.tensor_tensor(tile((4, 12)), x, x, nl.add),
    lambda x: nisa.tensor_scalar(tile(), x, nl.add, None),
    lambda x: nisa.tensor_scalar(
        tile(), x, nl.add, nl.copy(x[:, 0:1], dtype=nl.float16)
    ),
    lambda x: nisa.tensor_scalar(tile(), x, nl.add, 1.0, operand1=2.0),
    lambda x: nisa.memset(tile(dtype=nl.int32), 1.5),
    lambda x: nisa.nc_matmul(tile((24, 24)), x, x),
    lambda x: nisa.nc_matmul(tile((24, 24), nl.bfloat16, nl.psum), x, x),
    lambda x: nisa.nc_matmul(tile((24, 24), buffer=nl.psum), x, x, accumulate=True),
    lambda x: nisa.nc_matmul(
        tile((24, 24), buffer=nl.psum), x, nl.copy(x, dtype=nl.bfloat16)
    ),
    lambda x: nisa.nc_matmul(tile((24, 600), buffer=nl.psum)[:, 500:524], x, x),
    lambda x: nisa.nc_transpose(tile((24, 4), nl.bfloat16, nl.psum), x),
    lambda x: nisa.dma_transpose(tile((24, 4, 1)), x),
    lambda x: nisa.tensor_copy(
        tile((4, 24), buffer=nl.psum), x, engine=nisa.engine.gpsimd
    ),
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


def test_levels_hold_in_the_plain_mode_too():
    with pytest.raises(KernelError, match="exists until NKI"):
        launch(jit(lambda: nl.par_dim(4)), level="0.3", plain=True)
    with pytest.warns(LevelWarning, match="nl.par_dim ended"):
        launch(jit(lambda: [nl.par_dim(4)].clear()), plain=True)
