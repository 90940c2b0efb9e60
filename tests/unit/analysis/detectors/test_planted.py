"""Races planted in kernels as people write them, each beside a correct near relative."""

import numpy as np

from difftest.analysis.finding import Severity
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic import typing as nt
from difftest.simulator.frontend.install import embedded
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, normal

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl32


def shared(*shape):
    return nl.ndarray(shape, dtype=np.float32, buffer=nl.shared_hbm)


# -- classic: iterations and programs --------------------------------------------------------------


def reversed_columns(in_place):
    """Columns in the other order, into the tile that they come from or into another one."""

    def kernel(a):
        out = shared(128, 4, 32)
        tile = nl.load(a)
        turned = tile if in_place else nl.ndarray((128, 4, 32), a.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            turned[:, 3 - i] = nl.multiply(tile[:, i], 2.0)
        nl.store(out, turned)
        return out

    return kernel, [normal(128, 4, 32)]


def sums_on_the_way(whole):
    """Each iteration fills a column, and reads it or all of them."""

    def kernel(a):
        out = shared(4, 128, 1)
        tile = nl.zeros((128, 4), a.dtype)
        for i in nl.affine_range(4):
            tile[:, i] = nl.load(a[:, i])
            nl.store(out[i], nl.sum(tile, axis=1) if whole else nl.copy(tile[:, i]))
        return out

    return kernel, [normal(128, 4)]


def a_helper_with_scratch(one):
    """A function gets a tile to work in: one for all iterations, or each its own."""

    def exponential(x, scratch):
        scratch[...] = nl.load(x)
        return nl.exp(scratch)

    def kernel(a):
        out = shared(4, 128, 16)
        common = nl.ndarray((128, 16), a.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            own = nl.ndarray((128, 16), a.dtype, buffer=nl.sbuf)
            nl.store(out[i], exponential(a[i], common if one else own))
        return out

    return kernel, [normal(4, 128, 16)]


def triangles(meet):
    """Both halves of a square, by masks; with or without the diagonal in both."""

    def kernel(a):
        out = shared(128, 128)
        row, column = nl.mgrid[0:128, 0:128]
        tile = nl.load(a)
        for i in nl.affine_range(2):
            upper = column >= row if meet else column > row
            mask = column <= row if int(i) == 0 else upper
            nl.store(out[row, column], nl.multiply(tile, 1.0 + i), mask=mask)
        return out

    return kernel, [normal(128, 128)]


def rows_by_index(meet):
    """Each iteration stores rows whose places the data name."""

    def kernel(a, rows):
        out = shared(32, 16)
        line, column = nl.mgrid[0:8, 0:16]
        nl.store(out, nl.load(a))
        for i in nl.affine_range(2):
            at, tile = nl.load(rows[i]), nl.load(a[nl.ds(8 * i, 8)])
            nl.store(out[at[line, 0], column], tile)
        return out

    rows = np.arange(16, dtype=np.int32).reshape(2, 8, 1)
    rows[1, 0, 0] = 3 if meet else 8
    return kernel, [normal(32, 16), rows]


def scratch_in_hbm(of_another):
    """An iteration stores a block and loads it back, or the one before it."""

    def kernel(a):
        out = shared(4, 128, 32)
        scratch = nl.ndarray((5, 128, 32), a.dtype, buffer=nl.private_hbm)
        nl.store(scratch[0], nl.load(a[0]))
        for i in nl.affine_range(4):
            nl.store(scratch[i + 1], nl.exp(nl.load(a[i])))
            nl.store(out[i], nl.load(scratch[i if of_another else i + 1]))
        return out

    return kernel, [normal(4, 128, 32)]


def an_input_in_place(shifted):
    """Blocks of an argument are doubled where they lie, or where the block before them lies."""

    def kernel(a: nt.mutable_tensor):
        for i in nl.affine_range(3):
            nl.store(a[i], nl.multiply(nl.load(a[i + 1 if shifted else i]), 2.0))

    return kernel, [normal(4, 128, 16)]


# -- today's: two cores, and addresses -------------------------------------------------------------


def tile_of(x):
    tile = nl32.ndarray(x.shape, dtype=x.dtype, buffer=nl32.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def swap_in_a_loop(once):
    """Cores swap halves twice through one scratch; a barrier before and after each, or one."""

    @nki.jit
    def kernel(x):
        out = nl32.ndarray(x.shape, dtype=x.dtype, buffer=nl32.shared_hbm)
        scratch = nl32.ndarray((2, 16, 32), dtype=x.dtype, buffer=nl32.shared_hbm)
        mine = nl32.program_id(0)
        for turn in range(2):
            nisa.dma_copy(dst=scratch[mine], src=tile_of(x[2 * turn + mine]))
            nisa.core_barrier(data=scratch, cores=(0, 1))
            nisa.dma_copy(dst=out[2 * turn + mine], src=tile_of(scratch[1 - mine]))
            if not once:
                nisa.core_barrier(data=scratch, cores=(0, 1))
        return out

    return kernel[2], [normal(4, 16, 32)]


def made_by_one_core(unordered):
    """A row that one core stores and the other one takes."""

    @nki.jit
    def kernel(x):
        out = nl32.ndarray((8, 32), dtype=x.dtype, buffer=nl32.shared_hbm)
        row = nl32.ndarray((1, 32), dtype=x.dtype, buffer=nl32.shared_hbm)
        mine = nl32.program_id(0)
        if mine == 0:
            nisa.dma_copy(dst=row, src=tile_of(x[0:1, :]))
            nisa.dma_copy(dst=out[0:4, :], src=tile_of(x[0:4, :]))
        else:
            nisa.dma_copy(dst=out[5:8, :], src=tile_of(x[5:8, :]))
        if not unordered:
            nisa.core_barrier(data=row, cores=(0, 1))
        if mine == 1:
            nisa.dma_copy(dst=out[4:5, :], src=tile_of(row))
        return out

    return kernel[2], [normal(8, 32)]


def a_pool_of_three(in_flight):
    """Three slots by address, and three or four tiles that are loaded before they are stored."""

    @nki.jit
    def kernel(x):
        out = nl32.ndarray(x.shape, dtype=x.dtype, buffer=nl32.shared_hbm)
        pending = []
        for number in range(6):
            place = (0, 256 * (number % 3))
            tile = nl32.ndarray((128, 64), dtype=x.dtype, buffer=nl32.sbuf, address=place)
            nisa.dma_copy(dst=tile, src=x[number])
            pending.append((number, tile))
            if len(pending) == in_flight:
                first, done = pending.pop(0)
                nisa.dma_copy(dst=out[first], src=done)
        for number, tile in pending:
            nisa.dma_copy(dst=out[number], src=tile)
        return out

    return kernel, [normal(6, 128, 64)]


PAIRS = {
    "reversed columns": (reversed_columns, True, False, "affine-carried"),
    "sums on the way": (sums_on_the_way, True, False, "affine-carried"),
    "a helper with scratch": (a_helper_with_scratch, True, False, "affine-rewritten"),
    "triangles": (triangles, True, False, "affine-order"),
    "rows by index": (rows_by_index, True, False, "affine-order"),
    "scratch in HBM": (scratch_in_hbm, True, False, "affine-carried"),
    "an input in place": (an_input_in_place, True, False, "affine-carried"),
    "swap in a loop": (swap_in_a_loop, True, False, "program-race"),
    "made by one core": (made_by_one_core, True, False, "program-race"),
    "a pool of three": (a_pool_of_three, 4, 3, "address-alias"),
}


def told_of(made):
    kernel, arrays = made
    return {one.id for one in findings_in(kernel, arrays) if one.severity is not Severity.NOTE}


@every("name", PAIRS)
def test_a_planted_race_is_found_and_its_near_relative_is_not(name):
    make, wrong, correct, id = PAIRS[name]
    assert told_of(make(wrong)) == {id}
    assert told_of(make(correct)) == set()
