"""Masked-out elements: where they reach an output or an index, and where they do not."""

import numpy as np
import pytest

from difftest.simulator import launch
from difftest.simulator.errors import OutOfBoundsError
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic import typing as nt
from tests.every import every
from tests.unit.analysis.detectors.kernels import (
    all_findings_in,
    findings_in,
    found_in,
    normal,
)

ROWS = 8
COLUMNS = 16
KEPT = 10
DTYPES = [np.float32, np.int32, np.uint8]


def places():
    return nl.arange(ROWS)[:, None], nl.arange(COLUMNS)[None, :]


def loaded(x):
    """[8, 16] with ten loaded columns."""
    row, column = places()
    return nl.load(x[row, column], mask=column < KEPT)


def by(compute, columns=1):
    def kernel(x):
        out = nl.ndarray((ROWS, columns), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, compute(loaded(x)))
        return out

    return kernel


def data(dtype=np.float32):
    """Below the poison of integers, for any drawn values."""
    return np.minimum(np.abs(normal(ROWS, KEPT)) * 50, 100).astype(dtype)


HARMLESS = {
    "the part that was loaded": lambda tile: nl.sum(tile[:, 0:KEPT], axis=1),
    "a select by the index": lambda tile: nl.max(
        nl.where(places()[1] < KEPT, tile, nl.zeros(tile.shape, tile.dtype)), axis=1
    ),
    "a product with nothing else": lambda tile: nl.copy(nl.add(tile, tile)[:, 0:1]),
}


@pytest.mark.filterwarnings("ignore:nl.where got a comparison of indices")
@every("dtype", DTYPES)
@every("name", HARMLESS)
def test_harmless_uses_of_masked_elements_have_no_finding(name, dtype):
    assert found_in(by(HARMLESS[name]), [data(dtype)]) == []


def test_rows_that_are_computed_and_not_stored():
    def kernel(x):
        out = nl.ndarray((5, 1), x.dtype, buffer=nl.shared_hbm)
        row, column = places()
        tile = nl.load(x[row, column], mask=row < 5)
        total = nl.divide(nl.sum(nl.exp(tile), axis=1), 2.0)
        line = nl.arange(ROWS)[:, None]
        one = nl.arange(1)[None, :]
        nl.store(out[line, one], total, mask=line < 5)
        return out

    assert found_in(kernel, [normal(5, COLUMNS)]) == []


def gather(masked):
    def kernel(table, rows):
        out = nl.ndarray((ROWS, 4), table.dtype, buffer=nl.shared_hbm)
        line = nl.arange(ROWS)[:, None]
        one = nl.arange(1)[None, :]
        index = nl.load(rows[line, one], mask=line < 5)
        column = nl.arange(4)[None, :]
        mask = line < 5 if masked else None
        got = nl.load(table[index, column], mask=mask)
        nl.store(out[0:5], got[0:5])
        return out

    return kernel


@every("masked, found", [(True, 0), (False, 1)])
def test_an_unwritten_index_is_found_unless_a_mask_leaves_it_out(masked, found):
    """The poison of uint8 is 165, a row that the table has."""
    got = findings_in(
        gather(masked), [normal(200, 4), np.arange(5, dtype=np.uint8)[:, None]]
    )
    assert [one.id for one in got] == ["uninitialised-index"] * found
    if found:
        assert "3 of 8 elements, the first at [5, 0]" in got[0].happened


@every("command", ["reset_reduce", "reduce"])
def test_a_run_with_other_poison_changes_no_result(command):
    """A run with other poison leaves registers and random numbers alone."""

    def kernel(x, masked):
        out = nl.ndarray((ROWS, COLUMNS), x.dtype, buffer=nl.shared_hbm)
        sums = nl.ndarray((ROWS, 1), x.dtype)
        row, column = places()
        tile = nl.load(x[row, column], mask=row < 5) if masked else nl.load(x)
        made = nl.dropout(tile, 0.5)
        for _ in range(2):
            nisa.activation(
                nl.copy,
                made,
                reduce_op=np.add,
                reduce_res=sums,
                reduce_cmd=getattr(nisa.reduce_cmd, command),
            )
        nl.store(out, nl.add(nl.dropout(made, 0.5), sums))
        return out

    whole = np.ones((ROWS, COLUMNS), np.float32)
    (expected,) = launch(kernel, [whole, False]).outputs
    (masked,) = launch(kernel, [whole, True]).outputs
    np.testing.assert_array_equal(masked[0:5], expected[0:5])


def test_the_finding_names_the_tensor_and_its_first_reader():
    def kernel(x):
        out = nl.ndarray((ROWS, 1), x.dtype, buffer=nl.shared_hbm)
        row, column = places()
        tile = nl.load(x[row, column], mask=column < KEPT)  # made
        doubled = nl.multiply(tile, 2.0)  # read first
        nl.store(out, nl.max(nl.exp(doubled), axis=1))  # stored
        return out

    (finding,) = findings_in(kernel, [normal(ROWS, KEPT)])
    assert (
        f"it comes from [0:{ROWS}, {KEPT}:{COLUMNS}] of tensor 2 [8, 16] float32"
        in (finding.happened)
    )
    assert ", read by tensor_scalar at " in finding.happened
    assert [line.text.rpartition("# ")[2] for line in finding.locations] == [
        "stored",
        "made",
        "read first",
    ]


