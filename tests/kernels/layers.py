"""Convolution layers for tests: shapes within the contract that lean to where tiles end."""

import math

from hypothesis import strategies as st

from difftest import Rejection, sizes

DTYPES = ("float32", "float16", "bfloat16")
INPUTS = {
    "X": "batch c_in height width",
    "W": "c_out c_in filter_size filter_size",
    "bias": "c_out",
}
PARAMETERS = ("pool_size",)

BANK = 512
"""float32 of a PSUM bank: the longest row of an output, and the largest tile."""
MOST_WEIGHTS = 384 * 256
"""Channels of a tap: with 7 x 7 taps so many fit SBUF in float32."""
ROW = 200_000
"""Bytes of an SBUF partition for each of the two rows of windows in float32."""
CHANNELS = (128,) * 6 + (256, 384)
FILTERS = (1, 1, 2, 2, 2, 2, 3, 3, 5, 7)
POOLS = (1, 1, 1, 2, 2, 2, 3, 4, 7, 22)
BATCHES = (1,) * 6 + (2, 3, 4)
"""From the smallest, to which a failure shrinks; common values are listed several times."""


def roundings(c_in, filter_size):
    """Roundings of an element: one for each added product, and one for the bias."""
    return c_in * filter_size * filter_size + 1


def at_most(sizes, most):
    """One of the sizes, those beyond ``most`` moved there."""
    fitting = [size for size in sizes if size <= most]
    return st.sampled_from(sizes).map(
        lambda size: max(one for one in fitting if one <= size)
    )


@st.composite
def beyond(draw, starts, most):
    """Draw from one of the starts up to ``most``; shrinks to the least start, step by step."""
    start = draw(st.sampled_from(starts))
    if start == most:
        draw(st.integers(0, 1))  # fewer draws would not make a smaller layer
        return most
    return draw(st.integers(start, most))


def layers(most_products, most_rows=BANK, filters=FILTERS, block_bytes=8 * 1024):
    """A domain of layers with at most so many products of two elements, and so many output rows.

    128 output channels of 128 input channels take 128 * 128 products for each tap and position.
    Heights lean to where a PSUM tile or a block of rows ends, and to a second and a third one.
    """

    def room(*sizes):
        return most_products // math.prod(sizes)

    def channels(c_in):
        return at_most(CHANNELS, min(room(c_in), MOST_WEIGHTS // c_in))

    def pools(c_in, c_out, filter_size):
        return at_most(POOLS, math.isqrt(room(c_in, c_out, filter_size, filter_size)))

    def batches(c_in, c_out, filter_size, pool_size):
        return at_most(
            BATCHES, room(c_in, c_out, filter_size, filter_size, pool_size, pool_size)
        )

    def widths(c_in, c_out, filter_size, pool_size, batch):
        windows = room(
            c_in, c_out, filter_size, filter_size, pool_size, pool_size, batch
        )
        fitting = ROW // (2 * 4 * c_in // 128 * pool_size * pool_size)
        most = min(BANK // pool_size, windows, fitting)
        near = (
            9,
            12,
            18,
            24,
            32,
            48,
            64,
            math.isqrt(windows) * pool_size,
            BANK // 2 + 1,
        )
        return sizes(pool_size, most * pool_size, near=near).map(
            lambda across: across // pool_size * pool_size + filter_size - 1
        )

    def heights(c_in, c_out, filter_size, pool_size, batch, width):
        out_width = width - filter_size + 1
        windows = room(
            c_in, c_out, filter_size, filter_size, out_width, pool_size, batch
        )
        most = min(max(1, most_rows // pool_size), windows)
        tile = max(1, BANK // (out_width * pool_size)) * pool_size
        block = max(pool_size, block_bytes // 4 // width)
        rows = (tile, 2 * tile, block, 2 * block, 4 * block, 300, 420)
        starts = [start + 1 for start in rows if pool_size <= start < most * pool_size]
        return beyond([pool_size, pool_size, *starts], most * pool_size).map(
            lambda down: down // pool_size * pool_size + filter_size - 1
        )

    return {
        "c_in": CHANNELS,
        "c_out": channels,
        "filter_size": filters,
        "pool_size": pools,
        "batch": batches,
        "width": widths,
        "height": heights,
    }


def small_layers():
    """A domain of small images, for kernels whose tiles are made small."""

    def lengths(pool_size, filter_size):
        return st.integers(1, 12).map(
            lambda windows: windows * pool_size + filter_size - 1
        )

    return {
        "c_in": (128, 256),
        "c_out": (128, 256),
        "filter_size": (1, 2, 3),
        "pool_size": (1, 2, 3),
        "batch": (1, 2),
        "width": lengths,
        "height": lengths,
    }


def layer(
    c_in=128, c_out=128, filter_size=3, pool_size=1, batch=1, width=16, height=32
):
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


THREE_BLOCKS_OF_CHANNELS = layer(c_in=384, c_out=384, filter_size=1, width=5, height=3)
FIVE_BLOCKS_OF_CHANNELS = layer(c_in=640, c_out=640, filter_size=1, width=2, height=1)
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
    Rejection(
        layer(c_in=64), match="channels are multiples of 128: got 64 in, 128 out"
    ),
    Rejection(
        layer(c_in=64, c_out=64),
        match="channels are multiples of 128: got 64 in, 64 out",
    ),
    Rejection(
        layer(c_out=192), match="channels are multiples of 128: got 128 in, 192 out"
    ),
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
        layer(), match="filters are square: got 3 x 2", shapes={"W": (128, 128, 3, 2)}
    ),
    Rejection(
        layer(),
        match=r"X is \[images, channels, rows, columns\] .* got shapes \(128, 32, 16\)",
        shapes={"X": (128, 32, 16)},
    ),
    Rejection(
        layer(),
        match=r"got shapes \(128, 32, 16\) and \(128, 3, 3\)",
        shapes={"X": (128, 32, 16), "W": (128, 3, 3)},
    ),
    Rejection(
        layer(height=4, filter_size=5),
        match="a filter fits the image: got 5 x 5 on 4 x 16",
    ),
    Rejection(
        layer(width=4, filter_size=5),
        match="a filter fits the image: got 5 x 5 on 32 x 4",
    ),
    Rejection(layer(pool_size=4), match="pool_size divides .* got 4 for 30 x 14"),
    Rejection(
        layer(pool_size=2, height=33), match="pool_size divides .* got 2 for 31 x 14"
    ),
    Rejection(layer(pool_size=0), match="pool_size is at least 1: got 0"),
    Rejection(
        layer(width=515, height=3), match="a row .* has at most 512 elements.* got 513"
    ),
    Rejection(
        layer(filter_size=1, pool_size=23, width=23, height=23),
        match="a pooling window has at most 512 elements.* got 23 x 23",
    ),
    Rejection(
        layer(), match="X is float32, float16 or bfloat16: got int32", dtype="int32"
    ),
    Rejection(
        layer(),
        match="bias is float32, float16 or bfloat16: got int32",
        dtypes={"bias": "int32"},
    ),
    Rejection(
        layer(),
        match="W has the dtype of X: got float16 and float32",
        dtypes={"W": "float16"},
    ),
]
