"""Dynamic offsets of the DMA engines: gathers, scatters, both, transposes; and their views."""

import ml_dtypes
import numpy as np
import pytest

from difftest.simulator import TRN1, KernelError, OutOfBoundsError, ShapeError, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import stored

DATA = np.arange(16 * 32, dtype=np.float32).reshape(16, 32)
SKIP = nisa.oob_mode.skip


def rows(*numbers):
    return np.array(numbers, np.int32)[:, None]


# -- a gather that scatters ------------------------------------------------------------------------


def moved(
    x, here, there, out, oob_mode=nisa.oob_mode.error, dge_mode=nisa.dge_mode.unknown
):
    """Rows `here` of `x` to rows `there` of `out`."""
    pattern = [[32, here.shape[0]], [1, 32]]
    nisa.dma_copy(
        out.ap(pattern, vector_offset=nl.load(there)),
        x.ap(pattern, vector_offset=nl.load(here)),
        oob_mode=oob_mode,
        dge_mode=dge_mode,
    )


def test_a_row_that_either_side_skips_is_not_moved():
    out = np.zeros_like(DATA)
    arguments = (rows(3, 99, 7, -1), rows(9, 2, 16, 15))
    launch(moved, (DATA, *arguments, out), {"oob_mode": SKIP})
    expected = np.zeros_like(DATA)
    expected[9] = DATA[3]
    np.testing.assert_array_equal(out, expected)
    for side in (0, 1):
        inside = [rows(3, 0, 7, 3), rows(9, 2, 0, 15)]
        inside[side] = arguments[side]
        with pytest.raises(OutOfBoundsError, match="offset stays inside"):
            launch(moved, (DATA, *inside, np.zeros_like(DATA)))


def test_an_offset_counts_in_the_patterns_own_dtype():
    data = DATA.astype(ml_dtypes.bfloat16)

    def kernel(x, index):
        tile = nl.ndarray((4, 16), nl.int32)
        source = x.ap([[16, 4], [1, 16]], vector_offset=nl.load(index), dtype=nl.int32)
        nisa.dma_copy(tile, source)
        on_chip = nl.load(x)
        half = nl.ndarray((16, 4), nl.int32)
        one = nl.full((1, 1), 2, nl.int32)
        # an offset along them counts elements of int32
        pairs = on_chip.reshape((16, 16, 2))
        view = pairs.ap(
            [[16, 16], [1, 4]], scalar_offset=one, indirect_dim=1, dtype=nl.int32
        )
        nisa.tensor_copy(half, view)
        return stored(tile), stored(half)

    outputs = launch(kernel, (data, rows(3, 0, 7, 3))).outputs
    bits = data.view(np.int32)
    np.testing.assert_array_equal(outputs[0], bits[[3, 0, 7, 3]])
    np.testing.assert_array_equal(outputs[1], bits[:, 2:6])


def test_an_offset_of_part_of_an_element_is_an_error():
    def kernel(x, index):
        tile = nl.ndarray((16, 4), nl.float32)
        one = nl.load(index)
        view = x.ap(
            [[8, 16], [1, 4]], scalar_offset=one, indirect_dim=1, dtype=nl.float32
        )
        nisa.dma_copy(tile, view)

    with pytest.raises(ShapeError, match="whole elements of dtype"):
        launch(kernel, (DATA.astype(np.float16), rows(1)))


# -- views of a view with offsets ------------------------------------------------------------------

