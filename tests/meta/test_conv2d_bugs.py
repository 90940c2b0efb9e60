"""Bugs of convolutions, each a change of a kernel's source."""

from __future__ import annotations

import types

import numpy as np
import pytest
from hypothesis import strategies as st

from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.case import Case
from difftest.harness.failures import DifferentialFailure
from difftest.harness.recipes import Random
from difftest.harness.runner import Runner
from difftest.harness.spec import KernelSpec
from difftest.simulator import launch
from difftest.simulator.frontend.install import embedded
from reference.conv2d_maxpool import conv2d_maxpool
from tests.kernels.budget import NIGHTLY
from tests.kernels.layers import (
    DTYPES,
    INPUTS,
    PARAMETERS,
    TWO_PARTIAL_SUMS,
    layer,
    roundings,
    small_layers,
)
from tests.meta.search import first_failure, smallest_failure

with embedded():
    from kernels.classic import conv2d, conv2d_ladder

SMALL_TILES = {
    "BLOCK_BYTES=8 * 1024": "BLOCK_BYTES=1",
    "windows = nl.tile_size.psum_fmax //": "windows = 1 + 5 //",
}
"""Tiles of six elements, one a block: small images need several."""

CHANNEL_LOOP = """
    for k in nl.affine_range(in_blocks):
        for i in nl.affine_range(filter_size):
"""


def planted(changes: dict[str, str], kernel=conv2d.fused_conv2d_maxpool):
    """The kernel with these changes of its source; each must fit one place."""
    path = kernel.function.__code__.co_filename
    with open(path, encoding="utf-8") as file:
        source = file.read()
    for old, new in changes.items():
        assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in the kernel"
        source = source.replace(old, new)
    module = types.ModuleType("planted")
    with embedded():
        exec(compile(source, path, "exec"), vars(module))
    return getattr(module, kernel.__name__)


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


def failure_of(spec: KernelSpec, smallest: dict[str, int], seed: int = 0) -> DifferentialFailure:
    """The first failure; the nightly profile shrinks it too, and that takes seconds a kernel."""
    if not NIGHTLY:
        return first_failure(spec, seed)
    failure = smallest_failure(spec, seed)
    assert smallest_layer(failure) == smallest
    return failure


def smallest_layer(failure: DifferentialFailure) -> dict[str, int]:
    """What a failure's layer has beyond one pixel, one tap and 128 channels."""
    least = layer(filter_size=1, width=1, height=1)
    return {name: n for name, n in failure.case.values.items() if n != least[name]}


def test_the_kernel_itself_passes_in_small_tiles():
    """So what is found below is the bug."""
    spec = spec_of(planted(SMALL_TILES))
    data = {"X": Random(0), "W": Random(1), "bias": Random(2)}
    for sides in ({"width": 3, "height": 7}, {"pool_size": 2, "width": 8, "height": 16}):
        Runner((EmbeddedSimulator(),)).check(spec, Case(layer(**sides), "float32", data))


def test_a_change_that_fits_nowhere_is_an_error():
    with pytest.raises(AssertionError, match="'no such line' is 0 times in the kernel"):
        planted({"no such line": ""})


DIFFERS = ("value", "infinity")
"""What differs is one or the other, by whether the data of the smallest case overflow."""


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
            DIFFERS,
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
def test_a_planted_bug_is_found(changes, smallest, kind):
    failure = failure_of(spec_of(planted(changes)), smallest, seed=1)  # which finds them soonest
    assert getattr(failure.verdicts["embedded"], "kind", "rejected") in kind


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
    """In outputs of one column: tiles have six rows, so that the seventh needs another block.

    The one that leaves rows unwritten shrinks in every run, for all of these.
    """
    one_column = {"pool_size": (1,), "width": lambda filter_size: (filter_size,)}
    spec = spec_of(planted({**SMALL_TILES, **change}), **one_column)
    if kind == "unwritten" and not NIGHTLY:
        failure = smallest_failure(spec)
        assert smallest_layer(failure) == smallest
    else:
        failure = failure_of(spec, smallest)
    assert getattr(failure.verdicts["embedded"], "kind", "rejected") == kind


