"""Masks: a smaller instruction. NumPy's boolean masks are the oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from difftest.simulator import (
    KernelError,
    NkiError,
    OutOfBoundsError,
    ShapeError,
    launch,
)
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic.calls import as_mask
from difftest.simulator.frontend.classic.expressions import MGridMaker, arange
from difftest.simulator.instructions.masked import mask_box
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles, written

P, X = MGridMaker()[0:4, 0:6]
ROWS, COLUMNS = np.mgrid[0:4, 0:6]
DATA = np.arange(24, dtype=np.float32).reshape(4, 6) + 1


@given(hnp.arrays(np.bool_, hnp.array_shapes(max_dims=3, max_side=5)))
def test_the_box_is_the_smallest_that_holds_the_mask(mask):
    box = mask_box(mask)
    if box is None:
        assert not mask.any()
        return
    assert mask[box].sum() == mask.sum()
    for axis in range(mask.ndim):
        inside = mask[box]
        others = tuple(k for k in range(mask.ndim) if k != axis)
        line = inside.any(axis=others)
        assert line[0]
        assert line[-1]


def test_a_mask_that_leaves_nothing_out_is_no_mask():
    assert as_mask(None, (4, 6)) is True
    assert as_mask(X < 6, (4, 6)) is True
    assert as_mask(np.True_, (4, 6)) is True
    assert as_mask(False, (4, 6)) is False
    assert_array_equal(as_mask(X < 4, (4, 6)), COLUMNS < 4)


@every("mask", [np.ones((4, 6), bool), "x", 1.5, [True]])
def test_a_value_that_is_no_mask_is_rejected(mask):
    with pytest.raises(KernelError, match="a mask takes comparisons") as caught:
        as_mask(mask, (4, 6))
    assert caught.value.received == type(mask).__name__


def test_a_masked_dma_copy_between_shapes():
    """The mask is over the destination; elements correspond in row-major order."""
    p, x = nl.mgrid[0:8, 0:6]
    _, b, c = nl.mgrid[0:2, 0:4, 0:6]

    def kernel(tensor):
        tile = nl.zeros((8, 6), nl.float32)
        out = nl.ndarray((2, 4, 6), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, 0.0)
        nisa.dma_copy(dst=tile, src=tensor, mask=(p > 1) & (x < 5))
        nisa.dma_copy(dst=out, src=tile, mask=(b < 3) & (c > 0))
        return out

    data = normal(2, 4, 6)
    expected = data.copy().reshape(8, 6)
    expected[:2] = expected[:, 5:] = 0
    expected = expected.reshape(2, 4, 6)
    expected[:, 3:] = expected[:, :, :1] = 0
    assert_array_equal(launch(kernel, [data]).outputs[0], expected)


def test_a_mask_that_is_too_wide_does_not_hide_an_access_out_of_bounds():
    with pytest.raises(OutOfBoundsError) as caught:
        on_tiles(lambda t: nl.copy(t[P, X + 2], mask=X <= 4), DATA)
    assert caught.value.received.startswith("index 6 on axis 1")


def test_a_row_that_leaves_its_tile_is_still_out_of_bounds_under_a_mask():
    with pytest.raises(NkiError, match="an access stays inside its tensor"):
        on_tiles(lambda t: nl.copy(t[4], mask=arange(6)[None, :] < 4), DATA)


THREE = normal(8, 8, 4)
ACROSS = {  # indices of two dimensions, whose partitions NumPy would lay along axis 1 of three
    "nl.where": lambda x: nl.where(nl.arange(8)[:, None] < 6, x[:, 0:1, :], 0.0),
    "nl.where of as many rows": lambda x: nl.where(nl.arange(8)[:, None] < 6, x, 0.0),
    "a mask": lambda x: nl.copy(x, mask=nl.arange(8)[:, None] < 6),
    "affine_select": lambda x: nisa.affine_select(nl.arange(8)[:, None] < 6, x, 0.0),
    "a tile of indices": lambda x: nl.load(
        scratch(x)[
            nisa.iota(nl.arange(8)[:, None], dtype=nl.int32),
            nl.arange(8)[:, None, None],
            nl.arange(4)[None, None, :],
        ]
    ),
}


def scratch(x):
    """The tile's elements in HBM."""
    tensor = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
    nl.store(tensor, x)
    return tensor


@pytest.mark.filterwarnings("ignore:nl.where got a comparison")
@every("plain", [False, True])
def test_partitions_are_never_aligned_with_a_free_axis(plain):
    for compute in ACROSS.values():
        with pytest.raises(
            ShapeError,
            match=r"(dimensions than its tile|takes indices of 3 dimensions)",
        ):
            launch(lambda x, f=compute: written(f(nl.load(x))), [THREE], plain=plain)
    last = nl.arange(8)[:, None, None] < 6
    select = launch(
        lambda x: written(nl.where(last, nl.load(x), 0.0)), [THREE], plain=plain
    )
    expected = np.where(np.arange(8)[:, None, None] < 6, THREE, 0)
    assert_array_equal(select.outputs[0], expected)


@every("plain", [False, True])
def test_a_window_that_a_mask_cuts_at_every_edge(plain):
    data = normal(4, 5, 6)

    def kernel(x):
        tile = nl.load(x)
        p, i, j, r, s = nl.mgrid[0:4, 0:5, 0:6, 0:3, 0:3]
        y = i + r - 1
        x = j + s - 1
        inside = (y >= 0) & (y < 5) & (x >= 0) & (x < 6)
        window = tile[p, y, x]
        total = nisa.tensor_reduce(np.add, window, axis=[3, 4], mask=inside)
        with pytest.raises(OutOfBoundsError):
            nl.max(window, axis=[3, 4], mask=(y >= 0) & (y < 5) & (x >= 0))
        return written(nl.max(window, axis=[3, 4], mask=inside)), written(total)

    peak, total = launch(kernel, [data], plain=plain).outputs
    padded = np.pad(data, ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    assert_array_equal(peak, np.nanmax(windows, axis=(3, 4)))
    np.testing.assert_allclose(
        total, np.nansum(windows, axis=(3, 4)), rtol=1e-5, atol=1e-6
    )
