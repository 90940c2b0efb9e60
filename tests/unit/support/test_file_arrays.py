import errno
import mmap
import os

import numpy as np
import pytest

from difftest.support import file_arrays
from difftest.support.file_arrays import LARGE, blocks, float64_copy, release, zeros

SHAPE = (LARGE // 8 // 1024 + 1, 1024)


def root(array):
    """Return the object that owns an array's memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base


def resident():
    """Return the bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def test_a_large_array_is_in_a_file_and_needs_little_memory():
    values = np.random.default_rng(0).random(SHAPE, np.float32)
    before = resident()
    copied = float64_copy(values)
    assert resident() - before < LARGE / 2
    assert isinstance(root(copied[3:5]), mmap.mmap)
    assert np.array_equal(copied, values)
    assert resident() - before > LARGE / 2
    release(copied[1:], LARGE)
    assert resident() - before < LARGE / 2
    assert np.array_equal(copied, values)


def test_the_system_takes_pages_back_only_once_many_bytes_were_used():
    array = zeros(SHAPE)
    array[...] = 1.0
    before = resident()
    release(array, 4096)
    assert resident() > before - LARGE / 2
    release(array, LARGE)
    assert resident() < before - LARGE / 2
    assert array.min() == array.max() == 1.0


def test_a_small_array_is_in_memory():
    assert zeros((3, 5)).base is None
    assert float64_copy(np.ones((3, 5), np.int8)).tolist() == [[1.0] * 5] * 3


def test_without_space_for_a_file_the_array_is_in_memory(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "posix_fallocate", full)
    array = zeros(SHAPE)
    assert array.base is None
    assert not array.any()


def test_a_system_that_cannot_reserve_space_has_no_files(monkeypatch):
    monkeypatch.setattr(file_arrays, "_HAS_FILES", False)
    assert zeros(SHAPE).base is None


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (0, 4)])
def test_blocks_have_each_element_once(shape):
    array = np.arange(float(np.prod(shape, dtype=int))).reshape(shape)
    pairs = list(blocks(array, -array, most=4))
    assert all(len(block) <= 4 for block, _ in pairs)
    assert [x for block, _ in pairs for x in block] == array.ravel().tolist()
    assert [x for _, block in pairs for x in block] == (-array).ravel().tolist()


def test_arrays_with_gaps_are_one_block():
    array = np.zeros((6, 6))[:, ::2]
    assert [block.shape for (block,) in blocks(array, most=4)] == [(6, 3)]
    assert float64_copy(array).flags.c_contiguous
