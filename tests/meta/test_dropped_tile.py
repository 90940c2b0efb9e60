"""The last tile is forgotten, as by a loop that is one turn short."""

from difftest.harness.recipes import Ones, Zeros
from difftest.simulator.frontend.install import embedded
from tests.meta import specs
from tests.meta.search import smallest_failure

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl
    import neuronxcc.nki.typing as nt


def one_short(turns):
    """One turn less, but never none: the shape of one tile stays right."""
    return max(1, turns - 1)


@nki.jit
def tiled(a_vec, b_vec, ROW_CHUNK=128):
    (n,) = a_vec.shape
    out = nl.ndarray((n,), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(one_short(n // ROW_CHUNK)):
        rows = slice(m * ROW_CHUNK, (m + 1) * ROW_CHUNK)
        a_tile = nl.ndarray((ROW_CHUNK, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
        b_tile = nl.ndarray((ROW_CHUNK, 1), dtype=b_vec.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a_tile, src=a_vec[rows])
        nisa.dma_copy(dst=b_tile, src=b_vec[rows])
        nisa.dma_copy(dst=out[rows], src=nisa.tensor_scalar(a_tile, nl.add, b_tile))
    return out


def test_vector_add_tiled():
    failure = smallest_failure(specs.tiled(tiled))
    assert failure.case.values == {"ROW_CHUNK": 1, "n": 2}
    assert failure.case.dtype == "float32"
    assert failure.case.data == {"a_vec": Zeros(), "b_vec": Zeros()}
    verdict = failure.verdicts["embedded"]
    assert (verdict.kind, verdict.box) == ("unwritten", ((1, 2),))


@nki.jit
def stream(a_vec, b_vec, FREE_DIM=2):
    (n,) = a_vec.shape
    width = n // 128
    a_rows, b_rows = a_vec.reshape((128, width)), b_vec.reshape((128, width))
    out = nl.ndarray((128, width), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(one_short(width // FREE_DIM)):
        columns = slice(m * FREE_DIM, (m + 1) * FREE_DIM)
        total = nl.load(a_rows[:, columns]) + nl.load(b_rows[:, columns])
        nl.store(out[:, columns], total)
    return out.reshape((n,))


def test_vector_add_stream():
    failure = smallest_failure(specs.stream(stream))
    assert failure.case.values == {"FREE_DIM": 1, "n": 256}
    verdict = failure.verdicts["embedded"]
    assert (verdict.kind, verdict.wrong, verdict.first.index) == ("unwritten", 128, (1,))


@nki.jit
def transpose(a_tensor):
    M, N = a_tensor.shape
    out = nl.ndarray((N, M), dtype=a_tensor.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(M // 128):
        for j in nl.affine_range(one_short(N // 128)):
            rows, columns = (slice(k * 128, (k + 1) * 128) for k in (i, j))
            turned = nisa.tensor_copy(nisa.nc_transpose(nl.load(a_tensor[rows, columns])))
            nl.store(out[columns, rows], turned)
    return out


def test_matrix_transpose():
    failure = smallest_failure(specs.transposition(transpose))
    assert failure.case.values == {"M": 128, "N": 256}
    verdict = failure.verdicts["embedded"]
    assert (verdict.kind, verdict.box) == ("unwritten", ((128, 256), (0, 128)))
    assert "filling [128:256, 0:128], the tail of axis 0" in str(failure)


@nki.jit
def product(lhsT, rhs, result: nt.mutable_tensor, TILE_M=128, TILE_K=128, TILE_N=512):
    K, M = lhsT.shape
    _, N = rhs.shape
    for m in nl.affine_range(M // TILE_M):
        for n in nl.affine_range(N // TILE_N):
            rows = slice(m * TILE_M, (m + 1) * TILE_M)
            columns = slice(n * TILE_N, (n + 1) * TILE_N)
            total = nl.zeros((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(one_short(K // TILE_K)):
                depth = slice(k * TILE_K, (k + 1) * TILE_K)
                total += nisa.nc_matmul(nl.load(lhsT[depth, rows]), nl.load(rhs[depth, columns]))
            nl.store(result[rows, columns], nl.copy(total, dtype=result.dtype))
    return result


def test_matmul():
    """Of the contraction: every element is written, and wrong."""
    failure = smallest_failure(specs.product(product))
    tiles = {"TILE_M": 1, "TILE_K": 1, "TILE_N": 1}
    assert failure.case.values == {**tiles, "M": 1, "K": 2, "N": 1}
    assert failure.case.data == {"lhsT": Ones(), "rhs": Ones()}
    first = failure.verdicts["embedded"].first
    assert (first.got, first.expected, first.allowed) == ("1.0", "2.0", "exactly 2.0")
