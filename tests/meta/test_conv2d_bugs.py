"""Bugs of convolutions, each a change of a kernel's source."""

from __future__ import annotations

import functools
import math
import types
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from difftest.simulator import launch
from difftest.simulator.entry.install import embedded
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Random
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.runner import Runner
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
from tests.meta.drawing import drawn
from tests.meta.search import smallest_failure

with embedded():
    from kernels.classic import conv2d, conv2d_ladder

FUSED = conv2d.fused_conv2d_maxpool
SMALL_TILES = {
    "BLOCK_BYTES=8 * 1024": "BLOCK_BYTES=1",
    "windows = nl.tile_size.psum_fmax //": "windows = 1 + 5 //",
}
"""Tiles of six elements, one a block: small images need several."""

CHANNEL_LOOP = """
    for k in nl.affine_range(in_blocks):
        for i in nl.affine_range(filter_size):
"""


def planted(changes: dict[str, str], kernel=FUSED):
    """The kernel with these changes of its source; each must fit one place."""
    path = kernel.function.__code__.co_filename
    with open(path, encoding="utf-8") as file:
        source = file.read()
    for old, new in changes.items():
        assert source.count(old) == 1, (
            f"{old!r} is {source.count(old)} times in the kernel"
        )
        source = source.replace(old, new)
    module = types.ModuleType("planted")
    with embedded():
        exec(compile(source, path, "exec"), vars(module))
    return getattr(module, kernel.__name__)


def spec_of(kernel, sources=None) -> KernelSpec:
    """The spec of small layers, with these sources of values instead."""
    return KernelSpec(
        kernel=kernel,
        reference=conv2d_maxpool,
        domain={**small_layers(), **(sources or {})},
        inputs=INPUTS,
        parameters=PARAMETERS,
        dtypes=DTYPES,
        reduction=roundings,
    )


@functools.cache
def small_cases() -> list[Case]:
    """Return the small layers that a run of the ci profile draws."""
    return drawn(spec_of(FUSED), 50, seed=1)


DIFFERS = ("value", "infinity")
"""The kinds of difference; the data of the smallest case decide, by overflow or not."""


class Bug(NamedTuple):
    """A change of a kernel's source.

    Attributes
    ----------
    smallest : sizes of the smallest layer that shows the bug, if known, without those of a layer
        of one pixel, one tap and 128 channels.
    kind : kind of the difference.
    sources : sources of its layers' values, instead of small layers.
    seed : seed that finds the bug soonest.
    """

    changes: dict[str, str]
    smallest: dict[str, int] | None = None
    kind: str | tuple[str, ...] = DIFFERS
    kernel: Any = FUSED
    sources: dict[str, Any] | None = None
    seed: int = 1

    def shrunk(self) -> DifferentialFailure:
        """The smallest failure, which takes seconds to find."""
        spec = spec_of(planted(self.changes, self.kernel), self.sources)
        failure = smallest_failure(spec, self.seed)
        least = layer(filter_size=1, width=1, height=1)
        values = {
            name: n for name, n in failure.case.values.items() if n != least[name]
        }
        assert values == self.smallest
        return failure

    def found(self) -> DifferentialFailure:
        """Return the failure of the smallest suitable drawn case, or nightly of the shrunk case."""
        if NIGHTLY and self.smallest is not None:
            return self.shrunk()
        spec = spec_of(planted(self.changes, self.kernel), self.sources)
        cases = drawn(spec, 50, self.seed) if self.sources else small_cases()
        least, runner = self.smallest or {}, Runner((EmbeddedSimulator(),))
        for case in sorted(cases, key=lambda case: math.prod(case.values.values())):
            if all(case.values[name] >= size for name, size in least.items()):
                try:
                    runner.check(spec, case)
                except DifferentialFailure as failure:
                    return failure
        pytest.fail(f"none of {len(cases)} cases shows {self.changes}")


