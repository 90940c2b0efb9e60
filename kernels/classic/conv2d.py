"""Convolution, bias and max pooling in one kernel: nothing between them reaches HBM.

`kernels/classic/conv2d_ladder` holds the slower kernels that lead here, one technique at a time.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

BUFFERS = 2
"""Blocks in SBUF at one time: one is computed on while the next is loaded."""


@nki.compiler.skip_middle_end_transformations
@nki.jit
def fused_conv2d_maxpool(
    X, W, bias, pool_size=1, BLOCK_BYTES=8 * 1024, TILE_WINDOWS=None
):
    """out = maxpool(conv2d(X, W) + bias): stride 1, no padding, pooling windows side by side.

    Dimensions:
        B: images, any number
        C, O: input and output channels, multiples of 128
        H, V: height and width of an image
        F: side of a filter, at most H and V
        R, S: H - F + 1 and V - F + 1, the convolution's output; divisible by pool_size, and S
            at most 512

    Args:
        X: [B, C, H, V] in HBM; float32, float16 or bfloat16
        W: [O, C, F, F] in HBM, dtype of X; fits SBUF with the smallest blocks of X and out
        bias: [O] in HBM, one of these dtypes
        pool_size: side of a pooling window and distance between windows; 1 pools nothing
        BLOCK_BYTES: of the image, that one DMA brings to each partition, as near as whole rows
            come to it. The DMA engines reach their full rate at 4 KiB (AWS Neuron documentation,
            NKI DMA bandwidth guide), and larger blocks have less halo for each row; much larger
            ones make the first product wait
        TILE_WINDOWS: pooling windows that share a PSUM tile, at most; None for a full bank

    Returns:
        [B, O, R // pool_size, S // pool_size] in HBM, dtype of X

    Notes:
        - Sums are float32 and stay in PSUM. They are rounded once, as the bias is added.
        - Each weight is loaded once, and transposed once for all images.
        - An image is loaded in blocks of whole rows, each with the F - 1 rows below it that the
          filter sees. It is never copied: a tap of the filter is an offset into the block.
        - A PSUM tile holds as many rows of whole pooling windows as fit; a row of windows that is
          too wide is divided.
        - A maximum commutes with adding a constant, so that the bias comes after pooling, when
          there are fewer elements.

    Pseudocode:
        for each image, for each block of its rows:
            for each 128 output channels, for each PSUM tile of the block:
                total = sum over input channels and taps of weights.T @ block at the tap's offset
                out block = maxpool(total) + bias
            store the out block
    """
    check_contract(X, W, bias, pool_size)
    pmax = nl.tile_size.pmax
    out_height, out_width = convolved_size(X, W)
    tile_rows, tile_columns = psum_tile(out_height, out_width, pool_size, TILE_WINDOWS)
    block_rows = rows_of_block(X, W, pool_size, tile_rows, BLOCK_BYTES)
    halo = W.shape[2] - 1

    shape = output_shape(X, W, pool_size)
    out = nl.ndarray(shape, dtype=X.dtype, buffer=nl.shared_hbm)
    weights = load_weights(W)
    offsets = load_bias(bias)
    for image in nl.affine_range(X.shape[0]):
        for first in nl.static_range(0, out_height, block_rows):
            rows = min(block_rows, out_height - first)
            block = load_block(X, image, first, rows + halo)
            pooled_rows = slice(first // pool_size, (first + rows) // pool_size)
            for o in nl.affine_range(W.shape[0] // pmax):
                out_block = nl.ndarray(
                    (pmax, rows // pool_size, out_width // pool_size),
                    dtype=X.dtype,
                    buffer=nl.sbuf,
                )
                for row in nl.static_range(0, rows, tile_rows):
                    for column in nl.static_range(0, out_width, tile_columns):
                        below, right = min(row + tile_rows, rows), column + tile_columns
                        place = slice(row, below), slice(column, min(right, out_width))
                        total = convolve(weights, block, o, place)
                        pool_into(
                            out_block, total, offsets[:, o : o + 1], place, pool_size
                        )
                channels = slice(o * pmax, (o + 1) * pmax)
                nisa.dma_copy(dst=out[image, channels, pooled_rows, :], src=out_block)
    return out


def check_contract(X, W, bias, pool_size):
    """Reject arguments that the kernel does not accept; each text has the rule and the numbers."""
    pmax, bank = nl.tile_size.pmax, nl.tile_size.psum_fmax
    assert len(X.shape) == len(W.shape) == 4, (
        f"X is [images, channels, rows, columns] and W [out channels, channels, rows, columns]: "
        f"got shapes {X.shape} and {W.shape}"
    )
    _, in_channels, height, width = X.shape
    out_channels, filter_channels, filter_height, filter_width = W.shape
    for name, tensor in (("X", X), ("bias", bias)):
        assert tensor.dtype in (nl.float32, nl.float16, nl.bfloat16), (
            f"{name} is float32, float16 or bfloat16: got {tensor.dtype}"
        )
    assert W.dtype == X.dtype, f"W has the dtype of X: got {W.dtype} and {X.dtype}"
    assert filter_channels == in_channels, (
        f"W has the input channels of X: got {filter_channels} and {in_channels}"
    )
    assert bias.shape == (out_channels,), (
        f"bias has one value for each of {out_channels} output channels: got {bias.shape}"
    )
    assert in_channels % pmax == out_channels % pmax == 0, (
        f"channels are multiples of {pmax}: got {in_channels} in, {out_channels} out"
    )
    assert filter_height == filter_width, (
        f"filters are square: got {filter_height} x {filter_width}"
    )
    assert filter_height <= min(height, width), (
        f"a filter fits the image: got {filter_height} x {filter_width} on {height} x {width}"
    )
    out_height, out_width = convolved_size(X, W)
    assert pool_size >= 1, f"pool_size is at least 1: got {pool_size}"
    assert out_height % pool_size == out_width % pool_size == 0, (
        f"pool_size divides the convolution's output: got {pool_size} "
        f"for {out_height} x {out_width}"
    )
    assert out_width <= bank, (
        f"a row of the convolution's output has at most {bank} elements, as a PSUM bank has "
        f"float32: got {out_width}"
    )
    assert pool_size * pool_size <= bank, (
        f"a pooling window has at most {bank} elements, as a PSUM bank has float32: "
        f"got {pool_size} x {pool_size}"
    )


def convolved_size(X, W):
    """Rows and columns of the convolution's output, before pooling."""
    return X.shape[2] - W.shape[2] + 1, X.shape[3] - W.shape[3] + 1


def output_shape(X, W, pool_size):
    """The shape of the kernel's output, which is made in the kernel itself: the compiler asks."""
    rows, columns = convolved_size(X, W)
    return X.shape[0], W.shape[0], rows // pool_size, columns // pool_size


def even_share(total, most):
    """The size of a part when ``total`` is divided into the fewest parts of at most ``most``.

    Parts of even size are better than full ones and a short last one: a product with few columns
    takes the Tensor Engine no less time than loading its weights.
    """
    parts = -(-total // most)
    return -(-total // parts)


def psum_tile(out_height, out_width, pool_size, most_windows=None):
    """Rows and columns of the convolution's output that share a PSUM tile: whole windows."""
    windows = nl.tile_size.psum_fmax // (pool_size * pool_size)
    if most_windows is not None:
        windows = min(windows, most_windows)
    across = even_share(out_width // pool_size, windows)
    down = even_share(out_height // pool_size, windows // across)
    return down * pool_size, across * pool_size


def rows_of_block(X, W, pool_size, tile_rows, wanted_bytes):
    """Rows of the convolution's output that share a block of the image: a multiple of tile_rows.

    As many as make a block of ``wanted_bytes``, or fewer if SBUF holds no more with the weights.
    """
    pmax = nl.tile_size.pmax
    itemsize = 4 if X.dtype == nl.float32 else 2
    in_blocks, out_blocks = X.shape[1] // pmax, W.shape[0] // pmax
    out_height, out_width = convolved_size(X, W)
    row_bytes = X.shape[3] * itemsize

    staged_bytes = pmax * W.shape[2] * W.shape[3] * itemsize
    weight_bytes = in_blocks * out_blocks * staged_bytes
    halo_bytes = in_blocks * (W.shape[2] - 1) * row_bytes
    pooled_bytes = (tile_rows // pool_size) * (out_width // pool_size) * itemsize
    tile_bytes = in_blocks * tile_rows * row_bytes + pooled_bytes
    block_bytes = max(staged_bytes, BUFFERS * (halo_bytes + tile_bytes))
    limit = nl.tile_size.total_available_sbuf_size
    assert weight_bytes + block_bytes <= limit, (
        f"weights and the smallest blocks fit the {limit} bytes of an SBUF partition: "
        f"got {weight_bytes} + {block_bytes}"
    )
    fitting = ((limit - weight_bytes) // BUFFERS - halo_bytes) // tile_bytes
    wanted = max(1, wanted_bytes // (tile_rows * row_bytes))
    return tile_rows * even_share(-(-out_height // tile_rows), min(fitting, wanted))


def load_filters(W, o, k):
    """128 output channels by 128 input channels of W: [c_out, c_in, tap] in SBUF, as in HBM."""
    pmax = nl.tile_size.pmax
    out_channels, in_channels, filter_size, _ = W.shape
    rows = W.reshape((out_channels, in_channels, filter_size * filter_size))
    filters = nl.ndarray(
        (pmax, pmax, filter_size * filter_size), dtype=W.dtype, buffer=nl.sbuf
    )
    nisa.dma_copy(
        dst=filters, src=rows[o * pmax : (o + 1) * pmax, k * pmax : (k + 1) * pmax, :]
    )
    return filters


def load_weights(W):
    """W as [c_in, O // 128, C // 128, F, F, c_out] in SBUF: the operand of a tap is contiguous.

    The Tensor Engine transposes each tap; as many as fit a PSUM bank leave it together.
    """
    pmax = nl.tile_size.pmax
    out_blocks, in_blocks = W.shape[0] // pmax, W.shape[1] // pmax
    filter_size = W.shape[2]
    taps = filter_size * filter_size
    together = nl.tile_size.psum_fmax // pmax
    weights = nl.ndarray(
        (pmax, out_blocks, in_blocks, taps, pmax), dtype=W.dtype, buffer=nl.sbuf
    )
    for o in nl.affine_range(out_blocks):
        for k in nl.affine_range(in_blocks):
            filters = load_filters(W, o, k)
            for first in nl.static_range(0, taps, together):
                count = min(together, taps - first)
                turned = nl.ndarray((pmax, count, pmax), dtype=W.dtype, buffer=nl.psum)
                for t in nl.affine_range(count):
                    turned[:, t, :] = nisa.nc_transpose(filters[:, :, first + t])
                weights[:, o, k, first : first + count, :] = nisa.tensor_copy(turned)
    return weights.reshape(
        (pmax, out_blocks, in_blocks, filter_size, filter_size, pmax)
    )


def load_bias(bias):
    """The bias as [128, O // 128] in SBUF, float32: one column for 128 output channels."""
    pmax = nl.tile_size.pmax
    blocks = bias.shape[0] // pmax
    columns = nl.ndarray((pmax, blocks), dtype=nl.float32, buffer=nl.sbuf)
    i_channel, i_block = nl.mgrid[0:pmax, 0:blocks]
    nisa.dma_copy(dst=columns, src=bias.reshape((blocks, pmax))[i_block, i_channel])
    return columns


def load_block(X, image, first, rows):
    """Rows of one image as [128, C // 128, rows, V] in SBUF: a DMA for each 128 channels."""
    pmax = nl.tile_size.pmax
    in_blocks = X.shape[1] // pmax
    block = nl.ndarray(
        (pmax, in_blocks, rows, X.shape[3]), dtype=X.dtype, buffer=nl.sbuf
    )
    for k in nl.affine_range(in_blocks):
        channels = slice(k * pmax, (k + 1) * pmax)
        nisa.dma_copy(dst=block[:, k], src=X[image, channels, first : first + rows, :])
    return block


def convolve(weights, block, o, place):
    """128 output channels of the convolution at a place in a block: [128, rows, columns], PSUM.

    A place is a slice of the block's output rows and one of its output columns.
    """
    pmax, _, in_blocks, filter_size, _, _ = weights.shape
    rows, columns = place
    total = nl.zeros(
        (pmax, rows.stop - rows.start, columns.stop - columns.start),
        nl.float32,
        buffer=nl.psum,
    )
    for k in nl.affine_range(in_blocks):
        for i in nl.affine_range(filter_size):
            for j in nl.affine_range(filter_size):
                seen_rows = slice(rows.start + i, rows.stop + i)
                seen_columns = slice(columns.start + j, columns.stop + j)
                total += nisa.nc_matmul(
                    weights[:, o, k, i, j, :], block[:, k, seen_rows, seen_columns]
                )
    return total


def windows_last(tile, pool_size):
    """A view of [128, rows, columns] with the elements of each pooling window on axes 3 and 4."""
    partitions, rows, columns = tile.shape
    i_p, i_row, i_column, i_y, i_x = nl.mgrid[
        0:partitions,
        0 : rows // pool_size,
        0 : columns // pool_size,
        0:pool_size,
        0:pool_size,
    ]
    return tile[i_p, i_row * pool_size + i_y, i_column * pool_size + i_x]


def pool_into(out_block, total, offset, place, pool_size):
    """Pool a PSUM tile, add the bias, round, and put it at its place in the out block."""
    if pool_size > 1:
        total = nisa.tensor_reduce(nl.max, windows_last(total, pool_size), axis=[3, 4])
    rows, columns = (slice(s.start // pool_size, s.stop // pool_size) for s in place)
    out_block[:, rows, columns] = nisa.tensor_scalar(
        total, nl.add, offset, dtype=out_block.dtype
    )
