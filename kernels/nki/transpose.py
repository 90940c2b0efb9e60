"""Matrix transpose on the Tensor Engine: few, long DMAs around 128 x 128 tiles."""

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.nki.tiles import load, load_rows


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
    out_tiles = out.reshape_dim(0, (N // tile, tile)).permute((1, 0, 2))
    panels = nl.tile_size.psum_fmax // tile  # difftest: ignore[NKU309] for 0.3
    itemsize = 4 if a_tensor.dtype == nl.float32 else 2
    width = max(1, PANEL_BYTES // (itemsize * tile)) * tile

    for top in range(0, M, panels * tile):
        height = min(panels * tile, M - top)
        for left in range(0, N, width):
            columns = min(width, N - left)
            # A tensor for each panel: the compiler lets users of one tensor wait for each other.
            block = load_rows(a_tensor[top : top + height, left : left + columns])
            for first in range(0, columns, STORE_TILES * tile):
                count = min(STORE_TILES, (columns - first) // tile)
                turned = transpose_tiles(block, first, count)
                below = (left + first) // tile
                nisa.dma_copy(
                    dst=out_tiles[:, below : below + count, top : top + height],
                    src=turned,
                )
    return out


def transpose_tiles(block, first, count):
    """``count`` tiles of columns of all panels as [128, count, 128 * panels] in SBUF."""
    tile, panels, dtype = nl.tile_size.pmax, len(block), block[0].dtype
    turned = nl.ndarray((tile, count, panels * tile), dtype=dtype, buffer=nl.sbuf)
    for t in range(count):
        column = first + t * tile
        bank = nl.ndarray((tile, panels * tile), dtype=dtype, buffer=nl.psum)
        for panel in range(panels):
            nisa.nc_transpose(
                dst=bank[:, panel * tile : (panel + 1) * tile],
                data=block[panel][:, column : column + tile],
            )
        nisa.tensor_copy(dst=turned[:, t, :], src=bank)
    return turned


@nki.jit
def transpose_by_tiles(a_tensor):
    """Transpose a matrix one 128 x 128 tile at a time: where matrix_transpose started.

    Each tile is a load, a transpose, a copy out of PSUM and a store of its own. The 512-byte rows
    and the number of DMAs cost most of the time.

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

    for i in range(M // tile):
        for j in range(N // tile):
            rows = slice(i * tile, (i + 1) * tile)
            columns = slice(j * tile, (j + 1) * tile)
            block = load(a_tensor[rows, columns])
            bank = nl.ndarray((tile, tile), dtype=a_tensor.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=bank, data=block)
            turned = nl.ndarray((tile, tile), dtype=a_tensor.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=turned, src=bank)
            nisa.dma_copy(dst=out[columns, rows], src=turned)
    return out
