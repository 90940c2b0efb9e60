"""Tensors that do not fit together, and tensors that the kernel placed over one another."""

import numpy as np
import pytest

from difftest.analysis.detectors.memory import find_large_tensors
from difftest.simulator import TRN1, TRN2
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.classic import compiler as ncc
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as nisa32
from difftest.simulator.frontend.nki import language as nl32
from difftest.simulator.trace import (
    Allocation,
    Engine,
    Event,
    EventKind,
    Region,
    Space,
    Trace,
)
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in, normal


def held(count, size, buffer):
    """So many tensors of ``size`` bytes a partition, live at one time."""

    def kernel():
        out = nl.ndarray((128, count), nl.float32, buffer=nl.shared_hbm)
        shape = (128, size // 4)
        tiles = [nl.zeros(shape, nl.float32, buffer=buffer) for _ in range(count)]
        for number, tile in enumerate(tiles):
            nl.store(out[:, number : number + 1], nl.copy(tile[:, 0:1]))
        return out

    return kernel


@every("machine, found", [(TRN2, 0), (TRN1, 1)])
def test_a_full_sbuf_depends_on_the_generation(machine, found):
    got = findings_in(held(2, 92_000, nl.sbuf), [], machine=machine)
    assert [one.id for one in got] == ["sbuf-full"] * found
    if found:
        (finding,) = got
        assert finding.severity.value == "warning"
        assert finding.happened.startswith(
            "tensors that are live at one time take 184004 bytes a partition of sbuf, which has "
            "180224 (trn1); live at event 2: 92000 bytes tensor 1 [128, 23000] float32 in sbuf; "
        )
        assert "tiles = [nl.zeros" in finding.location.text


def test_psum_tensors_that_cannot_share_banks():
    """Their bytes alone would fit: 9 of 1,200 are 10,800 of 16,384."""
    assert found_in(held(8, 1200, nl.psum), []) == []
    (finding,) = findings_in(held(9, 1200, nl.psum), [])
    assert (finding.id, finding.severity.value) == ("psum-full", "error")
    assert (
        "take 18432 bytes a partition of psum, which has 16384 (trn2); a bank (2048 bytes) that no "
        "other tensor can share counts as a whole; live at event"
    ) in finding.happened
    assert found_in(held(16, 1024, nl.psum), []) == []


def refilled(anew, buffer, count, size):
    """Tensors that are filled for each of two turns, one after the other, and read once each.

    ``anew`` fills all of one before it is read again, else a column, so that the rest is held.
    """

    def kernel():
        out = nl.ndarray((2, 128, count), nl.float32, buffer=nl.shared_hbm)
        tiles = [
            nl.ndarray((128, size // 4), nl.float32, buffer=buffer)
            for _ in range(count)
        ]
        for turn in range(2):
            for number, tile in enumerate(tiles):
                where = slice(None) if anew or not turn else slice(0, 1)
                tile[:, where] = nisa.memset(tile[:, where].shape, 1.0, nl.float32)
                nl.store(out[turn, :, number : number + 1], nl.copy(tile[:, 0:1]))
        return out

    return kernel


@every(
    "anew, buffer, found",
    [
        (True, nl.sbuf, [("sbuf-full", "note")]),
        (False, nl.sbuf, [("sbuf-full", "warning")]),
        (True, nl.psum, [("psum-full", "warning")]),
        (False, nl.psum, [("psum-full", "error")]),
    ],
)
def test_tensors_that_are_overwritten_before_a_read_are_dead_before(
    anew, buffer, found
):
    """Compilers may or may not use their places meanwhile; nki-library has such kernels."""
    count, size = (5, 52_000) if buffer is nl.sbuf else (9, 1200)
    kernel = refilled(anew, buffer, count, size)
    got = findings_in(kernel, [])
    assert [(one.id, one.severity.value) for one in got] == found
    assert ("written again before they are read" in got[0].happened) is anew


def placed(second, *, read_again):
    """Two tensors of 64 bytes a partition, the second at byte ``second``."""

    def kernel(x):
        out = nl32.ndarray((2, 128, 16), x.dtype, buffer=nl32.shared_hbm)
        one = nl32.ndarray((128, 16), x.dtype, buffer=nl32.sbuf, address=(0, 0))
        nisa32.dma_copy(dst=one, src=x)
        nisa32.dma_copy(dst=out[0], src=one)
        other = nl32.ndarray((128, 16), x.dtype, buffer=nl32.sbuf, address=(0, second))
        nisa32.memset(dst=other, value=1.0)
        nisa32.dma_copy(dst=out[1], src=one if read_again else other)
        return out

    return kernel


@every(
    "second, read_again, found",
    [(0, True, 1), (32, True, 1), (64, True, 0), (0, False, 0)],
)
def test_a_tensor_that_another_was_placed_over(second, read_again, found):
    kernel = placed(second, read_again=read_again)
    got = findings_in(kernel, [np.ones((128, 16), np.float32)])
    assert [one.id for one in got] == ["address-alias"] * found
    if found:
        (finding,) = got
        assert (
            f"to tensor 3 [128, 16] float32 in sbuf at address (0, {second})"
            in finding.happened
        )
        assert "one if read_again else other" in finding.locations[0].text
        assert "memset" in finding.locations[1].text


def by_another_name(space, *, own=False, view=False):
    """A tile that is written under one name and read under another, at one address."""
    at = (0, 0) if space is nl32.sbuf else (0,)

    def kernel(x):
        out = nl32.ndarray((128, 16), x.dtype, buffer=nl32.shared_hbm)
        one = nl32.ndarray((128, 16), x.dtype, buffer=space, address=at)
        other = (
            one if view else nl32.ndarray((128, 16), x.dtype, buffer=space, address=at)
        )
        if own:
            nisa32.dma_copy(dst=other, src=x)
            nisa32.dma_copy(dst=out, src=other)
        nisa32.dma_copy(dst=one, src=x)
        nisa32.dma_copy(dst=out, src=other)
        return out

    return kernel


@every("space", [nl32.sbuf, nl32.private_hbm])
@every(
    "options, found",
    [
        ({}, ["address-unordered"]),
        ({"own": True}, ["address-alias"]),
        ({"view": True}, []),
    ],
)
@pytest.mark.filterwarnings("ignore::difftest.simulator.frontend.levels.LevelWarning")
def test_a_read_by_another_name_than_the_write(space, options, found):
    got = findings_in(
        by_another_name(space, **options), [np.ones((128, 16), np.float32)]
    )
    assert [one.id for one in got] == found
    if found:
        assert "nisa32.dma_copy(dst=out, src=other)" in got[0].locations[0].text
        assert "nisa32.dma_copy(dst=one, src=x)" in got[0].locations[1].text


def test_places_that_are_taken_in_turn_are_not_shared():
    """As AWS's stack allocator gives them: one tensor is done before the next is written."""

    def kernel(x):
        out = nl32.ndarray((4, 128, 16), x.dtype, buffer=nl32.shared_hbm)
        for number in range(4):
            tile = nl32.ndarray((128, 16), x.dtype, buffer=nl32.sbuf, address=(0, 0))
            nisa32.dma_copy(dst=tile, src=x)
            nisa32.dma_copy(dst=out[number], src=tile)
        return out

    assert found_in(kernel, [np.ones((128, 16), np.float32)]) == []


def exchanged(*, spoilt=False, by_another_name=False, unplaced=False, ahead=0):
    """Two cores send each other a tile that has the same address on both.

    What was received is stored by way of a tile over the one that was sent, ``ahead`` times by
    core 1 before core 0 does anything else. ``spoilt`` writes over what core 1 sends;
    ``by_another_name`` sends what core 1 wrote under another name.
    """

    def placed(x):
        return nl32.ndarray((128, 16), x.dtype, buffer=nl32.sbuf, address=(0, 0))

    def kernel(x):
        mine = nl32.program_id(0)
        out = nl32.ndarray((2, 128, 16), x.dtype, buffer=nl32.shared_hbm)
        sent = (
            nl32.ndarray((128, 16), x.dtype, buffer=nl32.sbuf)
            if unplaced
            else placed(x)
        )
        nisa32.dma_copy(dst=sent, src=x)
        if spoilt and mine == 1:
            nisa32.memset(dst=placed(x), value=1.0)
        named = placed(x) if by_another_name and mine == 1 else sent
        got = nl32.ndarray((128, 16), x.dtype, buffer=nl32.sbuf, address=(0, 64))
        nisa32.sendrecv(
            src=named,
            dst=got,
            send_to_rank=1 - mine,
            recv_from_rank=1 - mine,
            pipe_id=0,
        )
        for _ in range(1 + ahead * mine):
            over = placed(x)
            nisa32.tensor_copy(dst=over, src=got)
        nisa32.dma_copy(dst=out[mine], src=over)
        return out

    return jit(kernel)[2]


@every(
    "options, found",
    [
        ({}, []),
        ({"ahead": 3}, []),
        ({"unplaced": True}, []),
        ({"spoilt": True}, ["address-alias"]),
        ({"by_another_name": True}, ["address-unordered"]),
    ],
)
def test_two_cores_send_tiles_at_one_address_which_are_two_places(options, found):
    """nki-library 2.29 has it: mlp_tkg_gate_up_projection.py, and attention_tkg.py."""
    got = findings_in(exchanged(**options), [np.ones((128, 16), np.float32)])
    assert [one.id for one in got] == found
    if found:
        assert "sendrecv" in got[0].locations[0].text


def in_turn(tiles, *, ahead):
    """Four blocks in ``tiles`` physical tiles; ``ahead`` are loaded before the first use."""

    def kernel(x):
        out = nl.ndarray((4, 128, 16), x.dtype, buffer=nl.shared_hbm)
        blocks = nl.ndarray(
            (4, nl.par_dim(128), 16),
            x.dtype,
            buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(tiles,)),
        )
        for number in range(4 + ahead):
            if number < 4:
                blocks[number] = nl.load(x)
            if number >= ahead:
                nl.store(out[number - ahead], blocks[number - ahead])
        return out

    return kernel


@every(
    "tiles, ahead, found",
    [(2, 0, 0), (2, 1, 0), (2, 2, 1), (4, 2, 0), (1, 0, 0), (1, 1, 1)],
)
def test_a_block_whose_physical_tile_another_took(tiles, ahead, found):
    """Fewer tiles than blocks are alive: a lifetime conflict of the direct allocation guide."""
    got = findings_in(in_turn(tiles, ahead=ahead), [np.ones((128, 16), np.float32)])
    assert [one.id for one in got] == ["address-alias"] * found
    if found:
        (finding,) = got
        assert (
            "reads block 0 of tensor 2 [4, 128, 16] float32 in sbuf at address (0, 0) after"
            in (finding.happened)
        )
        assert f"to block {tiles} of tensor 2" in finding.happened
        assert "nl.store(out[number - ahead]" in finding.locations[0].text


@every("byte, found", [(64, 1), (128, 0)])
def test_a_block_that_another_tensor_was_placed_over(byte, found):
    def kernel(x):
        out = nl.ndarray((2, 128, 16), x.dtype, buffer=nl.shared_hbm)
        blocks = nl.ndarray(
            (2, nl.par_dim(128), 16),
            x.dtype,
            buffer=ncc.sbuf.alloc(lambda index, partitions, size: (0, index[0] * size)),
        )
        other = nl.ndarray(
            (128, 16), x.dtype, buffer=ncc.sbuf.alloc(lambda *_: (0, byte))
        )
        blocks[1] = nl.load(x)
        other[...] = nl.load(x)
        nl.store(out[0], blocks[1])
        nl.store(out[1], other)
        return out

    got = findings_in(kernel, [np.ones((128, 16), np.float32)])
    assert [one.id for one in got] == ["address-alias"] * found


@pytest.mark.parametrize(
    ("ahead", "found"), [(1, []), (14, [("sbuf-full", "warning")])]
)
def test_blocks_have_live_ranges_of_their_own(ahead, found):
    """Fourteen blocks of 16 KiB a partition; ``ahead`` of them are loaded before the first use."""

    def kernel(a):
        out = nl.ndarray((14, 128, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
        blocks = nl.ndarray(
            (14, nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf
        )
        for number in range(0, 14, ahead):
            for one in range(number, number + ahead):
                blocks[one] = nl.broadcast_to(nl.load(a), shape=(128, 4096))
            for one in range(number, number + ahead):
                nl.store(out[one, :, 0:1], blocks[one, :, 0:1])
        return out

    got = [one for one in found_in(kernel, [normal(128, 1)]) if one[0] == "sbuf-full"]
    assert got == found


def trace_of(space, shape, dtype):
    """A trace with one DMA of a row of a tensor, made without the tensor's data."""
    tensor = Allocation(0, space, shape, np.dtype(dtype), 0, None)
    row = Region(tensor, 0, (1, shape[1]), (shape[1], 1), role="src")
    event = Event(0, EventKind("dma_copy", Engine.DMA), (), (row,))
    return Trace(
        dialect="nki", machine="trn2", allocations=[tensor], events=[event, event]
    )


@every(
    "shape, dtype, found",
    [
        ((2**20, 1024), np.float32, 1),
        ((2**20, 1023), np.float32, 0),
        ((2**20, 2048), np.float16, 1),
        ((2**20, 2048), np.int8, 0),
    ],
)
def test_offsets_into_a_tensor_that_do_not_fit_32_bits(shape, dtype, found):
    for space in (Space.SHARED_HBM, Space.PRIVATE_HBM):
        got = list(find_large_tensors(trace_of(space, shape, dtype), TRN2))
        assert [(one.id, one.severity.value) for one in got] == [
            ("tensor-beyond-32-bits", "warning")
        ] * found
