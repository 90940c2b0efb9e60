"""Arithmetic in a narrower dtype than the contract says: right to two digits, and wrong."""

import dataclasses

from difftest.simulator.frontend.install import embedded
from tests.meta import specs
from tests.meta.search import smallest_failure

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl
    import neuronxcc.nki.typing as nt


@nki.jit
def product(lhsT, rhs, result: nt.mutable_tensor):
    """Adds the partial products in SBUF, in the dtype of the operands."""
    K, M = lhsT.shape
    _, N = rhs.shape
    for m in nl.affine_range(M // 128):
        for n in nl.affine_range(N // 128):
            rows, columns = slice(m * 128, (m + 1) * 128), slice(n * 128, (n + 1) * 128)
            total = nl.zeros((128, 128), lhsT.dtype, buffer=nl.sbuf)
            for k in nl.sequential_range(K // 128):
                depth = slice(k * 128, (k + 1) * 128)
                partial = nisa.nc_matmul(nl.load(lhsT[depth, rows]), nl.load(rhs[depth, columns]))
                total[...] = nl.add(total, partial, dtype=lhsT.dtype)
            nl.store(result[rows, columns], total)
    return result


def one_tile_of(kernel, K, **promises):
    """A product whose output is one tile, so that cases are cheap."""
    spec = specs.default_product(kernel)
    return dataclasses.replace(spec, domain={"M": (128,), "K": K, "N": (128,)}, **promises)


def test_matmul():
    """With two tiles along K a partial product is rounded, with three a running sum is."""
    failure = smallest_failure(one_tile_of(product, K=(128, 256, 384)))
    assert failure.case.dtype == "float16"
    assert failure.case.values == {"M": 128, "K": 384, "N": 128}
    verdict = failure.verdicts["embedded"]
    assert verdict.question == "arithmetic"
    assert any(
        "a running sum is rounded into float16 again and again" in line for line in verdict.how
    )


def test_matmul_that_promises_to_round_once():
    """What the spec promises is stricter than what an exact run lets a kernel do."""
    failure = smallest_failure(one_tile_of(product, K=(128, 256), reduction="K"))
    assert failure.case.dtype == "float16"
    assert failure.case.values == {"M": 128, "K": 256, "N": 128}
    verdict = failure.verdicts["embedded"]
    assert (verdict.kind, verdict.question) == ("value", "")


@nki.jit
def stream(a_vec, b_vec, FREE_DIM=2):
    """Casts its tiles to bfloat16 on the way in."""
    (n,) = a_vec.shape
    width = n // 128
    a_rows, b_rows = a_vec.reshape((128, width)), b_vec.reshape((128, width))
    out = nl.ndarray((128, width), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(width // FREE_DIM):
        columns = slice(m * FREE_DIM, (m + 1) * FREE_DIM)
        a_tile = nl.load(a_rows[:, columns], dtype=nl.bfloat16)
        b_tile = nl.load(b_rows[:, columns], dtype=nl.bfloat16)
        nl.store(out[:, columns], nl.add(a_tile, b_tile, dtype=a_vec.dtype))
    return out.reshape((n,))


def test_vector_add_stream():
    failure = smallest_failure(specs.stream(stream))
    assert failure.case.values == {"FREE_DIM": 1, "n": 128}
    assert failure.case.dtype == "float32"
    verdict = failure.verdicts["embedded"]
    assert verdict.question == "arithmetic"
    assert verdict.how[0].startswith("dma_copy")
