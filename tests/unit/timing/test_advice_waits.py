"""Findings on waits: for places in SBUF, for tensors in use, for turns of a loop, for engines."""

import numpy as np

from difftest.analysis.finding import Severity
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as nki_isa
from difftest.simulator.frontend.nki import language as newer
from tests.unit.timing.advised import X, advice, loaded, stored


def blocks(x, columns):
    """Blocks that are loaded, processed in the time of a load, and stored."""
    outs = []
    for turn in range(6):
        tile = loaded(x[turn])
        result = nisa.tensor_scalar(tile, nl.multiply, 2.0)
        outs.append(stored(result[:, 0:columns]))
    return outs[0]


def test_an_sbuf_that_is_full_and_blocks_loads():
    found = advice(blocks, np.ones((6, 128, 24 * 1024), np.float32), columns=8)[
        "full-sbuf"
    ]
    assert found.lost > 0
    assert "loads wait until SBUF has a place for them" in found.happened
    assert "advised.py" in found.happened
    assert "full-sbuf" not in advice(
        blocks, np.ones((6, 128, 2048), np.float32), columns=8
    )


def test_a_tensor_that_is_filled_again_while_others_read_it():
    @jit
    def summed(x, apart):
        out = newer.ndarray((8, 128, 1), dtype=x.dtype, buffer=newer.shared_hbm)
        part = newer.ndarray((128, 2048), dtype=x.dtype, buffer=newer.sbuf)
        for i in range(8):
            if apart:
                part = newer.ndarray((128, 2048), dtype=x.dtype, buffer=newer.sbuf)
            nki_isa.dma_copy(dst=part, src=x[i])
            total = newer.ndarray((128, 1), dtype=x.dtype, buffer=newer.sbuf)
            nki_isa.tensor_reduce(dst=total, op=newer.add, data=part, axis=(1,))
            nki_isa.dma_copy(dst=out[i], src=total)
        return out

    parts = np.ones((8, 128, 2048), np.float32)
    found = advice(summed, parts, apart=False)
    assert next(iter(found)) == "reused-tensor"
    said = found["reused-tensor"]
    assert "7 instructions fill a tensor of line" in said.happened
    assert said.location.text == "nki_isa.dma_copy(dst=part, src=x[i])"
    assert said.lost > 10
    assert "reused-tensor" not in advice(summed, parts, apart=True)


def test_a_loop_on_the_device():
    @jit
    def rolled(x, on_device):
        out = newer.ndarray(x.shape, dtype=x.dtype, buffer=newer.shared_hbm)
        tile = ((512, 128), (1, 512))

        def turn(i):
            part = newer.ndarray((128, 512), dtype=x.dtype, buffer=newer.sbuf)
            nki_isa.dma_copy(
                dst=part, src=x.ap(pattern=tile, scalar_offset=i, indirect_dim=0)
            )
            place = out.ap(pattern=tile, scalar_offset=i, indirect_dim=0)
            nki_isa.dma_copy(dst=place, src=part)

        if on_device:
            newer.fori_loop(0, x.shape[0], turn)
        else:
            for i in range(x.shape[0]):
                part = newer.ndarray((128, 512), dtype=x.dtype, buffer=newer.sbuf)
                nki_isa.dma_copy(dst=part, src=x[i])
                nki_isa.dma_copy(dst=out[i], src=part)
        return out

    images = np.ones((16, 128, 512), np.float32)
    found = advice(rolled, images, on_device=True)["device-loop"]
    assert "all engines wait for each other 15 times" in found.happened
    assert "device-loop" not in advice(rolled, images, on_device=False)


def test_the_report_names_the_engine_that_others_wait_for():
    def alternating(x):
        tile = loaded(x[:, 0:512])
        for _ in range(6):
            tile = nisa.tensor_tensor(tile, tile, nl.add)
            tile = nisa.tensor_tensor(tile, tile, nl.add)
            tile = nisa.activation(nl.exp, tile)
        return stored(tile)

    found = advice(alternating, X * 0)["waiting"]
    assert found.severity is Severity.NOTE
    says = "the vector engine, the busiest that computes, waits 5 times for scalar (activation)"
    assert says in found.happened


def test_waits_are_no_finding_if_dma_is_the_limit():
    def streamed(x, turns):
        for part in range(16):
            tile = loaded(x[:, 256 * part : 256 * part + 256])
            for _ in range(turns):
                tile = nisa.activation(nl.exp, tile)
            stored(tile)

    wide = np.ones((128, 4096), np.float32) * 0
    assert "waiting" not in advice(streamed, wide, turns=1)


def test_copies_on_one_busy_engine_are_advised_against():
    def scaled(x, engine):
        tile = loaded(x[:, 0:2048])
        outs = [nisa.tensor_copy(tile, engine=engine) for _ in range(60)]
        return stored(outs[-1])

    found = advice(scaled, X, engine=nisa.scalar_engine)["uneven-engines"]
    assert "give a part of these to the vector engine" in found.remedy
    assert "uneven-engines" not in advice(scaled, X, engine=nisa.unknown_engine)
