"""Right values in the wrong dtype: a comparison that casts first would not see it."""

from difftest.harness.recipes import Zeros
from difftest.simulator.frontend.install import embedded
from tests.meta import specs
from tests.meta.search import smallest_failure

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl


@nki.jit
def tiled(a_vec, b_vec, ROW_CHUNK=128):
    (n,) = a_vec.shape
    out = nl.ndarray((n,), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in nl.affine_range(n // ROW_CHUNK):
        rows = slice(m * ROW_CHUNK, (m + 1) * ROW_CHUNK)
        a_tile = nl.ndarray((ROW_CHUNK, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
        b_tile = nl.ndarray((ROW_CHUNK, 1), dtype=b_vec.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a_tile, src=a_vec[rows])
        nisa.dma_copy(dst=b_tile, src=b_vec[rows])
        total = nisa.tensor_scalar(a_tile, nl.add, b_tile, dtype=nl.float32)
        nisa.dma_copy(dst=out[rows], src=total)
    return out


def test_vector_add_tiled():
    failure = smallest_failure(specs.tiled(tiled))
    assert failure.case.values == {"ROW_CHUNK": 1, "n": 1}
    assert failure.case.dtype == "float16"
    assert failure.case.data == {"a_vec": Zeros(), "b_vec": Zeros()}
    verdict = failure.verdicts["embedded"]
    assert verdict.message == "the kernel's dtype is float32, expected is float16"


@nki.jit
def transpose(a_tensor):
    M, N = a_tensor.shape
    out = nl.ndarray((N, M), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(M // 128):
        for j in nl.affine_range(N // 128):
            rows, columns = (slice(k * 128, (k + 1) * 128) for k in (i, j))
            turned = nisa.nc_transpose(nl.load(a_tensor[rows, columns]))
            nl.store(out[columns, rows], nl.copy(turned, dtype=nl.float32))
    return out


def test_matrix_transpose():
    failure = smallest_failure(specs.transposition(transpose))
    assert failure.case.values == {"M": 128, "N": 128}
    assert failure.verdicts["embedded"].kind == "dtype"
