"""A bug in the kernel of one dialect is found beside the correct one of the other, and shrunk."""

from dataclasses import replace

import pytest

from difftest.simulator.frontend.install import embedded
from tests.meta import specs
from tests.meta.search import smallest_failure

with embedded():
    import neuronxcc.nki as classic_nki
    import neuronxcc.nki.isa as classic_isa
    import neuronxcc.nki.language as cl
    import nki
    import nki.isa as nisa
    import nki.language as nl

    from kernels.classic import vector_add as classic
    from kernels.nki import vector_add as todays


@classic_nki.jit
def classic_one_short(a_vec, b_vec, ROW_CHUNK=128):
    """Leaves the last tile out, unless it is the only one."""
    (n,) = a_vec.shape
    out = cl.ndarray((n,), dtype=a_vec.dtype, buffer=cl.shared_hbm)
    for m in cl.affine_range(max(1, n // ROW_CHUNK - 1)):
        rows = slice(m * ROW_CHUNK, (m + 1) * ROW_CHUNK)
        a_tile = cl.ndarray((ROW_CHUNK, 1), dtype=a_vec.dtype, buffer=cl.sbuf)
        b_tile = cl.ndarray((ROW_CHUNK, 1), dtype=b_vec.dtype, buffer=cl.sbuf)
        classic_isa.dma_copy(dst=a_tile, src=a_vec[rows])
        classic_isa.dma_copy(dst=b_tile, src=b_vec[rows])
        total = classic_isa.tensor_tensor(a_tile, b_tile, cl.add)
        classic_isa.dma_copy(dst=out[rows], src=total)
    return out


@nki.jit
def todays_wrong_operand(a_vec, b_vec, ROW_CHUNK=128):
    """Adds the first tile of b_vec to every tile of a_vec."""
    (n,) = a_vec.shape
    a_rows, b_rows = a_vec.reshape((n, 1)), b_vec.reshape((n, 1))
    out = nl.ndarray((n, 1), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    for first in range(0, n, ROW_CHUNK):
        rows = slice(first, first + ROW_CHUNK)
        a_tile = nl.ndarray((ROW_CHUNK, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
        b_tile = nl.ndarray((ROW_CHUNK, 1), dtype=b_vec.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a_tile, src=a_rows[rows, :])
        nisa.dma_copy(dst=b_tile, src=b_rows[:ROW_CHUNK, :])
        nisa.tensor_tensor(dst=a_tile, data1=a_tile, data2=b_tile, op=nl.add)
        nisa.dma_copy(dst=out[rows, :], src=a_tile)
    return out.reshape((n,))


@pytest.mark.parametrize(
    ("wrong", "correct", "kind"),
    [
        (classic_one_short, todays.vector_add_tiled, "unwritten"),
        (todays_wrong_operand, classic.vector_add_tiled, "value"),
    ],
    ids=["classic", "todays"],
)
@pytest.mark.parametrize("first", [True, False], ids=["wrong-first", "wrong-last"])
def test_the_wrong_one_is_named_and_its_case_is_small(wrong, correct, kind, first):
    kernels = (wrong, correct) if first else (correct, wrong)
    spec = replace(specs.tiled(kernels[0]), others=kernels[1:])
    failure = smallest_failure(spec)
    assert failure.case.values == {"ROW_CHUNK": 1, "n": 2}
    assert failure.spec.kernel is wrong
    assert failure.verdicts["embedded"].kind == kind
    assert failure.others == ("vector_add_tiled agrees with the reference",)
