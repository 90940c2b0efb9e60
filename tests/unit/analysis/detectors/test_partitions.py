"""Operands that begin in the middle of the partitions."""

import ml_dtypes
import numpy as np

from difftest.simulator import TRN3
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as nki_isa
from difftest.simulator.frontend.nki import language as newer
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in

X = np.ones((128, 8), np.float32)


def on_a_tile(work, rows=128, address=None):
    """A kernel of the current dialect that does something with a tile before its store."""

    @jit
    def kernel(x):
        out = newer.ndarray((rows, 8), dtype=x.dtype, buffer=newer.shared_hbm)
        tile = newer.ndarray(
            (rows, 8), dtype=x.dtype, buffer=newer.sbuf, address=address
        )
        nki_isa.dma_copy(dst=tile, src=x[0:rows, :])
        work(tile)
        nki_isa.dma_copy(dst=out, src=tile)
        return out

    return kernel


def doubled(first, last):
    """Partitions of a tile, taken by one instruction."""

    def work(tile):
        part = newer.ndarray((last - first, 8), dtype=tile.dtype, buffer=newer.sbuf)
        nki_isa.tensor_scalar(
            dst=part, data=tile[first:last, :], op0=newer.multiply, operand0=2.0
        )

    return work


def test_more_than_a_quadrant_from_the_second_on():
    (finding,) = findings_in(on_a_tile(doubled(32, 96)), [X])
    assert (finding.id, finding.severity.value) == ("partition-start", "error")
    assert finding.happened.startswith("tensor_scalar takes 64 partitions of tensor ")
    assert finding.happened.endswith(" from partition 32 on")
    assert "it has 32 at most" in finding.rule


@every(
    "first, last", [(first, last) for first in range(128) for last in (first + 1, 128)]
)
def test_where_an_engine_begins(first, last):
    """AWS's page on the architecture, "start_partition", in its own words."""
    count = last - first
    if count > 64:
        starts = [0]
    elif count > 32:
        starts = [0, 64]
    else:
        starts = [0, 32, 64, 96]
    found = [] if first in starts else [("partition-start", "error")]
    assert found_in(on_a_tile(doubled(first, last)), [X]) == found


def test_a_start_inside_a_quadrant_is_reported_with_the_compilers_words():
    (finding,) = findings_in(on_a_tile(doubled(126, 128)), [X])
    assert finding.happened.endswith("from partition 126 on")
    assert "Invalid access of 2 partitions starting at partition 126" in finding.rule
    assert "nisa.dma_copy" in finding.remedy


def in_psum(first, last):
    """A product of two tiles; some of its partitions are copied to SBUF."""

    def work(tile):
        bank = newer.ndarray((8, 8), dtype=newer.float32, buffer=newer.psum)
        nki_isa.nc_matmul(bank, tile, tile)
        part = newer.ndarray((last - first, 8), dtype=tile.dtype, buffer=newer.sbuf)
        nki_isa.tensor_copy(dst=part, src=bank[first:last, :])

    return work


def product(first, last):
    """A product whose operands are some partitions of a tile."""

    def work(tile):
        bank = newer.ndarray((8, 8), dtype=newer.float32, buffer=newer.psum)
        nki_isa.nc_matmul(bank, tile[first:last, :], tile[first:last, :])

    return work


def filled(first, last):
    def work(tile):
        nki_isa.memset(dst=tile[first:last, :], value=0.0)

    return work


def on_gpsimd(first, last):
    def work(tile):
        nki_isa.iota(dst=tile[first:last, :], pattern=[[1, 8]], offset=0)

    return work


def one_row(first, last):
    def work(tile):
        part = newer.ndarray((1, 8), dtype=tile.dtype, buffer=newer.sbuf)
        nki_isa.activation(dst=part, data=tile[first : first + 1, :], op=newer.exp)

    return work


def transposed(first, last):
    def work(tile):
        bank = newer.ndarray((8, last - first), dtype=tile.dtype, buffer=newer.psum)
        nki_isa.nc_transpose(dst=bank, data=tile[first:last, :])

    return work


@every("work", [in_psum, product, filled, on_gpsimd, one_row, transposed])
def test_every_engine_and_both_memories_have_the_rule(work):
    got = found_in(on_a_tile(work(5, 7)), [X])
    assert set(got) == {("partition-start", "error")}
    assert found_in(on_a_tile(work(0, 2)), [X]) == []


