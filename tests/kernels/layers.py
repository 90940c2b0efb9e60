"""Convolution layers for tests: shapes within the contract that lean to where tiles end."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from difftest import Rejection, multiples

DTYPES = ("float32", "float16", "bfloat16")
INPUTS = {
    "X": "batch c_in height width",
    "W": "c_out c_in filter_size filter_size",
    "bias": "c_out",
}
PARAMETERS = ("pool_size",)

BANK = 512
"""float32 of a PSUM bank: the longest row of an output, and the largest tile."""
FILTERS = (1, 3, 2, 3, 1, 5, 3, 7)
POOLS = (1, 2, 1, 2, 1, 3, 4, 2, 7, 22)
"""The sizes that most layers have are there several times."""
MOST_IMAGES = 4


def roundings(c_in, filter_size):
    """Of an element: one for each product that is added, and one for the bias."""
    return c_in * filter_size * filter_size + 1


def share(most):
    """1 to ``most``, from one integer however small ``most`` is: so that a failure shrinks to the
    smallest layer, not to the one that leaves nothing else to draw."""
    return st.integers(0, 999).map(lambda part: 1 + (most - 1) * part // 999)


def one_of(most, *edges):
    """One of the edges, those beyond 1 to ``most`` moved there."""
    return st.sampled_from([min(max(1, edge), most) for edge in edges])


def layers(most_products, most_rows=BANK, filters=FILTERS):
    """A domain of layers with at most so many products of two elements, and so many output rows.

    128 output channels of 128 input channels take 128 * 128 products for each tap and position.
    """

    def room(*sizes):
        return most_products // math.prod(sizes)

    def pools(c_in, c_out, filter_size):
        windows = room(c_in, c_out, filter_size, filter_size)
        fitting = [pool for pool in POOLS if pool * pool <= windows]
        return st.sampled_from(POOLS).map(
            lambda pool: max(size for size in fitting if size <= pool)
        )

    def batches(c_in, c_out, filter_size, pool_size):
        most = room(c_in, c_out, filter_size, filter_size, pool_size, pool_size)
        return st.integers(1, MOST_IMAGES).map(lambda count: min(count, most))

    def widths(c_in, c_out, filter_size, pool_size, batch):
        windows = room(c_in, c_out, filter_size, filter_size, pool_size, pool_size, batch)
        most = min(BANK // pool_size, windows)
        across = share(min(most, math.isqrt(windows))) | one_of(
            most, 1, 2, BANK // 2 + 1, most - 1, most
        )
        return across.map(lambda windows: windows * pool_size + filter_size - 1)

    def heights(c_in, c_out, filter_size, pool_size, batch, width):
        out_width = width - filter_size + 1
        windows = room(c_in, c_out, filter_size, filter_size, out_width, pool_size, batch)
        most = min(max(1, most_rows // pool_size), windows)
        tile = BANK // (out_width * pool_size)
        down = share(most) | one_of(most, 1, tile - 1, tile, tile + 1, 2 * tile + 1)
        return down.map(lambda windows: windows * pool_size + filter_size - 1)

    return {
        "c_in": multiples(128, at_most=384),
        "c_out": multiples(128, at_most=256),
        "filter_size": filters,
        "pool_size": pools,
        "batch": batches,
        "width": widths,
        "height": heights,
    }


def small_layers():
    """A domain of small images, for kernels whose tiles are made small."""

    def sizes(pool_size, filter_size):
        return st.integers(1, 12).map(lambda windows: windows * pool_size + filter_size - 1)

    return {
        "c_in": (128, 256),
        "c_out": (128, 256),
        "filter_size": (1, 2, 3),
        "pool_size": (1, 2, 3),
        "batch": (1, 2),
        "width": sizes,
        "height": sizes,
    }


def layer(c_in=128, c_out=128, filter_size=3, pool_size=1, batch=1, width=16, height=32):
    """One layer: a value for each name of the domain."""
    return {
        "c_in": c_in,
        "c_out": c_out,
        "filter_size": filter_size,
        "pool_size": pool_size,
        "batch": batch,
        "width": width,
        "height": height,
    }


SMALL_IMAGES = [
    layer(c_in=c_in, c_out=c_out, pool_size=pool_size, batch=4)
    for pool_size in (1, 2)
    for c_in in (128, 256)
    for c_out in (128, 256)
]
"""The course's small correctness cases."""

TWO_PARTIAL_SUMS = layer(c_in=256, filter_size=1, width=3, height=3)
"""Short sums of random data, whose bound is tight enough to see a partial sum in float16."""

REJECTIONS = [
    Rejection(layer(c_in=64), match="channels are multiples of 128: got 64 in, 128 out"),
    Rejection(layer(c_out=192), match="channels are multiples of 128: got 128 in, 192 out"),
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
    Rejection(layer(height=4, filter_size=5), match="a filter fits the image: got 5 x 5 on 4 x 16"),
    Rejection(layer(width=4, filter_size=5), match="a filter fits the image: got 5 x 5 on 32 x 4"),
    Rejection(layer(pool_size=4), match="pool_size divides .* got 4 for 30 x 14"),
    Rejection(layer(pool_size=0), match="pool_size is at least 1: got 0"),
    Rejection(layer(width=515, height=3), match="a row .* has at most 512 elements.* got 513"),
    Rejection(
        layer(filter_size=1, pool_size=23, width=23, height=23),
        match="a pooling window has at most 512 elements.* got 23 x 23",
    ),
    Rejection(layer(), match="X is float32, float16 or bfloat16: got int32", dtype="int32"),
]
