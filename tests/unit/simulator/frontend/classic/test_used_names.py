"""Each name that kernels in the wild use works as documented; NumPy is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator import Engine, Space, launch
from difftest.simulator.frontend import kernel as nki
from difftest.simulator.frontend.classic import compiler as ncc
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.frontend.classic.used_names import USED
from tests.unit.simulator.on_tiles import integers, normal, on_tiles

A, B = normal(8, 12), normal(8, 12, seed=1)
COLUMN, ROW = normal(8, 1, seed=2), normal(1, 12, seed=3)
POSITIVE = np.abs(A) + np.float32(0.5)
N, M = (integers(8, 12, low=0, high=2**20, dtype=np.int32, seed=k) for k in (4, 5))
BITS = integers(8, 12, low=0, high=2**31, dtype=np.uint32, seed=6)
SHIFTS = integers(8, 12, low=0, high=31, dtype=np.uint32, seed=7)


class Use(NamedTuple):
    """A computation on tiles and what it must give, exactly unless ``near``."""

    compute: Callable[..., Any]
    arrays: tuple[Any, ...]
    expected: Any
    near: bool = False
    grid: tuple[int, ...] = ()


def in_memory(buffer):
    """A tile written to a new tensor in that memory and read back."""

    def compute(x):
        tensor = nl.ndarray((8, 12), nl.float32, buffer=buffer)
        if buffer in (nl.sbuf, nl.psum):
            tensor[...] = nisa.tensor_copy(x)
            return nl.copy(tensor)
        nl.store(tensor, x)
        return nl.load(tensor)

    return Use(compute, (A,), A)


def loop(kind):
    def compute(x):
        result = nl.ndarray((8, 12), nl.float32)
        for i in kind(3):
            for j in kind(0, 4, 2):
                part = nl.ds(4 * i + j, 2)
                result[:, part] = nl.multiply(x[:, part], float(i + 1))
        return result

    return Use(compute, (A,), A * np.repeat([1, 2, 3], 4).astype(np.float32))


def blocks(x):
    tensor = nl.ndarray((3, nl.par_dim(8), 4), nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(3):
        tensor[i] = nl.copy(x[:, nl.ds(4 * i, 4)])
    return tensor[0], tensor[2, :, 1:3]


def reduced_over_a_loop(x):
    total = nl.zeros((8, 4), nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(3):
        total[...] = nl.loop_reduce(x[:, nl.ds(4 * i, 4)], op=np.add, loop_indices=[i])
    return total


def identity_matmul(x):
    identity = nl.load(nl.shared_constant(np.identity(8, np.int8), dtype=nl.float32))
    return nisa.nc_matmul(identity, x)


def zeros_of_numpy(_):
    return nl.load(nl.shared_constant(np.zeros((8, 12), np.int32)))


def typed(dtype):
    return Use(lambda x: nl.copy(x, dtype=dtype), (A * 100,), _cast(A * 100, dtype))


def _cast(array, dtype):
    rounded = np.rint(array) if np.dtype(dtype).kind in "iu" else array
    if np.dtype(dtype).kind == "u":
        rounded = np.maximum(rounded, 0)
    return rounded.astype(dtype)


def constant(name, value):
    """A tile size: a tile as large as it says."""
    columns = min(value, 12)
    return Use(
        lambda x: nl.copy(x[:, 0 : min(getattr(nl.tile_size, name), 12)]), (A,), A[:, :columns]
    )


def on_engine(engine):
    return Use(lambda x: nisa.nc_transpose(x, engine=engine), (A,), A.T)


def doubled_inside(x):
    """A kernel called by a kernel."""

    @nki.jit
    def double(tile):
        return nl.multiply(tile, 2.0)

    return double(x)


@ncc.skip_middle_end_transformations
@nki.jit
def marked(tile):
    return nl.multiply(tile, 2.0)


def top(array, count=8):
    return -np.sort(-array, axis=1)[:, :count]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


P, X = nl.arange(8)[:, None], nl.arange(6)[None, :]
GRID = nl.mgrid[0:8, 0:6]
SCAN = np.empty_like(A)
_state = np.zeros(8, np.float32)
for _k in range(12):
    _state = SCAN[:, _k] = A[:, _k] * _state + B[:, _k]

USES = {
    "nl.ndarray": in_memory(nl.sbuf),
    "nl.affine_range": loop(nl.affine_range),
    "nki.jit": Use(doubled_inside, (A,), 2 * A),
    "nl.sbuf": in_memory(nl.sbuf),
    "nl.zeros": Use(lambda _: nl.zeros((8, 3), nl.int32), (A,), np.zeros((8, 3), np.int32)),
    "nl.psum": in_memory(nl.psum),
    "nl.tile_size.pmax": constant("pmax", 128),
    "nl.float32": typed(nl.float32),
    "nl.add": Use(nl.add, (A, ROW), A + ROW),
    "nl.hbm": in_memory(nl.hbm),
    "nl.load": Use(lambda x: x, (A,), A),
    "nl.copy": Use(nl.copy, (A,), A),
    "nl.store": in_memory(nl.private_hbm),
    "nl.tile_size.gemm_moving_fmax": constant("gemm_moving_fmax", 512),
    "nisa.nc_matmul": Use(nisa.nc_matmul, (A, B), A.T @ B, near=True),
    "nisa.nc_transpose": Use(nisa.nc_transpose, (A,), A.T),
    "nl.max": Use(lambda x: nl.max(x, axis=1), (A,), A.max(1, keepdims=True)),
    "nl.matmul": Use(nl.matmul, (A, np.ascontiguousarray(B.T)), A @ B.T, near=True),
    "nl.par_dim": Use(blocks, (A,), (A[:, 0:4], A[:, 9:11])),
    "nisa.dma_copy": in_memory(nl.shared_hbm),
    "nl.tile_size.gemm_stationary_fmax": constant("gemm_stationary_fmax", 128),
    "nl.arange": Use(lambda x: nl.copy(x[P, 2 * X + 1]), (A,), A[:, 1::2]),
    "nisa.tensor_reduce": Use(
        lambda x: nisa.tensor_reduce(np.min, x, axis=[1], negate=True),
        (A,),
        -A.min(1, keepdims=True),
    ),
    "nisa.tensor_copy": Use(nisa.tensor_copy, (A,), A),
    "nl.sequential_range": loop(nl.sequential_range),
    "nisa.tensor_tensor": Use(lambda x, y: nisa.tensor_tensor(x, y, nl.subtract), (A, B), A - B),
    "nisa.tensor_scalar": Use(
        lambda x, c: nisa.tensor_scalar(x, np.multiply, c, op1=np.add, operand1=2.0),
        (A, COLUMN),
        A * COLUMN + 2,
    ),
    "ncc.skip_middle_end_transformations": Use(lambda x: marked(x), (A,), 2 * A),
    "nl.maximum": Use(nl.maximum, (A, B), np.maximum(A, B)),
    "nl.exp": Use(nl.exp, (A,), np.exp(A.astype(np.float64)), near=True),
    "nl.subtract": Use(nl.subtract, (A, COLUMN), A - COLUMN),
    "np.add": Use(lambda x, y: nisa.tensor_tensor(x, y, np.add), (A, B), A + B),
    "nl.sum": Use(lambda x: nl.sum(x, axis=[1]), (A,), A.sum(1, keepdims=True), near=True),
    "nl.mgrid": Use(lambda x: nl.copy(x[GRID.p, 11 - 2 * GRID.x]), (A,), A[:, ::-1][:, ::2]),
    "nl.multiply": Use(nl.multiply, (A, B), A * B),
    "nl.shared_hbm": in_memory(nl.shared_hbm),
    "nl.load_transpose2d": Use(
        lambda x: nl.load_transpose2d(nl.shared_constant(A)), (A,), A.T
    ),
    "np.float32": typed(np.float32),
    "nisa.max8": Use(lambda x: nisa.max8(src=x), (A,), top(A)),
    "nisa.nc_find_index8": Use(
        lambda x: nisa.nc_find_index8(data=x, vals=nisa.max8(src=x)),
        (A,),
        np.argsort(-A, axis=1)[:, :8].astype(np.uint32),
    ),
    "nl.divide": Use(nl.divide, (A, POSITIVE), A / POSITIVE),
    "np.max": Use(
        lambda x: nisa.tensor_reduce(np.max, x, axis=[1]), (A,), A.max(1, keepdims=True)
    ),
    "nisa.activation": Use(
        lambda x, c: nisa.activation(op=nl.square, data=x, bias=c, scale=0.5),
        (A, COLUMN),
        np.square(A * np.float32(0.5) + COLUMN),
    ),
    "nl.bfloat16": typed(ml_dtypes.bfloat16),
    "nl.program_id": Use(
        lambda x: nl.multiply(x, float(nl.program_id(0))), (A,), 2 * A, grid=(3,)
    ),
    "nl.static_range": loop(nl.static_range),
    "nl.transpose": Use(nl.transpose, (A,), A.T),
    "np.int32": typed(np.int32),
    "nisa.vector_engine": on_engine(nisa.vector_engine),
    "nl.square": Use(nl.square, (A,), np.square(A)),
    "nl.shared_constant": Use(identity_matmul, (A,), A),
    "np.multiply": Use(lambda x, y: nisa.tensor_tensor(x, y, np.multiply), (A, B), A * B),
    "nisa.reciprocal": Use(nisa.reciprocal, (POSITIVE,), np.float32(1) / POSITIVE),
    "nl.rsqrt": Use(nl.rsqrt, (POSITIVE,), POSITIVE.astype(np.float64) ** -0.5, near=True),
    "nisa.tensor_tensor_scan": Use(
        lambda x, y: nisa.tensor_tensor_scan(x, y, initial=0, op0=np.multiply, op1=np.add),
        (A, B),
        SCAN,
    ),
    "nl.full": Use(
        lambda _: nl.full((8, 3), -1.5, nl.float32), (A,), np.full((8, 3), -1.5, np.float32)
    ),
    "nl.ds": Use(lambda x: nl.copy(x[nl.ds(2, 3), nl.ds(4, 5)]), (A,), A[2:5, 4:9]),
    "nl.relu": Use(nl.relu, (A,), np.maximum(A, 0)),
    "np.identity": Use(identity_matmul, (B,), B),
    "nl.loop_reduce": Use(
        reduced_over_a_loop, (A,), A[:, 0:4] + A[:, 4:8] + A[:, 8:12]
    ),
    "np.dtype": typed(np.dtype("int16")),
    "nl.int32": typed(nl.int32),
    "nisa.iota": Use(
        lambda _: nisa.iota(6 * P + X, nl.int32), (A,), np.arange(48, dtype=np.int32).reshape(8, 6)
    ),
    "nisa.scalar_tensor_tensor": Use(
        lambda x, y, c: nisa.scalar_tensor_tensor(
            data=x, op0=np.multiply, operand0=c, op1=np.add, operand1=y
        ),
        (A, B, COLUMN),
        A * COLUMN + B,
    ),
    "nl.minimum": Use(nl.minimum, (A, B), np.minimum(A, B)),
    "nl.broadcast_to": Use(
        lambda r: nl.broadcast_to(r, shape=(8, 12)), (ROW,), np.repeat(ROW, 8, axis=0)
    ),
    "nisa.memset": Use(
        lambda _: nisa.memset((8, 3), 2.5, nl.float32), (A,), np.full((8, 3), 2.5, np.float32)
    ),
    "nl.right_shift": Use(nl.right_shift, (BITS, SHIFTS), BITS >> SHIFTS),
    "nl.where": Use(lambda x, y: nl.where(x > y, x, y), (A, B), np.maximum(A, B)),
    "nl.bitwise_and": Use(nl.bitwise_and, (N, M), N & M),
    "nisa.tensor_engine": on_engine(nisa.tensor_engine),
    "np.uint32": typed(np.uint32),
    "nl.silu": Use(nl.silu, (A,), A * sigmoid(A.astype(np.float64)), near=True),
    "nl.ones": Use(lambda _: nl.ones((8, 3), nl.uint8), (A,), np.ones((8, 3), np.uint8)),
    "nl.tile_size.psum_fmax": constant("psum_fmax", 512),
    "np.min": Use(
        lambda x: nisa.tensor_reduce(np.min, x, axis=[1]), (A,), A.min(1, keepdims=True)
    ),
    "nl.sqrt": Use(nl.sqrt, (POSITIVE,), np.sqrt(POSITIVE)),
    "np.zeros": Use(zeros_of_numpy, (A,), np.zeros((8, 12), np.int32)),
    "nl.sigmoid": Use(nl.sigmoid, (A,), sigmoid(A.astype(np.float64)), near=True),
    "nl.negative": Use(nl.negative, (A,), -A),
    "np.exp": Use(
        lambda x: nisa.activation(np.exp, x), (A,), np.exp(A.astype(np.float64)), near=True
    ),
}  # fmt: skip


def test_every_name_has_a_use():
    assert set(USES) == set(USED)
    assert len(USED) == 81
    assert min(USED.values()) >= 2


@every("name", USED)
def test_a_name_that_kernels_use(name):
    use = USES[name]
    results = on_tiles(use.compute, *use.arrays, grid=use.grid)
    pairs = [(results, use.expected)]
    if isinstance(use.expected, tuple):
        pairs = list(zip(results, use.expected, strict=True))
    for result, expected in pairs:
        if use.near:
            assert result.dtype == np.float32
            assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
        else:
            assert_array_equal(result, expected, strict=True)


def test_the_constants():
    sizes = nl.tile_size
    assert (sizes.pmax, sizes.psum_fmax) == (128, 512)
    assert (sizes.gemm_stationary_fmax, sizes.gemm_moving_fmax) == (128, 512)
    assert (sizes.bn_stats_fmax, sizes.sbuf_min_align, sizes.psum_min_align) == (512, 1, 4)
    assert sizes.total_available_sbuf_size == (224 - 16) * 1024


def test_the_memories():
    spaces = {
        nl.sbuf: Space.SBUF,
        nl.psum: Space.PSUM,
        nl.hbm: Space.PRIVATE_HBM,
        nl.private_hbm: Space.PRIVATE_HBM,
        nl.shared_hbm: Space.SHARED_HBM,
    }

    def kernel():
        for buffer, space in spaces.items():
            assert nl.ndarray((2, 2), nl.float32, buffer=buffer)._space is space
        assert nl.ndarray((2, 2), nl.float32)._space is Space.SBUF

    launch(kernel)


def test_the_engines():
    def kernel(x):
        tile = nl.load(x)
        for engine in (nisa.tensor_engine, nisa.vector_engine, nisa.unknown_engine):
            nisa.nc_transpose(tile, engine=engine)

    events = launch(kernel, [A]).trace.events[1:]
    assert [event.engine for event in events] == [Engine.TENSOR, Engine.VECTOR, Engine.TENSOR]


def test_program_id():
    def kernel(x):
        out = nl.ndarray((8, 12), nl.float32, buffer=nl.shared_hbm)
        i, j = nl.program_id(0), nl.program_id(1)
        part = nl.ds(4 * i, 4), nl.ds(6 * j, 6)
        nl.store(out[part], nl.multiply(nl.load(x[part]), float(10 * i + j)))
        return out

    factors = np.kron(np.array([[0, 1], [10, 11]]), np.ones((4, 6))).astype(np.float32)
    assert_array_equal(launch(kernel, [A], grid=(2, 2)).outputs[0], A * factors)
