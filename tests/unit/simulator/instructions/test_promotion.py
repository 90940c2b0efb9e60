"""AWS nki.api.shared.rst at v2.26.0, "NKI Type Promotion": its examples, each way round."""

import ml_dtypes
import numpy as np

from difftest.simulator.dtypes import (
    BFLOAT16,
    FLOAT8_E4M3,
    FLOAT8_E4M3FN,
    FLOAT32,
    as_dtype,
    dtype_name,
)
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions.values import promote_dtypes, scalar_dtype
from tests.every import every
from tests.unit.simulator.on_tiles import on_tiles

DOCUMENTED = [
    ("int32", "float16", "float16"),
    ("uint16", "tfloat32", "tfloat32"),
    ("float32", "tfloat32", "float32"),
    ("float32", "bfloat16", "float32"),
    ("float16", "bfloat16", "float32"),
    ("float8_e4m3", "float16", "float16"),
    ("float8_e4m3", "bfloat16", "bfloat16"),
    ("float8_e4m3", "float8_e5m2", "bfloat16"),
    ("int16", "int32", "int32"),
    ("uint8", "uint16", "uint16"),
    ("uint16", "int32", "int32"),
    ("int8", "uint8", "int16"),
    ("int8", "uint16", "int32"),
    ("int32", "uint32", "float32"),
]


@every("dtype", [FLOAT32, BFLOAT16, FLOAT8_E4M3])
def test_a_float8_of_neuroncore_v4_has_a_rank(dtype):
    """float8_e4m3fn is as narrow as float8_e4m3; a sum of both is wider."""
    wider = BFLOAT16 if dtype == FLOAT8_E4M3 else dtype
    assert promote_dtypes(FLOAT8_E4M3FN, dtype) == wider
    assert promote_dtypes(dtype, FLOAT8_E4M3FN) == wider
    assert promote_dtypes(FLOAT8_E4M3FN, np.dtype(np.int32)) == FLOAT8_E4M3FN


@every("a, b, result", DOCUMENTED)
def test_pairs_of_dtypes_promote_as_documented(a, b, result):
    for first, second in ((a, b), (b, a)):
        assert dtype_name(promote_dtypes(as_dtype(first), as_dtype(second))) == result


@every(
    "scalar, dtype",
    [
        (True, "uint8"),
        (2, "int32"),
        (1.5, "float32"),
        (np.int8(2), "int8"),
        (np.float16(2), "float16"),
        (ml_dtypes.bfloat16(2), "bfloat16"),
        (np.float32(2), "float32"),
        (np.bool_(True), "bool"),
        # NumPy's 64-bit scalars are weak: a host computes with them
        (
            np.sqrt(2.0),
            "float32",
        ),
        (np.prod((2, 3)), "int32"),
    ],
)
def test_a_scalar_has_its_documented_dtype(scalar, dtype):
    assert scalar_dtype(scalar) == as_dtype(dtype)


@every(
    "tile, scalar, dtype",
    [
        (np.int8, 2, np.int32),
        (np.float16, 1.2, np.float32),
        (np.float16, np.float16(2), np.float16),
        (np.int8, np.int8(2), np.int8),
        (np.int16, 1.0, np.float32),
        (np.uint8, True, np.uint8),
        (np.float32, np.float64(2), np.float32),
    ],
)
def test_a_tile_and_a_scalar(tile, scalar, dtype):
    """The function and the Python operator, the scalar on either side."""
    values = np.array([[1, 2, 3]], tile)
    for result in on_tiles(
        lambda x: (nl.add(x, scalar), nl.add(scalar, x), x + scalar, scalar + x), values
    ):
        assert result.dtype == dtype
        np.testing.assert_allclose(
            result, values.astype(np.float64) + scalar, rtol=1e-6
        )
