"""How long a kernel that agrees is predicted to take, how full its memories are, what bounds it."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from difftest.analysis.placement import placements
from difftest.harness.case import Case
from difftest.harness.spec import KernelSpec
from difftest.simulator.dtypes import NKI_NAMES
from difftest.simulator.machine import MACHINES
from difftest.simulator.trace import Trace
from difftest.timing import UnknownCostError, predict
from difftest.timing.roofline import roofline
from difftest.verdict.judgement import Judgement

MOST_EVENTS = 200_000
"""Of a trace whose time is predicted: each takes tens of microseconds."""


def add_memory(judgement: Judgement, trace: Trace) -> None:
    """What the largest case has of each memory at its peak, bytes of a partition."""
    judgement.memory = [
        {
            "memory": one.space.value,
            "program": list(one.program),
            "needed": one.needed,
            "limit": one.limit,
        }
        for one in placements(trace, MACHINES[trace.machine])
    ]


def add_time(judgement: Judgement, trace: Trace, case: Case, spec: KernelSpec) -> None:
    """The predicted latency of the largest case, microseconds, beside the bounds of its work."""
    if len(trace) > MOST_EVENTS:
        text = f"no time is predicted of {len(trace):,} instructions; accepted: {MOST_EVENTS:,}"
        judgement.notes.append(text)
        return
    try:
        prediction = predict(trace, MACHINES[trace.machine])
        interval = prediction.latency_interval
    except (UnknownCostError, ValueError) as error:
        judgement.notes.append(f"no time is predicted: {error}")
        return
    line = roofline(prediction)
    task = task_bytes(spec, case) / prediction.program.hbm_rate / 1e3
    judgement.time = {
        "case": case.label(),
        "predicted_us": prediction.latency,
        "low_us": interval[0],
        "high_us": interval[1],
        "own_us": line.predicted,
        "arithmetic_bound_us": line.tensor_bound,
        "memory_bound_us": line.memory_bound,
        "task_bound_us": task,
        "limited_by": line.limit,
        "bound_share": line.share if math.isfinite(line.share) else None,
        "caution": prediction.caution,
    }


def instructions_of(trace: Trace) -> str:
    """A digest of what is done to which elements: of no name, source line or loop.

    Tensors are told apart by the order in which they are touched. Kernels that agree with one
    reference and have the same digest take the same time.
    """
    whole, numbers = hashlib.sha256(), dict[int, int]()
    for event in trace.events:
        regions = []
        for one in event.writes + event.reads:
            made = one.allocation
            number = numbers.setdefault(made.id, len(numbers))
            tensor = number, made.space.name, made.shape, made.dtype.name, made.partition_axis
            touched = () if one.places is None else tuple(one.places.elements.tolist())
            place = one.pattern, one.partition_axis, one.role, one.dtype.name, touched
            regions.append((tensor, made.address, made.places, place))
        options = sorted((name, repr(value)) for name, value in event.arguments.items())
        whole.update(repr((event.opcode, event.engine.name, event.program, options)).encode())
        whole.update(repr(regions).encode())
    return whole.hexdigest()


def task_bytes(spec: KernelSpec, case: Case) -> int:
    """Bytes of the inputs of a case, and of the outputs that it names: each crosses HBM once."""
    inputs = ((name, NKI_NAMES[case.dtype_of(name)]) for name in spec.inputs)
    outputs = ((name, spec.output_dtype_of(case, at)) for at, name in enumerate(spec.outputs))
    sizes: Any = (
        math.prod(spec.shape(name, case.values)) * dtype.itemsize
        for name, dtype in (*inputs, *outputs)
    )
    return int(sum(sizes))
