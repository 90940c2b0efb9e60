"""Bugs of convolutions, each a change of the production kernel's source."""

from __future__ import annotations

import types

import pytest

from difftest.backends.simulator import EmbeddedSimulator
from difftest.case import Case
from difftest.recipes import Random
from difftest.runner import DifferentialFailure, Runner
from difftest.simulator.frontend.install import embedded
from difftest.spec import KernelSpec
from reference.conv2d_maxpool import conv2d_maxpool
from tests.kernels.layers import (
    DTYPES,
    INPUTS,
    PARAMETERS,
    TWO_PARTIAL_SUMS,
    layer,
    roundings,
    small_layers,
)
from tests.meta.search import smallest_failure

with embedded():
    from kernels import conv2d

SMALL_TILES = {
    "BLOCK_BYTES = 16 * 1024": "BLOCK_BYTES = 1",
    "windows = nl.tile_size.psum_fmax //": "windows = 1 + 5 //",
}
"""Tiles of six elements, one a block: small images need several."""

CHANNEL_LOOP = """
    for k in nl.affine_range(in_blocks):
        for i in nl.affine_range(filter_size):
"""


def planted(changes: dict[str, str]):
    """The production kernel with these changes of its source; each must fit one place."""
    with open(conv2d.__file__, encoding="utf-8") as file:
        source = file.read()
    for old, new in changes.items():
        assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in the kernel"
        source = source.replace(old, new)
    module = types.ModuleType("planted")
    with embedded():
        exec(compile(source, conv2d.__file__, "exec"), vars(module))
    return module.fused_conv2d_maxpool


def spec_of(kernel, **sources) -> KernelSpec:
    """The spec of small layers, with these sources of values instead."""
    return KernelSpec(
        kernel=kernel,
        reference=conv2d_maxpool,
        domain={**small_layers(), **sources},
        inputs=INPUTS,
        parameters=PARAMETERS,
        dtypes=DTYPES,
        reduction=roundings,
    )


def smallest_layer(failure: DifferentialFailure) -> dict[str, int]:
    """What a failure's layer has beyond one pixel, one tap and 128 channels."""
    least = layer(filter_size=1, width=1, height=1)
    return {name: n for name, n in failure.case.values.items() if n != least[name]}


def test_the_kernel_itself_passes_in_small_tiles():
    """So what is found below is the bug."""
    kernel = planted(SMALL_TILES)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        smallest_failure(spec_of(kernel))


def test_a_change_that_fits_nowhere_is_an_error():
    with pytest.raises(AssertionError, match="'no such line' is 0 times in the kernel"):
        planted({"no such line": ""})


@pytest.mark.parametrize(
    ("changes", "smallest", "kind"),
    [
        pytest.param(
            {"weights[:, o, k, i, j, :]": "weights[:, o, k, j, i, :]"},
            {"filter_size": 2, "width": 2, "height": 2},
            "value",
            id="a filter's rows and columns are swapped",
        ),
        pytest.param(
            {"for j in nl.affine_range(filter_size)": "for j in range(max(1, filter_size - 1))"},
            {"filter_size": 2, "width": 2, "height": 2},
            "value",
            id="a filter's last column is left out",
        ),
        pytest.param(
            {"nisa.tensor_scalar(total, nl.add, offset,": "nisa.tensor_copy(total,"},
            {},
            "value",
            id="the bias is missing",
        ),
        pytest.param(
            {"offsets[:, o : o + 1]": "offsets[:, 0:1]"},
            {"c_out": 256},
            "value",
            id="all output channels have the bias of the first",
        ),
        pytest.param(
            {"X[image, channels,": "X[0, channels,"},
            {"batch": 2},
            "value",
            id="all images are the first",
        ),
        pytest.param(
            {
                "tile[i_p, i_row * pool_size + i_y,": (
                    "tile[i_p, i_row + i_y * (rows // pool_size),"
                )
            },
            {"pool_size": 2, "width": 2, "height": 4},
            "value",
            id="rows are pooled that are not neighbours",
        ),
        pytest.param(
            {
                "i_row * pool_size + i_y, i_column * pool_size + i_x": (
                    "i_row * pool_size + i_x, i_column * pool_size + i_x"
                )
            },
            {"pool_size": 2, "width": 2, "height": 2},
            "value",
            id="a pooling window is its diagonal",
        ),
    ],
)
def test_a_planted_bug_is_found_and_shrinks(changes, smallest, kind):
    failure = smallest_failure(spec_of(planted(changes)))
    assert smallest_layer(failure) == smallest
    assert getattr(failure.verdicts["embedded"], "kind", "rejected") == kind


@pytest.mark.parametrize(
    ("change", "smallest", "kind"),
    [
        pytest.param(
            {"(0, out_height, block_rows)": "(0, max(1, out_height - block_rows), block_rows)"},
            {"height": 7},
            "unwritten",
            id="the last block of rows is dropped",
        ),
        pytest.param(
            {"image, first, rows + halo": "image, first, rows"},
            {"filter_size": 2, "width": 2, "height": 2},
            "rejected",
            id="a block comes without its halo",
        ),
        pytest.param(
            {"image, first, rows + halo": "image, max(0, first - halo), rows + halo"},
            {"filter_size": 2, "width": 2, "height": 8},
            "value",
            id="a block comes with the halo of the block above",
        ),
    ],
)
def test_a_planted_bug_in_blocks_is_found_and_shrinks(change, smallest, kind):
    """In outputs of one column: tiles have six rows, so that the seventh needs another block."""
    one_column = {"pool_size": (1,), "width": lambda filter_size: (filter_size,)}
    failure = smallest_failure(spec_of(planted({**SMALL_TILES, **change}), **one_column))
    assert smallest_layer(failure) == smallest
    assert getattr(failure.verdicts["embedded"], "kind", "rejected") == kind


NARROW_BETWEEN_BLOCKS = {
    CHANNEL_LOOP: CHANNEL_LOOP.replace(
        "        for i",
        "        total[...] = nisa.tensor_copy(total, dtype=nl.float16)\n        for i",
    )
}
"""The sum is rounded to float16 before each 128 input channels but the first."""


def test_partial_sums_in_float16_are_found():
    """With 128 input channels nothing is rounded, with 256 one partial sum is."""
    kernel = planted(NARROW_BETWEEN_BLOCKS)
    failure = smallest_failure(spec_of(kernel, filter_size=(1,), c_in=(128, 256, 256)))
    assert smallest_layer(failure) == {"c_in": 256}
    assert failure.case.dtype == "float32"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_partial_sums_in_float16_exceed_the_derived_bound(dtype):
    """Not only where data are integers and each bit counts: on an example of the kernel's spec."""
    data = {"X": Random(0), "W": Random(1), "bias": Random(2)}
    case = Case(TWO_PARTIAL_SUMS, dtype, data)
    runner = Runner((EmbeddedSimulator(),))
    runner.check(spec_of(conv2d.fused_conv2d_maxpool), case)
    with pytest.raises(DifferentialFailure) as caught:
        runner.check(spec_of(planted(NARROW_BETWEEN_BLOCKS)), case)
    message = caught.value.verdicts["embedded"].message
    assert message == "values differ by more than rounding explains"


def test_psum_in_the_dtype_of_the_input_is_found():
    """As in the notes that the ladder follows, up to their step "PSUM discipline"."""
    kernel = planted({"columns.start), nl.float32": "columns.start), block.dtype"})
    failure = smallest_failure(spec_of(kernel))
    assert failure.case.dtype in ("float16", "bfloat16")
    assert failure.verdicts["embedded"].kind == "value"
