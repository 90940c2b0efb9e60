"""``nisa.dma_compute`` in the current dialect: sums of tensors, and rows that an index names."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import BufferError, KernelError, launch
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.isa.moves import LostAdditionWarning
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import raised, stored, tile, values

TABLE = values(9, 4)
DATA = values(3, 4, seed=1)
ROWS = np.array([[7], [0], [4]], np.int32)
SKIP = nisa.oob_mode.skip
PATTERN = [[4, 3], [1, 4]]


def scatter(table, rows, data, **options):
    """``table[rows] += data`` in HBM, and the table."""
    index = nl.load(rows)
    held = nl.load(data)
    there = table.ap(PATTERN, vector_offset=index)
    nisa.dma_compute(there, [there, held], nl.add, **options)
    return table


def gather(table, rows, data, **options):
    """``data + table[rows]`` in SBUF."""
    index = nl.load(rows)
    held = nl.load(data)
    there = table.ap(PATTERN, vector_offset=index)
    nisa.dma_compute(held, [there, held], nl.add, **options)
    return stored(held)


def run(kernel, rows=ROWS, **options):
    """The kernel's output for the table, rows and data."""

    @jit
    def whole(table, rows, data):
        return kernel(table, rows, data, **options)

    return launch(whole, [TABLE.copy(), rows, DATA]).outputs[0]


@every("kernel, rows", [(scatter, TABLE.shape), (gather, DATA.shape)])
def test_an_exact_run_knows_that_the_sum_is_rounded(kernel, rows):
    """Also where rows are gathered that were not rounded before."""
    expected = (
        TABLE.astype(np.float64) if kernel is scatter else DATA.astype(np.float64)
    )
    there = ROWS[:, 0] if kernel is scatter else slice(None)
    expected[there] += DATA if kernel is scatter else TABLE[ROWS[:, 0]]

    @jit
    def whole(table, rows, data):
        return kernel(table, rows, data)

    result = launch(whole, [TABLE.copy(), ROWS, DATA], exact=True)
    (exact,) = result.exact.outputs
    assert_array_equal(exact.value, expected)
    assert exact.error is not None
    assert (abs(result.outputs[0] - exact.value) <= exact.error).all()
    assert (result.outputs[0] != expected).any()


def test_a_row_named_twice_is_added_to_twice_with_a_warning():
    rows = np.array([[4], [0], [4]], np.int32)
    expected = TABLE.copy()
    np.add.at(expected, rows[:, 0], DATA)
    with pytest.warns(LostAdditionWarning, match="twice"):
        assert_array_equal(run(scatter, rows), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostAdditionWarning)
        run(scatter)
        # twice out of bounds
        run(scatter, np.array([[99], [0], [99]], np.int32), oob_mode=SKIP)


@every(
    "kernel, options, text",
    [
        (scatter, {"scales": [1.0, 0.5]}, "scales of 1.0"),
        (gather, {"unique_indices": False}, "unique indices"),
    ],
)
def test_an_indirect_sum_is_of_two_tensors_unscaled(kernel, options, text):
    with pytest.raises(KernelError, match=text):
        run(kernel, **options)


def test_gathered_rows_are_added_in_sbuf():
    def in_hbm(table, rows, data):
        there = table.ap(PATTERN, vector_offset=nl.load(rows))
        nisa.dma_compute(data, [there, data], nl.add)
        return data

    with pytest.raises(KernelError, match="a dst in SBUF that gathered rows"):
        run(in_hbm)


def test_misuse_of_dma_compute_is_rejected():
    def compute(**given):
        one = tile((4, 8))
        arguments = {
            "dst": tile((4, 8)),
            "srcs": [one, one],
            "reduce_op": nl.add,
        } | given
        nisa.dma_compute(**arguments)
        return one

    assert "dma_compute adds" in raised(
        KernelError, lambda: compute(reduce_op=nl.maximum)
    )
    assert "scales each source by 1.0" in raised(
        KernelError, lambda: compute(scales=[1.0, 2.0])
    )
    assert "oob_mode.skip with a vector_offset" in raised(
        KernelError, lambda: compute(oob_mode=SKIP)
    )
    assert "srcs as a list" in raised(KernelError, lambda: compute(srcs=tile((4, 8))))
    assert "in hbm or sbuf" in raised(
        BufferError, lambda: compute(srcs=[tile((4, 8), buffer=nl.psum)])
    )


def test_the_destination_is_one_of_the_sources():
    def kernel(table, rows, data):
        there = table.ap(PATTERN, vector_offset=nl.load(rows))
        nisa.dma_compute(tile((3, 4)), [there, nl.load(data)], nl.add)
        return table

    with pytest.raises(KernelError, match="its dst as one of its two srcs"):
        launch(kernel, [TABLE.copy(), ROWS, DATA])
