"""Writes through indices: rows that meet, and rows that do not."""

import numpy as np

from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as nisa32
from difftest.simulator.frontend.nki import language as nl32
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in, normal

ROWS = 8
COLUMNS = 16


def scatter(adds, zeroed=False, again=False, atomic=False):
    """Four rows of ``a`` to rows of ``table``; then four others."""

    def kernel(table, a, rows):
        out = nl.ndarray(table.shape, dtype=table.dtype, buffer=nl.shared_hbm)
        line, column = nl.mgrid[0:4, 0:COLUMNS]
        kept = nl.load(table)
        if zeroed:
            nl.store(out, kept)
        for turn in range(2 if again else 1):
            at = nl.load(rows[turn])
            tile = nl.load(a[nl.ds(4 * turn, 4), :])
            if adds and not atomic:
                nisa.dma_copy(dst=out[at[line, 0], column], src=tile, dst_rmw_op=np.add)
            elif adds:
                nl.atomic_rmw(out[at[line, 0], column], value=tile, op=np.add)
            else:
                nl.store(out[at[line, 0], column], tile)
        return out

    return kernel


def rows(*each):
    return np.int32(each).reshape(2, 4, 1)


APART = rows(0, 2, 4, 6, 1, 3, 5, 7)
TWICE = rows(0, 2, 2, 6, 1, 3, 5, 7)
AGAIN = rows(0, 2, 4, 6, 1, 2, 5, 7)
TABLE = normal(ROWS, COLUMNS)
A = normal(ROWS, COLUMNS)


@every(
    "indices, a, found",
    [
        (APART, A, []),
        (TWICE, A, [("scatter-twice", "warning")]),
        (TWICE, np.ones_like(A), []),
    ],
)
def test_a_scatter_that_overwrites(indices, a, found):
    assert found_in(scatter(adds=False), [TABLE, a, indices]) == found


AFTER = ("scatter-after-write", "warning")


@every(
    "indices, found",
    [
        (APART, [AFTER]),
        (TWICE, [("scatter-added-twice", "error"), AFTER]),
        (AGAIN, [AFTER, ("scatter-added-twice", "warning")]),
    ],
)
def test_a_scatter_that_adds(indices, found):
    kernel = scatter(adds=True, zeroed=True, again=True)
    assert sorted(found_in(kernel, [TABLE, A, indices])) == sorted(found)
    kernel = scatter(adds=True, zeroed=True, again=True, atomic=True)
    assert found_in(kernel, [TABLE, A, indices]) == []


def overwritten_then_added(x, rows, out):
    """The remedy: the first scatter overwrites any contents of the tensor."""
    line, column = nl.mgrid[0:4, 0:COLUMNS]
    nl.store(out, nl.zeros((ROWS, COLUMNS), x.dtype, buffer=nl.sbuf))
    tile = nl.load(x[0:4, :])
    for turn in range(2):
        at = nl.load(rows[turn])
        target = out[at[line, 0], column]
        if turn:
            nisa.dma_copy(dst=target, src=tile, dst_rmw_op=np.add)
        else:
            nl.store(target, tile)
    return out


@every("second, found", [((6, 4, 2, 0), []), ((6, 4, 2, 1), [AFTER])])
def test_a_scatter_that_overwrites_is_no_plain_write(second, found):
    arrays = [A, rows(0, 2, 4, 6, *second), normal(ROWS, COLUMNS)]
    assert found_in(overwritten_then_added, arrays) == found


def test_the_rows_that_meet_are_counted():
    finding, _ = findings_in(scatter(adds=True, zeroed=True), [TABLE, A, TWICE])
    assert finding.happened.endswith(
        f"{2 * COLUMNS} of {4 * COLUMNS} additions, the first to element [2, 0]"
    )
    (finding,) = findings_in(scatter(adds=False), [TABLE, A, TWICE])
    assert finding.happened.endswith(
        f"{COLUMNS} of {4 * COLUMNS} are lost, the first at element [2, 0]"
    )


def test_rows_that_overlap_by_a_part_meet():
    """Two runs of 16 elements, 8 elements apart, in a tensor of one dimension."""

    def kernel(a, starts):
        out = nl.ndarray((64,), dtype=a.dtype, buffer=nl.shared_hbm)
        line, column = nl.mgrid[0:2, 0:COLUMNS]
        at = nl.load(starts)
        nisa.dma_copy(dst=out[at[line, 0] + column], src=nl.load(a[0:2, :]))
        return out

    apart = np.int32([[0], [16]])
    meeting = np.int32([[0], [8]])
    assert found_in(kernel, [A, apart]) == []
    assert found_in(kernel, [A, meeting]) == [("scatter-twice", "warning")]


# -- the reach of a scatter


