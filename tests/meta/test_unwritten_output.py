"""Memory that the kernel declares and never writes."""

from difftest.harness.recipes import Zeros
from difftest.harness.verdict import OneSided
from difftest.simulator import UnwrittenError
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
    b_tile = nl.ndarray((n, 1), dtype=b_vec.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a_tile, src=a_vec)
    nisa.dma_copy(dst=b_tile, src=b_vec)
    nisa.tensor_scalar(a_tile, nl.add, b_tile)
    return out


def test_vector_add_naive():
    """Nothing is ever written: the machine says so."""
    failure = smallest_failure(specs.naive(naive))
    assert failure.case.values == {"n": 1}
    verdict = failure.verdicts["embedded"]
    assert isinstance(verdict, OneSided)
    assert isinstance(verdict.error, UnwrittenError)


@nki.jit
def product(lhsT, rhs, result: nt.mutable_tensor, TILE_M=128, TILE_K=128, TILE_N=512):
    """Stores the first column of each tile only."""
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
            first = slice(n * TILE_N, n * TILE_N + 1)
            nl.store(result[rows, first], nl.copy(total[:, 0:1], dtype=result.dtype))
    return result


def test_matmul():
    """The caller's array was poisoned; what is left of that is found, whatever the data."""
    failure = smallest_failure(specs.product(product))
    ones = {"TILE_M": 1, "TILE_K": 1, "TILE_N": 2}
    assert failure.case.values == {**ones, "M": 1, "K": 1, "N": 2}
    assert failure.case.data == {"lhsT": Zeros(), "rhs": Zeros()}
    verdict = failure.verdicts["embedded"]
    assert (verdict.kind, verdict.first.index) == ("unwritten", (0, 1))
    assert "got never written, expected 0.0" in str(failure)
