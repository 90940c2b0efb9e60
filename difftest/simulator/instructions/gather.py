"""GpSimd Engine: nc_n_gather, nonzero_with_count and topk (AWS ``nki.isa`` at tag v2.32.0).

According to its stub, topk keeps the largest values of each partition in that partition, in
ascending order. The page at v2.33, and the kernel of AWS's library that calls it
(``nki/library/api/gpsimd-topk.rst``, v2.32.0), describe one problem in each 16 partitions, results
in the layout of the source, and no order. The frontend warns of this.
"""

from __future__ import annotations

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import BFLOAT16, FLOAT32, INT32, Array
from difftest.simulator.errors import ShapeError
from difftest.simulator.instructions.gate import check_destination, write
from difftest.simulator.instructions.record import (
    SBUF_ONLY,
    CheckedCall,
    MaskedValues,
    Result,
    Role,
    instruction,
)
from difftest.simulator.instructions.rules import (
    limits,
    needs_generation,
    one_dtype,
    same_partitions,
)
from difftest.simulator.instructions.search import UINT32, taken_along_rows
from difftest.simulator.instructions.values import as_float, rows
from difftest.simulator.lifted import made_like
from difftest.simulator.memory import UNWRITTEN
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

# -- nc_n_gather -----------------------------------------------------------------------------------


@instruction(
    Engine.GPSIMD,
    operands=(
        Role("data", buffers=SBUF_ONLY, whole_rows=True),
        Role("indices", buffers=SBUF_ONLY, dtypes=(UINT32,)),
    ),
    destinations=(Role("dst", buffers=SBUF_ONLY),),
    rules=(same_partitions("data", "indices"), one_dtype("data", "dst")),
    result=lambda call: Result(
        call["indices"].shape, call.wanted_dtype(call["data"].dtype)
    ),
    classic=False,
)
def nc_n_gather(call: CheckedCall, data: Array, indices: Array) -> Array:
    """``dst[p, i] = data[p, indices[p, i]]``, with the free axes of each flattened."""
    rule = "nc_n_gather takes indices of elements of the data"
    return taken_along_rows(call, data, indices, rule)


# -- nonzero_with_count ----------------------------------------------------------------------------


def _one_more(call: CheckedCall) -> None:
    """Require the source's partitions in the destination, and one more element for the count."""
    src: Descriptor = call["src"]
    dst = call.destinations["dst"]
    if dst.partitions != src.partitions or dst.free_size != src.free_size + 1:
        raise call.refused(
            "writes one element a partition more than it reads",
            f"got src {list(src.shape)} for dst {list(dst.shape)}",
            f"src {list(src.shape)}, dst {list(dst.shape)}",
            error=ShapeError,
            limit=f"{src.partitions} partitions, {src.free_size + 1} elements each",
        )


def _int32_options(call: CheckedCall) -> None:
    info = np.iinfo(np.int32)
    for name in ("index_offset", "padding_val"):
        value = call[name]
        if not isinstance(value, int) or not info.min <= value <= info.max:
            raise call.refused(
                f"takes {name} as an int32",
                f"got {name}={value!r:.40}",
                f"{name}={value!r}",
            )


@instruction(
    Engine.GPSIMD,
    operands=(Role("src", buffers=SBUF_ONLY, dtypes=(FLOAT32, INT32)),),
    options=("index_offset", "padding_val"),
    destinations=(Role("dst", buffers=SBUF_ONLY, dtypes=(INT32,)),),
    rules=(needs_generation(3), _one_more, _int32_options),
    result=lambda call: Result(call.destinations["dst"].shape, INT32),
    in_place=True,
    carries=False,
    moves=lambda call, src: np.logical_or.reduce(rows(src), axis=1, keepdims=True),
    classic=False,
)
def nonzero_with_count(
    call: CheckedCall, dst: Tile, src: Tile, *, where: Array | None
) -> Array:
    """``dst`` = indices of nonzero elements, padding, their count; each 16th partition only.

    Each GpSimd core reads and writes only its first partition. The result of a partition with
    unwritten elements counts as never written. NeuronCore-v3 on.
    """
    check_destination(dst)
    shape = dst._tile_shape()
    chosen = np.zeros((shape[0], call["src"].free_size + 1), dtype=np.bool_)
    values = np.zeros(chosen.shape, dtype=np.int32)
    gone = np.zeros(chosen.shape, dtype=np.bool_)
    firsts = range(0, shape[0], call.machine.gpsimd_core_partitions)
    for p in firsts:
        if src[p : p + 1]._unwritten(UNWRITTEN) is not None:
            gone[p] = True
            continue
        places = np.flatnonzero(rows(src[p : p + 1]._engine_values())[0])
        values[p] = call["padding_val"]
        values[p, : places.size] = places + call["index_offset"]
        values[p, -1] = places.size
        chosen[p] = True
    if not chosen.any():
        src[0:1]._read()  # raises: no partition that a core reads was written
    write(dst, values.reshape(shape), chosen.reshape(shape))
    if gone.any():
        dst._forget_written(
            gone.reshape(dst.shape), src._origin(f"read by {call.name}")
        )
    return (chosen | gone).reshape(shape)


