from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import NkiError, ShapeError, launch
from difftest.simulator.dtypes import BOOL, DTYPES, TFLOAT32, is_float, round_to
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles

PLAIN = [dtype for dtype in DTYPES if dtype != TFLOAT32]
VALUES = np.array([[0, 1, 2.5, 3.5, 100.3, 300, 70000, -1, -2.5, -129, 1e-3, 3e9]], np.float32)


@every("source, target", list(itertools.product(PLAIN, PLAIN)))
def test_a_cast_goes_through_float32_and_rounds_once(source, target):
    with np.errstate(over="ignore"):
        data = VALUES.astype(source) if is_float(source) else round_to(VALUES, source)
    result = on_tiles(lambda x: nisa.tensor_copy(x, dtype=target), data)
    with np.errstate(over="ignore"):
        expected = round_to(data.astype(np.float32), target).astype(target)
    assert_array_equal(result, expected, strict=True)


@every("dtype", PLAIN)
@every("engine", [nisa.vector_engine, nisa.gpsimd_engine, nisa.unknown_engine])
def test_a_copy_without_cast_keeps_every_bit(dtype, engine):
    if dtype == BOOL:
        data = np.array([[True, False]])
    else:
        count = 2 ** (8 * min(dtype.itemsize, 2))
        bits = np.arange(count, dtype=np.uint32) * np.uint32(2654435761)
        data = bits.astype(f"u{dtype.itemsize}").view(dtype)[None, :256]
    result = on_tiles(lambda x: nisa.tensor_copy(x, engine=engine), data)
    number = ~np.isnan(data.astype(np.float32)) if is_float(dtype) else np.ones(data.shape, bool)
    assert result.dtype == dtype
    assert result[number].tobytes() == data[number].tobytes()


PREDICATE = np.array([[0, 1, 2], [3, 0, 0]], np.uint8)
A, B = normal(2, 3), normal(2, 3, seed=1)


def test_what_a_predicate_did_not_write_is_unwritten():
    def kernel(src, predicate):
        dst = nl.ndarray((2, 3), nl.float32)
        nisa.tensor_copy_predicated(src=nl.load(src), dst=dst, predicate=nl.load(predicate))
        nl.sum(dst, axis=1)

    with pytest.raises(NkiError, match="reads only what was written") as caught:
        launch(kernel, [A, PREDICATE])
    assert "3 of 6 elements" in caught.value.received


def test_a_dynamic_destination_is_filled_by_a_source_of_its_shape():
    def compute(x, columns):
        target = nl.zeros((4, 6), nl.float32)
        rows = nl.arange(4)[:, None]
        nisa.tensor_copy_dynamic_dst(dst=target[rows, columns], src=x)
        return target

    column = np.array([[2]], np.int32)
    result = on_tiles(compute, normal(4, 1), column)
    assert_array_equal(result[:, 2], normal(4, 1)[:, 0])
    for wrong in (normal(4, 3), normal(2, 1), normal(4, 1, 2)):
        with pytest.raises(ShapeError, match="takes src of dst's shape") as caught:
            on_tiles(compute, wrong, column)
        assert caught.value.received == f"src {list(wrong.shape)}, dst [4, 1]"
