"""DMAs through indices that behaved differently on a device and on every simulator.

Each test names its public record: an issue of aws-neuron/aws-neuron-sdk, or a fact in the published
notes on NKI 0.6 and of KevGomes1403/nki-moe-megakernel (trn2).
"""

import ml_dtypes
import numpy as np

from difftest.simulator.entry.install import embedded
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in, normal

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl


def tile_of(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


@nki.jit
def transposed_rows(table, rows):
    """Return the rows that indices name, transposed; rows out of bounds are skipped."""
    out = nl.ndarray((16, 32), dtype=table.dtype, buffer=nl.shared_hbm)
    at = tile_of(rows)
    tile = nl.ndarray((16, 32), dtype=table.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0.0)
    picked = table.ap([[16, 32], [1, 16]], vector_offset=at, indirect_dim=0)
    nisa.dma_transpose(dst=tile, src=picked, oob_mode=nisa.oob_mode.skip)
    nisa.dma_copy(dst=out, src=tile)
    return out


@every("last, found", [(64, [("scatter-skipped", "warning")]), (63, [])])
def test_issue_1390_a_transpose_of_rows_that_skips_left_the_device_failed(last, found):
    """Some indices of a group in bounds, some not: the DMA aborted, and all launches after it."""
    rows = np.arange(32, dtype=np.uint32).reshape(32, 1)
    rows[5] = last
    table = normal(64, 16).astype(ml_dtypes.bfloat16)
    assert found_in(transposed_rows, [table, rows]) == found


@every("offset", [0, 3])
def test_an_offset_that_is_read_from_inside_a_tensor(offset):
    """``.ap`` with a static offset as ``scalar_offset``: correct alone, wrong in a full model."""

    @nki.jit
    def kernel(table, rows):
        out = nl.ndarray((1, 16), dtype=table.dtype, buffer=nl.shared_hbm)
        at = tile_of(rows)
        place = at.ap([[8, 1], [1, 1]], offset=offset)
        tile = nl.ndarray((1, 16), dtype=table.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=table.ap([[16, 1], [1, 16]], scalar_offset=place))
        nisa.dma_copy(dst=out, src=tile)
        return out

    rows = np.arange(8, dtype=np.int32).reshape(1, 8)
    found = found_in(kernel, [normal(32, 16), rows])
    assert found == ([("offset-in-view", "note")] if offset else [])


@every(
    "part, last, found",
    [(True, 99, [("scatter-skipped-view", "note")]), (True, 9, []), (False, 99, [])],
)
def test_a_scatter_that_skips_wrote_all_the_same_from_a_part_of_a_tensor(
    part, last, found
):
    @nki.jit
    def kernel(x, rows):
        out = nl.ndarray((16, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        at = tile_of(rows)
        tile = tile_of(x)
        nisa.dma_copy(
            dst=out.ap([[8, 4], [1, 8]], vector_offset=at, indirect_dim=0),
            src=tile[:, 0:8] if part else tile,
            oob_mode=nisa.oob_mode.skip,
        )
        return out

    rows = np.int32([[3], [1], [4], [last]])
    assert found_in(kernel, [normal(4, 16 if part else 8), rows]) == found


@every("slot", [2, 5])
def test_two_rows_that_are_put_into_one_slot(slot):
    """``index_put_`` of two rows with one index in a graph: either may stay (trn1, trn2)."""

    @nki.jit
    def kernel(x, rows):
        out = nl.ndarray((16, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        at = tile_of(rows)
        tile = tile_of(x)
        nisa.dma_copy(
            dst=out.ap([[8, 4], [1, 8]], vector_offset=at, indirect_dim=0), src=tile
        )
        return out

    found = findings_in(kernel, [normal(4, 8), np.int32([[2], [1], [4], [slot]])])
    assert [one.id for one in found] == (["scatter-twice"] if slot == 2 else [])
