"""A tile's repr: one line in an error, statistics and values in a debugger."""

import io
import pdb
import sys

import numpy as np

from difftest.simulator import launch
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.classic import language as old_nl
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every

DATA = np.arange(6, dtype=np.float32).reshape(2, 3)


def frame_of(names):
    """A frame that has these names."""
    scope = {"frames": [], "sys": sys, **names}
    exec("frames.append(sys._getframe())", scope)
    return scope["frames"][0]


def said(command, **names):
    """Return the output of Python's debugger."""
    output = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO(), stdout=output)
    debugger.reset()
    debugger.setup(frame_of(names), None)
    debugger.onecmd(command)
    return output.getvalue()


@every("command", ["p tile", "pp tile"])
def test_a_debugger_shows_values_and_statistics(command):
    seen = {}

    def kernel(a):
        tile = old_nl.load(a)
        seen["debugger"], seen["error"] = said(command, tile=tile), repr(tile)
        out = old_nl.ndarray(a.shape, a.dtype, buffer=old_nl.shared_hbm)
        old_nl.store(out, tile)
        return out

    launch(kernel, [DATA])
    headline, statistics, *values = seen["debugger"].splitlines()
    assert headline == seen["error"]
    assert "\n" not in seen["error"]
    assert (
        statistics
        == "  min 0, max 5, mean 2.5; 0 of 6 never written, 0 NaN, 0 infinite"
    )
    assert [line.strip() for line in values] == ["[[0. 1. 2.]", "[3. 4. 5.]]"]


def test_a_debugger_counts_unwritten_elements_without_using_them():
    seen = {}

    @jit
    def kernel(a):
        tile = nl.ndarray((2, 3), nl.bfloat16, buffer=nl.sbuf)
        nisa.memset(tile[0:1, :], 2.0)
        seen["debugger"] = said("p tile", tile=tile)
        return a

    launch(kernel, [DATA])
    assert "min 2, max 2, mean 2; 3 of 6 never written" in seen["debugger"]
