"""Public issues of users as regression tests, each named by its issue.

The issues are in the repository aws-neuron/aws-neuron-sdk. On the device the kernels gave wrong
values, or the compiler gave an error that nobody could read; the simulator computes what the
documentation says, and explains what it refuses.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator import (
    TRN1,
    BufferError,
    LimitError,
    NkiError,
    ShapeError,
    launch,
)
from difftest.simulator.entry import kernel as nki
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as nisa32
from difftest.simulator.frontend.nki import language as nl32
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_issue_1045_every_iteration_writes_its_weights():
    """SBUF data dependency: only the last iteration's weights were right."""
    weights = normal(2, 128, 3, 3, 3)

    @nki.jit
    def kernel(w):
        out = nl.ndarray((3, 3, 2, 128, 3), nl.float32, buffer=nl.shared_hbm)
        arranged = nl.ndarray((3, 3, 2, nl.par_dim(128), 3), nl.float32, buffer=nl.sbuf)
        for o in nl.affine_range(2):
            loaded = nl.load(w[o])
            for i in nl.affine_range(3):
                for j in nl.affine_range(3):
                    arranged[i, j, o] = nl.copy(loaded[:, :, i, j])
        for i in nl.affine_range(3):
            for j in nl.affine_range(3):
                for o in nl.affine_range(2):
                    nl.store(out[i, j, o], arranged[i, j, o])
        return out

    (result,) = launch(kernel, [weights]).outputs
    assert_array_equal(result, weights.transpose(3, 4, 0, 1, 2))


def test_issue_1051_reshape_of_a_free_dimension_is_a_view():
    """The simulator and the device disagreed after a blocked tensor was reshaped."""
    weights = normal(2 * 128, 2 * 16, 3)

    def kernel(w, reshaped):
        out = nl.ndarray((2, 128, 2, 16, 3), nl.float32, buffer=nl.shared_hbm)
        if reshaped:
            tiles = nl.ndarray((2, nl.par_dim(128), 32, 3), nl.float32, buffer=nl.sbuf)
            for o in nl.sequential_range(2):
                tiles[o] = nl.load(w[128 * o : 128 * (o + 1)])
            tiles = tiles.reshape((2, nl.par_dim(128), 2, 16, 3))
        else:
            tiles = nl.ndarray(
                (2, nl.par_dim(128), 2, 16, 3), nl.float32, buffer=nl.sbuf
            )
            for o in nl.sequential_range(2):
                for i in nl.sequential_range(2):
                    rows = nl.ds(128 * o, 128)
                    columns = nl.ds(16 * i, 16)
                    tiles[o, :, i] = nl.load(w[rows, columns])
        for o in nl.affine_range(2):
            nl.store(out[o], tiles[o])
        return out

    for reshaped in (True, False):
        (result,) = launch(kernel, [weights, reshaped]).outputs
        assert_array_equal(result, weights.reshape(2, 128, 2, 16, 3))