def test_the_finding_of_an_index_names_them_too():
    (finding,) = findings_in(
        gather(False), [normal(200, 4), np.arange(5, dtype=np.uint8)[:, None]]
    )
    assert "it comes from [5:8, 0:1] of tensor" in finding.happened


@every(
    "last, message",
    [
        (4, "an index that was never written is out of bounds"),
        (900, r"an index held in a tile left its tensor: \[900, 0\]"),
    ],
)
def test_an_unwritten_index_out_of_bounds_is_called_unwritten(last, message):
    """The poison of int32 is a row beyond every table."""
    rows = np.int32([0, 1, 2, 3, last])[:, None]
    with pytest.raises(OutOfBoundsError, match=message) as caught:
        launch(gather(last == 900), [normal(200, 4), rows])
    assert ("it comes from [5:8, 0:1] of tensor" in caught.value.received) == (
        last == 4
    )


# -- through indices, registers, and masks that are not boxes --------------------------------------


def test_data_loaded_through_an_undefined_index_are_undefined():
    def kernel(table, rows):
        out = nl.ndarray((ROWS, 4), table.dtype, buffer=nl.shared_hbm)
        line = nl.arange(ROWS)[:, None]
        one = nl.arange(1)[None, :]
        index = nl.load(rows[line, one], mask=line < 5)
        nl.store(out, nl.add(nl.load(table[index, nl.arange(4)[None, :]]), 1.0))
        return out

    got = findings_in(kernel, [normal(200, 4), np.arange(5, dtype=np.uint8)[:, None]])
    assert [one.id for one in got] == ["uninitialised-index", "uninitialised-output"]
    assert "12 of 32 elements, the first at [5, 0]" in got[1].happened


@every("kept, found", [(5, 0), (6, 1)])
def test_a_scatter_of_unwritten_elements_is_found(kept, found):
    def kernel(x, rows):
        out = nl.ndarray((ROWS, 4), x.dtype, buffer=nl.shared_hbm)
        line = nl.arange(ROWS)[:, None]
        column = nl.arange(4)[None, :]
        tile = nl.load(x[line, column], mask=line < 5)
        index = nl.load(rows)
        nl.store(out[index, column], nl.add(tile, 1.0), mask=line < kept)
        return out

    got = found_in(kernel, [normal(5, 4), np.arange(8, dtype=np.int32)[:, None]])
    assert got == [("uninitialised-output", "warning")] * found


def stored_rows(count, *, twice=False):
    def kernel(x):
        out = nl.ndarray((8, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        other = nl.ndarray((8, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out[0:count], nl.load(x[0:count]))
        nl.store(other, nl.load(x))
        return (out[0:count], other) if twice else (out, other)

    return kernel


def test_a_partly_written_output():
    (finding,) = all_findings_in(stored_rows(6), [normal(8, 4)])
    assert (finding.id, finding.severity.value) == ("output-unwritten", "warning")
    assert "never wrote 8 of 32 elements of tensor 1 [8, 4] float32" in finding.happened
    assert "the first is [6, 0]" in finding.happened
    assert "out = nl.ndarray" in finding.location.text


@every("kernel", [stored_rows(8), stored_rows(6, twice=True)])
def test_outputs_that_are_written_whole(kernel):
    assert all_findings_in(kernel, [normal(8, 4)]) == []


def test_a_partly_written_argument_keeps_its_other_elements():
    def kernel(x, y: nt.mutable_tensor):
        nl.store(y[0:3], nl.load(x[0:3]))
        return y

    assert all_findings_in(kernel, [normal(8, 4), normal(8, 4)]) == []


def test_an_output_that_the_kernel_reads_too_is_one():
    """Unwritten elements go to an output whose other part is read back."""

    def kernel(x):
        out = nl.ndarray((8, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        row, column = nl.mgrid[0:8, 0:8]
        nl.store(out, nl.load(x[row, column], mask=column < 4))
        half = nl.load(out[:, 0:4])
        nl.store(out[:, 0:4], nl.multiply(half, 2.0))
        return out

    assert ("uninitialised-output", "warning") in found_in(kernel, [normal(8, 4)])


def test_a_tensor_that_stays_in_the_kernel_is_no_output():
    def kernel(x):
        out = nl.ndarray((8, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        unused = nl.ndarray((8, 8), dtype=x.dtype, buffer=nl.private_hbm)
        row, column = nl.mgrid[0:8, 0:8]
        nl.store(unused, nl.load(x[row, column], mask=column < 4))
        nl.store(out, nl.load(x))
        return out

    assert all_findings_in(kernel, [normal(8, 4)]) == []
