"""Running sums in a narrow dtype."""

import ml_dtypes
import numpy as np

from difftest.analysis.detectors.numeric_anomalies import LONGEST
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in, normal


def summed(dtype, times, *, in_place=True):
    def kernel(x):
        out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        total = nl.zeros(x.shape, dtype)
        for _ in range(times):
            if in_place:
                total += tile
            else:
                total = nl.add(total, tile, dtype=dtype)
        nl.store(out, nl.copy(total, dtype=nl.float32))
        return out

    return kernel


@every("in_place", [True, False])
@every("dtype", ["bfloat16", "float16"])
def test_as_many_additions_as_can_be_seen(dtype, in_place):
    kind = getattr(nl, dtype)
    longest = LONGEST[dtype]
    data = normal(4, 8).astype(np.float16).astype(np.float32)
    assert found_in(summed(kind, longest - 1, in_place=in_place), [data]) == []
    (finding,) = findings_in(summed(kind, longest, in_place=in_place), [data])
    assert (finding.id, finding.severity.value) == ("narrow-accumulation", "warning")
    assert (
        f"{longest} additions in a row were each rounded to {dtype}" in finding.happened
    )
    assert "total" in finding.location.text


@every("sources, found", [(2, [("narrow-accumulation", "warning")]), (1, [])])
def test_additions_that_the_dma_makes(sources, found):
    with embedded():
        import nki
        import nki.isa as todays_isa
        import nki.language as todays

    def kernel(x):
        out = todays.ndarray(x.shape, dtype=x.dtype, buffer=todays.shared_hbm)
        todays_isa.dma_copy(dst=out, src=x)
        for _ in range(LONGEST["bfloat16"]):
            srcs = [out, x][-sources:]
            todays_isa.dma_compute(
                dst=out, srcs=srcs, scales=[1.0] * sources, reduce_op=todays.add
            )
        return out

    data = normal(4, 8).astype(ml_dtypes.bfloat16)
    assert found_in(nki.jit(kernel), [data]) == found


def test_sums_in_float32_are_clean():
    assert found_in(summed(nl.float32, 64), [normal(4, 8)]) == []


def test_additions_between_other_instructions_are_no_running_sum():
    """A residual stream: each layer adds to the result of the previous one."""

    def kernel(x):
        out = nl.ndarray(x.shape, nl.bfloat16, buffer=nl.shared_hbm)
        tile = nl.load(x, dtype=nl.bfloat16)
        for _ in range(40):
            tile = nl.multiply(
                nl.add(tile, tile, dtype=nl.bfloat16), 0.5, dtype=nl.bfloat16
            )
        nl.store(out, tile)
        return out

    assert found_in(kernel, [normal(4, 8)]) == []


def test_a_tree_of_additions_is_no_running_sum():
    def kernel(x):
        out = nl.ndarray((4, 8), nl.bfloat16, buffer=nl.shared_hbm)
        parts = [nl.load(x[k], dtype=nl.bfloat16) for k in range(32)]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [nl.add(one, other, dtype=nl.bfloat16) for one, other in pairs]
        nl.store(out, parts[0])
        return out

    assert found_in(kernel, [normal(32, 4, 8)]) == []
