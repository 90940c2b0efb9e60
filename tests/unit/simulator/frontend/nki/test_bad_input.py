"""Misuse of `nki.isa` and of tensors in today's dialect: one clear error each."""

import numpy as np

from difftest.simulator import (
    TRN1,
    DtypeError,
    KernelError,
    NkiError,
    ShapeError,
)
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import raised, tile


@every(
    "compute, kind, text",
    [
        (
            lambda: nisa.nc_matmul(tile((8, 8), nl.bfloat16, nl.psum), tile((4, 8)), tile((4, 8))),
            DtypeError,
            "nc_matmul dst dtype must be float32 on gen3",
        ),
        (
            lambda: nisa.nc_matmul(
                tile((8, 8), buffer=nl.psum), tile((4, 8)), tile((4, 8), nl.bfloat16)
            ),
            DtypeError,
            "float32 and tfloat32 with each other only",
        ),
        (
            lambda: nisa.nc_matmul(tile((8, 9), buffer=nl.psum), tile((4, 8)), tile((4, 8))),
            ShapeError,
            "dst of shape [8, 8]",
        ),
        (
            lambda: nisa.nc_matmul(
                tile((8, 8), buffer=nl.psum), tile((4, 8)), tile((4, 8)), accumulate=2
            ),
            KernelError,
            "True, False or None",
        ),
        (lambda: nisa.tensor_copy(None, tile((2, 2))), KernelError, "takes a tile as dst"),
        (lambda: nisa.tensor_copy([1], tile((2, 2))), KernelError, "a tile as dst"),
        (lambda: nisa.tensor_copy(tile((2, 3)), tile((2, 2))), ShapeError, "dst of shape [2, 2]"),
        (lambda: nisa.tensor_copy(tile((2, 2)), tile((2, 2)), engine=5), KernelError, "engine=5"),
        (lambda: nl.ndarray((2, 0), nl.float32), ShapeError, "positive sizes"),
        (lambda: nl.ndarray((2, 2), nl.float32, buffer="dram"), KernelError, "nl.sbuf, nl.psum"),
        (lambda: nl.ndarray((2, 2), "float64"), DtypeError, "no such dtype"),
        (lambda: nisa.memset(tile((2, 2), nl.int32), 1.5), DtypeError, "dst's own kind"),
        (
            lambda: nisa.tensor_scalar(tile((4, 8)), tile((4, 8)), nl.add, tile((4, 1), nl.int32)),
            DtypeError,
            "'nisa.tensor_scalar_arith' op 'operand0' must be float32, got 'i32'",
        ),
        (
            lambda: nisa.tensor_scalar(tile((4, 8)), tile((4, 8)), nl.add, None),
            KernelError,
            "beside",
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
        (
            lambda: nisa.nc_transpose(tile((8, 4), nl.bfloat16, nl.psum), tile((4, 8))),
            DtypeError,
            "dtype of its data",
        ),
        (
            lambda: nisa.nc_transpose(tile((8, 4)), tile((4, 8)), engine=nisa.engine.tensor),
            NkiError,
            "takes dst in psum",
        ),
        (
            lambda: nisa.tensor_reduce(tile((4, 3)), nl.add, tile((4, 2, 3)), axis=1),
            ShapeError,
            "last consecutive axes",
        ),
        (lambda: nisa.iota(tile((4, 8), nl.int32), [[1, 4]]), ShapeError, "8 elements"),
        (lambda: nisa.iota(tile((4, 8), nl.int32), [1, 8]), KernelError, "list of [step, num]"),
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
        (lambda: nisa.dma_copy(tile((4, 8)), tile((4, 8)), priority=1), KernelError, "v4"),
        (
            lambda: nisa.dma_copy(tile((4, 8)), tile((4, 8)), oob_mode=7),
            KernelError,
            "member of nki.isa.oob_mode",
        ),
        (
            lambda: nisa.dma_transpose(tile((8, 4), nl.bfloat16), tile((4, 8))),
            DtypeError,
            "does not cast",
        ),
        (
            lambda: nisa.dma_transpose(tile((8, 4)), tile((4, 8)), dge_mode=nisa.dge_mode.hwdge),
            KernelError,
            "2 bytes",
        ),
        (lambda: nisa.dma_transpose(tile((8, 2, 2)), tile((4, 8))), ShapeError, "shape [8, 4]"),
        (
            lambda: nisa.tensor_scalar_reduce(
                tile((4, 8)),
                tile((4, 8)),
                nl.add,
                1.0,
                nl.add,
                reduce_cmd=nisa.reduce_cmd.load_reduce,
                reduce_init=tile((4, 1), nl.int32),
            ),
            DtypeError,
            "takes reduce_init of certain dtypes",
        ),
        (
            lambda: nisa.tensor_scalar_reduce(
                tile((4, 8)), tile((4, 8)), nl.add, 1.0, nl.add, reduce_init=0.0
            ),
            KernelError,
            "reduce_init with reduce_cmd.load_reduce",
        ),
        (
            lambda: nisa.tensor_scalar_reduce(
                tile((4, 8)),
                tile((4, 8)),
                nl.add,
                1.0,
                nl.add,
                reduce_cmd=nisa.reduce_cmd.idle,
            ),
            KernelError,
            "knows only some commands",
        ),
        (lambda: nisa.activation(tile((4, 8)), nl.add, tile((4, 8))), KernelError, "activation"),
        (
            lambda: nisa.activation(tile((4, 8)), nl.exp, tile((4, 8)), reduce_res=tile((4, 1))),
            KernelError,
            "nothing was accumulated",
        ),
        (lambda: nisa.no_such(1), AttributeError, "no_such"),
        (lambda: nisa.tensor_copy(tile((2, 2))), TypeError, "missing 1 required"),
        (lambda: nl.affine_range(4, precise_schedule=True), TypeError, "'precise_schedule'"),
    ],
)
def test_bad_input_is_one_clear_error(compute, kind, text):
    def body(x):
        compute()
        return x

    assert text in raised(kind, body, np.zeros((1, 1), np.float32))


def test_the_scalar_engine_of_trn1_copies_nothing():
    def compute(x):
        nisa.tensor_copy(tile((2, 2)), x, engine=nisa.engine.scalar)
        return x

    text = raised(KernelError, compute, np.ones((2, 2), np.float32), machine=TRN1)
    assert "tensor_copy does not support engine.scalar on NeuronCore-v2 (Trn1/Inf2)." in text
