"""Inputs and results that AWS's documentation describes in words, as arrays.

By page and line at tag v2.32.0, for ``conformance/code_blocks.py``; line 0 has names for all blocks
of a page. Shapes are those of the page's prose, comments or assertions, made small where a page
leaves them open. A result that the page states is compared; where it states none, the definition of
the operation that it names is. Values are seeded normal numbers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from conformance.code_blocks import Call, Inputs

_LANGUAGE = "nki/api/nki/language/__init__.py"
_ISA = "nki/api/nki/isa/__init__.py"
_GUIDE = "nki/get-started/nki-language-guide.rst"
_ABOUT = "nki/get-started/about/"
_APS = "nki/deep-dives/nki-aps.rst"
_TUTORIAL = "nki/guides/tutorials/kernel-optimization.rst"
_MIGRATION = "nki/migration/index.rst"


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    """Seeded normal numbers; the same for the same shape."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    """Zeros, for a tensor that a block fills."""
    return np.zeros(shape, dtype)


def rows(count: int, of: int, dtype: Any = np.uint32) -> Any:
    """``count`` different row numbers below ``of``, in no order, as a column."""
    return np.random.default_rng(of).permutation(of)[:count].astype(dtype)[:, None]


_WIDE = normal(128, 1024)
_TILE = normal(128, 512)
_HALF = normal(128, 512, dtype=np.float16)
_BF16 = normal(128, 128, dtype=ml_dtypes.bfloat16)
_TABLE = normal(512, 128, dtype=ml_dtypes.bfloat16)
_ROWS = rows(16, 64)
_PAIRS = rows(256, 512).reshape(128, 2)
_PLACES = np.random.default_rng(0).integers(0, 512, (128, 512)).astype(np.uint32)
_SCATTERED = normal(16, 8)
_THREE = (normal(128, 16), normal(64, 16), normal(32, 16))
_EXPONENTS = tuple(map(np.exp, _THREE))
_SQUARES = Inputs(
    {"input_tensor": _WIDE, "out_tensor": zeros(128, 1024)},
    expected={"out_tensor": _WIDE**2},
)
_SQUARE = Inputs(
    {"input_tensor": _TILE, "out_tensor": zeros(128, 512)},
    expected={"out_tensor": _TILE**2},
)
_TILES = (
    "a, b, c, x, y, z = [nl.full((32, 32), 2.0, dtype=nl.float32) for _ in range(6)]\n"
)
_COUNT = """\
reg = nisa.register_alloc(3)
count_sb = nl.full((1, 1), 3, dtype=nl.int32)
one_sb = nl.full((1, 1), 1, dtype=nl.int32)
acc, val = nl.zeros((1, 1), dtype=nl.float32), nl.ones((1, 1), dtype=nl.float32)
"""
_STEPS = """\
reg = nisa.register_alloc(3)
temp, data = nl.zeros((1, 1), dtype=nl.float32), nl.ndarray((1, 8), nl.float32, nl.shared_hbm)
nisa.dma_copy(data, nl.ones((1, 8), dtype=nl.float32))
"""


_LIST = "it compares a shape, which is a tuple, with a list"
_OLD = "it has calls of the oldest NKI"


def _scattered() -> Any:
    expected = zeros(64, 8)
    expected[_ROWS[:, 0]] = _SCATTERED
    return expected


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


def _product(depth: int, height: int, width: int, more: tuple[int, ...] = ()) -> Inputs:
    """Return a call of the tutorial's kernel: ``lhsT.T @ rhs``."""
    left = normal(depth, height)
    right = normal(depth, width)
    call = Call(
        "matrix_multiply_kernel", (left, right, *more), left.T @ right, tolerance=1e-3
    )
    return Inputs(calls=[call])


