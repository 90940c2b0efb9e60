"""`NkiTensor.ap` and the views with dynamic offsets ("NKI Access Patterns", v2.32.0)."""

import numpy as np
import pytest

from difftest.simulator import (
    BufferError,
    DtypeError,
    KernelError,
    NkiError,
    OutOfBoundsError,
    ShapeError,
    launch,
)
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles, stored

DATA = np.arange(16 * 32, dtype=np.float32).reshape(16, 32)
FLAT = DATA.ravel()


def strided(pattern, offset=0):
    """The elements that a pattern names, by the pseudo-code of AWS's page."""
    counts = [n for _, n in pattern]
    result = np.empty(counts, np.float32)
    for place in np.ndindex(*counts):
        result[place] = FLAT[
            offset + sum(i * s for i, (s, _) in zip(place, pattern, strict=True))
        ]
    return result


@every(
    "pattern, offset",
    [
        ([[32, 16], [1, 32]], 0),
        ([[32, 16], [1, 8]], 8),
        ([(32, 4), (8, 2), (2, 4)], 5 * 32),
        ([[32, 16], [0, 3], [1, 4]], 1),
        ([[32, 2], [3, 5], [1, 6]], 2 * 32 + 3),
        ([[32, 16], [-1, 8]], 7),
        ([[1, 1], [1, 32]], 3 * 32),
    ],
)
def test_a_pattern_on_chip(pattern, offset):
    result = on_nki_tiles(lambda x: x.ap(pattern=pattern, offset=offset), DATA)
    np.testing.assert_array_equal(result, strided(pattern, offset))


def test_a_pattern_addresses_storage_from_every_view():
    def compute(x):
        inner = x.ap([[32, 16], [2, 16]])
        assert inner.get_pattern() == [[32, 16], [2, 16]]
        outer = inner.ap([[32, 16], [1, 8]])
        permuted = x.reshape((16, 4, 8)).permute((0, 2, 1)).ap([[32, 16], [1, 8]])
        inherited = x[4:8, 8:16].ap([[32, 2], [1, 4]])
        assert inherited.offset == 4 * 32 + 8
        return outer, permuted, inherited

    outer, permuted, inherited = on_nki_tiles(compute, DATA)
    np.testing.assert_array_equal(outer, DATA[:, :8])
    np.testing.assert_array_equal(permuted, DATA[:, :8])
    np.testing.assert_array_equal(inherited, DATA[4:6, 8:12])


@every(
    "compute, kind, text",
    [
        (
            lambda x: x.ap([[64, 8], [1, 32]]),
            nisa.NkiValidationError,
            "partition stride 64",
        ),
        (lambda x: x.ap([[32, 17], [1, 32]]), OutOfBoundsError, "partitions 0 to 16"),
        (
            lambda x: x.ap([[32, 8], [1, 32]], 9 * 32),
            OutOfBoundsError,
            "partitions 9 to 16",
        ),
        (
            lambda x: x.ap([[32, 16], [1, 33]]),
            OutOfBoundsError,
            "elements 0 to 32 of a",
        ),
        (
            lambda x: x.ap([[32, 15], [1, 32]], 1),
            OutOfBoundsError,
            "elements 1 to 32 of a",
        ),
        (lambda x: x.ap([[32, 16], [-1, 3]], 1), OutOfBoundsError, "elements -1 to 1"),
        (lambda x: x.ap([[32, 16], [1, 0]]), ShapeError, "at least 1"),
        (lambda x: x.ap([32, 16]), KernelError, "a list of [stride, count]"),
        (
            lambda x: x[:, 8:].ap([[32, 16], [1, 4]], offset=0),
            KernelError,
            "whole tensor",
        ),
        (
            lambda x: x.ap([[32, 16], [1, 4]], scalar_offset=x, vector_offset=x),
            KernelError,
            "scalar_offset or vector_offset, not both",
        ),
        (
            lambda x: x.ap([[32, 1], [1, 4]], scalar_offset=x[0, 0], indirect_dim=1),
            DtypeError,
            "holds integers",
        ),
        (
            lambda x: x.ap([[32, 1], [1, 4]], scalar_offset=3, indirect_dim=1),
            KernelError,
            "tensor of integers",
        ),
    ],
)
def test_a_wrong_pattern_is_an_error(compute, kind, text):
    with pytest.raises(kind) as caught:
        on_nki_tiles(compute, DATA)
    assert text in str(caught.value)
    assert "lambda x: x" in caught.value.location.text


