"""The same computation through both frontends gives the same bits, instruction by instruction."""

import numpy as np

from difftest.simulator.frontend.classic import isa as cisa
from difftest.simulator.frontend.classic import language as cl
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.instructions.record import INSTRUCTIONS
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles, values
from tests.unit.simulator.on_tiles import on_tiles

X, Y = values(32, 24), values(32, 24, seed=1)
V = values(32, 1, seed=2)
WORDS = np.random.default_rng(3).integers(-(2**31), 2**31, (32, 24)).astype(np.int32)
BITS = (X > 0).astype(np.uint8)
LOW, HIGH = np.full((32, 1), 3, np.float32), np.full((32, 1), 17, np.float32)
EIGHT = -np.sort(-X, axis=1)[:, :8]
PLACES = np.random.default_rng(4).integers(0, 24, (32, 2)).astype(np.uint16)
SEGMENTS = np.array([[1, 1, 2, 2, 2, 0, 0, 3]], np.float32)
ORDER = [*range(1, 32), 0]
FP32_MIN = float(np.finfo(np.float32).min)


def new(like, dtype=None, shape=None, buffer=nl.sbuf):
    return nl.ndarray(shape or like.shape, dtype or like.dtype, buffer=buffer)


def into(instruction, *args, dtype=None, shape=None, buffer=nl.sbuf, **kwargs):
    """Issue an instruction of today's dialect into a new tile, and return the tile."""
    first = next(arg for arg in (*args, *kwargs.values()) if isinstance(arg, nl.NkiTensor))
    dst = new(first, dtype, shape, buffer)
    instruction(dst, *args, **kwargs)
    return dst


def vector(instruction, *args, shape=(32, 1), **kwargs):
    """The same, with a reduce_res: both tiles."""
    data = next(arg for arg in (*args, *kwargs.values()) if isinstance(arg, nl.NkiTensor))
    dst, held = new(data), new(data, nl.float32, shape)
    instruction(dst, *args, reduce_res=held, **kwargs)
    return dst, held


def with_vector(instruction, *args, **kwargs):
    """A classic call with a reduce_res: both tiles."""
    held = cl.ndarray((32, 1), cl.float32, buffer=cl.sbuf)
    return instruction(*args, reduce_res=held, **kwargs), held


def predicated(x, y, p):
    dst = cl.copy(y)
    cisa.tensor_copy_predicated(src=x, dst=dst, predicate=p)
    return dst


def selected(x, p, y):
    dst, held = cl.ndarray(x.shape, x.dtype, buffer=cl.sbuf), cl.ndarray((32, 1), cl.float32)
    cisa.select_reduce(
        dst=dst, predicate=p, on_true=x, on_false=y, reduce_res=held,
        reduce_cmd=cisa.reduce_cmd.reset_reduce,
    )  # fmt: skip
    return dst, held


def shuffled(x):
    dst = cl.zeros(x.shape, x.dtype)
    cisa.nc_stream_shuffle(x, dst, ORDER)
    return dst


def nki_predicated(x, y, p):
    nisa.tensor_copy_predicated(y, x, p)
    return y


def nki_replaced(x, v):
    dst, places = new(x), new(x, nl.uint32, (32, 8))
    nisa.nc_match_replace8(dst, x, v, 0.5, dst_idx=places)
    return dst


def nki_shuffled(x):
    dst = nl.zeros(x.shape, x.dtype)
    nisa.nc_stream_shuffle(dst, x, ORDER)
    return dst


def index(shape):
    return cl.mgrid[0 : shape[0], 0 : shape[1]]


def affine_pred(x):
    i = index(x.shape)
    return i.p * 2 - i.x + 3 >= 0