def test_issue_1051_psum_accumulates_matmuls():
    stationary = normal(9, 128, 64)
    moving = normal(9, 128, 100)

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((64, 100), nl.float32, buffer=nl.shared_hbm)
        total = nl.zeros((64, 100), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(9):
            total += nl.matmul(nl.load(a[k]), nl.load(b[k]), transpose_x=True)
        nl.store(out, total)
        return out

    expected = np.einsum("kpm,kpn->mn", stationary.astype(np.float64), moving)
    assert_allclose(
        launch(kernel, [stationary, moving]).outputs[0], expected, atol=1e-3
    )


def test_issue_1116_reshape_of_a_shifted_image_says_why_not():
    image = normal(16, 32, 16)

    def kernel(x):
        x[:, 1:31, 1:15].reshape((16, 30 * 14))

    with pytest.raises(
        ShapeError, match="its elements must be adjacent in memory"
    ) as caught:
        launch(kernel, [image])
    assert "x[:, 1:31, 1:15].reshape" in caught.value.location.text
    assert "copy the slice first" in caught.value.remedy


@every("form", ["nl.multiply", "*", "loop"])
def test_issue_1138_a_broadcast_multiply_is_right_in_every_form(form):
    """On the device the rows of the broadcast dimension were all the same."""
    buffer = normal(4, 8, 64)
    scale = normal(4, 8)

    @nki.jit
    def kernel(o, s):
        out = nl.ndarray((4, 8, 64), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(o)
        factor = nl.load(s)
        if form == "nl.multiply":
            nl.store(out, nl.multiply(tile, factor[:, :, None]))
        elif form == "*":
            nl.store(out, tile * factor[:, :, None])
        else:
            for k in nl.affine_range(8):
                row = nisa.tensor_scalar(
                    tile[:, k, :], np.multiply, factor[:, k : k + 1]
                )
                nl.store(out[:, k, :], row)
        return out

    assert_array_equal(
        launch(kernel, [buffer, scale]).outputs[0], buffer * scale[:, :, None]
    )


def test_issue_1138_operands_of_different_rank_are_refused():
    """NumPy's broadcasting would align partitions with a free dimension."""

    def kernel(o, s):
        nl.multiply(nl.load(o), nl.load(s))

    with pytest.raises(
        ShapeError, match="takes operands with the same number of dimensions"
    ):
        launch(kernel, [normal(8, 8, 64), normal(8, 64)])


def test_issue_1174_reshape_of_hbm_and_block_dimensions():
    left = normal(2, 128, 96)
    right = normal(2, 128, 64)

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((1, 96, 64), nl.float32, buffer=nl.shared_hbm)
        tiles = nl.ndarray((2, nl.par_dim(128), 96), nl.float32, buffer=nl.sbuf)
        total = nl.zeros((96, 64), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            tiles[k, :, :] = nl.load(a[k])
            total += nisa.nc_matmul(tiles[k], nl.load(b[k]))
        nl.store(out.reshape((96, 64)), total)
        return out

    expected = np.einsum("kpm,kpn->mn", left, right)[None]
    assert_allclose(launch(kernel, [left, right]).outputs[0], expected, atol=1e-4)


@every("batch", [1, 2, 4, 8, 16, 18])
def test_issue_1255_activation_on_a_slice_of_a_reshaped_tensor(batch):
    """Wrong on the device for some batch sizes only."""
    data = normal(batch, 128, 512)

    @nki.jit
    def kernel(x):
        out = nl.ndarray((batch, 128, 512), nl.float32, buffer=nl.shared_hbm)
        for b in nl.affine_range(batch):
            tile = nl.load(x[b]).reshape((128, 1, 512))
            nl.store(out[b], nisa.activation(np.exp, tile[:, 0, :]))
        return out

    assert_allclose(launch(kernel, [data]).outputs[0], np.exp(data), rtol=1e-6)


@every("function", [nl.copy, nl.relu, nl.square])
def test_issue_1296_activation_adds_its_bias_for_every_function(function):
    data = normal(16, 32)
    bias = normal(16, 1)
    expected = {
        nl.copy: lambda x: x,
        nl.relu: lambda x: np.maximum(x, 0),
        nl.square: np.square,
    }

    @nki.jit
    def kernel(x, b):
        out = nl.ndarray((16, 32), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nisa.activation(function, nl.load(x), bias=nl.load(b)))
        return out

    assert_array_equal(
        launch(kernel, [data, bias]).outputs[0], expected[function](data + bias)
    )


def test_issue_1306_an_index_out_of_bounds_is_named():
    """The device said only that an indirect memory copy failed."""

    @nki.jit
    def gather(table, rows):
        place = nl.load(rows)
        out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(table[place, nl.arange(8)[None, :]]))
        return out

    rows = np.array([[0], [3], [10], [2]], np.int32)
    with pytest.raises(IndexError) as caught:
        launch(gather, [normal(10, 8), rows])
    assert caught.value.received == (
        "index [10, 0] into table [10, 8] float32 in shared_hbm, at element [2, 0]"
    )
    assert "nl.load(table[place" in caught.value.location.text


def test_issue_1308_integers_of_32_bits():
    """uint32 above 2**24 lost bits in copies, masks, shifts and products of tiles."""
    values = np.array([[0x7FFFFFFF, 0x80000001, 0xFFFFFFFF, 2**24 + 1]], np.uint32)

    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        results = (
            nl.copy(tile, dtype=nl.uint32),
            low := nl.bitwise_and(tile, 0xFFFF, dtype=nl.uint32),
            high := nl.right_shift(tile, 16, dtype=nl.uint32),
            nisa.tensor_tensor(low, high, np.multiply),
        )
        outs = []
        for result in results:
            out = nl.ndarray((1, 4), nl.uint32, buffer=nl.shared_hbm)
            nl.store(out, result)
            outs.append(out)
        return outs

    copied, low, high, product = launch(kernel, [values]).outputs
    assert_array_equal(copied, values)
    assert_array_equal(low, values & np.uint32(0xFFFF))
    assert_array_equal(high, values >> np.uint32(16))
    assert_array_equal(
        product, (values & np.uint32(0xFFFF)) * (values >> np.uint32(16))
    )


def test_issue_1308_a_number_beside_a_tile_goes_through_float32():
    """As documented: only tensor_tensor is exact, so the simulator loses the bit too."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
        nl.store(out, nisa.tensor_scalar(nl.load(x), np.add, 1))
        return out

    big = np.array([[2**24]], np.int32)
    assert launch(kernel, [big]).outputs[0].tolist() == [[2**24]]


@every("skip", [True, False])
def test_issue_1335_an_index_that_means_none(skip):
    """The largest int32 marks rows to leave alone."""
    none = np.iinfo(np.int32).max

    def kernel(table, rows):
        x = nl.arange(8)[None, :]
        tile = nl.zeros((3, 8), nl.float32)
        mode = nisa.oob_mode.skip if skip else nisa.oob_mode.error
        nisa.dma_copy(dst=tile, src=table[nl.load(rows), x], oob_mode=mode)
        out = nl.ndarray((3, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    table, rows = normal(10, 8), np.array([[4], [none], [1]], np.int32)
    if not skip:
        with pytest.raises(NkiError, match="stays inside its tensor"):
            launch(kernel, [table, rows])
        return
    expected = table[[4, 0, 1]]
    expected[1] = 0
    assert_array_equal(launch(kernel, [table, rows]).outputs[0], expected)


def test_issue_999_a_tile_that_is_larger_than_the_memory_is_one_clear_error():
    """Allocation failed somewhere in the compiler; here at the line, with the numbers."""

    def kernel():
        nl.ndarray((128, 60_000), nl.float32, name="features")

    with pytest.raises(LimitError) as caught:
        launch(kernel, machine=TRN1)
    assert caught.value.received == (
        "features [128, 60000] float32 in sbuf: 240000 bytes a partition"
    )
    assert caught.value.limit == "180224 bytes a partition (trn1)"


def test_issue_1054_the_product_of_a_matmul_goes_to_psum():
    """The verifier's message about a destination in SBUF was lost on its way to the author."""

    def kernel(x, buffer):
        tile = nl32.ndarray((128, 128), nl32.float32, buffer=nl32.sbuf)
        nisa32.dma_copy(dst=tile, src=x)
        product = nl32.ndarray((128, 128), nl32.float32, buffer=buffer)
        nisa32.nc_matmul(dst=product, stationary=tile, moving=tile)

    with pytest.raises(BufferError) as caught:
        launch(kernel, [normal(128, 128), nl32.sbuf])
    assert "nisa32.nc_matmul(dst=product" in caught.value.location.text
    launch(kernel, [normal(128, 128), nl32.psum])


def test_issue_1301_a_transpose_of_128_by_128_by_dma():
    """Legal as documented; a release's tracer asked for four dimensions."""

    def kernel(x):
        tile = nl32.ndarray((128, 128), x.dtype, buffer=nl32.sbuf)
        nisa32.dma_transpose(dst=tile, src=x)
        out = nl32.ndarray((128, 128), x.dtype, buffer=nl32.shared_hbm)
        nisa32.dma_copy(dst=out, src=tile)
        return out

    data = normal(128, 128)
    assert_array_equal(launch(kernel, [data]).outputs[0], data.T)


@pytest.mark.filterwarnings("ignore::difftest.simulator.frontend.levels.LevelWarning")
def test_issue_1354_a_loop_on_the_device_inside_one_that_is_unrolled():
    """Copy the last write of the inner loop: the compiler gave an error without a text."""

    def kernel(x):
        out = nl32.ndarray((2, 2), x.dtype, buffer=nl32.shared_hbm)
        rows = nl32.ndarray((3, 2), x.dtype, buffer=nl32.sbuf)
        held = nl32.ndarray((2, 2), x.dtype, buffer=nl32.sbuf)
        nisa32.dma_copy(dst=rows, src=x)
        for first in nl32.static_range(2):
            for _ in nl32.dynamic_range(2):
                nisa32.dma_copy(dst=held, src=rows[first : first + 2, :])
                nisa32.tensor_scalar(dst=held, data=held, op0=nl32.add, operand0=1)
            nisa32.dma_copy(dst=rows[first : first + 2, :], src=held)
        nisa32.dma_copy(dst=out, src=held)
        return out

    x = np.array([[1, 0], [0, 1], [5, 5]], np.int32)
    assert launch(kernel, [x]).outputs[0].tolist() == [[2, 3], [6, 6]]


def test_issue_1055_a_copy_to_a_partition_inside_a_quadrant():
    """TEN404: dst start_partition(ii) is not multiple of partitions_per_bank (32)."""

    @nki.jit
    def kernel(w):
        out = nl.ndarray((3, 8), nl.float32, buffer=nl.shared_hbm)
        rows = nl.ndarray((3, 8), nl.float32, buffer=nl.sbuf)
        loaded = nl.load(w)
        for row in nl.affine_range(3):
            rows[nl.ds(row, 1), :] = nl.copy(loaded[:, nl.ds(8 * row, 8)])
        nl.store(out, rows)
        return out

    (finding,) = findings_in(kernel, [normal(1, 24)])
    assert (finding.id, finding.severity.value) == ("partition-start", "warning")
    assert "from partition 1 on" in finding.happened
