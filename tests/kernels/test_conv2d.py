from hypothesis import given

from difftest import Rejection, kernel_test
from difftest.simulator.machine import TRN2
from kernels.classic.conv2d import fused_conv2d_maxpool
from kernels.nki import conv2d as todays
from reference.conv2d_maxpool import conv2d_maxpool
from tests.kernels.budget import IN_CI, NIGHTLY, in_turn, large_cases, middling_cases
from tests.kernels.layers import (
    DTYPES,
    FIVE_BLOCKS_OF_CHANNELS,
    INPUTS,
    PARAMETERS,
    REJECTIONS,
    SMALL_IMAGES,
    THREE_BLOCKS_OF_CHANNELS,
    TWO_PARTIAL_SUMS,
    layer,
    layers,
    roundings,
    small_layers,
)

LARGE_IMAGE = layer(c_in=256, c_out=256, width=224, height=224, pool_size=2)

# The course's large cases take minutes in every dtype, most of them in the float64 reference.
LARGE_IMAGES = [
    {**LARGE_IMAGE, "pool_size": pool_size, "batch": 4} for pool_size in (1, 2)
]
LONG = [
    *(
        SMALL_IMAGES + LARGE_IMAGES
        if NIGHTLY
        else SMALL_IMAGES[:: len(SMALL_IMAGES) - 1]
    ),
    # several blocks of rows, the last of them short
    layer(filter_size=1, width=512, height=37),
]
if NIGHTLY:
    LONG += [
        # most of SBUF is weights
        layer(c_in=1024, c_out=512, width=6, height=6, pool_size=2),
        layer(width=200, height=52, pool_size=2),
    ]


@large_cases
@kernel_test(
    kernels=(fused_conv2d_maxpool, todays.fused_conv2d_maxpool),
    reference=conv2d_maxpool,
    domain=layers(most_products=2**29),
    inputs=INPUTS,
    parameters=PARAMETERS,
    dtypes=DTYPES,
    rejects=[
        *REJECTIONS,
        # Weights that fit SBUF, as the assignment has it, are not enough: blocks need room too.
        Rejection(
            layer(filter_size=15, width=15, height=15),
            match=r"weights and the smallest blocks fit the \d+ bytes.* got 115200 [+] 115200",
        ),
        Rejection(
            layer(c_in=1024, c_out=1024, width=3, height=3),
            match=r"weights and the smallest blocks fit the \d+ bytes.* got 294912 [+] ",
        ),
        Rejection(
            layer(c_in=5632, c_out=256, filter_size=1, width=512, height=1),
            match=r"the smallest blocks fit the \d+ bytes.* got 45056 [+] 184320",
        ),
    ],
    examples=[
        *in_turn(
            DTYPES,
            INPUTS,
            # the largest whose float32 weights fit
            layer(filter_size=14, width=14, height=15),
            *(LONG if IN_CI else SMALL_IMAGES[-1:]),
            # a row of windows is divided in two
            layer(width=514, height=10, pool_size=2),
            layer(width=514, height=7),
            FIVE_BLOCKS_OF_CHANNELS,
        ),
        TWO_PARTIAL_SUMS,
        THREE_BLOCKS_OF_CHANNELS,
    ],
    edges=NIGHTLY,
)
def test_fused_conv2d_maxpool(case):
    case.check()


@large_cases
@kernel_test(
    kernels=(fused_conv2d_maxpool, todays.fused_conv2d_maxpool),
    reference=conv2d_maxpool,
    domain={
        "BLOCK_BYTES": (1024, 512),
        **layers(most_products=2**27, block_bytes=1024),
    },
    inputs=INPUTS,
    parameters=(*PARAMETERS, "BLOCK_BYTES"),
    edges=NIGHTLY,
    dtypes=DTYPES,
    reduction=roundings,
)
def test_fused_conv2d_maxpool_in_several_blocks(case):
    """Blocks of whole PSUM tiles, so many of them that the last begins far down the image."""
    case.check()


@given(layers(most_products=2**29)["width"](384, 128, 1, 22, 1))
def test_the_largest_rows_of_windows_fit_sbuf(width):
    """Two of them, of three blocks of channels in float32: kernels refuse wider layers."""
    assert 2 * 4 * 3 * 22 * width < TRN2.sbuf_usable_bytes


SMALL_TILES = {"BLOCK_BYTES": 128, "TILE_WINDOWS": 6}


@large_cases
@kernel_test(
    kernels=(fused_conv2d_maxpool, todays.fused_conv2d_maxpool),
    reference=conv2d_maxpool,
    domain={
        "BLOCK_BYTES": (128, 1, 600),
        "TILE_WINDOWS": (6, 1, 4, 9),
        **small_layers(),
    },
    inputs=INPUTS,
    parameters=(*PARAMETERS, *SMALL_TILES),
    edges=NIGHTLY,
    dtypes=DTYPES,
    reduction=roundings,  # stricter than the exact run, which lets a few sums round into float16
    examples=in_turn(
        DTYPES[::-1],  # float32 is the first of those drawn, too
        INPUTS,
        {**SMALL_TILES, **layer(width=9, height=15)},
        {**SMALL_TILES, **layer(c_in=256, width=10, height=18, pool_size=2)},
    ),
)
def test_fused_conv2d_maxpool_in_small_tiles(case):
    """Several tiles a block and several blocks an image, each with its halo, in small images."""
    case.check()


@middling_cases
@kernel_test(
    kernel=todays.fused_conv2d_maxpool,
    reference=conv2d_maxpool,
    domain={"cores": (2, 1), **small_layers()},
    inputs=INPUTS,
    parameters=PARAMETERS,
    dtypes=DTYPES,
    reduction=roundings,
    edges=NIGHTLY,
    lnc="cores",
    examples=[
        # one row: the second core gets none
        {
            "cores": 2,
            **layer(height=3, width=3),
        },
        {"cores": 2, **layer(height=15, width=9)},  # 13 rows: 7 and 6
        # 5 rows of windows: 3 and 2
        {
            "cores": 2,
            **layer(height=12, width=10, pool_size=2),
        },
    ],
)
def test_fused_conv2d_maxpool_on_two_cores(case):
    """The cores of LNC 2 share the rows; their halo is loaded twice."""
    case.check()
