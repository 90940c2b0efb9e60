"""DMA: HBM and SBUF, casts, transposes, gathers and scatters; never PSUM."""

from __future__ import annotations

import numpy as np
import pytest

from difftest.simulator import NkiError, launch
from difftest.simulator.frontend import kernel as nki
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import normal

TABLE = normal(10, 6)
INDEX = np.array([[7], [0], [7], [9]], np.int32)


@every("write", ["gather", "scatter"])
def test_indices_do_not_lead_around_an_immutable_parameter(write):
    @nki.jit
    def kernel(table, index):
        named = table[nl.load(index), nl.arange(6)[None, :]]
        if write == "scatter":
            nl.store(named, nl.zeros((4, 6), nl.float32))
        else:
            nisa.dma_copy(dst=table[0:4], src=named)

    with pytest.raises(NkiError, match="a kernel does not write to its parameters"):
        launch(kernel, [TABLE, INDEX])
