"""A view or `ap` costs no copy: it shares its tensor's memory, whatever its size."""

import tracemalloc

import numpy as np

from difftest.simulator import launch
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.tensor import NkiTensor
from tests.every import every

SHAPE = (128, 64, 32)
SIZE = 4 * 128 * 64 * 32
VIEWS = {
    "index": lambda t: t[0:64, 3:60:2, ::2],
    "slice": lambda t: t.slice(1, 4, 60, 2),
    "select": lambda t: t.select(1, 5),
    "permute": lambda t: t.permute((0, 2, 1)),
    "broadcast": lambda t: t.expand_dim(2).broadcast(2, 7),
    "squeeze": lambda t: t.expand_dim(2).squeeze_dim(2),
    "reshape_dim": lambda t: t.reshape_dim(2, (4, 8)),
    "flatten_dims": lambda t: t.flatten_dims(1, 2),
    "reshape": lambda t: t.reshape((128, 32, 64)),
    "rearrange": lambda t: t.rearrange(("p", "a", "b"), ("p", "b", "a")),
    "ap": lambda t: t.ap([[2048, 128], [3, 20], [0, 5]], offset=7),
}
SPACES = {"sbuf": nl.sbuf, "hbm": nl.hbm}


def costs(make, space):
    """Return whether a view shares its tensor's memory, and the bytes that it took at most."""
    seen = []

    def kernel():
        tensor = nl.ndarray(SHAPE, nl.float32, buffer=space)
        make(tensor)  # objects that are made once and kept are not a cost of a view
        tracemalloc.start()
        view = make(tensor)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        seen.append((np.shares_memory(view._elements(), tensor._storage.data), peak))

    launch(kernel)
    return seen[0]


@every("space", SPACES.values())
@every("make", VIEWS.values())
def test_a_view_copies_nothing(make, space):
    shares, peak = costs(make, space)
    assert shares
    assert peak < SIZE / 50


def test_a_view_that_copies_is_seen():
    """Planted: a view with elements of its own."""

    def copied(tensor):
        other = NkiTensor._whole(nl.ndarray(SHAPE, nl.float32)._storage)
        other._storage.data[...] = tensor._elements()
        return other

    shares, peak = costs(copied, nl.sbuf)
    assert not shares
    assert peak >= SIZE
