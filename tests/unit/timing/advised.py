"""Advice on kernels of the tests' own."""

import numpy as np

from difftest.simulator import TRN2, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.timing import predict
from difftest.timing.advice import DETECTORS
from difftest.timing.advice.savings import Units

X = np.ones((128, 4096), np.float32)


def advice(kernel, *arrays, **keywords):
    """Return the first finding of each id in a kernel, whatever its gain."""
    return findings(timeline_of(kernel, *arrays, **keywords))


def findings(timeline):
    found = {}
    for detector in DETECTORS:
        for one in detector(timeline, Units(timeline)):
            found.setdefault(one.id, one)
    return found


def timeline_of(kernel, *arrays, **keywords):
    return predict(launch(kernel, arrays, keywords).trace, TRN2, dge=True).schedule


def stored(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def loaded(source, dtype=None):
    tile = nl.ndarray(source.shape, dtype or source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile
