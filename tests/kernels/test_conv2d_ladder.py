from difftest import kernel_test
from kernels.classic import conv2d_ladder as classic
from kernels.nki import conv2d_ladder as todays
from reference.conv2d_maxpool import conv2d_maxpool
from tests.kernels.budget import NIGHTLY, in_turn, large_cases
from tests.kernels.layers import (
    DTYPES,
    FIVE_BLOCKS_OF_CHANNELS,
    INPUTS,
    PARAMETERS,
    REJECTIONS,
    layer,
    layers,
)

# Small: the first rungs issue an instruction for each element of a row, and load all taps for each.
LAYERS = {
    "reference": conv2d_maxpool,
    "domain": layers(most_products=2**24, most_rows=40, filters=(1, 2, 3)),
    "inputs": INPUTS,
    "parameters": PARAMETERS,
    "dtypes": DTYPES,
    "rejects": REJECTIONS,
    "edges": NIGHTLY,
}
EXAMPLES = [
    layer(c_in=256, c_out=256, pool_size=2, batch=2, width=6, height=4),
    # three PSUM tiles of rows, the last is short
    layer(filter_size=1, width=40, height=31),
    FIVE_BLOCKS_OF_CHANNELS,
    layer(filter_size=1, pool_size=8, width=136, height=8),  # three tiles across a row
    layer(filter_size=5, width=5, height=6),
]


def rung(place):
    """The layers for a rung: the first two of the examples and a further one, every night all."""
    chosen = EXAMPLES if NIGHTLY else (*EXAMPLES[:2], EXAMPLES[2 + place % 3])
    dtypes = DTYPES[place % 3 :] + DTYPES[: place % 3]
    return {**LAYERS, "examples": in_turn(dtypes, INPUTS, *chosen)}


@large_cases
@kernel_test(kernels=(classic.conv2d_whole_plane, todays.conv2d_whole_plane), **rung(1))
def test_conv2d_whole_plane(case):
    case.check()


@large_cases
@kernel_test(kernels=(classic.conv2d_baseline, todays.conv2d_baseline), **rung(0))
def test_conv2d_baseline(case):
    case.check()


@large_cases
@kernel_test(kernels=(classic.conv2d_halo_tiles, todays.conv2d_halo_tiles), **rung(2))
def test_conv2d_halo_tiles(case):
    case.check()


@large_cases
@kernel_test(
    kernels=(classic.conv2d_cached_weights, todays.conv2d_cached_weights), **rung(3)
)
def test_conv2d_cached_weights(case):
    case.check()


@large_cases
@kernel_test(
    kernels=(classic.conv2d_flat_weights, todays.conv2d_flat_weights), **rung(4)
)
def test_conv2d_flat_weights(case):
    case.check()


@large_cases
@kernel_test(
    kernels=(classic.conv2d_without_copies, todays.conv2d_without_copies), **rung(5)
)
def test_conv2d_without_copies(case):
    case.check()


@large_cases
@kernel_test(
    kernels=(classic.conv2d_broadcast_bias, todays.conv2d_broadcast_bias), **rung(6)
)
def test_conv2d_broadcast_bias(case):
    case.check()


@large_cases
@kernel_test(kernels=(classic.conv2d_row_tiles, todays.conv2d_row_tiles), **rung(7))
def test_conv2d_row_tiles(case):
    case.check()
