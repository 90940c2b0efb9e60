from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from difftest.simulator import TRN1, TRN2, launch
from difftest.simulator.frontend.classic import compiler as ncc
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.trace import Engine
from difftest.timing import predict
from difftest.timing.compiler import FASTEST, LIKELY, SLOWEST, RepeatRule
from difftest.timing.renaming import RepeatedWork
from tests.unit.timing import convolutions

V = Engine.VECTOR
REMOVED = LIKELY._replace(repeated_copies=RepeatRule.REMOVED)


def traced(kernel, *shapes, dtype="float32"):
    return launch(kernel, [np.ones(shape, dtype) for shape in shapes]).trace


def left_out(trace, compiler=LIKELY):
    """Return the opcodes of the omitted instructions."""
    gone = RepeatedWork(trace, TRN2, compiler).events
    return [event.opcode for event in trace.events if event.number in gone]


def convolution(kernel, dtype="float16", rows=20):
    return traced(kernel, (128, rows, 130), (9, 128, 128), dtype=dtype)


def test_copies_of_invariant_data_are_made_once():
    """18 rows, 9 taps: the copies of the weights except the first row's; none of the image."""
    assert (
        left_out(convolution(convolutions.copied_operands)) == ["tensor_copy"] * 17 * 9
    )
    assert left_out(convolution(convolutions.copied_image)) == []


def test_weights_copied_again_cost_no_more_than_weights_that_are_not_copied():
    operands, image = (
        convolution(kernel, rows=34)
        for kernel in (convolutions.copied_operands, convolutions.copied_image)
    )
    without = predict(image, TRN2, dge=False).middle
    assert predict(operands, TRN2, dge=False).middle == pytest.approx(without, rel=0.05)
    assert predict(operands, TRN2, dge=False, compiler=SLOWEST).middle > 1.4 * without


def test_copies_of_data_of_an_outer_loop_are_made_once_in_its_iteration():
    """Two groups of weights, 8 rows, 9 taps; all except the first row's of each group go."""
    trace = traced(
        convolutions.copied_in_groups, (128, 10, 130), (2, 9, 128, 128), dtype="float16"
    )
    assert left_out(trace) == ["tensor_copy"] * 2 * 7 * 9
    slow = LIKELY._replace(repeated_copies=RepeatRule.KEPT)
    assert left_out(trace, slow) == []


def test_transposes_of_invariant_data_are_made_once_on_trn1():
    """18 rows, 9 taps: the transposes and their copies, except the first row's."""
    trace = convolution(convolutions.turned_weights, "float32")
    assert left_out(trace) == []
    for machine, compiler in ((TRN1, LIKELY), (TRN1, FASTEST), (TRN2, FASTEST)):
        gone = RepeatedWork(trace, machine, compiler).events
        found = Counter(event.opcode for event in trace.events if event.number in gone)
        assert found == {"nc_transpose": 17 * 9, "tensor_copy": 17 * 9}
    each = predict(trace, TRN1, dge=False, compiler=SLOWEST).middle
    assert each > 1.5 * predict(trace, TRN1, dge=False).middle


def test_a_transpose_that_someone_else_reads_is_made():
    """Its result is copied twice, so that the copies alone are left out."""

    def twice(turn, tile):
        result = nisa.nc_transpose(tile)
        return nisa.tensor_copy(result) + nisa.tensor_copy(result, dtype=nl.float16)

    trace = traced(lambda x: looped(x, twice), (64, 64))
    assert RepeatedWork(trace, TRN1, LIKELY).events == set()


def looped(x, body):
    """Two turns of a loop with ``body(turn, tile)``, whose results are stored."""
    out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for turn in nl.affine_range(2):
        nl.store(out[turn], body(turn, tile))
    return out


def copies(body, compiler=LIKELY):
    """Return the number of omitted copies in two iterations of ``body``."""
    return len(left_out(traced(lambda x: looped(x, body), (128, 64)), compiler))


