"""Operands that begin in the middle of the partitions."""

import numpy as np

from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as nki_isa
from difftest.simulator.frontend.nki import language as newer
from difftest.simulator.frontend.nki.kernel import jit
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in

X = np.ones((128, 8), np.float32)


def on_a_tile(work, rows=128, address=None):
    """A kernel of today's dialect that does something with a tile before it is stored."""

    @jit
    def kernel(x):
        out = newer.ndarray((rows, 8), dtype=x.dtype, buffer=newer.shared_hbm)
        tile = newer.ndarray((rows, 8), dtype=x.dtype, buffer=newer.sbuf, address=address)
        nki_isa.dma_copy(dst=tile, src=x[0:rows, :])
        work(tile)
        nki_isa.dma_copy(dst=out, src=tile)
        return out

    return kernel


def doubled(first, last):
    """Partitions of a tile, taken by one instruction."""

    def work(tile):
        part = newer.ndarray((last - first, 8), dtype=tile.dtype, buffer=newer.sbuf)
        nki_isa.tensor_scalar(dst=part, data=tile[first:last, :], op0=newer.multiply, operand0=2.0)

    return work


def test_more_than_a_quadrant_from_the_second_on():
    (finding,) = findings_in(on_a_tile(doubled(32, 96)), [X])
    assert (finding.id, finding.severity.value) == ("partition-start", "error")
    assert finding.happened.startswith("tensor_scalar takes 64 partitions of tensor ")
    assert finding.happened.endswith(" from partition 32 on")
    assert "it has 32 at most" in finding.rule


@every(
    "first, last", [(0, 128), (0, 96), (32, 64), (64, 128), (64, 96), (96, 128), (33, 97), (1, 128)]
)
def test_what_engines_reach_or_nobody_knows_of(first, last):
    assert found_in(on_a_tile(doubled(first, last)), [X]) == []


@every("start, found", [(32, ["partition-start"]), (64, [])])
def test_where_a_tile_was_placed_counts(start, found):
    def work(tile):
        nki_isa.tensor_scalar(dst=tile, data=tile, op0=newer.multiply, operand0=2.0)

    kernel = on_a_tile(work, rows=64, address=(start, 0))
    assert [one.id for one in findings_in(kernel, [X])] == found


def test_results_count_too():
    def work(tile):
        nki_isa.tensor_copy(dst=tile[32:128, :], src=tile[0:96, :])

    assert found_in(on_a_tile(work), [X]) == [("partition-start", "error")]


def test_a_dma_begins_anywhere():
    def work(tile):
        other = newer.ndarray((64, 8), dtype=tile.dtype, buffer=newer.sbuf)
        nki_isa.dma_copy(dst=other, src=tile[32:96, :])

    assert found_in(on_a_tile(work), [X]) == []


def test_the_classic_compiler_is_not_known_to_refuse_it():
    def kernel(x):
        out = nl.ndarray((64, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out, nisa.tensor_scalar(tile[32:96, :], nl.multiply, 2.0))
        return out

    assert found_in(kernel, [X]) == [("partition-start", "warning")]
