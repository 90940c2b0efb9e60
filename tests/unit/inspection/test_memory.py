"""How full the memories are, as text."""

import numpy as np

from difftest.inspection import memory_text
from difftest.simulator import TRN2, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl

SBUF = "sbuf: 512 of 212,992 bytes a partition at the peak (0%), at event 0"
PSUM = "psum: 512 of 16,384 bytes a partition at the peak (3%), at event 2"


def kernel(x):
    out = nl.ndarray((128, 128), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    product = nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
    product[...] = nisa.nc_matmul(tile, tile)
    nl.store(out, nl.copy(product))
    return out


def test_each_memory_has_its_peak_and_a_chart():
    trace = launch(kernel, [np.ones((128, 128), np.float32)]).trace
    lines = memory_text(trace, TRN2).splitlines()
    sbuf, psum = lines.index(SBUF), lines.index(PSUM)
    assert lines[sbuf + 1] == "  ▁▁ ▁▁  events 0 to 4"
    assert lines[psum + 1] == "    ▁▁   events 0 to 4"
    assert lines[sbuf + 2].startswith("  512 bytes tensor 2 [128, 128] float32 in sbuf, ")
    assert lines[sbuf + 2].endswith("tile = nl.load(x)")


def test_the_chart_rises_and_falls():
    """Half of SBUF, then all of it, then next to nothing."""

    def halves():
        out = nl.ndarray((128, 2), nl.float32, buffer=nl.shared_hbm)
        one = nl.zeros((128, 26_000), nl.float32)
        other = nl.zeros((128, 26_000), nl.float32)
        nl.store(out[:, 0:1], nl.max(one, axis=1))
        nl.store(out[:, 1:2], nl.max(other, axis=1))
        return out

    trace = launch(halves).trace
    lines = memory_text(trace, TRN2).splitlines()
    assert lines[0].startswith("sbuf: 208,004 of 212,992 bytes a partition at the peak (98%)")
    assert lines[1] == "  ▄██▄▄▁  events 0 to 5"


def test_nothing_on_chip_is_nothing_to_say():
    def empty(x):
        return x

    trace = launch(empty, [np.ones((2, 2), np.float32)]).trace
    assert memory_text(trace, TRN2) == ""
