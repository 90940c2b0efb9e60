"""Loops that run on the device: barriers between their turns, as published probes have it.

Unrolled 3.18 us a tile, on the device 11.94; 64 turns 0.161 ms and 0.257 (inf2 and trn1).
"""

import numpy as np
import pytest

from difftest.simulator import TRN2, launch
from difftest.simulator.entry.install import embedded
from difftest.timing import predict
from difftest.timing import program as program_module

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl

TURNS = 32
IMAGES = np.ones((TURNS, 128, 512), np.float32)


@nki.jit
def doubled(x, on_device):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = ((512, 128), (1, 512))

    def part(tensor, i):
        if on_device:
            return tensor.ap(pattern=tile, scalar_offset=i, indirect_dim=0)
        return tensor[i]

    def turn(i):
        taken = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=taken, src=part(x, i))
        made = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=made, data=taken, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=part(out, i), src=made)

    if on_device:
        nl.fori_loop(0, TURNS, turn)
    else:
        for i in range(TURNS):
            turn(i)
    return out


def predicted(on_device):
    return predict(
        launch(doubled, [IMAGES], {"on_device": on_device}).trace, TRN2, dge=False
    )


def test_turns_do_not_overlap():
    spans = predicted(True).schedule.spans
    kept = [s for s in spans if not s.instruction.implied]
    barriers = [s for s in spans if s.instruction.implied]
    assert len(kept) == 3 * TURNS
    assert len(barriers) == TURNS - 1
    for turn in range(TURNS - 1):
        ended = max(span.end for span in kept[3 * turn : 3 * turn + 3])
        assert barriers[turn].start >= ended
        assert min(s.start for s in kept[3 * turn + 3 : 3 * turn + 6]) >= ended + 1400


def test_a_loop_on_the_device_takes_several_times_as_long():
    unrolled = predicted(False)
    rolled = predicted(True)
    assert 2 < rolled.middle / unrolled.middle < 8


def test_without_the_barriers_both_would_be_predicted_alike(monkeypatch):
    """Planted: loops on the device are taken for unrolled ones."""
    monkeypatch.setattr(program_module._ProgramBuilder, "_drain", lambda *_: None)
    assert predicted(True).middle == pytest.approx(predicted(False).middle, rel=0.01)
