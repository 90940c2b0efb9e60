"""DMA: HBM and SBUF, casts, transposes, gathers and scatters; never PSUM."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import Engine, NkiError, launch
from difftest.simulator.dtypes import BOOL, DTYPES, TFLOAT32, is_float, round_to
from difftest.simulator.frontend import kernel as nki
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic import typing as nt
from tests.every import every
from tests.unit.simulator.on_tiles import normal

PLAIN = [dtype for dtype in DTYPES if dtype != TFLOAT32]
VALUES = np.array([[0, 1, 2.5, 3.5, 100.3, 300, 70000, -1, -2.5, -129, 1e-3, 3e9]], np.float32)


def through_sbuf(src, dst_dtype, sbuf_dtype):
    """A tensor copied from HBM to SBUF and back, with the dtypes given."""

    def kernel(tensor):
        tile = nl.ndarray(tensor.shape, sbuf_dtype, buffer=nl.sbuf)
        out = nl.ndarray(tensor.shape, dst_dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=tile, src=tensor)
        nisa.dma_copy(dst=out, src=tile)
        return out

    return launch(kernel, [src]).outputs[0]


@every("source, target", list(itertools.product(PLAIN, PLAIN)))
def test_a_dma_casts(source, target):
    with np.errstate(over="ignore"):
        data = VALUES.astype(source) if is_float(source) else round_to(VALUES, source)
    exact = data if source == target else data.astype(np.float32)
    with np.errstate(over="ignore"):
        expected = round_to(exact, target).astype(target)
    assert_array_equal(through_sbuf(data, target, source), expected, strict=True)
    assert_array_equal(through_sbuf(data, target, target), expected, strict=True)
    result = launch(_hbm_to_hbm, [data, target]).outputs[0]
    assert_array_equal(result, expected, strict=True)


def _hbm_to_hbm(tensor, dtype):
    out = nl.ndarray(tensor.shape, dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tensor)
    return out


@every("dtype", [dtype for dtype in PLAIN if dtype.itemsize <= 2])
def test_every_bit_pattern_arrives(dtype):
    """Through SBUF and back, and from HBM to HBM: but for the payload of a NaN, unchanged."""
    bits = np.arange(2 ** (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}")
    data = (bits % 2 == 1).reshape(1, -1) if dtype == BOOL else bits.view(dtype).reshape(1, -1)
    with np.errstate(invalid="ignore"):
        nan = np.isnan(data.astype(np.float32)) if is_float(dtype) else np.zeros(data.shape, bool)
        for result in (
            through_sbuf(data, dtype, dtype),
            launch(_hbm_to_hbm, [data, dtype]).outputs[0],
        ):
            assert result.dtype == dtype
            assert result[~nan].tobytes() == data[~nan].tobytes()
            assert not nan.any() or np.isnan(result[nan].astype(np.float32)).all()


def test_read_modify_write_adds():
    data, more = normal(3, 4, dtype=ml_dtypes.bfloat16), normal(3, 4, seed=1)

    def kernel(tensor: nt.mutable_tensor, addend):
        nisa.dma_copy(dst=tensor, src=nl.load(addend), dst_rmw_op=np.add)
        nisa.dma_copy(dst=tensor, src=addend, dst_rmw_op=nl.add)
        return tensor

    first = (data.astype(np.float32) + more).astype(ml_dtypes.bfloat16)
    second = (first.astype(np.float32) + more).astype(ml_dtypes.bfloat16)
    assert_array_equal(launch(kernel, [data, more]).outputs[0], second, strict=True)


TABLE = normal(10, 6)
INDEX = np.array([[7], [0], [7], [9]], np.int32)


def test_scatter():
    rows = normal(3, 6)
    index = np.array([[4], [1], [8]], np.int32)

    def kernel(value, places):
        out = nl.ndarray((10, 6), nl.float32, buffer=nl.shared_hbm)
        nl.store(out[nl.load(places), nl.arange(6)[None, :]], nl.load(value))
        return out

    result = launch(kernel, [rows, index])
    written = np.isin(np.arange(10), index)
    assert_array_equal(result.outputs[0][index[:, 0]], rows)
    assert_array_equal(result.unwritten[0], np.repeat(~written[:, None], 6, axis=1))
    assert np.isnan(result.outputs[0][~written]).all()


@every("add", ["atomic_rmw", "dma_copy"])
def test_a_scatter_that_adds_meets_an_index_twice(add):
    rows = normal(4, 6, seed=1)

    def kernel(table: nt.mutable_tensor, value, places):
        target = table[nl.load(places), nl.arange(6)[None, :]]
        if add == "atomic_rmw":
            nl.atomic_rmw(target, nl.load(value), op=np.add)
        else:
            nisa.dma_copy(dst=target, src=nl.load(value), dst_rmw_op=np.add)
        return table

    expected = TABLE.copy()
    np.add.at(expected, INDEX[:, 0], rows)
    assert_array_equal(launch(kernel, [TABLE.copy(), rows, INDEX]).outputs[0], expected)


@every("bad", [-1, 10, 2**31 - 1])
def test_indices_out_of_bounds_are_skipped_or_an_error(bad):
    index = INDEX.copy()
    index[2] = bad

    def gather(table, places, mode):
        tile = nl.zeros((4, 6), nl.float32)
        source = table[nl.load(places), nl.arange(6)[None, :]]
        nisa.dma_copy(dst=tile, src=source, oob_mode=mode)
        out = nl.ndarray((4, 6), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    def scatter(table: nt.mutable_tensor, places, mode):
        target = table[nl.load(places), nl.arange(6)[None, :]]
        nisa.dma_copy(dst=target, src=nl.zeros((4, 6), nl.float32), oob_mode=mode)
        return table

    skip, error = nisa.oob_mode.skip, nisa.oob_mode.error
    expected = TABLE[INDEX[:, 0]]
    expected[2] = 0
    assert_array_equal(launch(gather, [TABLE, index, skip]).outputs[0], expected)
    expected = TABLE.copy()
    expected[[7, 0, 9]] = 0
    assert_array_equal(launch(scatter, [TABLE.copy(), index, skip]).outputs[0], expected)
    for kernel in (gather, scatter):
        with pytest.raises(IndexError, match="an index held in a tile stays inside") as caught:
            launch(kernel, [TABLE.copy(), index, error])
        assert caught.value.received.startswith(f"index [{bad}, 0] into table [10, 6] float32")
        assert caught.value.received.endswith("at element [2, 0]")
        assert caught.value.limit == "[9, 5]"


@every("write", ["gather", "scatter"])
def test_indices_do_not_lead_around_an_immutable_parameter(write):
    @nki.jit
    def kernel(table, index):
        named = table[nl.load(index), nl.arange(6)[None, :]]
        if write == "scatter":
            nl.store(named, nl.zeros((4, 6), nl.float32))
        else:
            nisa.dma_copy(dst=table[0:4], src=named)

    with pytest.raises(NkiError, match="a kernel does not write to its parameters"):
        launch(kernel, [TABLE, INDEX])


def test_the_trace_names_the_queue_mode_and_the_indices():
    def kernel(table, index):
        places = nl.load(index)
        tile = nl.ndarray((4, 6), nl.float32, buffer=nl.sbuf)
        source = table[places, nl.arange(6)[None, :]]
        nisa.dma_copy(dst=tile, src=source, dge_mode=nisa.dge_mode.swdge)

    event = launch(kernel, [TABLE, INDEX]).trace.events[-1]
    assert (event.opcode, event.engine) == ("dma_gather", Engine.DMA)
    assert event.arguments["dge_mode"] == "swdge"
    assert [region.allocation.name for region in event.reads] == ["table", ""]


def rows():
    return nisa.iota(nl.arange(4)[:, None], nl.int32)
