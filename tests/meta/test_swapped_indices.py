"""A tile is read from, or written to, the place of another."""

from dataclasses import replace

from difftest.harness.recipes import Iota, Zeros
from difftest.simulator import OutOfBoundsError
from difftest.simulator.frontend.install import embedded
from tests.meta import specs
from tests.meta.search import smallest_failure

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl
    import neuronxcc.nki.typing as nt


@nki.jit
def transpose(a_tensor):
    """Transposes each tile, but leaves the tiles where they were."""
    M, N = a_tensor.shape
    out = nl.ndarray((N, M), dtype=a_tensor.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(M // 128):
        for j in nl.affine_range(N // 128):
            rows, columns = (slice(k * 128, (k + 1) * 128) for k in (i, j))
            turned = nisa.tensor_copy(nisa.nc_transpose(nl.load(a_tensor[rows, columns])))
            nl.store(out[rows, columns], turned)
    return out


def test_matrix_transpose():
    """The smallest matrix on which it shows is not square: there a tile leaves the output."""
    failure = smallest_failure(specs.transposition(transpose))
    assert failure.case.values == {"M": 128, "N": 256}
    assert failure.case.data == {"a_tensor": Zeros()}
    assert isinstance(failure.verdicts["embedded"].error, OutOfBoundsError)
    assert "nl.store(out[rows, columns], turned)" in str(failure)


def test_matrix_transpose_of_squares():
    square = replace(specs.transposition(transpose), inputs={"a_tensor": "M M"})
    failure = smallest_failure(square)
    assert failure.case.values == {"M": 256, "N": 128}
    assert failure.case.data == {"a_tensor": Iota()}
    assert failure.verdicts["embedded"].first.index == (0, 128)


@nki.jit
def tiled(a_vec, b_vec, ROW_CHUNK=128):
    (n,) = a_vec.shape
    out = nl.ndarray((n,), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    tiles = n // ROW_CHUNK
    for m in nl.affine_range(tiles):
        rows = slice(m * ROW_CHUNK, (m + 1) * ROW_CHUNK)
        other = slice((tiles - 1 - m) * ROW_CHUNK, (tiles - m) * ROW_CHUNK)
        a_tile = nl.ndarray((ROW_CHUNK, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
        b_tile = nl.ndarray((ROW_CHUNK, 1), dtype=b_vec.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a_tile, src=a_vec[rows])
        nisa.dma_copy(dst=b_tile, src=b_vec[other])
        nisa.dma_copy(dst=out[rows], src=nisa.tensor_scalar(a_tile, nl.add, b_tile))
    return out


def test_vector_add_tiled():
    failure = smallest_failure(specs.tiled(tiled))
    assert failure.case.values == {"ROW_CHUNK": 1, "n": 2}
    assert failure.case.data == {"a_vec": Zeros(), "b_vec": Iota()}


@nki.jit
def product(lhsT, rhs, result: nt.mutable_tensor, TILE_M=128, TILE_K=128, TILE_N=512):
    """Takes row and column of the tile for each other where it writes the result."""
    K, M = lhsT.shape
    _, N = rhs.shape
    for m in nl.affine_range(M // TILE_M):
        for n in nl.affine_range(N // TILE_N):
            rows = slice(m * TILE_M, (m + 1) * TILE_M)
            columns = slice(n * TILE_N, (n + 1) * TILE_N)
            total = nl.zeros((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(K // TILE_K):
                depth = slice(k * TILE_K, (k + 1) * TILE_K)
                total += nisa.nc_matmul(nl.load(lhsT[depth, rows]), nl.load(rhs[depth, columns]))
            rows = slice(n * TILE_M, (n + 1) * TILE_M)
            columns = slice(m * TILE_N, (m + 1) * TILE_N)
            nl.store(result[rows, columns], nl.copy(total, dtype=result.dtype))
    return result


def test_matmul():
    failure = smallest_failure(specs.product(product))
    tiles = {"TILE_M": 1, "TILE_K": 1, "TILE_N": 1}
    assert failure.case.values == {**tiles, "M": 1, "K": 1, "N": 2}
    assert failure.case.data == {"lhsT": Zeros(), "rhs": Zeros()}
    assert isinstance(failure.verdicts["embedded"].error, OutOfBoundsError)


def test_matmul_of_squares():
    square = replace(specs.product(product), inputs={"lhsT": "K M", "rhs": "K M"})
    square = replace(square, outputs={"result": "M M"}, parameters=("TILE_M", "TILE_K"))
    failure = smallest_failure(replace(square, kernel=square_product))
    assert failure.case.values["TILE_M"] == failure.case.values["K"] == 1
    assert failure.case.values["M"] == 2
    assert Iota() in failure.case.data.values()


@nki.jit
def square_product(lhsT, rhs, result: nt.mutable_tensor, TILE_M=128, TILE_K=128):
    return product(lhsT, rhs, result, TILE_M, TILE_K, TILE_M)
