"""Matrix transpose on the Tensor Engine: few, long DMAs around 128 x 128 tiles."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.compiler.skip_middle_end_transformations
@nki.jit
def matrix_transpose(a_tensor, PANEL_BYTES=16 * 1024, STORE_TILES=4):
    """Transpose a matrix in 128 x 128 tiles; nc_transpose is the only compute instruction.

    Dimensions:
        M, N: rows and columns, each a multiple of 128 (nl.tile_size.pmax)

    Args:
        a_tensor: [M, N] in HBM
        PANEL_BYTES: of a row of the matrix, loaded by one DMA; the DMA engines reach their full
            rate at 4 KiB (AWS Neuron documentation, NKI DMA bandwidth guide)
        STORE_TILES: tiles of the result, one below the other, that leave by one DMA; each DMA
            costs its issuing engine about as long as it takes to move 256 KiB

    Returns:
        [N, M] in HBM

    Notes:
        - A panel is 128 rows by PANEL_BYTES of each row.
        - Four panels, one below the other, make rows of four tiles in the result: 2 KiB of
          float32, which the DMA engines store at nearly their full rate. Their four transposes
          share a PSUM bank and leave it with one copy.

    Pseudocode:
        for each four panels below one another: load them
            for each 128 columns of the panels:
                result rows = the transposes of the four tiles, side by side
            store the result rows, STORE_TILES tiles at a time
    """
    M, N = a_tensor.shape
    tile = nl.tile_size.pmax
    assert M % tile == N % tile == 0, (
        f"matrix_transpose takes multiples of {tile}, got {M} x {N}"
    )
    out = nl.ndarray((N, M), dtype=a_tensor.dtype, buffer=nl.shared_hbm)
    out_tiles = out.reshape((N // tile, tile, M))
    panels = nl.tile_size.psum_fmax // tile
    width = max(1, PANEL_BYTES // (a_tensor.itemsize * tile)) * tile

    for top in nl.static_range(0, M, panels * tile):
        height = min(panels * tile, M - top)
        for left in nl.static_range(0, N, width):
            block = load_panels(a_tensor, top, height, left, min(width, N - left))
            for first in nl.static_range(0, block.shape[2], STORE_TILES * tile):
                count = min(STORE_TILES, (block.shape[2] - first) // tile)
                turned = transpose_tiles(block, first, count)
                i_row, i_tile, i_column = nl.mgrid[0:tile, 0:count, 0:height]
                place = out_tiles[
                    (left + first) // tile + i_tile, i_row, top + i_column
                ]
                nisa.dma_copy(dst=place, src=turned)
    return out


def load_panels(a_tensor, top, height, left, width):
    """Rows of the matrix as [128, panels, width] in SBUF: a DMA for each 128 rows."""
    tile = nl.tile_size.pmax
    block = nl.ndarray(
        (tile, height // tile, width), dtype=a_tensor.dtype, buffer=nl.sbuf
    )
    for panel in nl.affine_range(height // tile):
        row = top + panel * tile
        nisa.dma_copy(
            dst=block[:, panel], src=a_tensor[row : row + tile, left : left + width]
        )
    return block


def transpose_tiles(block, first, count):
    """``count`` tiles of columns of all panels as [128, count, 128 * panels] in SBUF."""
    tile, panels, _ = block.shape
    turned = nl.ndarray((tile, count, panels * tile), dtype=block.dtype, buffer=nl.sbuf)
    for t in nl.affine_range(count):
        column = first + t * tile
        bank = nl.ndarray((tile, panels * tile), dtype=block.dtype, buffer=nl.psum)
        for panel in nl.affine_range(panels):
            bank[:, panel * tile : (panel + 1) * tile] = nisa.nc_transpose(
                block[:, panel, column : column + tile]
            )
        turned[:, t, :] = nisa.tensor_copy(bank)
    return turned


@nki.compiler.skip_middle_end_transformations
@nki.jit
def transpose_by_tiles(a_tensor):
    """Transpose a matrix one 128 x 128 tile at a time: where matrix_transpose started.

    Each tile is a load, a transpose, a copy out of PSUM and a store of its own. The 512-byte rows
    and the number of DMAs cost most of the time, which is why it is kept: the public device traces
    of this loop, 1024 x 1024 float32, are compared with the timing model.

    Dimensions:
        M, N: rows and columns, each a multiple of 128 (nl.tile_size.pmax)

    Args:
        a_tensor: [M, N] in HBM

    Returns:
        [N, M] in HBM

    Pseudocode:
        for each 128 x 128 tile at (i, j): out[j, i] = a_tensor[i, j].T
    """
    M, N = a_tensor.shape
    tile = nl.tile_size.pmax
    assert M % tile == N % tile == 0, (
        f"transpose_by_tiles takes multiples of {tile}, got {M} x {N}"
    )
    out = nl.ndarray((N, M), dtype=a_tensor.dtype, buffer=nl.shared_hbm)

    for i in nl.affine_range(M // tile):
        for j in nl.affine_range(N // tile):
            rows = slice(i * tile, (i + 1) * tile)
            columns = slice(j * tile, (j + 1) * tile)
            block = nl.ndarray((tile, tile), dtype=a_tensor.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=block, src=a_tensor[rows, columns])
            turned = nisa.tensor_copy(nisa.nc_transpose(block))
            nisa.dma_copy(dst=out[columns, rows], src=turned)
    return out
