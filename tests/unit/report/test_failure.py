from dataclasses import replace

import numpy as np

from difftest.harness.case import Case
from difftest.harness.recipes import Random, Zeros
from difftest.report.failure import nearest, writer_of
from difftest.simulator import launch
from difftest.simulator.frontend.install import embedded
from tests.every import every

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl


@nki.jit
def halves(x):
    first = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    second = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    third = nl.ndarray((2, 2), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=first, src=tile)
    nisa.dma_copy(dst=second[0:2, :], src=tile[0:2, :])
    nisa.dma_copy(dst=second[0:4, 0:8:2], src=tile[:, 0:8:2])
    nisa.dma_copy(dst=third, src=tile[0:2, 0:2])
    return first, second, third


TRACE = launch(halves, [np.ones((4, 8), np.float32)]).trace


@every(
    "output, shape, index, number",
    [
        (0, (4, 8), (3, 7), 1),
        (1, (4, 8), (1, 3), 2),
        (1, (4, 8), (1, 4), 3),  # written twice: the last one counts
        (1, (4, 8), (3, 3), None),  # never written
        (2, (2, 2), (1, 1), 4),
        (0, (2, 2), (1, 1), 4),  # of this shape there is one
        (2, (4, 8), (0, 0), None),  # the third has another shape
    ],
)
def test_the_last_writer(output, shape, index, number):
    event = writer_of(TRACE, output, shape, index)
    assert (event and TRACE.events.index(event)) == number


def test_the_nearest_case_that_agrees():
    near, far, other = (case(n) for n in (9, 100, 8))
    other = replace(other, dtype="float16", data={"a": Random(1)})
    assert nearest(case(8), [far, near, other]) == near
    assert nearest(case(8), [far, other]) == far
    assert nearest(case(8), []) is None


def case(n):
    return Case({"n": n}, "float32", {"a": Zeros()})