CASES = {
    "tensor_tensor": (
        (X, Y),
        lambda x, y: cisa.tensor_tensor(x, y, cl.divide),
        lambda x, y: into(nisa.tensor_tensor, x, y, nl.divide),
    ),
    "tensor_tensor of integers": (
        (WORDS, WORDS[::-1].copy()),
        lambda x, y: cisa.tensor_tensor(x, y, cl.multiply),
        lambda x, y: into(nisa.tensor_tensor, x, y, nl.multiply),
    ),
    "tensor_tensor of integers, Vector Engine": (
        (WORDS, WORDS[::-1].copy()),
        lambda x, y: cisa.tensor_tensor(x, y, cl.add, engine=cisa.vector_engine),
        lambda x, y: into(nisa.tensor_tensor, x, y, nl.add, nisa.engine.vector),
    ),
    "tensor_tensor to bfloat16": (
        (X, Y),
        lambda x, y: cisa.tensor_tensor(x, y, cl.add, dtype=cl.bfloat16),
        lambda x, y: into(nisa.tensor_tensor, x, y, nl.add, dtype=nl.bfloat16),
    ),
    "tensor_scalar": (
        (X, V),
        lambda x, v: cisa.tensor_scalar(x, cl.subtract, v, True, cl.multiply, 1.7),
        lambda x, v: into(nisa.tensor_scalar, x, nl.subtract, v, True, nl.multiply, 1.7),
    ),
    "tensor_scalar of bits": (
        (WORDS,),
        lambda x: cisa.tensor_scalar(x, cl.bitwise_and, 0xFF, op1=cl.left_shift, operand1=3),
        lambda x: into(
            nisa.tensor_scalar, x, nl.bitwise_and, 0xFF, op1=nl.left_shift, operand1=3
        ),
    ),
    "scalar_tensor_tensor": (
        (X, Y),
        lambda x, y: cisa.scalar_tensor_tensor(
            data=x, op0=cl.multiply, operand0=1.3, op1=cl.subtract, operand1=y, reverse1=True
        ),
        lambda x, y: into(
            nisa.scalar_tensor_tensor, x, nl.multiply, 1.3, nl.subtract, y, reverse1=True
        ),
    ),
    "reciprocal": ((X,), cisa.reciprocal, lambda x: into(nisa.reciprocal, x)),
    "tensor_tensor_scan": (
        (X, Y, V),
        lambda x, y, v: cisa.tensor_tensor_scan(x, y, v, cl.multiply, cl.add),
        lambda x, y, v: into(nisa.tensor_tensor_scan, x, y, v, nl.multiply, nl.add),
    ),
    "dropout": (
        (X,),
        lambda x: cisa.dropout(x, 0.4),
        lambda x: into(nisa.dropout, x, 0.4),
    ),
    "bn_stats": ((X,), cisa.bn_stats, lambda x: into(nisa.bn_stats, x, shape=(32, 6))),
    "bn_aggr": ((X,), cisa.bn_aggr, lambda x: into(nisa.bn_aggr, x, shape=(32, 2))),
    "activation": (
        (X, V, V),
        lambda x, s, b: with_vector(
            cisa.activation, cl.exp, x, scale=s, bias=b, reduce_op=cl.add,
            reduce_cmd=cisa.reduce_cmd.reset_reduce,
        ),
        lambda x, s, b: vector(
            nisa.activation, nl.exp, x, b, s, nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce
        ),
    ),
    "activation_reduce": (
        (X,),
        lambda x: with_vector(cisa.activation_reduce, cl.tanh, x, reduce_op=cl.add),
        lambda x: vector(nisa.activation_reduce, nl.tanh, x, nl.add),
    ),
    "tensor_copy": (
        (X,),
        lambda x: cisa.tensor_copy(x, dtype=cl.float16),
        lambda x: into(nisa.tensor_copy, x, dtype=nl.float16),
    ),
    "tensor_copy_predicated": ((X, Y, BITS), predicated, nki_predicated),
    "memset": (
        (X,),
        lambda x: cisa.memset((32, 24), 0.1, cl.bfloat16),
        lambda x: into(lambda d, _: nisa.memset(d, 0.1), x, dtype=nl.bfloat16),
    ),
    "iota": (
        (X,),
        lambda x: cisa.iota(index((32, 24)).p * 3 + index((32, 24)).x * 2 + 5, cl.int32),
        lambda x: into(
            lambda d, _: nisa.iota(d, [[12, 4], [2, 6]], 5, 3), x, dtype=nl.int32
        ),
    ),
    "nc_matmul": (
        (X, Y),
        lambda x, y: cl.copy(cisa.nc_matmul(x, y), dtype=cl.float32),
        lambda x, y: into(nisa.nc_matmul, x, y, shape=(24, 24), buffer=nl.psum),
    ),
    "nc_transpose": (
        (X,),
        lambda x: cl.copy(cisa.nc_transpose(x)),
        lambda x: into(nisa.nc_transpose, x, shape=(24, 32), buffer=nl.psum),
    ),
    "nc_transpose, Vector Engine": (
        (X,),
        lambda x: cisa.nc_transpose(x, engine=cisa.vector_engine),
        lambda x: into(nisa.nc_transpose, x, shape=(24, 32)),
    ),
    "tensor_reduce": (
        (X,),
        lambda x: cisa.tensor_reduce(cl.add, x.reshape((32, 2, 12)), axis=[2], negate=True),
        lambda x: into(
            lambda d, t: nisa.tensor_reduce(
                d, nl.add, t.reshape((32, 2, 12)), axis=2, negate=True
            ),
            x,
            shape=(32, 2),
        ),
    ),
    "tensor_partition_reduce": (
        (X,),
        lambda x: cisa.tensor_partition_reduce(cl.max, x),
        lambda x: into(
            lambda d, t: nisa.tensor_partition_reduce(d, nl.maximum, t), x, shape=(1, 24)
        ),
    ),
    "tensor_scalar_reduce": (
        (X,),
        lambda x: with_vector(
            cisa.tensor_scalar_reduce,
            data=x, op0=cl.multiply, operand0=2.5, reduce_op=cl.add,
        ),
        lambda x: vector(nisa.tensor_scalar_reduce, x, nl.multiply, 2.5, nl.add),
    ),
    "affine_select": (
        (X,),
        lambda x: cisa.affine_select(affine_pred(x), x, -1.0),
        lambda x: into(
            lambda d, t: nisa.affine_select(d, [[-1, 24]], 2, t, -1.0, nl.greater_equal, 3), x
        ),
    ),
    "range_select": (
        (X, LOW, HIGH),
        lambda x, a, b: with_vector(
            cisa.range_select,
            on_true_tile=x, comp_op0=cl.greater_equal, comp_op1=cl.less, bound0=a, bound1=b,
            reduce_cmd=cisa.reduce_cmd.reset_reduce, on_false_value=FP32_MIN,
        ),
        lambda x, a, b: vector(nisa.range_select, x, nl.greater_equal, nl.less, a, b),
    ),
    "select_reduce": (
        (X, BITS, V),
        selected,
        lambda x, p, y: vector(
            nisa.select_reduce,
            on_true=x,
            predicate=p,
            on_false=y,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        ),
    ),
    "max8": ((X,), lambda x: cisa.max8(src=x), lambda x: into(nisa.max8, x, shape=(32, 8))),
    "nc_find_index8": (
        (X, EIGHT),
        lambda x, v: cisa.nc_find_index8(data=x, vals=v),
        lambda x, v: into(nisa.nc_find_index8, x, v, shape=(32, 8), dtype=nl.uint32),
    ),
    "nc_match_replace8": (
        (X, EIGHT),
        lambda x, v: cisa.nc_match_replace8(data=x, vals=v, imm=0.5),
        nki_replaced,
    ),
    "nc_stream_shuffle": ((X,), shuffled, nki_shuffled),
    "local_gather": (
        (X, PLACES),
        lambda x, i: cisa.local_gather(x, i),
        lambda x, i: into(nisa.local_gather, x, i, shape=(32, 32, 1)),
    ),
    "sequence_bounds": (
        (SEGMENTS,),
        lambda s: cisa.sequence_bounds(segment_ids=s),
        lambda s: into(nisa.sequence_bounds, s, shape=(1, 2, 8)),
    ),
    "dma_transpose": (
        (X,),
        lambda x: cisa.dma_transpose(x),
        lambda x: into(nisa.dma_transpose, x, shape=(24, 32)),
    ),
}  # fmt: skip