CUBE = np.arange(8 * 4 * 6, dtype=np.float32).reshape(8, 4, 6)
PICKED = CUBE[[3, 0, 7]]
VIEWS = {
    "slice": (lambda v: v.slice(2, 1, 6, 2), PICKED[:, :, 1:6:2]),
    "select": (lambda v: v.select(1, 2), PICKED[:, 2]),
    "select the last": (lambda v: v.select(-1, -1), PICKED[:, :, -1]),
    "index": (lambda v: v[:, 1:3, ::2], PICKED[:, 1:3, ::2]),
    "index to one dimension": (lambda v: v[:, 1, 3], PICKED[:, 1, 3]),
    "ellipsis": (lambda v: v[..., 4], PICKED[..., 4]),
    "permute": (lambda v: v.permute((0, 2, 1)), PICKED.transpose(0, 2, 1)),
    "reshape": (lambda v: v.reshape((3, 24)), PICKED.reshape(3, 24)),
    "expand_dim": (lambda v: v.expand_dim(1), PICKED[:, None]),
    "squeeze_dim": (lambda v: v.expand_dim(1).squeeze_dim(1), PICKED),
    "broadcast": (
        lambda v: v.expand_dim(1).broadcast(1, 2),
        np.broadcast_to(PICKED[:, None], (3, 2, 4, 6)),
    ),
    "reshape_dim": (lambda v: v.reshape_dim(2, (2, -1)), PICKED.reshape(3, 4, 2, 3)),
    "flatten_dims": (lambda v: v.flatten_dims(1, 2), PICKED.reshape(3, 24)),
    "rearrange": (
        lambda v: v.rearrange(("r", "a", ("b", "c")), ("r", "c", ("a", "b")), {"c": 3}),
        PICKED.reshape(3, 4, 2, 3).transpose(0, 3, 1, 2).reshape(3, 3, 8),
    ),
}


@every("name", VIEWS)
def test_a_view_of_a_gather_names_what_numpys_does(name):
    view, expected = VIEWS[name]

    def kernel(x, index):
        source = view(x.vector_select(0, nl.load(index)))
        assert source.is_indirect()
        assert source.shape == expected.shape
        assert source.size == expected.size
        out = nl.ndarray(expected.shape, nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, source)
        return out

    np.testing.assert_array_equal(
        launch(kernel, (CUBE, rows(3, 0, 7))).outputs[0], expected
    )


@every(
    "use",
    [
        lambda v, i: v[0],
        lambda v, i: v[1:2, 3],
        lambda v, i: v.slice(0, 0, 1),
        lambda v, i: v.slice(-3, 0, 1),
        lambda v, i: v.select(0, 1),
        lambda v, i: v.select(1, i),
        lambda v, i: v.vector_select(0, i),
        lambda v, i: v.view(nl.int32),
        lambda v, i: v.reinterpret_cast(nl.int32),
    ],
)
def test_the_dimension_of_the_offsets_stays_whole(use):
    def kernel(x, index):
        offsets = nl.load(index)
        use(x.vector_select(0, offsets), offsets)

    with pytest.raises(KernelError, match="its dimension stays whole"):
        launch(kernel, (CUBE, rows(3, 0, 7)))


@every(
    "use, text",
    [
        (lambda v: v.permute((1, 0, 2)), "permute keeps"),
        (lambda v: v.expand_dim(0), "expand_dim names"),
        (lambda v: v.reshape((4, 3, 6)), "dimension 0 stays 3"),
        (lambda v: v.flatten_dims(0, 1), "flatten_dims names"),
        (lambda v: v.reshape_dim(0, (3, 1)), "reshape_dim keeps"),
        (lambda v: v.broadcast(0, 2), "broadcast names"),
        (lambda v: v.squeeze_dim(0), "squeeze_dim names"),
    ],
)
def test_views_keep_the_dimension_of_the_offsets_first(use, text):
    with pytest.raises(ShapeError, match=text):
        launch(lambda x, i: use(x.vector_select(0, nl.load(i))), (CUBE, rows(3, 0, 7)))


# -- gathers that transpose ------------------------------------------------------------------------

WIDE = np.arange(300 * 12, dtype=np.float16).reshape(300, 12)


def gathered(shape, pattern, axes=None, **options):
    def kernel(x, index, out):
        offsets = nl.load(index)
        tile = nl.full(shape, -1.0, nl.float16)
        nisa.dma_transpose(tile, x.ap(pattern, vector_offset=offsets), axes, **options)
        nisa.dma_copy(out, tile)

    return kernel


def chosen(count, columns=1, seed=0):
    numbers = np.random.default_rng(seed).permutation(300)[:count]
    return numbers.reshape(-1, columns).astype(np.uint32)