INPUTS: dict[str, dict[int, Inputs]] = {
    _LANGUAGE: {
        203: Inputs({"i": 0}),
        493: Inputs(setup="idx = nl.full((1, 1), 1, dtype=nl.int32)"),
        859: Inputs(machine="trn3"),
        871: Inputs(machine="trn3"),
        903: Inputs(machine="trn3"),
        915: Inputs(machine="trn3"),
        1491: Inputs({"x_tensor": normal(128, 64), "y_tensor": _TILE}),
        2303: Inputs(
            {
                "data_tensor": _TILE,
                "indices_tensor": _PLACES,
                "actual_tensor": zeros(128, 512),
            },
            expected={
                "actual_tensor": np.take_along_axis(_TILE, _PLACES.astype(int), 1)
            },
        ),
        **dict.fromkeys((2335, 2365, 2395), _SQUARES),
        2420: _SQUARE,
        2460: Inputs(
            {
                "N": 8,
                "ub_input": np.full((1, 1), 5, np.int32),
                "data": normal(1, 8),
                "output": zeros(1, 8),
            },
            expected={"output": np.where(np.arange(8) < 5, normal(1, 8), 0)},
        ),
        2518: Inputs(
            {"data": normal(1, 1), "count_input": np.full((1, 1), 3, np.int32)}
        ),
        2649: Inputs(
            {
                "expected_tensor": np.eye(128, dtype=np.float32),
                "actual_tensor": zeros(128, 128),
            },
            expected={"actual_tensor": np.eye(128)},
        ),
    },
    _ISA: {
        197: _SQUARE,
        314: Inputs(
            calls=[
                Call(
                    "indirect_gather_kernel",
                    (normal(64, 8), _ROWS),
                    normal(64, 8)[_ROWS[:, 0]],
                )
            ]
        ),
        343: Inputs(
            calls=[
                Call(
                    "indirect_scatter_kernel",
                    (_SCATTERED, _ROWS, zeros(64, 8)),
                    _scattered(),
                )
            ]
        ),
        682: Inputs(
            calls=[
                Call(
                    "nc_matmul_accumulate_kernel",
                    (normal(512, 64), normal(512, 32)),
                    normal(512, 64).T @ normal(512, 32),
                    tolerance=1e-4,
                )
            ]
        ),
        914: Inputs(
            calls=[
                Call(
                    "gather_transpose_kernel",
                    (_TABLE, rows(128, 512)),
                    _TABLE[rows(128, 512)[:, 0]].T,
                )
            ]
        ),
        942: Inputs(
            calls=[
                Call(
                    "gather_transpose_2d_kernel",
                    (_TABLE, _PAIRS),
                    _TABLE[_PAIRS.T.ravel()].T,
                )
            ]
        ),
        976: Inputs(
            calls=[
                Call(
                    "gather_transpose_4d_kernel",
                    (_TABLE.reshape(512, 1, 4, 32), rows(128, 512)),
                    _TABLE.reshape(512, 1, 4, 32)[rows(128, 512)[:, 0]].transpose(
                        3, 1, 2, 0
                    ),
                )
            ]
        ),
        1656: Inputs(
            machine="trn3",
            calls=[
                Call(
                    "activate2_scale_bias_kernel",
                    (normal(128, 64),),
                    _gelu(2 * normal(128, 64) + 0.5),
                    tolerance=1e-4,
                )
            ],
        ),
        3303: Inputs(
            calls=[
                Call(
                    "nonzero_with_count_kernel",
                    (np.array([[0, 1, 1, 0, 0, 1, 0, 0]], np.int32),),
                    np.array([[1, 2, 5, -1, -1, -1, -1, -1, 3]]),
                )
            ]
        ),
        3363: Inputs(
            calls=[Call("topk_kernel", (normal(16, 3, dtype=ml_dtypes.bfloat16),))],
            fault="it returns tiles in SBUF",
        ),
    },
    _GUIDE: {
        15: Inputs(calls=[Call("nki_tensor_add_kernel", (_HALF, _HALF), 2 * _HALF)]),
        99: Inputs(
            calls=[Call("example_kernel", (normal(512, 512, dtype=np.float16),))]
        ),
        460: Inputs(setup=_TILES),
        650: Inputs(
            fault="the page shows how it sees an Enum: a class that uses itself"
        ),
        474: Inputs(setup=_TILES),
        670: Inputs(
            calls=[
                Call(
                    "relu_kernel",
                    (normal(256, 512), zeros(256, 512)),
                    np.maximum(normal(256, 512), 0),
                    fills=1,
                ),
                Call(
                    "scale_kernel",
                    (normal(256, 512), zeros(256, 512)),
                    normal(256, 512) / 2,
                    fills=1,
                ),
            ]
        ),
    },
    "nki/get-started/quickstart-implement-run-kernel.rst": {
        138: Inputs(
            saved_as="add_kernel",
            calls=[
                Call(
                    "nki_tensor_add_kernel",
                    (np.ones((4, 3), np.float16),) * 2,
                    np.full((4, 3), 2),
                )
            ],
        ),
    },
    f"{_ABOUT}index.rst": {
        118: Inputs({"shape": (128, 512)}),
        140: _SQUARES,
        187: Inputs(
            setup="stationary, output = nl.ones((128, 128), nl.float32), "
            "nl.ndarray((128, 512), nl.float32, buffer=nl.psum)\n"
            "moving = x = y = nl.ones((128, 512), nl.float32)"
        ),
        461: Inputs(
            setup="t = nl.ndarray((64, 64, 64), dtype=nl.float32, buffer=nl.sbuf)"
        ),
        472: Inputs(
            setup="t = nl.ndarray((64, 64, 64), dtype=nl.float32, buffer=nl.sbuf)"
        ),
        488: Inputs(setup=f"{_TILES}inputs, outputs = [a, b, c], [x, y, z]"),
    },
    f"{_ABOUT}lnc.rst": {
        74: Inputs({"input": normal(2, 4)}),
        101: Inputs(
            calls=[
                Call("lnc_test", (normal(2, 128, 128),), 1 / normal(2, 128, 128), cores)
                for cores in (1, 2)
            ]
        ),
    },
    f"{_ABOUT}tiling-overview.rst": {
        0: Inputs({"input": normal(256, 256), "output": zeros(256, 256)}),
        18: Inputs(expected={"output": 1 / normal(256, 256)}),
        43: Inputs(expected={"output": 1 / normal(256, 256)}),
        175: Inputs(
            calls=[
                Call("tensor_exp_kernel_", (normal(256, 512),), 1 / normal(256, 512))
            ]
        ),
        217: Inputs(
            fault="its last tile is not cut, so that it takes whole tiles only",
            calls=[
                Call("tensor_exp_kernel_", (normal(256, 64),), 1 / normal(256, 64)),
                Call("tensor_exp_kernel_", (normal(300, 64),), 1 / normal(300, 64)),
            ],
        ),
    },
    "nki/get-started/about/indexing-overview.rst": dict.fromkeys(
        (23, 35), Inputs(fault=_LIST)
    ),
    _APS: {
        154: Inputs(fault="it passes ap two lists for one pattern"),
        170: Inputs(fault="the page calls it pseudo-code"),
        201: Inputs(raises="partition"),
        289: Inputs(
            calls=[
                Call(
                    "scalar_dynamic_select",
                    (normal(4, 128, 512),),
                    normal(4, 128, 512)[3],
                )
            ]
        ),
        310: Inputs(
            fault=_LIST,
            calls=[
                Call(
                    "scalar_dynamic_dma",
                    (normal(512, 512),),
                    normal(512, 512)[384:, :256],
                )
            ],
        ),
        359: Inputs(calls=[Call("gather_rows", (_TILE,), _TILE[::2])]),
        384: Inputs(calls=[Call("indirect_vector_dynamic_dma", (_TILE,), _TILE[::2])]),
    },
    "nki/deep-dives/nki-dge.rst": {
        0: Inputs(
            {"hbm_tensor": _BF16},
            "sbuf_tile = nl.ndarray((128, 128), dtype=nl.bfloat16)",
        ),
        290: Inputs(
            {"hbm_tensor": normal(16, 128, dtype=ml_dtypes.bfloat16)},
            "sbuf_tile = nl.ndarray((128, 16), dtype=nl.bfloat16)",
        ),
        302: Inputs(
            {"places": rows(128, 128)},
            "indices = nl.load(places)\nsbuf_tile = nl.ndarray((128, 128), dtype=nl.bfloat16)",
        ),
    },
    "nki/deep-dives/nki-dynamic-loops.rst": {
        164: Inputs(
            setup="cond_tensor = nl.zeros((1, 1), dtype=nl.int32, buffer=nl.sbuf)"
        ),
        198: _SQUARE,
        215: Inputs(
            {"input_tensor": normal(512, 512), "out_tensor": zeros(512, 512)},
            expected={"out_tensor": normal(512, 512) + 2},
        ),
    },
    "nki/deep-dives/nki_perf_guide.rst": {
        573: Inputs(
            fault=_OLD,
            setup="data = nl.ones((128, 512), nl.float32)\n"
            "scale = bias = nl.ones((128, 1), nl.float32)",
        ),
        916: Inputs(
            {"in_tensor": normal(8192, 128, dtype=ml_dtypes.bfloat16)}, fault=_OLD
        ),
    },
    "nki/guides/how-to-scheduling-apis.rst": {
        23: Inputs(
            calls=[
                Call(name, (_TILE,), 1 / _TILE + _TILE + 1, tolerance=1e-4)
                for name in ("kernel", "scheduled")
            ]
        ),
        61: Inputs(
            calls=[Call(name, _THREE, _EXPONENTS) for name in ("kernel", "scheduled")]
        ),
        103: Inputs(calls=[Call("loop", _THREE, _EXPONENTS)]),
        132: Inputs(calls=[Call("loop", _THREE, _EXPONENTS)]),
    },
    "nki/guides/architecture/trainium2_arch.rst": {
        309: Inputs({"hbm_src": normal(512, 128, dtype=ml_dtypes.bfloat16)}),
        330: Inputs({"values": _BF16}, "sbuf_src = nl.load(values)"),
    },
    "nki/guides/architecture/trainium_inferentia2_arch.rst": {
        664: Inputs({"in_tensor": _TILE}),
        843: Inputs(
            {"N": 2},
            "stationary_tile = moving_tile = nl.ones((128, 128), dtype=nl.bfloat16)",
        ),
    },
    _TUTORIAL: {
        40: replace(_product(128, 128, 512), saved_as="multiply_kernel"),
        203: _product(256, 256, 1024),
        360: _product(256, 256, 1024),
        486: _product(256, 256, 1024),
        633: _product(512, 512, 2048, (2, 2, 2)),
    },
    _MIGRATION: {
        92: Inputs(setup=_STEPS),
        107: Inputs(setup=_COUNT),
        116: Inputs(setup=_COUNT),
        574: Inputs(setup="dst = nisa.register_alloc()"),
        1331: Inputs(fault=_OLD),
        1102: Inputs({"a": normal(128, 64)}),
        1144: Inputs({"num_512_tiles_cur_section": 2, "p_k": 128, "n_k": 64, "sca": 0}),
        1201: Inputs(
            fault=_LIST,
            calls=[
                Call(
                    "indirect_scalar_dynamic_dma",
                    (normal(512, 512),),
                    normal(512, 512)[384:, :256],
                )
            ],
        ),
        1263: Inputs(calls=[Call("indirect_vector_dynamic_dma", (_TILE,), _TILE[::2])]),
        **{
            line: Inputs(
                calls=[Call(name, (normal(8, 128, 512),), normal(8, 128, 512))]
            )
            for line, name in (
                (1433, "sb_blocks_migrated"),
                (1474, "sb_blocks_migrated"),
                (1501, "sb_blocks_migrated_incorrect"),
            )
        },
    },
}
"""By page, then by line."""