# -- topk ------------------------------------------------------------------------------------------

N_RANGE = (8, 65535)
K_MAX = 32767


def _snakes(call: CheckedCall) -> None:
    src: Descriptor = call["src"]
    lanes = call.machine.gpsimd_core_partitions
    n = call["n"]
    k = call.destinations["dst"].free_size
    limits(
        call,
        (
            src.partitions % lanes,
            f"partitions are a multiple of {lanes}",
            f"{src.partitions}",
        ),
        (
            not N_RANGE[0] <= n <= N_RANGE[1],
            f"n is {N_RANGE[0]} to {N_RANGE[1]}",
            f"n={n}",
        ),
        (
            src.free_size * lanes < n,
            f"src has n elements in each {lanes} partitions",
            f"n={n} of {src.free_size * lanes} elements",
        ),
        (
            k > min(n, K_MAX),
            f"val_dst has at most n and {K_MAX} elements a partition",
            f"{k} results of n={n}",
        ),
    )


def gather_results(call: CheckedCall) -> Array:
    """Return which elements of the destinations, by row, get a result."""
    dst = call.destinations["dst"]
    return _numbers(call, dst.partitions, dst.free_size) < dst.free_size


def _numbers(call: CheckedCall, partitions: int, columns: int) -> Array:
    """Return each element's number in its group: down the partitions, then along the columns."""
    lanes = call.machine.gpsimd_core_partitions
    rank = np.arange(partitions)[:, None] % lanes
    return np.asarray(rank + lanes * np.arange(columns))


def snakes(call: CheckedCall, lines: Array) -> Array:
    """Return rows [P, F] as one row for each 16 partitions, in the order of their numbers."""
    lanes = call.machine.gpsimd_core_partitions
    groups = lines.reshape(-1, lanes, lines.shape[1])
    return groups.transpose(0, 2, 1).reshape(len(groups), -1)


def laid(call: CheckedCall, row: Array) -> MaskedValues:
    """Return results [groups, k] in the destinations' layout, with a mask of their elements."""
    groups, k = row.shape
    lanes = call.machine.gpsimd_core_partitions
    padded = made_like(row, (groups, k * lanes))
    padded[:, :k] = row
    values = (
        padded.reshape(groups, k, lanes).transpose(0, 2, 1).reshape(groups * lanes, k)
    )
    return MaskedValues(
        values.reshape(call.result.shape),
        gather_results(call).reshape(call.result.shape),
    )


@instruction(
    Engine.GPSIMD,
    operands=(Role("src", buffers=SBUF_ONLY, dtypes=(BFLOAT16,)),),
    options=("n",),
    destinations=(
        Role("dst", buffers=SBUF_ONLY, dtypes=(BFLOAT16,)),
        Role(
            "idx_dst",
            buffers=SBUF_ONLY,
            dtypes=(UINT32,),
            shape=lambda call: call.destinations["dst"].shape,
        ),
    ),
    limits=("gpsimd_core_partitions",),
    rules=(same_partitions("src", "dst"), _snakes),
    result=lambda call: Result(call.destinations["dst"].shape, BFLOAT16),
    classic=False,
)
def topk(call: CheckedCall, src: Array) -> tuple[MaskedValues, MaskedValues]:
    """Find the k largest of the n elements in each 16 partitions, and their numbers.

    Element i of a group is in partition i % 16 at place i // 16, and so is result i. Here results
    are in ascending order. Of equal elements the first ones are taken.
    """
    lines = -snakes(call, as_float(rows(src)))[:, : call["n"]]
    k = call.destinations["dst"].free_size
    values, places = (
        order(lines, axis=1, kind="stable")[:, :k][:, ::-1]
        for order in (np.sort, np.argsort)
    )
    return laid(call, -values), laid(call, places)