OF_THE_LADDER = [
    (
        conv2d_ladder.conv2d_halo_tiles,
        {"slice(r + i, r + i + 1)": "slice(i, i + 1)"},
        "halo_tiles: a window's rows are all the first",
    ),
    (
        conv2d_ladder.conv2d_flat_weights,
        {"transposed_tap(filters, t)": "transposed_tap(filters, taps - 1 - t)"},
        "flat_weights: the taps are reversed",
    ),
]
if NIGHTLY:  # the same bugs in rungs beside these
    OF_THE_LADDER += [
        (
            conv2d_ladder.conv2d_baseline,
            {"slice(y + i, y + i + 1)": "slice(y, y + 1)"},
            "baseline: all taps see the first row",
        ),
        (
            conv2d_ladder.conv2d_whole_plane,
            {"plane[:, row, column : column + 1]": "plane[:, row, 0:1]"},
            "whole_plane: all positions of a row are the first",
        ),
        (
            conv2d_ladder.conv2d_cached_weights,
            {"transposed_tap(filters, t)": "transposed_tap(filters, 0)"},
            "cached_weights: all taps are the first",
        ),
        (
            conv2d_ladder.conv2d_without_copies,
            {"slice(r, r + 1), slice(0, out_width)": "slice(0, 1), slice(0, out_width)"},
            "without_copies: a window's rows are all the first",
        ),
        (
            conv2d_ladder.conv2d_broadcast_bias,
            {"offsets[:, o : o + 1, None]": "offsets[:, 0:1, None]"},
            "broadcast_bias: all output channels have the bias of the first",
        ),
    ]


@pytest.mark.parametrize(
    ("kernel", "change"),
    [row[:2] for row in OF_THE_LADDER],
    ids=[row[2] for row in OF_THE_LADDER],
)
def test_a_planted_bug_in_a_rung_is_found(kernel, change):
    failure = first_failure(spec_of(planted(change, kernel)), seed=1)
    assert failure.verdicts["embedded"].kind == "value"


def test_a_planted_bug_in_row_tiles_is_found():
    """In outputs of 24 columns, of which a PSUM tile has 20 rows."""
    kernel = planted(
        {"image, first, rows + halo": "image, 0, rows + halo"}, conv2d_ladder.conv2d_row_tiles
    )
    sides = {
        "pool_size": (2,),
        "width": lambda filter_size: (24 + filter_size - 1,),
        "height": lambda filter_size: st.integers(1, 16).map(lambda n: 2 * n + filter_size - 1),
    }
    smallest = {"pool_size": 2, "width": 24, "height": 22}
    failure = failure_of(spec_of(kernel, **sides), smallest, seed=4)
    assert failure.verdicts["embedded"].kind == "value"


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
    spec = spec_of(kernel, filter_size=(1,), c_in=(128, 256, 256))
    failure = failure_of(spec, smallest={"c_in": 256})
    assert failure.case.values["c_in"] == 256
    assert failure.verdicts["embedded"].kind in DIFFERS


@pytest.mark.parametrize(("dtype", "question"), [("float32", "arithmetic"), ("float16", "")])
def test_partial_sums_in_float16_exceed_their_bound(dtype, question):
    """Not only where data are integers and each bit counts: on an example of the kernel's spec.

    In float16 the exact run lets a few sums round so; the bound that the spec gives does not.
    """
    data = {"X": Random(0), "W": Random(1), "bias": Random(2)}
    case = Case(TWO_PARTIAL_SUMS, dtype, data)
    runner = Runner((EmbeddedSimulator(),))
    runner.check(spec_of(conv2d.fused_conv2d_maxpool), case)
    with pytest.raises(DifferentialFailure) as caught:
        runner.check(spec_of(planted(NARROW_BETWEEN_BLOCKS)), case)
    verdict = caught.value.verdicts["embedded"]
    assert (verdict.kind, verdict.question) == ("value", question)


def test_psum_in_the_dtype_of_the_input_is_found():
    """As in the notes that the ladder follows, up to their step "PSUM discipline"."""
    kernel = planted({"columns.start), nl.float32": "columns.start), block.dtype"})
    failure = first_failure(spec_of(kernel))
    assert failure.case.dtype in ("float16", "bfloat16")
    assert failure.verdicts["embedded"].kind == "value"


def test_filters_of_another_dtype_are_refused():
    """A bug of the caller's, which no Rejection can say: a case's inputs have one dtype."""
    X, W, bias = (np.zeros(shape, np.float32) for shape in ((1, 128, 4, 4), (128, 128, 3, 3), 128))
    with pytest.raises(AssertionError, match="W has the dtype of X: got float16 and float32"):
        launch(conv2d.fused_conv2d_maxpool, (X, W.astype(np.float16), bias))