TAPS = {"filter_size": 2, "width": 2, "height": 2}
ONE_COLUMN = {"pool_size": (1,), "width": lambda filter_size: (filter_size,)}
"""Tiles have six rows, so that the seventh needs another block."""
TWENTY_FOUR = {
    "pool_size": (2,),
    "width": lambda filter_size: (24 + filter_size - 1,),
    "height": lambda filter_size: st.integers(1, 16).map(
        lambda n: 2 * n + filter_size - 1
    ),
}
"""Columns of an output whose PSUM tile has 20 rows."""
LAST_BLOCK = "(0, out_height, block_rows)"
ROWS = "image, first, rows + halo"
NARROW_BETWEEN_BLOCKS = {
    CHANNEL_LOOP: CHANNEL_LOOP.replace(
        "        for i",
        "        total[...] = nisa.tensor_copy(total, dtype=nl.float16)\n        for i",
    )
}
"""The sum is rounded to float16 before each 128 input channels but the first."""
WINDOW = "i_row * pool_size + i_y, i_column * pool_size + i_x"
BUGS = {
    "a filter's rows and columns are swapped": Bug(
        {"weights[:, o, k, i, j, :]": "weights[:, o, k, j, i, :]"}, TAPS
    ),
    "a filter's last column is left out": Bug(
        {
            "for j in nl.affine_range(filter_size)": "for j in range(max(1, filter_size - 1))"
        },
        TAPS,
    ),
    "the bias is missing": Bug(
        {
            "nisa.tensor_scalar(\n        total, nl.add, offset,": "nisa.tensor_copy(total,"
        },
        {},
    ),
    "all output channels have the bias of the first": Bug(
        {"offsets[:, o : o + 1]": "offsets[:, 0:1]"}, {"c_out": 256}
    ),
    "all images are the first": Bug(
        {"X[image, channels,": "X[0, channels,"}, {"batch": 2}
    ),
    "rows are pooled that are not neighbours": Bug(
        {
            "tile[i_p, i_row * pool_size + i_y,": "tile[i_p, i_row + i_y * (rows // pool_size),"
        },
        {"pool_size": 2, "width": 2, "height": 4},
    ),
    "a pooling window is its diagonal": Bug(
        {WINDOW: WINDOW.replace("i_y", "i_x")},
        {"pool_size": 2, "width": 2, "height": 2},
    ),
    "the last block of rows is dropped": Bug(
        {**SMALL_TILES, LAST_BLOCK: "(0, max(1, out_height - block_rows), block_rows)"},
        {"height": 7},
        "unwritten",
        FUSED,
        ONE_COLUMN,
        0,
    ),
    "a block comes without its halo": Bug(
        {**SMALL_TILES, ROWS: "image, first, rows"},
        TAPS,
        "rejected",
        FUSED,
        ONE_COLUMN,
        0,
    ),
    "a block comes with the halo of the block above": Bug(
        {**SMALL_TILES, ROWS: "image, max(0, first - halo), rows + halo"},
        {**TAPS, "height": 8},
        DIFFERS,
        FUSED,
        ONE_COLUMN,
        0,
    ),
    "row_tiles: all tiles are the first": Bug(
        {ROWS: "image, 0, rows + halo"},
        {"pool_size": 2, "width": 24, "height": 22},
        DIFFERS,
        conv2d_ladder.conv2d_row_tiles,
        TWENTY_FOUR,
        4,
    ),
    "partial sums are rounded into float16": Bug(
        NARROW_BETWEEN_BLOCKS,
        {"c_in": 256},
        DIFFERS,
        FUSED,
        {"filter_size": (1,), "c_in": (128, 256, 256)},
        0,
    ),
}
OF_THE_LADDER = {
    "halo_tiles: a window's rows are all the first": {
        "slice(r + i, r + i + 1)": "slice(i, i + 1)"
    },
    "flat_weights: the taps are reversed": {
        "transposed_tap(filters, t)": "transposed_tap(filters, taps - 1 - t)"
    },
}
if NIGHTLY:  # also plant these bugs in the other rungs
    OF_THE_LADDER |= {
        "baseline: all taps see the first row": {
            "slice(y + i, y + i + 1)": "slice(y, y + 1)"
        },
        "whole_plane: all positions of a row are the first": {
            "plane[:, row, column : column + 1]": "plane[:, row, 0:1]"
        },
        "cached_weights: all taps are the first": {
            "transposed_tap(filters, t)": "transposed_tap(filters, 0)"
        },
        "without_copies: a window's rows are all the first": {
            "slice(r, r + 1), slice(0, out_width)": "slice(0, 1), slice(0, out_width)"
        },
        "broadcast_bias: all output channels have the bias of the first": {
            "offsets[:, o : o + 1, None]": "offsets[:, 0:1, None]"
        },
    }


