"""The accumulators of the Scalar and Vector Engines (``nisa.reduce_cmd``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.frontend.arguments import reduce_cmd
from difftest.simulator.plain.indices import Shape, mask_over
from difftest.simulator.plain.operators import ARITHMETIC
from difftest.simulator.plain.rounding import Array
from difftest.simulator.plain.rules import require
from difftest.simulator.plain.running import current
from difftest.simulator.plain.tensors import PlainTensor

_START = {"add": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}


def accumulate(
    engine: str,
    lanes: Array,
    op: str,
    command: Any,
    into: PlainTensor | None,
    where: Array | None = None,
    lost: Array | None = None,
) -> None:
    """Reduce float32 ``lanes`` [P, N] into the registers as ``command`` says, and read them out.

    The registers, one for each partition of the machine, live across instructions. ``where`` keeps
    some elements; the registers of a partition of which it keeps none are left alone. ``lost`` says
    of which partitions something was never written: their registers hold nothing until a reset.
    """
    run = current()
    start = np.full(run.machine.partitions, _START[op], np.float32)
    kept = np.ones(lanes.shape, np.bool_) if where is None else where
    rows = np.any(kept, axis=1)
    reduces = command in (reduce_cmd.reduce, reduce_cmd.reset_reduce)
    resets = command in (reduce_cmd.reset, reduce_cmd.reset_reduce)
    if resets and where is None:
        run.registers[engine] = start
    held = run.registers.setdefault(engine, start)[: len(lanes)]
    if resets:
        held[rows] = _START[op]
    _lose(engine, rows, lost, resets=resets, everywhere=where is None, reduces=reduces)
    if reduces:
        for column, counts in zip(lanes.T, kept.T, strict=True):
            held[...] = np.where(counts, ARITHMETIC[op](held, column), held)
    if into is not None:
        require(into.shape[0] == into.size == len(lanes), "reduce_res is [P, 1]", into)
        into.put(held.reshape(into.shape), rows.reshape(into.shape))
        into.leave_out(rows)
        into.forget(run.lost_registers[engine][: len(lanes)].reshape(into.shape))


def accumulate_lanes(
    engine: str,
    shape: Shape,
    computed: list[Array],
    op: str,
    command: Any,
    into: PlainTensor | None,
    mask: Any,
    made: PlainTensor,
) -> None:
    """Take the elements that a mask leaves up into an engine's registers.

    Of ``made``, what the instruction wrote beside, nothing counts that it lost.
    """
    where = mask_over(mask, shape)
    gone = np.zeros(shape, np.bool_) if made.storage.masked else made.missing()
    if not where.any():
        if into is not None:
            into.leave_out(np.zeros(into.shape, np.bool_))
        return
    lanes = np.zeros(shape, np.float32)
    if computed:
        lanes[where & ~gone] = computed[0]
    rows, kept = lanes.reshape(shape[0], -1), where.reshape(shape[0], -1)
    lost = np.any(gone.reshape(shape[0], -1), axis=1)
    accumulate(engine, rows, op, command, into, None if where.all() else kept, lost)


def _lose(
    engine: str, rows: Array, lost: Array | None, *, resets: bool, everywhere: bool, reduces: bool
) -> None:
    """Note which registers hold what follows from what nothing wrote."""
    run = current()
    held = run.lost_registers.setdefault(engine, np.zeros(run.machine.partitions, np.bool_))
    if resets:
        held[slice(None) if everywhere else np.flatnonzero(rows)] = False
    if reduces and lost is not None:
        held[: len(lost)] |= lost