def test_only_copies_of_the_same_data_repeat():
    def tile_and_cast(turn, tile):
        return nisa.tensor_copy(tile) + nisa.tensor_copy(tile, dtype=nl.float16)

    def parts(turn, tile):
        whole = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        for half in range(2):
            columns = slice(32 * half, 32 * half + 32)
            whole[:, columns] = nisa.tensor_copy(tile[:, columns])
        return whole

    def of_a_copy(turn, tile):
        return nisa.tensor_copy(nisa.tensor_copy(tile))

    def written_into(turn, tile):
        copy = nisa.tensor_copy(tile)
        copy[...] = nisa.tensor_scalar(copy, nl.add, 1.0)
        return copy

    assert copies(tile_and_cast) == 2
    assert copies(parts) == 0  # neither is all of its destination
    assert copies(of_a_copy) == 2
    assert copies(written_into) == 0


def test_other_elements_are_another_copy():
    def halves(x):
        out = nl.ndarray((2, 128, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for turn in nl.affine_range(2):
            nl.store(out[turn], nisa.tensor_copy(tile[:, 32 * turn : 32 * turn + 32]))
        return out

    assert left_out(traced(halves, (128, 64))) == []


@ncc.skip_middle_end_transformations
def refilled(x):
    """Each turn loads the tile and copies it twice."""
    out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    for turn in nl.affine_range(2):
        tile = nl.load(x)
        nl.store(out[turn], nisa.tensor_copy(tile) + nisa.tensor_copy(tile))
    return out


def test_a_loaded_tile_is_copied_as_written_or_once():
    trace = traced(refilled, (128, 64))
    assert left_out(trace) == []
    assert left_out(trace, REMOVED) == ["tensor_copy"] * 2


def test_the_middle_end_loads_once():
    trace = traced(refilled, (128, 64))
    assert not trace.middle_end
    assert "dma_copy" in left_out(replace(trace, middle_end=True))


def test_loads_of_the_same_bytes():
    trace = traced(refilled, (128, 64))
    assert "dma_copy" not in left_out(trace, REMOVED)
    assert left_out(trace, FASTEST) == ["tensor_copy", "dma_copy", *["tensor_copy"] * 2]


def test_a_copy_of_changed_data_is_no_repetition():
    def kernel(x):
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for turn in nl.sequential_range(2):
            nl.store(out[turn], nisa.tensor_copy(tile))
            tile[...] = nisa.tensor_scalar(tile, nl.add, 1.0)
        return out

    assert left_out(traced(kernel, (128, 64)), REMOVED) == []


def test_tiles_stay_as_far_as_there_is_room():
    """Three tiles of 40 KiB a partition, and a copy of each in each turn: 208 KiB hold two more."""

    def kernel(x):
        out = nl.ndarray((2, 3, 128, 10240), dtype=x.dtype, buffer=nl.shared_hbm)
        tiles = [nl.load(x[i]) for i in range(3)]
        for turn in nl.affine_range(2):
            for i in range(3):
                nl.store(out[turn, i], nisa.tensor_copy(tiles[i]))
        return out

    assert left_out(traced(kernel, (3, 128, 10240))) == ["tensor_copy"]


def test_python_loops_leave_no_mark_and_nothing_is_known_to_be_outside():
    def kernel(x):
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for turn in range(2):
            nl.store(out[turn], nisa.tensor_copy(tile))
        return out

    trace = traced(kernel, (128, 64))
    assert left_out(trace) == []
    assert left_out(trace, REMOVED) == ["tensor_copy"]


def test_a_loop_of_one_turn_is_none():
    """A batch of one image: what its only turn loads is there before the loop over rows."""

    def kernel(x):
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        for _ in nl.affine_range(1):
            tile = nl.load(x)
            for turn in nl.affine_range(2):
                nl.store(out[turn], nisa.tensor_copy(tile))
        return out

    assert left_out(traced(kernel, (128, 64))) == ["tensor_copy"]
