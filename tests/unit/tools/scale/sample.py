"""A kernel with something of each kind to vary, and a test of it; wrong where CHUNK is 3."""

from difftest import Fill, Input, KernelSpec, kernel_test, sizes
from difftest.simulator.entry.install import embedded

with embedded():
    import neuronxcc.nki as classic_nki
    import neuronxcc.nki.language as classic_nl
    import nki
    import nki.isa as nisa
    import nki.language as nl

CHUNK = 4
OTHER = 7
WIDTH = 2 * CHUNK


@nki.jit
def doubled(x, columns_at_once=512):
    rows, columns = x.shape
    assert columns_at_once <= 512, f"at most 512 columns: got {columns_at_once}"
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, columns, columns_at_once):
        at = slice(first, min(columns, first + columns_at_once))
        tile = nl.ndarray((rows, at.stop - at.start), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, at])
        factor = 3.0 if CHUNK == 3 else 2.0
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[:, at], src=tile)
    return out


@classic_nki.jit
def doubled_classic(x):
    tile = classic_nl.load(x)
    out = classic_nl.ndarray(x.shape, dtype=x.dtype, buffer=classic_nl.shared_hbm)
    classic_nl.store(out, classic_nl.add(tile, tile))
    return out


def reference(x):
    return 2.0 * x.astype("float64")


GIVEN = {
    "kernels": (doubled, doubled_classic),
    "reference": reference,
    "domain": {
        "columns": sizes(1, 64),
        "rows": lambda columns: sizes(1, min(columns, 128)),
    },
    "inputs": {"x": "rows columns"},
    "dtypes": ("float32", "bfloat16"),
}
SPEC = KernelSpec(
    **{name: one for name, one in GIVEN.items() if name != "kernels"},
    kernel=doubled,
    others=(doubled_classic,),
)


@kernel_test(**GIVEN)
def test_doubled(case):
    case.check()


@kernel_test(
    **{**GIVEN, "inputs": {"x": Input("rows columns", data=Fill(float("nan")))}}
)
def test_nothing_decides(case):
    case.check()
