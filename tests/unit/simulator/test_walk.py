"""The walk of an instruction through the package: the files on a reader's way.

A warm call is profiled. What is counted are calls of functions of the simulator: the files that
they lie in, and the stays, which are runs of calls in one file. A comprehension is no call.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import difftest.simulator
from difftest.simulator import launch
from difftest.simulator.frontend.classic import isa as classic
from difftest.simulator.frontend.classic import language as cl
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import stored

HOME = str(Path(difftest.simulator.__file__).parent)
SQUARE = np.ones((16, 16), np.float32)
COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>"}


class Walk(NamedTuple):
    """The files of a call, and the stays in them."""

    files: int
    stays: int


def walk_of(call: Callable[[], object]) -> Walk:
    """The walk of a call that ran before."""
    files: list[str] = []

    def profile(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_name not in COMPREHENSIONS:
            files.append(code.co_filename)

    call()
    call()
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    files = [file for file in files if file.startswith(HOME)]
    return Walk(len(set(files)), len(list(itertools.groupby(files))))


def walk_in_launch(setup, **how) -> Walk:
    """Return the walk of a prepared kernel."""
    walks = []

    def kernel(x):
        call, out = setup(x)
        walks.append(walk_of(call))
        return out

    launch(kernel, (SQUARE,), **how)
    return walks[0]


def loaded(x):
    tile = nl.ndarray((16, 16), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    return tile


def todays_product(x):
    a, b = loaded(x), loaded(x)
    product = nl.ndarray((16, 16), nl.float32, buffer=nl.psum)
    return lambda: nisa.nc_matmul(product, a, b), stored(a)


def todays_sum(x):
    a, b = loaded(x), loaded(x)
    return lambda: nisa.tensor_tensor(a, a, b, op=nl.add), stored(a)


def classic_product(x):
    a, b = cl.load(x), cl.load(x)
    return lambda: classic.nc_matmul(a, b), classic_stored(a)


def classic_sum(x):
    a, b = cl.load(x), cl.load(x)
    return lambda: classic.tensor_tensor(a, b, op=cl.add), classic_stored(a)


def classic_stored(tile):
    out = cl.ndarray((16, 16), cl.float32, buffer=cl.shared_hbm)
    cl.store(out, tile)
    return out


# At most; whoever makes a walk shorter takes the figures down. It is no aim by itself: a function
# that is written out where it was called shortens the walk, and has to be as fast.
@every(
    "setup, how, most",
    [
        (todays_product, {}, Walk(12, 28)),
        (todays_product, {"exact": True}, Walk(19, 58)),
        (classic_product, {}, Walk(12, 28)),
        (todays_sum, {}, Walk(13, 23)),
        (classic_sum, {}, Walk(14, 29)),
    ],
)
def test_an_instruction_walks_through_few_files(setup, how, most):
    walk = walk_in_launch(setup, **how)
    assert walk.files <= most.files, walk
    assert walk.stays <= most.stays, walk


def test_a_stay_more_is_counted():
    tile = np.ones(3)
    assert walk_of(lambda: tile.sum()) == Walk(0, 0)
    walk = walk_in_launch(todays_sum)
    longer = walk_in_launch(
        lambda x: (lambda: (loaded(x), loaded(x)), todays_sum(x)[1])
    )
    assert longer.stays > walk.stays > walk.files > 10