@every("name", CASES)
def test_both_dialects_agree_bit_for_bit(name):
    arrays, classic, newer = CASES[name]
    expected, actual = on_tiles(classic, *arrays), on_nki_tiles(newer, *arrays)
    pairs = zip(expected, actual, strict=True) if type(expected) is tuple else [(expected, actual)]
    for one, other in pairs:
        assert one.dtype == other.dtype
        assert one.size == other.size
        assert one.tobytes() == other.tobytes()


SEEN_ELSEWHERE = {
    "dma_copy": "each case loads and stores with it",
    "rand": "test_language",
    "gather_flattened": "nl.gather_flattened alone issues it",
    "where": "nl.where alone issues it",
    "tensor_copy_dynamic_src": "ended with NKI 0.4",
    "tensor_copy_dynamic_dst": "ended with NKI 0.4",
}


def test_each_instruction_has_a_case():
    named = {name.partition(" ")[0].rstrip(",") for name in CASES}
    assert named - {"activation_reduce"} | SEEN_ELSEWHERE.keys() == {
        name for name, record in INSTRUCTIONS.items() if record.classic
    }


def test_a_planted_difference_is_found(monkeypatch):
    """One bit of a constant that the newer frontend passes on wrongly."""
    arrays, classic, _ = CASES["tensor_scalar"]
    wrong = np.nextafter(np.float32(1.7), np.float32(2))
    actual = on_nki_tiles(
        lambda x, v: into(nisa.tensor_scalar, x, nl.subtract, v, True, nl.multiply, float(wrong)),
        *arrays,
    )
    assert on_tiles(classic, *arrays).tobytes() != actual.tobytes()
