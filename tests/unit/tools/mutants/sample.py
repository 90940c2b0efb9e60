"""Two small kernels, one of each dialect, and specs that find most of their bugs, or few."""

from dataclasses import replace

from difftest import KernelSpec, Rejection, sizes
from difftest.simulator.entry.install import embedded

with embedded():
    import neuronxcc.nki as classic_nki
    import neuronxcc.nki.language as classic_nl
    import nki
    import nki.isa as nisa
    import nki.language as nl


@classic_nki.jit
def twice(x):
    rows, columns = x.shape
    out = classic_nl.ndarray(
        (rows, columns), dtype=x.dtype, buffer=classic_nl.shared_hbm
    )
    for first in classic_nl.affine_range(-(-rows // 128)):
        below = min((first + 1) * 128, rows)
        tile = classic_nl.load(x[first * 128 : below, :])
        classic_nl.store(out[first * 128 : below, :], classic_nl.add(tile, tile))
    return out


@nki.jit
def scaled(x):
    rows, columns = x.shape
    assert rows <= 128, f"at most 128 rows: got {rows}"
    tile = loaded(x)
    if columns > 1000:
        tile = loaded(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def loaded(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def doubled(x):
    return x.astype("float64") * 2


SPEC = KernelSpec(
    kernel=scaled,
    reference=doubled,
    domain={"M": sizes(1, 128), "N": sizes(1, 20)},
    inputs={"x": "M N"},
    dtypes=("float32", "bfloat16"),
    rejects=(Rejection({"M": 129, "N": 2}, match="at most 128 rows: got 129"),),
    examples=({"M": 128, "N": 1},),
    edges=False,
)
EDGES = replace(SPEC, edges=True)
WEAK = replace(SPEC, rejects=(), examples=())
CLASSIC = replace(WEAK, kernel=twice, domain={"M": sizes(1, 300), "N": sizes(1, 20)})
SPECS = {"scaled": SPEC}


def collect(use):
    """The arguments for a process that judges mutants, to find the specs."""
    use(SPECS)


@nki.jit
def in_turns(x):
    tile = loaded(x)
    turn = 0
    while turn < 2:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        turn += 1
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


WRONG = replace(WEAK, kernel=in_turns)
ENDLESS = replace(WEAK, kernel=in_turns, reference=lambda x: x.astype("float64") + 2)


def collect_endless(use):
    """Likewise for the kernel with a loop."""
    use({"endless": ENDLESS})


@nki.jit
def summed(x):
    tile = loaded(x)
    total = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=total, data1=tile[:, 0:1], data2=tile[:, 1:2], op=nl.add)
    nisa.tensor_tensor(dst=total, data1=total, data2=tile[:, 2:3], op=nl.add)
    nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=1.0)
    out = nl.ndarray(total.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out


LOOSE = KernelSpec(
    kernel=summed,
    reference=lambda x: x.astype("float64").sum(1, keepdims=True),
    domain={"M": sizes(30, 60)},
    inputs={"x": "M 3"},
    exact=False,
    reduction=64,
    edges=False,
)
"""A spec whose bound lets some bits go: the sum in another order, and a little more of it."""