def added_beside(column):
    """A plain write of eight columns of 16 rows, then a scatter that adds to the first eight."""

    def kernel(a, rows, out):
        line, place = nl.mgrid[0:8, 0:8]
        nl.store(
            out[0:16, column : column + 8], nl.zeros((16, 8), a.dtype, buffer=nl.sbuf)
        )
        at = nl.load(rows)
        tile = nl.load(a)
        nisa.dma_copy(dst=out[at[line, 0], place], src=tile, dst_rmw_op=np.add)
        return out

    return kernel


@every(
    "column, first, found", [(8, 0, []), (7, 0, ["scatter-after-write"]), (7, 16, [])]
)
def test_a_scatter_that_reaches_no_written_element_is_ordered(column, first, found):
    rows = first + np.int32([[3], [1], [4], [0], [5], [9], [2], [6]])
    got = found_in(added_beside(column), [normal(8, 8), rows, normal(32, 16)])
    assert [id for id, _ in got] == found


def added_to_a_half(half, offset):
    """A plain write of one half of each row, then a scatter that adds to what begins there."""

    def kernel(x, rows, out):
        tile = nl32.ndarray((4, 8), dtype=x.dtype, buffer=nl32.sbuf)
        nisa32.dma_copy(dst=tile, src=x)
        for row in range(4):
            nisa32.dma_copy(dst=out[4 * row : 4 * row + 4, half, :], src=tile)
        at = nl32.ndarray((4, 1), dtype=rows.dtype, buffer=nl32.sbuf)
        nisa32.dma_copy(dst=at, src=rows)
        target = out.ap(
            [[16, 4], [1, 8]], offset=offset, vector_offset=at, indirect_dim=0
        )
        nisa32.dma_compute(
            dst=target, srcs=[target, tile], reduce_op=nl32.add, unique_indices=True
        )
        return out

    return kernel


@every(
    "half, offset, found",
    [
        (0, 8, []),
        (1, 0, []),
        (1, 8, ["scatter-after-write"]),
        (0, 7, ["scatter-after-write"]),
    ],
)
def test_a_scatter_by_a_pattern_reaches_its_columns_of_each_row(half, offset, found):
    """As output[:, core] of nki-library's moe_cte: each core has a half of it."""
    arrays = [normal(4, 8), np.int32([[3], [1], [4], [9]]), normal(16, 2, 8)]
    got = found_in(added_to_a_half(half, offset), arrays)
    assert [id for id, _ in got] == found


def picked(indices, offset, *, moves="gather", vector=True):
    """Rows of ``table`` that indices name, each ``offset`` elements further on, some skipped."""

    def kernel(table, rows):
        out = nl32.ndarray((8, 16), dtype=table.dtype, buffer=nl32.shared_hbm)
        nisa32.dma_copy(dst=out, src=table)
        at = nl32.ndarray(rows.shape, dtype=rows.dtype, buffer=nl32.sbuf)
        nisa32.dma_copy(dst=at, src=rows)
        count = len(indices)
        tile = nl32.ndarray((count, 16), dtype=table.dtype, buffer=nl32.sbuf)
        nisa32.memset(dst=tile, value=0.0)
        moving = {"vector_offset": at} if vector else {"scalar_offset": at}
        place = table.ap(
            [[16, count], [1, 16]], offset=offset, indirect_dim=0, **moving
        )
        if moves == "gather":
            nisa32.dma_copy(dst=tile, src=place, oob_mode=nisa32.oob_mode.skip)
            nisa32.dma_copy(dst=out[0:count], src=tile)
        else:
            nisa32.dma_copy(dst=place, src=tile, oob_mode=nisa32.oob_mode.skip)
        return out

    findings = findings_in(kernel, [normal(8, 16), np.int32(indices).reshape(-1, 1)])
    return [one for one in findings if one.id == "skipped-pattern"]


@every("moves", ["gather", "scatter"])
@every(
    "indices, offset, said",
    [
        ((0, 7), 0, 0),
        ((0, 8), 0, 0),
        ((0, 6), 4, 0),
        ((0, 7), 4, 1),
        ((0, 8), 4, 0),
    ],
)
def test_an_index_in_bounds_whose_pattern_leaves_is_reported(
    indices, offset, said, moves
):
    found = picked(indices, offset, moves=moves)
    assert [one.severity.value for one in found] == ["note"] * said
    if said:
        assert (
            "skips 1 of 2 indices that are in bounds, the first is 7:"
            in found[0].happened
        )


@every("index, said", [(6, 0), (7, 1), (8, 0)])
def test_one_offset_that_moves_a_whole_pattern_is_reported_too(index, said):
    found = picked((index,), 4, vector=False)
    assert len(found) == said
