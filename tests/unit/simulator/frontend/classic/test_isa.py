"""nisa's documented arguments that are not modelled: each raises, all are checked."""

import numpy as np
import pytest

from difftest.simulator import DtypeError, KernelError, NotModelledError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every

DATA = np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32)


def zeros(*shape, dtype=nl.float32):
    return nl.zeros(shape, dtype)


def rows(table):
    return table[nisa.iota(nl.arange(8)[:, None], nl.int32), nl.arange(16)[None, :]]


NOT_MODELLED = {
    "select_reduce's sum": lambda t, h: nisa.select_reduce(
        dst=t,
        predicate=zeros(32, 16, dtype=nl.uint8),
        on_true=t,
        on_false=0.0,
        reduce_op=np.add,
    ),
    "tensor_scalar_reduce's reverse0": lambda t, h: nisa.tensor_scalar_reduce(
        data=t,
        op0=np.add,
        operand0=1,
        reduce_op=np.add,
        reduce_res=zeros(32, 1),
        reverse0=True,
    ),
    "a copy from indices to indices": lambda t, h: nisa.dma_copy(
        dst=rows(h), src=rows(h)
    ),
    "a gather that adds": lambda t, h: nisa.dma_copy(
        dst=zeros(8, 16), src=rows(h), dst_rmw_op=np.add
    ),
}


@every("name", NOT_MODELLED)
def test_arguments_that_are_not_modelled_raise(name):
    def kernel(table):
        NOT_MODELLED[name](nl.load(table), table)

    with pytest.raises(NotModelledError) as caught:
        launch(kernel, [DATA])
    assert caught.value.received
    assert caught.value.location.file == __file__


WITH_DST = {
    "tensor_copy_predicated": lambda t, dtype: nisa.tensor_copy_predicated(
        src=t, dst=t, predicate=zeros(32, 16, dtype=nl.uint8), dtype=dtype
    ),
    "select_reduce": lambda t, dtype: nisa.select_reduce(
        dst=t,
        predicate=zeros(32, 16, dtype=nl.uint8),
        on_true=t,
        on_false=0.0,
        dtype=dtype,
    ),
    "nc_stream_shuffle": lambda t, dtype: nisa.nc_stream_shuffle(
        t, t, [0] * 32, dtype=dtype
    ),
    "tensor_copy_dynamic_dst": lambda t, dtype: nisa.tensor_copy_dynamic_dst(
        dst=t[nl.arange(32)[:, None], nisa.iota(nl.arange(1)[None, :], nl.int32)],
        src=zeros(32, 1),
        dtype=dtype,
    ),
}


@every("plain", [False, True])
@every("name", WITH_DST)
def test_the_dtype_beside_a_dst_is_the_dsts(name, plain):
    """``dtype`` is documented of instructions that write to a ``dst``, which has its own."""

    def kernel(table, dtype):
        WITH_DST[name](nl.load(table), dtype)

    launch(kernel, [DATA, nl.float32], plain=plain)
    with pytest.raises(DtypeError, match="dst's dtype"):
        launch(kernel, [DATA, nl.bfloat16], plain=plain)


def test_a_skipping_scatter_does_not_add():
    def kernel(table):
        skip = nisa.oob_mode.skip
        nisa.dma_copy(
            dst=rows(table), src=zeros(8, 16), dst_rmw_op=np.add, oob_mode=skip
        )

    with pytest.raises(KernelError, match=r"takes oob_mode\.error only"):
        launch(kernel, [DATA.copy()])
