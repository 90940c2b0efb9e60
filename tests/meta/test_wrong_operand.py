"""The right instruction on the wrong tile, or the wrong instruction on the right one."""

from difftest.harness.recipes import Ones, Zeros
from difftest.simulator.frontend.install import embedded
from tests.meta import specs
from tests.meta.search import smallest_failure

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl
    import neuronxcc.nki.typing as nt


@nki.jit
def naive(a_vec, b_vec):
    (n,) = a_vec.shape
    out = nl.ndarray((n,), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    a_tile = nl.ndarray((n, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a_tile, src=a_vec)
    nisa.dma_copy(dst=out, src=nisa.tensor_scalar(a_tile, nl.add, a_tile))
    return out


def test_vector_add_naive():
    failure = smallest_failure(specs.naive(naive))
    assert failure.case.values == {"n": 1}
    assert set(failure.case.data.values()) == {Zeros(), Ones()}


@nki.jit
def stream(a_vec, b_vec, FREE_DIM=2):
    (n,) = a_vec.shape
    width = n // 128
    a_rows, b_rows = a_vec.reshape((128, width)), b_vec.reshape((128, width))
    out = nl.ndarray((128, width), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(width // FREE_DIM):
        columns = slice(m * FREE_DIM, (m + 1) * FREE_DIM)
        a_tile, b_tile = nl.load(a_rows[:, columns]), nl.load(b_rows[:, columns])
        nl.store(out[:, columns], nisa.tensor_tensor(a_tile, b_tile, op=nl.multiply))
    return out.reshape((n,))


def test_vector_add_stream():
    failure = smallest_failure(specs.stream(stream))
    assert failure.case.values == {"FREE_DIM": 1, "n": 128}
    assert set(failure.case.data.values()) == {Zeros(), Ones()}


@nki.jit
def transpose(a_tensor):
    """Writes each tile as it is."""
    M, N = a_tensor.shape
    out = nl.ndarray((N, M), dtype=a_tensor.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(M // 128):
        for j in nl.affine_range(N // 128):
            rows, columns = (slice(k * 128, (k + 1) * 128) for k in (i, j))
            nl.store(out[columns, rows], nl.load(a_tensor[rows, columns]))
    return out


def test_matrix_transpose():
    failure = smallest_failure(specs.transposition(transpose))
    assert failure.case.values == {"M": 128, "N": 128}
    verdict = failure.verdicts["embedded"]
    assert (verdict.kind, verdict.first.index) == ("value", (0, 1))


@nki.jit
def product(lhsT, rhs, result: nt.mutable_tensor, TILE_M=128, TILE_K=128, TILE_N=512):
    """Takes the first tile of rhs for all."""
    K, M = lhsT.shape
    _, N = rhs.shape
    for m in nl.affine_range(M // TILE_M):
        for n in nl.affine_range(N // TILE_N):
            rows = slice(m * TILE_M, (m + 1) * TILE_M)
            columns = slice(n * TILE_N, (n + 1) * TILE_N)
            total = nl.zeros((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(K // TILE_K):
                depth = slice(k * TILE_K, (k + 1) * TILE_K)
                total += nisa.nc_matmul(nl.load(lhsT[depth, rows]), nl.load(rhs[0:TILE_K, columns]))
            nl.store(result[rows, columns], nl.copy(total, dtype=result.dtype))
    return result


def test_matmul():
    failure = smallest_failure(specs.product(product))
    tiles = {"TILE_M": 1, "TILE_K": 1, "TILE_N": 1}
    assert failure.case.values == {**tiles, "M": 1, "K": 2, "N": 1}
