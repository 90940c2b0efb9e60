"""Loads and stores, and what they refuse."""

from __future__ import annotations

import pytest

from difftest.simulator import NkiError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every


def sbuf(*shape):
    return nl.zeros(shape, nl.float32)


def hbm(*shape):
    return nl.ndarray(shape, nl.float32, buffer=nl.hbm)


REFUSED = [
    (
        "a store into SBUF",
        lambda: nl.store(sbuf(4, 4), sbuf(4, 4)),
        "nl.store takes dst in hbm",
        "in sbuf",
    ),
    ("a store of HBM", lambda: nl.store(hbm(4, 4), hbm(4, 4)), "in sbuf or psum", "private_hbm"),
    (
        "a store of another row",
        lambda: nl.store(hbm(4, 4), sbuf(4, 3)),
        "nl.store's value has its target's shape",
        "target [4, 4], value [4, 3]",
    ),
    (
        "a text",
        lambda: nl.store(hbm(4, 4), "0"),
        "nl.store takes a tile as value",
        "str '0'",
    ),
    ("a copy of HBM", lambda: nl.copy(hbm(4, 4)), "nl.copy takes src in sbuf or psum", "hbm"),
    (
        "a broadcast that does not fit",
        lambda: nl.broadcast_to(sbuf(4, 3), shape=(4, 4)),
        "broadcast_to repeats dimensions of size 1",
        "[4, 3] float32 in sbuf to [4, 4]",
    ),
    (
        "a new partition dimension",
        lambda: nl.expand_dims(sbuf(4, 3), 0),
        "expand_dims takes an axis of 1 to 2",
        "axis=0",
    ),
    (
        "a transposed load of indices",
        lambda: nl.load_transpose2d(hbm(4, 4)[rows(), X]),
        "nl.load_transpose2d takes a tile as src",
        "IndexedTile",
    ),
    (
        "a copy to nowhere",
        lambda: nisa.dma_copy(dst=None, src=hbm(4, 4)),
        "dma_copy takes a tile as dst",
        "NoneType",
    ),
]
X = nl.arange(4)[None, :]


def rows():
    return nisa.iota(nl.arange(4)[:, None], nl.int32)


@every("use, rule, received", [row[1:] for row in REFUSED])
def test_what_is_refused(use, rule, received):
    def kernel():
        use()

    with pytest.raises(NkiError) as caught:
        launch(kernel)
    assert rule in caught.value.rule
    assert received in caught.value.received