def test_rows_of_a_tensor_with_more_axes_are_its_partitions():
    def work(tile):
        view = tile.reshape((128, 2, 4))
        part = newer.ndarray((2, 4), dtype=tile.dtype, buffer=newer.sbuf)
        nki_isa.tensor_copy(dst=part, src=view[126:128, 1, :])

    assert found_in(on_a_tile(work), [X]) == [("partition-start", "error")]


def test_a_register_is_loaded_from_any_partition():
    def work(tile):
        numbers = newer.ndarray((128, 1), dtype=newer.int32, buffer=newer.sbuf)
        nki_isa.iota(dst=numbers, pattern=[[1, 1]], offset=0, channel_multiplier=1)
        register = nki_isa.register_alloc()
        nki_isa.register_load(register, numbers[5:6, 0:1])

    assert found_in(on_a_tile(work), [X]) == []


@every(
    "offset, found",
    [
        (0, []),
        (4, []),
        (8, []),
        (12, []),
        (16, [("partition-start", "error")]),
        (5, [("partition-start", "error")]),
    ],
)
def test_scales_of_four_tensors_share_a_quadrant(offset, found):
    """As AWS's example of packed scales has them: ``packed[4:, :]``."""

    @jit
    def kernel(x):
        out = newer.ndarray(
            (32, 2), dtype=newer.float8_e4m3fn_x4, buffer=newer.shared_hbm
        )
        tile = newer.ndarray((32, 8), dtype=newer.bfloat16, buffer=newer.sbuf)
        packed = newer.ndarray((32, 2), dtype=newer.uint8, buffer=newer.sbuf)
        small = newer.ndarray((32, 2), dtype=newer.float8_e4m3fn_x4, buffer=newer.sbuf)
        nki_isa.dma_copy(dst=tile, src=x)
        nki_isa.quantize_mx(dst=small, src=tile, dst_scale=packed[offset:, :])
        nki_isa.dma_copy(dst=out, src=small)
        return out

    x = X[:32].astype(ml_dtypes.bfloat16)
    assert found_in(kernel, [x], machine=TRN3) == found


def summed(first, other, buffer=None):
    """Two parts of a tile, added to one another; or the second one a part of PSUM."""

    def work(tile):
        part = newer.ndarray((32, 8), dtype=tile.dtype, buffer=newer.sbuf)
        theirs = tile[other : other + 32, :]
        if buffer is not None:
            theirs = newer.ndarray((32, 8), dtype=tile.dtype, buffer=buffer)
            nki_isa.memset(dst=theirs, value=1.0)
        nki_isa.tensor_tensor(part, tile[first : first + 32, :], theirs, newer.add)

    return work


@every(
    "first, other, buffer, found",
    [
        (0, 0, None, []),
        (64, 64, None, []),
        (0, 32, None, [("partition-unequal", "warning")]),
        (96, 64, None, [("partition-unequal", "warning")]),
        (32, 0, newer.psum, []),
    ],
)
def test_operands_of_a_sum_begin_at_one_partition(first, other, buffer, found):
    assert found_in(on_a_tile(summed(first, other, buffer)), [X]) == found


@every("start, found", [(32, ["partition-start"]), (64, [])])
def test_where_a_tile_was_placed_counts(start, found):
    def work(tile):
        nki_isa.tensor_scalar(dst=tile, data=tile, op0=newer.multiply, operand0=2.0)

    kernel = on_a_tile(work, rows=64, address=(start, 0))
    assert [one.id for one in findings_in(kernel, [X])] == found


def test_a_result_at_a_wrong_partition_is_found():
    def work(tile):
        nki_isa.tensor_copy(dst=tile[32:128, :], src=tile[0:96, :])

    assert found_in(on_a_tile(work), [X]) == [("partition-start", "error")]


@every("first, last", [(32, 96), (5, 7), (126, 128)])
def test_a_dma_begins_anywhere(first, last):
    def work(tile):
        other = newer.ndarray((last - first, 8), dtype=tile.dtype, buffer=newer.sbuf)
        nki_isa.dma_copy(dst=other, src=tile[first:last, :])

    assert found_in(on_a_tile(work), [X]) == []


@every("first, last", [(32, 96), (5, 7)])
def test_the_classic_compiler_may_move_an_operand(first, last):
    """One report of a rejection (aws-neuron-sdk 1055); others may be accepted."""

    def kernel(x):
        out = nl.ndarray((last - first, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out, nisa.tensor_scalar(tile[first:last, :], nl.multiply, 2.0))
        return out

    assert found_in(kernel, [X]) == [("partition-start", "warning")]