def test_a_pattern_of_another_dtype():
    """The page's example: int32 as bfloat16, strides and counts in elements of the new dtype."""
    words = np.arange(4 * 8, dtype=np.int32).reshape(4, 8) * 77777

    def compute(x):
        whole = x.ap([[16, 4], [1, 16]], offset=0, dtype=nl.uint16)
        odd = x[:, 2:].ap([[16, 4], [2, 3]], dtype=nl.uint16)
        assert odd.offset == 4
        return whole, odd

    whole, odd = on_nki_tiles(compute, words)
    np.testing.assert_array_equal(whole, words.view(np.uint16))
    np.testing.assert_array_equal(odd, words.view(np.uint16)[:, 4:10:2])


# -- dynamic offsets -------------------------------------------------------------------------------

ROWS = np.array([[3], [0], [7], [3]], np.int32)


def dma(source, shape, **options):
    """A kernel that copies `source(x, index)` into SBUF and out again."""

    def kernel(x, rows):
        index = nl.load(rows)
        tile = nl.full(shape, -1.0, nl.float32)
        nisa.dma_copy(dst=tile, src=source(x, index), **options)
        return stored(tile)

    return lambda rows=ROWS: launch(kernel, (DATA, rows)).outputs[0]


@every(
    "source, kind, text",
    [
        (lambda x, i: nl.load(x).vector_select(0, i), BufferError, "in HBM"),
        (lambda x, i: nl.load(x).select(0, i[0, 0]), ShapeError, "free dimension"),
        (
            lambda x, i: x.vector_select(0, i).vector_select(0, i),
            KernelError,
            "vector_select was applied to a view",
        ),
        (lambda x, i: x.vector_select(0, i)[0], KernelError, "stays whole"),
        (lambda x, i: x.vector_select(1, i), ShapeError, "dimension 0"),
        (lambda x, i: x.select(0, i), ShapeError, "one element in SBUF"),
        (
            lambda x, i: x.ap([[32, 5], [1, 32]], vector_offset=i),
            ShapeError,
            "4 offsets for 5",
        ),
        (
            lambda x, i: x.ap([[32, 4], [1, 32]], vector_offset=i, indirect_dim=1),
            KernelError,
            "takes indirect_dim 0",
        ),
        (
            lambda x, i: x.ap([[32, 4]], scalar_offset=i, indirect_dim=2),
            ShapeError,
            "0 to 1",
        ),
    ],
)
def test_a_wrong_dynamic_view_is_an_error(source, kind, text):
    with pytest.raises(kind) as error:
        dma(source, (4, 32))()
    assert text in str(error.value)


def test_an_offset_for_each_row_is_for_dma():
    def kernel(x, rows):
        tile = nl.ndarray((4, 32), nl.float32)
        nisa.tensor_copy(tile, x.vector_select(0, nl.load(rows)))

    with pytest.raises(NkiError, match="for the DMA engines"):
        launch(kernel, (DATA, ROWS))


BEYOND = [[32, 16], [8, 4]]
"""Steps of 8 from element 8: the fourth element would be the row's 33rd."""


def test_a_pattern_beyond_the_end_that_nobody_uses_is_no_error():
    """Kernels make them for tiles that they then skip (output_projection of nki-library)."""

    def compute(x):
        copied = nl.ndarray((16, 4), nl.float32)
        for first in (0, 8):
            part = x.ap(BEYOND, offset=first)
            if first < 8:
                nisa.tensor_copy(copied, part)
        return copied

    np.testing.assert_array_equal(on_nki_tiles(compute, DATA), DATA[:, ::8])


@every(
    "use",
    [
        lambda part, t: nisa.tensor_copy(t, part),
        lambda part, t: nisa.tensor_copy(part, t),
        lambda part, t: nisa.dma_copy(t, part),
        lambda part, t: part[0:4],
        lambda part, t: part.permute((0, 1)),
        lambda part, t: nisa.nc_matmul(
            nl.ndarray((4, 4), nl.float32, buffer=nl.psum), part, t
        ),
    ],
)
def test_its_use_is_an_error_at_the_line_of_the_pattern(use):
    def compute(x):
        part = x.ap(BEYOND, offset=8)  # the line
        t = nl.zeros((16, 4), nl.float32)
        use(part, t)
        return t

    with pytest.raises(
        OutOfBoundsError, match="elements 8 to 32 of a partition"
    ) as caught:
        on_nki_tiles(compute, DATA)
    assert "# the line" in caught.value.location.text
