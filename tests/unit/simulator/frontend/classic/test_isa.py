"""nisa's arguments that are documented and not modelled: each raises, none is ignored."""

from __future__ import annotations

import numpy as np
import pytest

from difftest.simulator import KernelError, NotModelledError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl

DATA = np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32)
P, X = nl.mgrid[0:32, 0:16]
MASK = X < 4


def zeros(*shape, dtype=nl.float32):
    return nl.zeros(shape, dtype)


def rows(table):
    return table[nisa.iota(nl.arange(8)[:, None], nl.int32), nl.arange(16)[None, :]]


NOT_MODELLED = {
    "nc_matmul's mask": lambda t, h: nisa.nc_matmul(t, t, mask=MASK),
    "nc_transpose's mask": lambda t, h: nisa.nc_transpose(t, mask=MASK),
    "dma_transpose's mask": lambda t, h: nisa.dma_transpose(t, mask=MASK),
    "iota's mask": lambda t, h: nisa.iota(X, nl.int32, mask=MASK),
    "tensor_copy_predicated's mask": lambda t, h: nisa.tensor_copy_predicated(
        src=t, dst=t, predicate=zeros(32, 16, dtype=nl.uint8), mask=MASK
    ),
    "tensor_copy_predicated's dtype": lambda t, h: nisa.tensor_copy_predicated(
        src=t, dst=t, predicate=zeros(32, 16, dtype=nl.uint8), dtype=nl.float32
    ),
    "affine_select's mask": lambda t, h: nisa.affine_select(P > X, t, 0, mask=MASK),
    "range_select's mask": lambda t, h: nisa.range_select(
        on_true_tile=t,
        comp_op0=np.less,
        comp_op1=np.less,
        bound0=zeros(32, 1),
        bound1=zeros(32, 1),
        mask=MASK,
    ),
    "select_reduce's mask": lambda t, h: nisa.select_reduce(
        dst=t, predicate=zeros(32, 16, dtype=nl.uint8), on_true=t, on_false=0.0, mask=MASK
    ),
    "select_reduce's dtype": lambda t, h: nisa.select_reduce(
        dst=t, predicate=zeros(32, 16, dtype=nl.uint8), on_true=t, on_false=0.0, dtype=nl.float32
    ),
    "select_reduce's sum": lambda t, h: nisa.select_reduce(
        dst=t,
        predicate=zeros(32, 16, dtype=nl.uint8),
        on_true=t,
        on_false=0.0,
        reduce_op=np.add,
    ),
    "nc_find_index8's mask on 8 elements": lambda t, h: nisa.nc_find_index8(
        data=t[:, 0:8], vals=t[:, 0:8], mask=nl.arange(8)[None, :] < 4
    ),
    "nc_match_replace8's mask": lambda t, h: nisa.nc_match_replace8(
        data=t, vals=t[:, 0:8], imm=0, mask=MASK
    ),
    "local_gather's mask": lambda t, h: nisa.local_gather(
        t, zeros(32, 1, dtype=nl.uint16), mask=MASK
    ),
    "nc_stream_shuffle's mask": lambda t, h: nisa.nc_stream_shuffle(t, t, [0] * 32, mask=MASK),
    "nc_stream_shuffle's dtype": lambda t, h: nisa.nc_stream_shuffle(
        t, t, [0] * 32, dtype=nl.float32
    ),
    "tensor_scalar_reduce's mask": lambda t, h: nisa.tensor_scalar_reduce(
        data=t, op0=np.add, operand0=1, reduce_op=np.add, reduce_res=zeros(32, 1), mask=MASK
    ),
    "tensor_scalar_reduce's reverse0": lambda t, h: nisa.tensor_scalar_reduce(
        data=t, op0=np.add, operand0=1, reduce_op=np.add, reduce_res=zeros(32, 1), reverse0=True
    ),
    "activation's mask beside a reduction": lambda t, h: nisa.activation_reduce(
        nl.exp, t, reduce_op=np.add, reduce_res=zeros(32, 1), mask=MASK
    ),
    "dma_copy's mask beside indices": lambda t, h: nisa.dma_copy(
        dst=zeros(8, 16), src=rows(h), mask=nl.arange(8)[:, None] < 4
    ),
    "a copy from indices to indices": lambda t, h: nisa.dma_copy(dst=rows(h), src=rows(h)),
    "a gather that adds": lambda t, h: nisa.dma_copy(
        dst=zeros(8, 16), src=rows(h), dst_rmw_op=np.add
    ),
}


@pytest.mark.parametrize("name", NOT_MODELLED)
def test_what_is_not_modelled_raises(name):
    def kernel(table):
        NOT_MODELLED[name](nl.load(table), table)

    with pytest.raises(NotModelledError) as caught:
        launch(kernel, [DATA])
    assert caught.value.received
    assert caught.value.location.file == __file__


def test_masks_on_copies_at_an_offset_held_in_a_tile():
    def source(table):
        tile = nl.load(table)
        place = nisa.iota(nl.arange(1)[None, :], nl.int32)
        nisa.tensor_copy_dynamic_src(tile[nl.arange(32)[:, None], place], mask=MASK)

    def destination(table):
        tile = nl.load(table)
        place = nisa.iota(nl.arange(1)[None, :], nl.int32)
        target = tile[nl.arange(32)[:, None], place]
        nisa.tensor_copy_dynamic_dst(dst=target, src=zeros(32, 1), dtype=nl.float32)

    for kernel in (source, destination):
        with pytest.raises(KernelError, match="indexed by a tile") as caught:
            launch(kernel, [DATA])
        assert "mask=" in caught.value.received


def test_a_skipping_scatter_does_not_add():
    def kernel(table):
        skip = nisa.oob_mode.skip
        nisa.dma_copy(dst=rows(table), src=zeros(8, 16), dst_rmw_op=np.add, oob_mode=skip)

    with pytest.raises(KernelError, match=r"takes oob_mode\.error only"):
        launch(kernel, [DATA.copy()])