def test_the_kernel_itself_passes_in_small_tiles():
    """The tests pass without a bug, so a failure below is the bug's."""
    spec = spec_of(planted(SMALL_TILES))
    data = {"X": Random(0), "W": Random(1), "bias": Random(2)}
    for sides in (
        {"width": 3, "height": 7},
        {"pool_size": 2, "width": 8, "height": 16},
    ):
        Runner((EmbeddedSimulator(),)).check(
            spec, Case(layer(**sides), "float32", data)
        )


def test_a_change_that_fits_nowhere_is_an_error():
    with pytest.raises(AssertionError, match="'no such line' is 0 times in the kernel"):
        planted({"no such line": ""})


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name):
    """The bug that leaves rows unwritten shrinks in every run, as an example."""
    bug = BUGS[name]
    failure = bug.shrunk() if bug.kind == "unwritten" else bug.found()
    assert getattr(failure.verdicts["embedded"], "kind", "rejected") in bug.kind


@pytest.mark.parametrize("name", OF_THE_LADDER)
def test_a_planted_bug_in_a_rung_is_found(name):
    rung = getattr(conv2d_ladder, f"conv2d_{name.partition(':')[0]}")
    bug = Bug(OF_THE_LADDER[name], kernel=rung)
    assert bug.found().verdicts["embedded"].kind in DIFFERS


@pytest.mark.parametrize(
    ("dtype", "question"), [("float32", "arithmetic"), ("float16", "")]
)
def test_partial_sums_in_float16_exceed_their_bound(dtype, question):
    """Not only where data are integers and each bit counts: on an example of the kernel's spec.

    In float16 the exact run lets a few sums round so; the bound that the spec gives does not.
    """
    data = {"X": Random(0), "W": Random(1), "bias": Random(2)}
    case = Case(TWO_PARTIAL_SUMS, dtype, data)
    runner = Runner((EmbeddedSimulator(),))
    runner.check(spec_of(FUSED), case)
    with pytest.raises(DifferentialFailure) as caught:
        runner.check(spec_of(planted(NARROW_BETWEEN_BLOCKS)), case)
    verdict = caught.value.verdicts["embedded"]
    assert (verdict.kind, verdict.question) == ("value", question)


def test_psum_in_the_dtype_of_the_input_is_found():
    """As in the notes that the ladder follows, up to their step "PSUM discipline"."""
    failure = Bug(
        {"columns.start),\n        nl.float32": "columns.start),\n        block.dtype"}
    ).found()
    assert failure.case.dtype in ("float16", "bfloat16")
    assert failure.verdicts["embedded"].kind in DIFFERS


def test_filters_of_another_dtype_are_refused():
    """A bug of the caller's, which no Rejection can say: a case's inputs have one dtype."""
    X, W, bias = (
        np.zeros(shape, np.float32) for shape in ((1, 128, 4, 4), (128, 128, 3, 3), 128)
    )
    with pytest.raises(
        AssertionError, match="W has the dtype of X: got float16 and float32"
    ):
        launch(conv2d.fused_conv2d_maxpool, (X, W.astype(np.float16), bias))
