from dataclasses import replace

import numpy as np

from difftest.harness.case import Case
from difftest.harness.recipes import Random, Zeros
from difftest.harness.verdict import Mismatch, WrongElement
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


@nki.jit
def updating(total, x):
    out = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=out, src=tile)
    nisa.dma_copy(dst=total, src=tile)
    return out


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
    event = writer_of(TRACE, wrong_at(output, shape, index), ())
    assert (event and TRACE.events.index(event)) == number


@every("argument, output, number", [("total", 1, 3), ("", 0, 2)])
def test_the_last_writer_of_an_argument_and_of_a_returned_array_of_its_shape(
    argument, output, number
):
    given = [np.ones((4, 8), np.float32), np.ones((4, 8), np.float32)]
    trace = launch(updating, given).trace
    event = writer_of(trace, wrong_at(output, (4, 8), (0, 0), argument), ("total",))
    assert trace.events.index(event) == number


def wrong_at(output, shape, index, argument=""):
    """A mismatch whose first wrong element is at an index of a result."""
    first = WrongElement(index, "0", "1", "1", "exactly 1")
    return Mismatch("value", output, "", first=first, shape=shape, argument=argument)


def test_the_nearest_case_that_agrees():
    near, far, other = (case(n) for n in (9, 100, 8))
    other = replace(other, dtype="float16", data={"a": Random(1)})
    assert nearest(case(8), [far, near, other]) == near
    assert nearest(case(8), [far, other]) == far
    assert nearest(case(8), []) is None


def case(n):
    return Case({"n": n}, "float32", {"a": Zeros()})
