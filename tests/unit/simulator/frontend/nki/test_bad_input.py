"""Misuse of `nki.isa` and of tensors in the current dialect: one clear error each."""

import numpy as np

from difftest.simulator import TRN1, DtypeError, KernelError, ShapeError
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import raised, tile


@every(
    "compute, kind, text",
    [
        (
            lambda: nisa.nc_matmul(
                tile((8, 8), buffer=nl.psum),
                tile((4, 8)),
                tile((4, 8)),
                accumulate=np.ones(2),
            ),
            KernelError,
            "True, False or None",
        ),
        (
            lambda: nisa.tensor_copy(None, tile((2, 2))),
            KernelError,
            "takes a tile as dst",
        ),
        (
            lambda: nisa.tensor_copy(tile((2, 2)), tile((2, 2)), engine=5),
            KernelError,
            "engine=5",
        ),
        (
            lambda: nisa.scalar_tensor_tensor(
                tile((4, 8), nl.int32),
                tile((4, 8), nl.int32),
                nl.bitwise_and,
                1,
                nl.bitwise_or,
                tile((4, 8), nl.int32),
            ),
            KernelError,
            "arithmetic operators",
        ),
        (lambda: nl.ndarray((2, 0), nl.float32), ShapeError, "positive sizes"),
        (
            lambda: nl.ndarray((2, 2.5), nl.float32),
            KernelError,
            "dialect tensor.ap(..., scalar",
        ),
        (
            lambda: nl.ndarray((2, 2), nl.float32, buffer="dram"),
            KernelError,
            "nl.sbuf, nl.psum",
        ),
        (lambda: nl.ndarray((2, 2), "float64"), DtypeError, "float8_e4m3fn, "),
        (
            lambda: nl.add(tile((2, 2), nl.float8_e8m0fnu), tile((2, 2), nl.int32)),
            DtypeError,
            "to compute in float8_e8m0fnu",
        ),
        (
            lambda: nisa.tensor_scalar(tile((4, 8)), tile((4, 8)), nl.add, None),
            KernelError,
            "beside",
        ),
        (
            lambda: nisa.iota(tile((4, 8), nl.int32), [1, 8]),
            KernelError,
            "list of [step, num]",
        ),
        (
            lambda: nisa.dma_copy(
                tile((4, 8), nl.bfloat16), tile((4, 8)), dge_mode=nisa.dge_mode.hwdge
            ),
            DtypeError,
            "does not cast",
        ),
        (
            lambda: nisa.dma_copy(tile((4, 8)), tile((4, 8)), engine=nisa.engine.sync),
            KernelError,
            "dge_mode.hwdge only",
        ),
        (
            lambda: nisa.dma_copy(tile((4, 8)), tile((4, 8)), oob_mode=7),
            KernelError,
            "member of nki.isa.oob_mode",
        ),
        (
            lambda: nisa.dma_transpose(tile((8, 4), nl.bfloat16), tile((4, 8))),
            DtypeError,
            "src and dst of one dtype",
        ),
        (
            lambda: nisa.dma_transpose(
                tile((8, 4)), tile((4, 8)), dge_mode=nisa.dge_mode.hwdge
            ),
            KernelError,
            "2 bytes",
        ),
        (
            lambda: nisa.activation(
                tile((4, 8)), nl.exp, tile((4, 8)), reduce_res=tile((4, 1))
            ),
            KernelError,
            "nothing was accumulated",
        ),
        (lambda: nisa.no_such(1), AttributeError, "no_such"),
        (lambda: nl.arange(4), AttributeError, "no index tensors; index with slices"),
        (
            lambda: tile((2, 2)).sum(axis=1),
            AttributeError,
            "as NumPy's arrays have: use nki.lang",
        ),
        (
            lambda: nl.add(nisa.memset(tile((2, 2)), 0), 1),
            KernelError,
            "result lies in its dst",
        ),
        (
            lambda: nisa.tensor_copy(tile((2, 2))),
            TypeError,
            "received: tile [2, 2] float32",
        ),
        (
            lambda: nl.affine_range(4, precise_schedule=True),
            TypeError,
            "'precise_schedule'",
        ),
    ],
)
def test_bad_input_is_one_clear_error(compute, kind, text):
    def body(x):
        compute()
        return x

    assert text in raised(kind, body, np.zeros((1, 1), np.float32))


@every(
    "does, text",
    [
        (
            lambda x: nisa.tensor_copy(tile((2, 2)), x, engine=nisa.engine.scalar),
            "tensor_copy does not support engine.scalar on NeuronCore-v2 (Trn1/Inf2).",
        ),
        (
            lambda x: nisa.activation(
                tile((2, 2)), nl.reciprocal, x, bias=tile((2, 1))
            ),
            "no bias of reciprocal on NeuronCore-v2",
        ),
    ],
)
def test_operations_that_the_scalar_engine_of_trn1_lacks_are_rejected(does, text):
    arguments = np.ones((2, 2), np.float32)
    assert text in raised(KernelError, lambda x: does(x) and x, arguments, machine=TRN1)