def test_skipped_rows_leave_columns_as_they_were():
    """AWS's simulator wrote zeros there before NKI 0.5."""
    index = chosen(16)
    index[[2, 5], 0] = 300, 2**31
    out = np.zeros((12, 16), np.float16)
    kernel = gathered((12, 16), [[12, 16], [1, 12]], oob_mode=SKIP)
    launch(kernel, (WIDE, index, out))
    kept = [k for k in range(16) if k not in (2, 5)]
    np.testing.assert_array_equal(out[:, kept], WIDE[index[kept, 0]].T)
    assert (out[:, [2, 5]] == -1).all()
    with pytest.raises(OutOfBoundsError, match="offset 300"):
        launch(gathered((12, 16), [[12, 16], [1, 12]]), (WIDE, index, out))


@every(
    "changed, text",
    [
        ({"index": chosen(16).astype(np.int32)}, "the indices are uint32"),
        ({"count": 20}, "a multiple of 16"),
        ({"index": chosen(24)}, "16 to 128 and a multiple of 16"),
        ({"index": chosen(32, 2)}, "128 if they have several columns"),
        ({"dge_mode": nisa.dge_mode.hwdge}, "unknown or swdge"),
        ({"dge_mode": nisa.dge_mode.none}, "unknown or swdge"),
        ({"x": DATA}, "2 bytes"),
        (
            {"pattern": [[12, 16], [6, 2], [3, 2], [1, 3]]},
            "src\\[1\\] or src\\[2\\] has one",
        ),
        ({"machine": TRN1}, "NeuronCore-v3"),
    ],
)
def test_gathers_that_transpose_are_limited_by_the_hardware(changed, text):
    count = changed.get("count", 16)
    pattern = changed.get("pattern", [[12, count], [1, 12]])
    shape = [size for _, size in pattern]
    turned = (shape[-1], *shape[1:-1], shape[0])

    def kernel(x, index):
        tile = nl.ndarray(turned, x.dtype)
        source = x.ap(pattern, vector_offset=nl.load(index))
        nisa.dma_transpose(
            tile, source, dge_mode=changed.get("dge_mode", nisa.dge_mode.unknown)
        )

    index = changed.get("index", chosen(32 if count == 20 else 16))
    with pytest.raises(KernelError, match=text):
        launch(kernel, (changed.get("x", WIDE), index), machine=changed.get("machine"))


def test_the_index_of_each_call_is_looked_at():
    """A call that passed is not checked again, and another index makes another call."""

    def kernel(x, index, other):
        for rows in (index, other):
            tile = nl.ndarray((12, 16), x.dtype)
            nisa.dma_transpose(
                tile, x.ap([[12, 16], [1, 12]], vector_offset=nl.load(rows))
            )

    launch(kernel, (WIDE, chosen(16), chosen(16)))
    with pytest.raises(KernelError, match="the indices are uint32"):
        launch(kernel, (WIDE, chosen(16), chosen(16).astype(np.int32)))


@every(
    "options, text",
    [
        ({"oob_mode": SKIP}, "where src has a dynamic offset"),
        ({"dge_mode": nisa.dge_mode.swdge}, "a src with an offset for each row"),
    ],
)
def test_a_direct_transpose_rejects_other_arguments(options, text):
    def kernel(x):
        nisa.dma_transpose(nl.ndarray((12, 16), nl.float16), x[0:16], **options)

    with pytest.raises(KernelError, match=text):
        launch(kernel, (WIDE,))


def test_a_direct_transpose_by_descriptors_of_the_runtime_warns():
    """Its page names unknown and hwdge; mlp_tkg of nki-library gives none. A copy's names sync."""

    def kernel(x):
        turned = nl.ndarray((12, 16), nl.float16)
        nisa.dma_transpose(turned, x[0:16], dge_mode=nisa.dge_mode.none)
        nisa.dma_copy(
            turned, turned, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.sync
        )
        return stored(turned)

    with pytest.warns(UserWarning, match="takes dge_mode.unknown or hwdge"):
        output = launch(kernel, (WIDE,)).outputs[0]
    np.testing.assert_array_equal(output, WIDE[:16].T)


@every("mode", [nisa.dge_mode.hwdge, nisa.dge_mode.none])
def test_an_offset_for_each_row_needs_software_descriptors(mode):
    with pytest.raises(KernelError, match="descriptors"):
        launch(
            moved,
            (DATA, rows(1, 2), rows(3, 4), np.zeros_like(DATA)),
            {"dge_mode": mode},
        )
