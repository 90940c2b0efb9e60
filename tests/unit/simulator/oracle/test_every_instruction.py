"""Every instruction in both modes, against NumPy: one use of each, after its API page."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator import launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions.record import INSTRUCTIONS
from tests.every import every
from tests.unit.simulator.instructions.calls.drawn import FORMS

ROWS, COLUMNS = 32, 16
X = (np.arange(ROWS * COLUMNS) * 7 % (ROWS * COLUMNS) - 256).reshape(ROWS, COLUMNS)
X = X.astype(np.float32)
"""No value twice; sums and products of a row are exact in float32."""
TOP = -np.sort(-X, axis=1)[:, :8]
PLACES = np.argsort(-X, axis=1)[:, :8]
COLUMN = np.arange(COLUMNS)
LEAST = np.finfo(np.float32).min


def along_rows(count=ROWS):
    return nl.arange(count)[:, None]


def along_columns(count=COLUMNS):
    return nl.arange(count)[None, :]


def reversed_rows():
    return nisa.iota(ROWS - 1 - along_rows(), dtype=nl.int32)


def zeros(columns=COLUMNS):
    return nl.zeros((ROWS, columns), nl.float32)


def three():
    return nl.full((1, 1), 3, nl.int32, buffer=nl.sbuf)


def dma_copy(t, h):
    tile = zeros(COLUMNS // 2)
    nisa.dma_copy(dst=tile, src=h[:, 1::2])
    return tile


def dma_scatter(t, h):
    out = nl.ndarray(h.shape, h.dtype, buffer=nl.shared_hbm)
    nl.store(out[reversed_rows(), along_columns()], t)
    return out


def gather_flattened(t, h):
    places = nisa.iota(COLUMNS - 1 - along_columns() + 0 * along_rows(), dtype=nl.uint32)
    return nl.gather_flattened(t, places)


def local_gather(t, h):
    places = nisa.iota(15 - along_rows(16), dtype=nl.uint16)
    return nisa.local_gather(t[0:16], places)


def nc_stream_shuffle(t, h):
    tile = zeros()
    nisa.nc_stream_shuffle(src=t, dst=tile, shuffle_mask=list(range(31, -1, -1)))
    return tile


def range_select(t, h):
    bounds = [nisa.memset((ROWS, 1), value, dtype=nl.float32) for value in (2, 5)]
    return nisa.range_select(
        on_true_tile=t,
        comp_op0=np.greater_equal,
        comp_op1=np.less,
        bound0=bounds[0],
        bound1=bounds[1],
    )


def select_reduce(t, h):
    tile = zeros(COLUMNS + 1)
    nisa.select_reduce(
        dst=tile[:, 1:],
        predicate=nl.less(t, 0),
        on_true=t,
        on_false=-300.0,
        reduce_res=tile[:, 0:1],
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
        reduce_op=np.max,
    )
    return tile


def sequence_bounds(t, h):
    i = nl.mgrid[0:1, 0:4, 0:4]
    ids = nisa.iota(i.x + i.p, dtype=nl.float32)  # four of 0, which is padding, of 1, 2 and 3
    return nisa.sequence_bounds(segment_ids=ids.reshape((1, 16)))


def tensor_copy_dynamic_dst(t, h):
    tile = zeros()
    nisa.tensor_copy_dynamic_dst(dst=tile[along_rows(), along_columns(4) + three()], src=t[:, 0:4])
    return tile


def tensor_copy_predicated(t, h):
    tile = zeros()
    nisa.tensor_copy_predicated(src=t, dst=tile, predicate=nl.greater(t, 0, dtype=nl.uint8))
    return tile


def tensor_scalar_reduce(t, h):
    total = zeros(1)
    nisa.tensor_scalar_reduce(
        data=t, op0=np.multiply, operand0=2.0, reduce_op=np.add, reduce_res=total
    )
    return total


def statistics(half):
    """What bn_stats gives of every second element: their number, mean, and variance times it."""
    return np.stack([np.full(ROWS, 8), half.mean(axis=1), half.var(axis=1) * 8], axis=1)


EXAMPLES = {
    "activation": (
        lambda t, h: nisa.activation(nl.relu, t, scale=2.0, bias=t[:, 0:1]),
        np.maximum(2 * X + X[:, :1], 0),
    ),
    "affine_select": (
        lambda t, h: nisa.affine_select(
            pred=along_columns() <= along_rows(), on_true_tile=t, on_false_value=-9.0
        ),
        np.where(np.arange(ROWS)[:, None] >= COLUMN, X, -9),
    ),
    "bn_aggr": (
        lambda t, h: nisa.bn_aggr(nisa.bn_stats(t)),
        np.stack([X.mean(axis=1), X.var(axis=1)], axis=1),
    ),
    "bn_stats": (
        lambda t, h: nisa.bn_stats(t),
        np.concatenate([statistics(X[:, 0::2]), statistics(X[:, 1::2])], axis=1),
    ),
    "dma_copy": (dma_copy, X[:, 1::2]),
    "dma_gather": (lambda t, h: nl.load(h[reversed_rows(), along_columns()]), X[::-1]),
    "dma_scatter": (dma_scatter, X[::-1]),
    "dma_transpose": (lambda t, h: nisa.dma_transpose(t), X.T),
    "dropout": (
        lambda t, h: nisa.dropout(t, 0.5),
        np.where(np.random.default_rng(0).random(X.shape, np.float32) >= 0.5, X, 0),
    ),
    "gather_flattened": (gather_flattened, X[:, ::-1]),
    "iota": (
        lambda t, h: nisa.iota(10 * along_rows() - along_columns(), dtype=nl.float32),
        10 * np.arange(ROWS)[:, None] - COLUMN,
    ),
    "local_gather": (local_gather, X[:16, ::-1, None]),
    "max8": (lambda t, h: nisa.max8(src=t), TOP),
    "memset": (lambda t, h: nisa.memset((4, 6), 2.5, dtype=nl.float32), np.full((4, 6), 2.5)),
    "nc_find_index8": (lambda t, h: nisa.nc_find_index8(data=t, vals=nisa.max8(src=t)), PLACES),
    "nc_match_replace8": (
        lambda t, h: nisa.nc_match_replace8(data=t, vals=nisa.max8(src=t), imm=-999.0),
        np.where(TOP[:, 7:] <= X, -999, X),
    ),
    "nc_matmul": (lambda t, h: nisa.nc_matmul(t[:, 0:8], t), X[:, :8].T @ X),
    "nc_stream_shuffle": (nc_stream_shuffle, X[::-1]),
    "nc_transpose": (lambda t, h: nisa.nc_transpose(t), X.T),
    "rand": (
        lambda t, h: nl.rand((4, 6)),
        np.random.default_rng(0).random((4, 6), np.float32),
    ),
    "range_select": (range_select, np.where((COLUMN >= 2) & (COLUMN < 5), X, LEAST)),
    "reciprocal": (lambda t, h: nisa.reciprocal(nl.abs(t) + 1), 1 / (np.abs(X) + 1)),
    "scalar_tensor_tensor": (
        lambda t, h: nisa.scalar_tensor_tensor(
            data=t, op0=np.multiply, operand0=3.0, op1=np.subtract, operand1=t, reverse1=True
        ),
        -2 * X,
    ),
    "select_reduce": (
        select_reduce,
        np.concatenate(
            [np.where(X < 0, X, -300).max(axis=1, keepdims=True), np.where(X < 0, X, -300)], axis=1
        ),
    ),
    "sequence_bounds": (
        sequence_bounds,
        np.repeat([[[16, 4, 8, 12], [-1, 8, 12, 16]]], 4, axis=2),
    ),
    "tensor_copy": (lambda t, h: nisa.tensor_copy(t[:, 2:5], dtype=nl.int32), X[:, 2:5]),
    "tensor_copy_dynamic_dst": (
        tensor_copy_dynamic_dst,
        np.pad(X[:, :4], ((0, 0), (3, COLUMNS - 7))),
    ),
    "tensor_copy_dynamic_src": (
        lambda t, h: nisa.tensor_copy_dynamic_src(t[along_rows(), along_columns(4) + three()]),
        X[:, 3:7],
    ),
    "tensor_copy_predicated": (tensor_copy_predicated, np.maximum(X, 0)),
    "tensor_partition_reduce": (
        lambda t, h: nisa.tensor_partition_reduce(np.add, t),
        X.sum(axis=0, keepdims=True),
    ),
    "tensor_reduce": (
        lambda t, h: nisa.tensor_reduce(np.max, t, axis=1, keepdims=True),
        X.max(axis=1, keepdims=True),
    ),
    "tensor_scalar": (
        lambda t, h: nisa.tensor_scalar(t, np.subtract, 1.0, True, op1=np.multiply, operand1=4.0),
        4 * (1 - X),
    ),
    "tensor_scalar_reduce": (tensor_scalar_reduce, 2 * X.sum(axis=1, keepdims=True)),
    "tensor_tensor": (lambda t, h: nisa.tensor_tensor(t, t, np.multiply), X * X),
    "tensor_tensor_scan": (
        lambda t, h: nisa.tensor_tensor_scan(
            nisa.memset((ROWS, COLUMNS), 1, dtype=nl.float32),
            t,
            initial=5.0,
            op0=np.multiply,
            op1=np.add,
        ),
        5 + np.cumsum(X, axis=1),
    ),
    "where": (lambda t, h: nl.where(nl.greater(t, 0), t, -1.0), np.where(X > 0, X, -1)),
}


def test_every_instruction_has_an_example():
    known = {name for name, record in INSTRUCTIONS.items() if record.classic}
    assert set(EXAMPLES) - FORMS.keys() == known


@every("name", sorted(EXAMPLES))
def test_an_instruction_in_both_modes(name):
    compute, expected = EXAMPLES[name]

    def kernel(x):
        result = compute(nl.load(x), x)
        if result._space is nl.shared_hbm.space:
            return result
        out = nl.ndarray(result.shape, result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    fast, plain = (launch(kernel, [X.copy()], plain=plain) for plain in (False, True))
    assert name in {event.opcode for event in fast.trace}
    assert_array_equal(fast.outputs[0], plain.outputs[0], strict=True)
    assert_allclose(plain.outputs[0], expected, rtol=2e-6)
    assert fast.unwritten == plain.unwritten == (None,)
