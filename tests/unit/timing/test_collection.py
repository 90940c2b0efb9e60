import gc

import numpy as np

from difftest.simulator import TRN2, launch
from difftest.simulator.frontend.classic import language as nl
from difftest.timing import advice, predict
from difftest.timing.collection import no_collection


def copied(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


def test_advice_is_computed_without_garbage_collection(monkeypatch):
    seen = []

    def detector(schedule, units):
        seen.append(gc.isenabled())
        yield from ()

    monkeypatch.setattr(advice, "DETECTORS", (detector,))
    trace = launch(copied, [np.ones((8, 8), np.float32)]).trace
    assert advice.advise(predict(trace, TRN2).schedule) == []
    assert seen == [False]
    assert gc.isenabled()


def test_a_disabled_collection_stays_disabled():
    gc.disable()
    try:
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
