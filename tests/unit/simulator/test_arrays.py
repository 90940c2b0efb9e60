"""Arguments and results of a kernel: arguments that share memory."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import launch
from difftest.simulator.arrays import SharedArgumentWarning
from difftest.simulator.core import current
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic import typing as nt
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as todays
from tests.every import every


def both_written(a: nt.mutable_tensor, b: nt.mutable_tensor, factor):
    tile = nl.load(a)
    nl.store(a, nl.add(tile, 1.0))
    nl.store(b, nl.add(nl.multiply(tile, factor), 1.0))


@every("parts", [(slice(4), slice(4)), (slice(4), slice(2, 6))])
def test_two_arguments_that_share_memory_and_get_different_values(parts):
    memory = np.arange(24, dtype=np.float32).reshape(6, 4)
    expected = memory.copy()
    expected[parts[0]] = memory[parts[0]] + 1
    expected[parts[1]] = memory[parts[0]] * 2 + 1
    with pytest.warns(
        SharedArgumentWarning, match="the values of the last argument stay"
    ) as caught:
        launch(both_written, [*(memory[part] for part in parts), 2.0])
    np.testing.assert_array_equal(memory, expected)
    assert caught[0].filename == __file__


def test_a_warning_that_is_an_error_leaves_all_arrays():
    def kernel(a: nt.mutable_tensor, b: nt.mutable_tensor, alone: nt.mutable_tensor):
        nl.store(alone, nl.load(a) + 1)
        both_written(a, b, 2.0)

    memory = np.arange(1, 17, dtype=np.float32).reshape(4, 4)
    before = memory.copy()
    alone = np.zeros((4, 4), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SharedArgumentWarning):
            launch(kernel, (memory, memory, alone))
    assert_array_equal(memory, before)
    assert not alone.any()


@every("parts, factor", [((slice(4), slice(4)), 1.0), ((slice(2), slice(2, 4)), 2.0)])
def test_two_arguments_of_one_array_that_agree(parts, factor):
    memory = np.arange(16, dtype=np.float32).reshape(4, 4)
    expected = memory + 1
    expected[parts[1]] = memory[parts[0]] * factor + 1
    launch(both_written, [*(memory[part] for part in parts), factor])
    np.testing.assert_array_equal(memory, expected)


def written_rows(x: nt.mutable_tensor, y: nt.mutable_tensor):
    """x[0] = y[1], x[1] = y[0]: the second row is read after the first write."""
    out = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(x[0:1, :], nl.load(y[1:2, :]))
    nl.store(x[1:2, :], nl.load(y[0:1, :]))
    nl.store(out, nl.load(x[0:1, :]))
    return out


@every("views", [("whole", "whole"), ("first", "second"), ("second", "first")])
def test_an_argument_keeps_its_values_while_another_one_of_its_memory_is_written(views):
    memory = np.arange(12, dtype=np.float32).reshape(3, 4)
    parts = {"whole": memory, "first": memory[:2], "second": memory[1:]}
    x, y = (parts[name] for name in views)
    before = y.copy()
    result = launch(written_rows, (x, y))
    assert_array_equal(x[:2], before[[1, 0]])
    assert_array_equal(result.outputs[0], before[1:2])
    assert len(result.written) == 1
    assert result.written[0] is x


def test_an_argument_that_is_written_in_part_keeps_its_other_elements():
    def kernel(x: nt.mutable_tensor):
        nl.store(x[1:2, :], nl.load(x[2:3, :]))

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = x[[0, 2, 2]]
    launch(kernel, (x,))
    assert_array_equal(x, expected)


def test_an_argument_that_is_written_or_read_is_the_callers_array():
    tensors = []

    def kernel(x: nt.mutable_tensor, y: nt.mutable_tensor):
        nl.store(x, nl.load(y))
        tensors.extend([x, y])

    x, y = np.zeros((2, 4), np.float32), np.ones((2, 4), np.float32)
    launch(kernel, (x, y))
    written, read = (tensor._storage.data for tensor in tensors)
    assert np.shares_memory(written, x)
    assert np.shares_memory(read, y)
    assert not read.flags.writeable
    assert y.flags.writeable
    assert_array_equal(x, y)


def test_a_returned_argument_shares_no_memory_with_the_callers_array():
    def kernel(x: nt.mutable_tensor, y: nt.mutable_tensor):
        nl.store(x, nl.load(y))
        return x, y

    x, y = np.zeros((2, 4), np.float32), np.ones((2, 4), np.float32)
    for output, array in zip(launch(kernel, (x, y)).outputs, (x, y), strict=True):
        assert_array_equal(output, array)
        assert not np.shares_memory(output, array)


def test_a_kernel_that_fails_after_a_write_leaves_the_callers_array():
    def kernel(x: nt.mutable_tensor):
        nl.store(x, nl.load(x) + 1)
        raise RuntimeError

    x = np.zeros((2, 4), np.float32)
    with pytest.raises(RuntimeError):
        launch(kernel, (x,))
    assert not x.any()


def first_failing(x: nt.mutable_tensor, writes: int):
    """Add 1 to the first rows, to rows from the second on, and so on; then fail."""
    for first in range(writes):
        rows = x[first : first + 2, :]
        nl.store(rows, nl.load(rows) + 1)
    raise RuntimeError


@every("writes", [1, 2, 7, 40])
def test_parts_that_overlap_get_their_first_values_back(writes):
    """More than two rows in each of four parts take more memory than the array."""
    x = np.arange(8 * (writes + 1), dtype=np.float32).reshape(-1, 8)
    before = x.copy()
    with pytest.raises(RuntimeError):
        launch(first_failing, (x, writes))
    assert_array_equal(x, before)


@every("rows", [(1, 3), (3, 1)])
def test_a_larger_and_a_smaller_part_at_one_place_get_their_values_back(rows):
    def kernel(x: nt.mutable_tensor):
        for count in rows:
            nl.store(x[:count, :], nl.load(x[:count, :]) + 1)
        raise RuntimeError

    x = np.zeros((4, 8), np.float32)
    with pytest.raises(RuntimeError):
        launch(kernel, (x,))
    assert not x.any()


@every("again", [1, 100])
def test_the_old_values_take_no_more_memory_than_the_array(again):
    sizes = []

    def kernel(x: nt.mutable_tensor):
        for _ in range(again):
            for first in range(3):
                nl.store(x[first : first + 2, :], nl.load(x[first : first + 2, :]) + 1)
        parts = x._storage._old_parts
        sizes.append((len(parts), sum(old.nbytes for old in parts.values())))

    x = np.zeros((4, 8), np.float32)
    launch(kernel, (x,))
    assert_array_equal(x[:, 0], again * np.array([1, 2, 2, 1]))
    assert sizes == [(1, x.nbytes)]


def with_gaps():
    return np.zeros((4, 16), np.float32)[:, ::2]


def of_a_file(folder):
    return np.memmap(folder / "x", np.float32, "w+", shape=(4, 8))


@every("kind", ["gaps", "a file", "two arguments"])
def test_arrays_that_a_kernel_does_not_write_in_place(kind, tmp_path):
    def kernel(x: nt.mutable_tensor, y):
        nl.store(x, nl.load(x) + 1)
        during.append(x_given.copy())

    during = []
    x_given = {"gaps": with_gaps(), "a file": of_a_file(tmp_path)}.get(
        kind, np.zeros((4, 8), np.float32)
    )
    other = x_given if kind == "two arguments" else np.zeros((4, 8), np.float32)
    launch(kernel, (x_given, other))
    assert not during[0].any()
    assert_array_equal(x_given, np.ones((4, 8)))


def test_programs_that_run_in_threads_write_to_copies():
    """A thread that goes on after Ctrl-C changes no array of the caller."""

    def kernel(x):
        tile = todays.ndarray((4, 8), dtype=x.dtype, buffer=todays.sbuf)
        nisa.memset(tile, 1.0)
        nisa.dma_copy(dst=x, src=tile)
        during.append(x_given.copy())

    during = []
    x_given = np.zeros((4, 8), np.float32)
    launch(jit(kernel), (x_given,), grid=(2,))
    assert not np.any(during)
    assert_array_equal(x_given, np.ones((4, 8)))


@every("how", [{"exact": True}, {"plain": True}])
def test_a_run_beside_the_kernel_reads_the_arguments_as_they_were(how):
    def kernel(x: nt.mutable_tensor):
        nl.store(x, nl.load(x) + 1)
        during.append(x_given.copy())

    during = []
    x_given = np.zeros((4, 8), np.float32)
    launch(kernel, (x_given,), **how)
    assert not during[0].any()
    assert_array_equal(x_given, np.ones((4, 8)))


def test_a_product_scales_subnormal_arguments_that_the_kernel_wrote_before():
    """The first product looks at the arguments as the caller passed them."""

    def kernel(x: nt.mutable_tensor):
        tile = nl.load(x)
        nl.store(x, nl.copy(tile) * 0)
        out = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.matmul(tile, tile * 2.0**126, transpose_x=True))
        found.append(current().subnormals.found)
        return out

    found = []
    x = np.full((4, 2), 2.0**-130, np.float32)
    (out,) = launch(kernel, (x,)).outputs
    assert found == [True]
    assert_array_equal(out, np.full((2, 2), 4 * 2.0**-134, np.float32))
