"""Convolution layers for tests: shapes within the contract that lean to where tiles end."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from difftest import Rejection, multiples

DTYPES = ("float32", "float16", "bfloat16")
INPUTS = {"X": "B C H V", "W": "O C F F", "bias": "O"}
PARAMETERS = ("pool_size",)

BANK = 512
"""float32 of a PSUM bank: the longest row of an output, and the largest tile."""
FILTERS = (1, 2, 3, 5, 7)
POOLS = (1, 2, 3, 4, 7, 16, 22)
MOST_IMAGES = 4


def roundings(C, F):
    """Of an element: one for each product that is added, and one for the bias."""
    return C * F * F + 1


def share(most):
    """1 to ``most``, from one integer however small ``most`` is: so that a failure shrinks to the
    smallest layer, not to the one that leaves nothing else to draw."""
    return st.integers(0, 999).map(lambda part: 1 + (most - 1) * part // 999)


def one_of(most, *edges):
    """One of the edges, those beyond 1 to ``most`` moved there."""
    return st.sampled_from([min(max(1, edge), most) for edge in edges])


def layers(most_products, most_rows=BANK):
    """A domain of layers with at most so many products of two elements, and so many output rows.

    128 output channels of 128 input channels take 128 * 128 products for each tap and position.
    """

    def room(*sizes):
        return most_products // math.prod(sizes)

    def pools(C, O, F):
        fitting = [pool for pool in POOLS if room(C, O, F, F, pool, pool)]
        return st.sampled_from(POOLS).map(lambda pool: max(p for p in fitting if p <= pool))

    def widths(C, O, F, pool_size):
        windows = room(C, O, F, F, pool_size, pool_size)
        most = min(BANK // pool_size, windows)
        about_square = min(most, 2 * math.isqrt(windows))
        across = share(about_square) | one_of(most, 1, 2, BANK // 2 + 1, most - 1, most)
        return across.map(lambda windows: windows * pool_size + F - 1)

    def heights(C, O, F, pool_size, V):
        out_width = V - F + 1
        windows = room(C, O, F, F, out_width, pool_size)
        most = min(max(1, most_rows // pool_size), windows)
        tile = BANK // (out_width * pool_size)
        down = share(most) | one_of(most, 1, tile - 1, tile, tile + 1, 2 * tile + 1)
        return down.map(lambda windows: windows * pool_size + F - 1)

    def images(C, O, F, H, V):
        most = room(C, O, F, F, H - F + 1, V - F + 1)
        return st.integers(1, MOST_IMAGES).map(lambda count: min(count, most))

    return {
        "C": multiples(128, at_most=384),
        "O": multiples(128, at_most=256),
        "F": [size for size in FILTERS if room(384, 256, size, size)],
        "pool_size": pools,
        "V": widths,
        "H": heights,
        "B": images,
    }


def layer(C=128, O=128, F=3, pool_size=1, V=16, H=32, B=1):
    """One layer: a value for each name of the domain."""
    return {"C": C, "O": O, "F": F, "pool_size": pool_size, "V": V, "H": H, "B": B}


SMALL_IMAGES = [
    layer(C=C, O=O, pool_size=pool_size, B=4)
    for pool_size in (1, 2)
    for C in (128, 256)
    for O in (128, 256)
]
"""The course's small correctness cases."""

REJECTIONS = [
    Rejection(layer(C=64), match="channels are multiples of 128: got 64 in, 128 out"),
    Rejection(layer(O=192), match="channels are multiples of 128: got 128 in, 192 out"),
    Rejection(
        layer(),
        match="W has the input channels of X: got 256 and 128",
        shapes={"W": (128, 256, 3, 3)},
    ),
    Rejection(
        layer(),
        match=r"bias has one value for each of 128 output channels: got \(256,\)",
        shapes={"bias": (256,)},
    ),
    Rejection(
        layer(),
        match="filters are square: got 3 x 2",
        shapes={"W": (128, 128, 3, 2)},
    ),
    Rejection(
        layer(),
        match=r"X is \[images, channels, rows, columns\] .* got shapes \(128, 32, 16\)",
        shapes={"X": (128, 32, 16)},
    ),
    Rejection(layer(H=4, F=5), match="a filter fits the image: got 5 x 5 on 4 x 16"),
    Rejection(layer(V=4, F=5), match="a filter fits the image: got 5 x 5 on 32 x 4"),
    Rejection(layer(pool_size=4), match="pool_size divides .* got 4 for 30 x 14"),
    Rejection(layer(pool_size=0), match="pool_size is at least 1: got 0"),
    Rejection(layer(V=515, H=3), match="a row .* has at most 512 elements.* got 513"),
    Rejection(
        layer(F=1, pool_size=23, V=23, H=23),
        match="a pooling window has at most 512 elements.* got 23 x 23",
    ),
    Rejection(layer(), match="X is float32, float16 or bfloat16: got int32", dtype="int32"),
]
