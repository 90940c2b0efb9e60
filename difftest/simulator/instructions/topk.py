"""GpSimd Engine: topk (AWS ``nki.isa``; its result as the page at v2.33 has it).

The stub at v2.32.0 has the largest values of each partition in that partition, in ascending order.
The page at v2.33, and the kernel of AWS's library that calls it
(``nki/library/api/gpsimd-topk.rst``, v2.32.0), have one problem in each 16 partitions, results in
the layout of the source, and no order. The frontend warns of it.
"""

from __future__ import annotations

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import BFLOAT16, Array
from difftest.simulator.instructions.record import (
    SBUF_ONLY,
    Call,
    Masked,
    Result,
    Role,
    instruction,
)
from difftest.simulator.instructions.rules import limits, same_partitions
from difftest.simulator.instructions.search import UINT32
from difftest.simulator.instructions.values import as_float, rows
from difftest.simulator.lifted import made_like
from difftest.simulator.trace import Engine

N_RANGE = (8, 65535)
K_MAX = 32767


def _snakes(call: Call) -> None:
    src: Descriptor = call["src"]
    lanes, n, k = call.machine.gpsimd_core_partitions, call["n"], call.destinations["dst"].free_size
    limits(
        call,
        (src.partitions % lanes, f"partitions are a multiple of {lanes}", f"{src.partitions}"),
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


def results(call: Call) -> Array:
    """Which elements of the destinations, by row, get a result."""
    dst = call.destinations["dst"]
    return _numbers(call, dst.partitions, dst.free_size) < dst.free_size


def _numbers(call: Call, partitions: int, columns: int) -> Array:
    """The number of each element in its group: down the partitions, then along the columns."""
    lanes = call.machine.gpsimd_core_partitions
    rank = np.arange(partitions)[:, None] % lanes
    return np.asarray(rank + lanes * np.arange(columns))


def snakes(call: Call, lines: Array) -> Array:
    """Rows [P, F] as one row for each group of 16 partitions, in the order of their numbers."""
    lanes = call.machine.gpsimd_core_partitions
    groups = lines.reshape(-1, lanes, lines.shape[1])
    return groups.transpose(0, 2, 1).reshape(len(groups), -1)


def laid(call: Call, found: Array) -> Masked:
    """A row of results [groups, k] in the layout of the destinations, and where there are any."""
    groups, k = found.shape
    lanes = call.machine.gpsimd_core_partitions
    padded = made_like(found, (groups, k * lanes))
    padded[:, :k] = found
    values = padded.reshape(groups, k, lanes).transpose(0, 2, 1).reshape(groups * lanes, k)
    return Masked(values.reshape(call.result.shape), results(call).reshape(call.result.shape))


@instruction(
    Engine.GPSIMD,
    operands=(Role(name="src", buffers=SBUF_ONLY, dtypes=(BFLOAT16,)),),
    options=("n",),
    destinations=(
        Role(name="dst", buffers=SBUF_ONLY, dtypes=(BFLOAT16,)),
        Role(
            name="idx_dst",
            buffers=SBUF_ONLY,
            dtypes=(UINT32,),
            shape=lambda call: call.destinations["dst"].shape,
        ),
    ),
    rules=(same_partitions("src", "dst"), _snakes),
    result=lambda call: Result(call.destinations["dst"].shape, BFLOAT16),
    classic=False,
)
def topk(call: Call, src: Array) -> tuple[Masked, Masked]:
    """The k largest of the n elements that lie in each 16 partitions, and their numbers.

    Element i of a group is in partition i % 16 at place i // 16, and so is result i. They come in
    ascending order here, and of equal elements the first ones are taken.
    """
    lines = -snakes(call, as_float(rows(src)))[:, : call["n"]]
    k = call.destinations["dst"].free_size
    values, places = (
        order(lines, axis=1, kind="stable")[:, :k][:, ::-1] for order in (np.sort, np.argsort)
    )
    return laid(call, -values), laid(call, places)
