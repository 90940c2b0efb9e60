"""Every argument of every function, given what it cannot take: one NkiError, never another one.

A call that works is repeated with each argument replaced by each bad value. Some of the values are
good for some of the arguments; then nothing is raised, which is as well.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np

from difftest.simulator import NkiError, RuleWarning, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every

BAD = [None, "x", 1.5, -1, 10**12, 1j, [1], (1, 2), np.arange(3), object(), float("nan"), {}]
BAD += [nl.arange(3), nl.arange(3)[:, None] < 2, np.add, nl.float32, b"x"]
DATA = np.random.default_rng(0).random((16, 16)).astype(np.float32)


def zeros(*shape: int, dtype: Any = nl.uint8) -> Any:
    return nl.zeros(shape, dtype)


def select(t: Any, **changes: Any) -> Any:
    bound = zeros(16, 1, dtype=nl.float32)
    given = {"on_true_tile": t, "comp_op0": np.less, "comp_op1": np.less}
    return {**given, "bound0": bound, "bound1": bound, **changes}


CALLS = {  # name: what makes (function, keyword arguments) of a tile t and a tensor h in HBM
    "nl.ndarray": lambda t, h: (nl.ndarray, {"shape": (2, 2), "dtype": nl.int8, "buffer": nl.sbuf}),
    "nl.full": lambda t, h: (nl.full, {"shape": (2, 2), "fill_value": 1, "dtype": nl.int8}),
    "nl.zeros": lambda t, h: (nl.zeros, {"shape": (2, 2), "dtype": nl.int8, "buffer": nl.psum}),
    "nl.empty_like": lambda t, h: (nl.empty_like, {"a": t, "dtype": nl.int8}),
    "nl.zeros_like": lambda t, h: (nl.zeros_like, {"a": t}),
    "nl.shared_constant": lambda t, h: (nl.shared_constant, {"constant": DATA, "dtype": nl.int8}),
    "nl.rand": lambda t, h: (nl.rand, {"shape": (2, 2), "dtype": nl.bfloat16}),
    "nl.random_seed": lambda t, h: (nl.random_seed, {"seed": 1}),
    "nl.add": lambda t, h: (nl.add, {"x": t, "y": t, "dtype": None, "mask": None}),
    "nl.exp": lambda t, h: (nl.exp, {"x": t, "dtype": None, "mask": None}),
    "nl.invert": lambda t, h: (nl.invert, {"x": zeros(16, 16), "dtype": None}),
    "nl.sum": lambda t, h: (nl.sum, {"x": t, "axis": 1, "dtype": None, "mask": None}),
    "nl.mean": lambda t, h: (nl.mean, {"x": t, "axis": 1, "dtype": None}),
    "nl.var": lambda t, h: (nl.var, {"x": t, "axis": 1, "dtype": None}),
    "nl.softmax": lambda t, h: (nl.softmax, {"x": t, "axis": 1, "compute_dtype": None}),
    "nl.where": lambda t, h: (nl.where, {"condition": t, "x": t, "y": t, "dtype": None}),
    "nl.load": lambda t, h: (nl.load, {"src": h, "mask": None, "dtype": None}),
    "nl.store": lambda t, h: (nl.store, {"dst": h, "value": t, "mask": None}),
    "nl.copy": lambda t, h: (nl.copy, {"src": t, "mask": None, "dtype": None}),
    "nl.broadcast_to": lambda t, h: (nl.broadcast_to, {"src": t, "shape": (16, 16)}),
    "nl.expand_dims": lambda t, h: (nl.expand_dims, {"data": t, "axis": 1}),
    "nl.load_transpose2d": lambda t, h: (nl.load_transpose2d, {"src": h, "dtype": None}),
    "nl.transpose": lambda t, h: (nl.transpose, {"x": t, "dtype": None, "mask": None}),
    "nl.matmul": lambda t, h: (nl.matmul, {"x": t, "y": t, "mask": None}),
    "nl.gather_flattened": lambda t, h: (
        nl.gather_flattened,
        {"data": t, "indices": zeros(16, 2, dtype=nl.uint32)},
    ),
    "nl.program_id": lambda t, h: (nl.program_id, {"axis": 0}),
    "nl.num_programs": lambda t, h: (nl.num_programs, {"axes": 0}),
    "nl.nc": lambda t, h: (nl.nc, {"size": 2}),
    "nl.ds": lambda t, h: (nl.ds, {"start": 0, "size": 2}),
    "nc_matmul": lambda t, h: (
        nisa.nc_matmul,
        {"stationary": t, "moving": t, "tile_position": (0, 0), "tile_size": (32, 32)},
    ),
    "nc_transpose": lambda t, h: (
        nisa.nc_transpose,
        {"data": t, "dtype": None, "engine": nisa.tensor_engine},
    ),
    "dma_copy": lambda t, h: (
        nisa.dma_copy,
        {
            "dst": t, "src": h, "mask": None, "dst_rmw_op": None,
            "oob_mode": nisa.oob_mode.error, "dge_mode": nisa.dge_mode.none,
        },
    ),
    "dma_transpose": lambda t, h: (nisa.dma_transpose, {"src": h, "axes": None, "dtype": None}),
    "tensor_copy": lambda t, h: (nisa.tensor_copy, {"src": t, "engine": nisa.vector_engine}),
    "tensor_copy_predicated": lambda t, h: (
        nisa.tensor_copy_predicated,
        {"src": t, "dst": t, "predicate": zeros(16, 16)},
    ),
    "memset": lambda t, h: (nisa.memset, {"shape": (2, 2), "value": 1, "dtype": nl.int8}),
    "iota": lambda t, h: (nisa.iota, {"expr": nl.arange(3)[None, :], "dtype": nl.int32}),
    "tensor_tensor": lambda t, h: (
        nisa.tensor_tensor,
        {"data1": t, "data2": t, "op": np.add, "engine": nisa.vector_engine},
    ),
    "tensor_scalar": lambda t, h: (
        nisa.tensor_scalar,
        {"data": t, "op0": np.add, "operand0": 1.0, "op1": np.add, "operand1": 1.0},
    ),
    "tensor_scalar of bits": lambda t, h: (
        nisa.tensor_scalar,
        {"data": zeros(16, 16), "op0": nl.bitwise_and, "operand0": 1},
    ),
    "scalar_tensor_tensor": lambda t, h: (
        nisa.scalar_tensor_tensor,
        {"data": t, "op0": np.add, "operand0": 1.0, "op1": np.add, "operand1": t},
    ),
    "reciprocal": lambda t, h: (nisa.reciprocal, {"data": t, "dtype": None, "mask": None}),
    "activation": lambda t, h: (
        nisa.activation,
        {
            "op": nl.exp, "data": t, "bias": None, "scale": 1.0, "reduce_op": None,
            "reduce_res": None, "reduce_cmd": nisa.reduce_cmd.idle,
        },
    ),
    "activation_reduce": lambda t, h: (
        nisa.activation_reduce,
        {"op": nl.exp, "data": t, "reduce_op": np.add, "reduce_res": zeros(16, 1)},
    ),
    "tensor_reduce": lambda t, h: (nisa.tensor_reduce, {"op": np.add, "data": t, "axis": 1}),
    "tensor_partition_reduce": lambda t, h: (
        nisa.tensor_partition_reduce,
        {"op": np.add, "data": t},
    ),
    "tensor_scalar_reduce": lambda t, h: (
        nisa.tensor_scalar_reduce,
        {
            "data": t, "op0": np.add, "operand0": 1.0,
            "reduce_op": np.add, "reduce_res": zeros(16, 1),
        },
    ),
    "tensor_tensor_scan": lambda t, h: (
        nisa.tensor_tensor_scan,
        {"data0": t, "data1": t, "initial": 0, "op0": np.add, "op1": np.add},
    ),
    "bn_stats": lambda t, h: (nisa.bn_stats, {"data": t, "dtype": None, "mask": None}),
    "dropout": lambda t, h: (nisa.dropout, {"data": t, "prob": 0.5, "dtype": None}),
    "affine_select": lambda t, h: (
        nisa.affine_select,
        {"pred": nl.arange(16)[:, None] < 2, "on_true_tile": t, "on_false_value": 0},
    ),
    "range_select": lambda t, h: (
        nisa.range_select,
        select(t, range_start=0, on_false_value=nl.fp32.min, reduce_res=None, reduce_op=np.max),
    ),
    "select_reduce": lambda t, h: (
        nisa.select_reduce,
        {
            "dst": t, "predicate": zeros(16, 16), "on_true": t, "on_false": 0.0,
            "reduce_cmd": nisa.reduce_cmd.idle, "reduce_op": np.max,
        },
    ),
    "max8": lambda t, h: (nisa.max8, {"src": t, "dtype": None, "mask": None}),
    "nc_find_index8": lambda t, h: (
        nisa.nc_find_index8,
        {"data": t, "vals": nisa.max8(src=t), "dtype": None},
    ),
    "nc_match_replace8": lambda t, h: (
        nisa.nc_match_replace8,
        {"data": t, "vals": nisa.max8(src=t), "imm": 0.0, "dst_idx": None},
    ),
    "local_gather": lambda t, h: (
        nisa.local_gather,
        {
            "src_buffer": t, "index": zeros(16, 2, dtype=nl.uint16),
            "num_elem_per_idx": 1, "num_valid_indices": None,
        },
    ),
    "nc_stream_shuffle": lambda t, h: (
        nisa.nc_stream_shuffle,
        {"src": t, "dst": t, "shuffle_mask": [0] * 32},
    ),
    "sequence_bounds": lambda t, h: (
        nisa.sequence_bounds,
        {"segment_ids": nl.ones((1, 4), nl.int32)},
    ),
    "tile[key]": lambda t, h: (lambda key: nl.copy(t[key]), {"key": 1}),
    "tile[...] = value": lambda t, h: (lambda value: t.__setitem__(..., value), {"value": 1}),
    "tile.reshape": lambda t, h: (t.reshape, {"shape": (16, 4, 4)}),
    "tile.broadcast_to": lambda t, h: (t.broadcast_to, {"shape": (16, 16)}),
    "tile.expand_dims": lambda t, h: (t.expand_dims, {"axis": 1}),
    "tile.assert_shape": lambda t, h: (t.assert_shape, {"shape": (16, 16)}),
    "tile.astype": lambda t, h: (t.astype, {"dtype": nl.int8}),
    "tensor.view": lambda t, h: (h.view, {"dtype": nl.int32}),
}  # fmt: skip


def run(name: str, argument: str | None = None, value: Any = None) -> list[str]:
    """Make the call, with one argument replaced if one is named; the names of its arguments."""
    names: list[str] = []

    def kernel(h: Any) -> None:
        function, arguments = CALLS[name](nl.load(h), h)
        names.extend(arguments)
        function(**(arguments if argument is None else {**arguments, argument: value}))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuleWarning)
        launch(kernel, [DATA.copy()], grid=(1,), record=False)
    return names


@every("name", CALLS)
def test_bad_arguments(name):
    refused = 0
    for argument in run(name):
        for value in BAD:
            try:
                run(name, argument, value)
            except NkiError as error:
                refused += bool(error.rule and error.received)
    assert refused >= len(BAD) // 2


WITHOUT_ROWS = {"nl.random_seed", "memset", "iota", "local_gather"}
"""They walk no tile of 16 partitions in these calls."""


@every("name", CALLS)
def test_documented_masks_and_dtypes_are_taken(name: str) -> None:
    """A truth value, a comparison of indices, and the dtype that is the default."""

    def kernel(h: Any) -> None:
        function, arguments = CALLS[name](nl.load(h), h)
        taken = inspect.signature(function).parameters
        masks = [True, False]
        if name not in WITHOUT_ROWS:
            masks.append(nl.arange(16)[:, None] < 8)
        for mask in masks if "mask" in taken else ():
            function(**{**arguments, "mask": mask})
        if "dtype" in taken and arguments.get("dtype") is None and "dst" not in arguments:
            integers = name in ("nl.invert", "tensor_scalar of bits", "nc_find_index8")
            function(**{**arguments, "dtype": nl.uint32 if integers else nl.float32})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuleWarning)
        launch(kernel, [DATA.copy()], grid=(1,), record=False)
