"""Matrix multiplication in blocks of tiles, as a search over loop orders and block sizes has it.

Written from a public description of such a search on trn2, and of a ladder of one product; where
the loads stand in the loops was not published. Here a block is loaded where it is needed first.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.nki.tiles import load, multiply
from kernels.nki.tutorial_matmul import columns_of, contracted, load_column

BANKS = 8
"""Sums of 128 x 512 in float32 that PSUM holds."""


@nki.jit
def matmul_in_blocks(
    lhs,
    rhs,
    ROWS_FIRST=True,
    K_TILES=1,
    M_TILES=1,
    N_TILES=1,
    TURNED=False,
    ROOM=160 * 1024,
):
    """lhs.T @ rhs, or lhs @ rhs where lhs is turned on the way; K is the innermost loop.

    Dimensions:
        K: contraction, a multiple of 128 * K_TILES
        M: rows of the result, a multiple of 128 * M_TILES
        N: columns of the result, a multiple of 512 * N_TILES

    Args:
        lhs: [K, M] in HBM; [M, K] if TURNED
        rhs: [K, N] in HBM
        ROWS_FIRST: whether the outermost loop is that over M, else over N
        K_TILES, M_TILES, N_TILES: tiles in a block, of 128, 128 and 512
        TURNED: whether lhs is transposed on the Tensor Engine
        ROOM: bytes of a partition that operands which are kept may have

    Returns:
        [M, N] in HBM, of the operands' dtype

    Notes:
        - Sums of a block stay in PSUM over K if they fit, else they are added in SBUF.
        - Operands are loaded once if both fit; else the outermost loop's keeps its block.
    """
    M, K = lhs.shape if TURNED else (lhs.shape[1], lhs.shape[0])
    N = rhs.shape[1]
    assert rhs.shape[0] == K, (
        f"lhs and rhs contract over different sizes: {K} and {rhs.shape[0]}"
    )
    depth, rows, columns = 128 * K_TILES, 128 * M_TILES, 512 * N_TILES
    assert M % rows == 0, f"M={M} is not a multiple of its block, {rows}"
    assert N % columns == 0, f"N={N} is not a multiple of its block, {columns}"
    assert K % depth == 0, f"K={K} is not a multiple of its block, {depth}"
    result = nl.ndarray((M, N), dtype=lhs.dtype, buffer=nl.shared_hbm)
    m_blocks, n_blocks, k_blocks = M // rows, N // columns, K // depth
    kept = K * (M + N) // 128 * 2 <= ROOM
    lefts = no_blocks(m_blocks)
    rights = no_blocks(n_blocks)

    for turn in range(m_blocks * n_blocks):
        m = turn // n_blocks if ROWS_FIRST else turn % m_blocks
        n = turn % n_blocks if ROWS_FIRST else turn // m_blocks
        if not kept and (not ROWS_FIRST or n == 0):
            lefts[m] = []
        if not kept and (ROWS_FIRST or m == 0):
            rights[n] = []
        in_psum = M_TILES * N_TILES + int(TURNED) <= BANKS  # one takes the transposes
        sums = new_sums(M_TILES, N_TILES, in_psum)
        for k in range(k_blocks):
            if len(lefts[m]) == k:
                lefts[m].append(
                    left_block(lhs, m * rows, rows, k * depth, K_TILES, TURNED)
                )
            if len(rights[n]) == k:
                rights[n].append(
                    load_column(rhs, n * columns, columns, k * depth, K_TILES)
                )
            add_products(sums, lefts[m][k], rights[n][k], k == 0)
        for i in range(M_TILES):
            first = m * rows + i * 128
            store(result[first : first + 128, n * columns : (n + 1) * columns], sums[i])
    return result


@nki.jit
def matmul_rung(lhsT, rhs, HOISTED=True, SUMS=1):
    """lhsT.T @ rhs by the rungs of a ladder, which differ in their loads and their sums in PSUM.

    Dimensions:
        K, M: contraction and rows of the result, multiples of 128
        N: columns of the result, a multiple of 512

    Args:
        lhsT: [K, M] in HBM, the left operand transposed
        rhs: [K, N] in HBM
        HOISTED: whether all loads come before all products, else each pair before its product, into
            one tile of each operand
        SUMS: tiles in PSUM that take sums in turn

    Returns:
        [M, N] in HBM, of the operands' dtype
    """
    K, M, N = contracted(lhsT, rhs)
    assert M % 128 == N % 512 == 0, f"M={M} is not a multiple of 128 or N={N} of 512"
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    sums = []
    for _ in range(SUMS):
        sums.append(nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum))
    left = nl.ndarray((128, 128), dtype=lhsT.dtype, buffer=nl.sbuf)
    right = nl.ndarray((128, 512), dtype=rhs.dtype, buffer=nl.sbuf)
    lefts = []
    rights = []
    for k in range(K // 128 if HOISTED else 0):
        for m in range(M // 128):
            lefts.append(load(lhsT[k * 128 : (k + 1) * 128, m * 128 : (m + 1) * 128]))
        for n in range(N // 512):
            rights.append(load(rhs[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512]))

    for m in range(M // 128):
        for n in range(N // 512):
            total = sums[(m * (N // 512) + n) % SUMS]
            for k in range(K // 128):
                depth = slice(k * 128, (k + 1) * 128)
                if HOISTED:
                    left = lefts[k * (M // 128) + m]
                    right = rights[k * (N // 512) + n]
                else:
                    nisa.dma_copy(dst=left, src=lhsT[depth, m * 128 : (m + 1) * 128])
                    nisa.dma_copy(dst=right, src=rhs[depth, n * 512 : (n + 1) * 512])
                nisa.nc_matmul(
                    dst=total, stationary=left, moving=right, accumulate=k > 0
                )
            store(result[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], [total])
    return result


def no_blocks(count):
    """Return an empty list for each block of an operand, for its loaded tiles."""
    blocks: list = []
    for _ in range(count):
        blocks.append([])
    return blocks


def new_sums(M_TILES, N_TILES, in_psum):
    """Tiles for the sums of a block, by rows and columns."""
    sums = []
    for _ in range(M_TILES):
        row = []
        for _ in range(N_TILES):
            buffer = nl.psum if in_psum else nl.sbuf
            row.append(nl.ndarray((128, 512), dtype=nl.float32, buffer=buffer))
        sums.append(row)
    return sums


def left_block(lhs, first, width, top, tiles, turned):
    """``tiles`` tiles of 128 of the contraction, of ``width`` rows of the result each."""
    if not turned:
        return load_column(lhs, first, width, top, tiles)
    block = []
    for _ in range(tiles):
        block.append(nl.ndarray((128, width), dtype=lhs.dtype, buffer=nl.sbuf))
    for row in range(0, width, 128):
        tile = load(lhs[first + row : first + row + 128, top : top + tiles * 128])
        for k in range(tiles):
            bank = nl.ndarray((128, 128), dtype=lhs.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=bank, data=tile[:, k * 128 : (k + 1) * 128])
            nisa.tensor_copy(dst=block[k][:, row : row + 128], src=bank)
    return block


def add_products(sums, left, right, first):
    """Add the products of two blocks to their sums, in PSUM or in SBUF."""
    for i in range(len(sums)):
        for j in range(len(sums[i])):
            place = sums[i][j]
            stationary, moving = (
                columns_of(left, i * 128, 128),
                columns_of(right, j * 512, 512),
            )
            if place.buffer == nl.psum:
                for k in range(len(left)):
                    adds = k > 0 or not first
                    nisa.nc_matmul(
                        dst=place,
                        stationary=stationary[k],
                        moving=moving[k],
                        accumulate=adds,
                    )
            elif first:
                nisa.tensor_copy(dst=place, src=multiply(stationary, moving))
            else:
                product = multiply(stationary, moving)
                nisa.tensor_tensor(dst=place, data1=place, data2=product, op=nl.add)


def store(target, sums):
    """Round a row of sums into one tile, and store it."""
    row = nl.ndarray(target.shape, dtype=target.dtype, buffer=nl.sbuf)
    for j in range(len(sums)):
        nisa.tensor_copy(dst=row[:, j * 512 : (j + 1) * 512], src=sums[j])
    nisa.dma_copy(dst=target, src=row)
