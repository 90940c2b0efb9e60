"""Advice on kernels of the tests' own."""

from __future__ import annotations

import numpy as np

from difftest.simulator import TRN2, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.timing import predict
from difftest.timing.advice import advise

X = np.ones((128, 4096), np.float32)


def advice(kernel, *arrays, **keywords):
    """The findings on a kernel, by id; the first of each."""
    timeline = predict(launch(kernel, arrays, keywords).trace, TRN2, dge=True).schedule
    found = {}
    for one in advise(timeline):
        found.setdefault(one.id, one)
    return found


def stored(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def loaded(source, dtype=None):
    tile = nl.ndarray(source.shape, dtype or source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile
