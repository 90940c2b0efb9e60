"""Bounds and losses do not depend on memory that nothing has written."""

import numpy as np

from difftest.simulator import launch
from difftest.simulator.exact.run import ExactSettings
from difftest.simulator.frontend.classic import isa as classic_isa
from difftest.simulator.frontend.classic import language as classic
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every

WHOLE = np.random.default_rng(1).integers(-8, 8, (16, 24)).astype(np.float32)
DATA = {"whole": WHOLE, "thirds": WHOLE * np.float32(1 / 3)}
LEFTOVERS = (0.0, 0.1, -7.0, 1e38, np.inf, np.nan)


def left_in(tensor, value):
    """Return a tensor whose memory holds a value that no instruction has written."""
    tensor._storage.data[...] = value
    return tensor


def first_columns_then_all(x, leftover):
    """The second product adds to 8 columns, and overwrites the others."""
    tile = nl.ndarray((16, 24), nl.float32, nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    total = left_in(nl.ndarray((24, 24), nl.float32, nl.psum), leftover)
    nisa.nc_matmul(dst=total[:, 0:8], stationary=tile, moving=tile[:, 0:8])
    nisa.nc_matmul(dst=total, stationary=tile, moving=tile)
    return copied_out(total)


def over_another_instruction(x, leftover):
    """As above, but an instruction that is no product has written the other columns."""
    tile = nl.ndarray((16, 24), nl.float32, nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    total = nl.ndarray((24, 24), nl.float32, nl.psum)
    nisa.memset(dst=total, value=leftover)
    nisa.nc_matmul(dst=total[:, 0:8], stationary=tile, moving=tile[:, 0:8])
    nisa.nc_matmul(dst=total, stationary=tile, moving=tile)
    return copied_out(total)


def first_columns_then_all_classic(x, leftover):
    tile = classic.load(x)
    shape = (classic.par_dim(24), 24)
    total = left_in(classic.ndarray(shape, np.float32, buffer=classic.psum), leftover)
    total[:, 0:8] = classic_isa.nc_matmul(tile, tile[:, 0:8])
    total[...] += classic_isa.nc_matmul(tile, tile)
    out = classic.ndarray((24, 24), np.float32, buffer=classic.shared_hbm)
    classic.store(out, classic.copy(total))
    return out


def copied_out(total):
    tile = nl.ndarray(total.shape, nl.float32, nl.sbuf)
    nisa.tensor_copy(dst=tile, src=total)
    out = nl.ndarray(total.shape, nl.float32, nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


KERNELS = (
    first_columns_then_all,
    over_another_instruction,
    first_columns_then_all_classic,
)


def runs(kernel, x, settings=True):
    """Return the exact run of a kernel for each value that memory may have had."""
    return [launch(kernel, [x, value], exact=settings).exact for value in LEFTOVERS]


@every("kernel, x", [(kernel, x) for kernel in KERNELS for x in DATA])
def test_a_sum_does_not_depend_on_what_it_overwrites(kernel, x):
    outputs = [run.outputs[0] for run in runs(kernel, DATA[x])]
    bounds = {
        str(output.error.tobytes() if output.error is not None else None)
        for output in outputs
    }
    assert len({output.value.tobytes() for output in outputs}) == 1
    assert len(bounds) == 1
    assert (bounds == {"None"}) is (x == "whole")


@every("kernel", [first_columns_then_all, first_columns_then_all_classic])
def test_a_loss_does_not_depend_on_what_it_overwrites(kernel):
    first, *others = runs(kernel, DATA["thirds"], ExactSettings(losses=True))
    assert all(run.losses == first.losses for run in others)


def statistics_of_a_part(x):
    """The statistics of a tile that is written in part; no output depends on them."""
    part = nl.ndarray((2, 4), nl.uint8, nl.sbuf)
    nisa.iota(part[0:1, 0:3], [[1, 3]], 0, 3)
    found = nl.ndarray((2, 6), nl.uint8, nl.sbuf)
    nisa.dma_copy(dst=found, src=x)
    nisa.bn_stats(dst=found, data=part)
    out = nl.ndarray((1, 1), nl.uint8, nl.shared_hbm)
    nisa.dma_copy(dst=out, src=part[0:1, 0:1])
    return out


def test_notes_do_not_depend_on_new_memory(monkeypatch):
    empty = np.empty
    notes = set()
    for byte in (0x00, 0x3F, 0xFF):

        def filled(*form, byte=byte):
            array = empty(*form)
            array.reshape(-1).view(np.uint8)[:] = byte
            return array

        with monkeypatch.context() as patched:
            patched.setattr(np, "empty", filled)
            run = launch(
                statistics_of_a_part,
                [np.ones((2, 6), np.uint8)],
                exact=ExactSettings(losses=True),
            ).exact
        notes.add(str((run.doubts, run.losses)))
    assert len(notes) == 1
