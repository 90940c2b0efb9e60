"""Unwritten elements that matter: in an output, or as an index.

The simulator tracks masked-out elements one by one
(:mod:`difftest.simulator.instructions.definedness`), and records where they go.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from difftest.analysis.detectors.access_index import access_index, register_reductions
from difftest.analysis.detectors.numeric_anomalies import (
    Noted,
    anomalies_by_line,
    describe_share,
    is_output,
)
from difftest.analysis.finding import (
    ERROR,
    WARNING,
    Finding,
    Found,
    Hazard,
    deduplicated,
    unique_locations,
)
from difftest.simulator.machine import Machine
from difftest.simulator.trace import AnomalyKind, Origin, Trace

OUTPUT = Hazard(
    "uninitialised-output", ERROR, "an output depends on unwritten elements"
)
INDEX = Hazard("uninitialised-index", ERROR, "an index depends on unwritten elements")
UNWRITTEN = Hazard(
    "output-unwritten",
    WARNING,
    "the kernel returns a tensor that it wrote only in part",
)
REGISTER = Hazard(
    "uninitialised-register",
    ERROR,
    "a reduction continues in registers that were not reset",
)
HAZARDS = (OUTPUT, INDEX)


def find_uninitialised_reads(trace: Trace, machine: Machine) -> Iterator[Finding]:
    """Yield findings on outputs and indices that depend on masked-out elements."""
    stored: Noted = []
    indices: Noted = []
    for event in access_index(trace).seen:
        for anomaly in event.seen:
            if anomaly.what is AnomalyKind.UNDEFINED_STORED and is_output(event):
                stored.append((event, anomaly))
            elif anomaly.what is AnomalyKind.UNDEFINED_INDEX:
                indices.append((event, anomaly))
    yield from map(_stored, anomalies_by_line(stored))
    yield from map(_index, anomalies_by_line(indices))


def _stored(noted: Noted) -> Finding:
    """Return a finding on an output; rather on elements that look like a result."""
    event, anomaly = next(
        (pair for pair in noted if pair[1].value is not None), noted[0]
    )
    happened = (
        f"an output depends on unwritten elements: {describe_share(anomaly)} that "
        f"{event.opcode} stored to {event.writes[0].allocation}"
    )
    severity = WARNING
    if anomaly.value is not None:
        happened += f"; as {anomaly.value:g} it looks like a result"
        severity = ERROR
    finding = OUTPUT.finding(
        happened,
        "elements that a mask leaves out of a tile have arbitrary values on a device: so has "
        "a reduction over them, a product or a comparison with them",
        "mask the instruction that reads them too, fill the tile first (nl.zeros), or "
        "select the valid part before it is reduced",
        *(event for event, _ in noted),
        severity=severity,
    )
    return _from_origin(finding, anomaly.origin)


def _index(noted: Noted) -> Finding:
    """Return a finding on indices that depend on unwritten elements."""
    event, anomaly = noted[0]
    finding = INDEX.finding(
        f"{event.opcode} takes indices that depend on unwritten elements: "
        f"{describe_share(anomaly)}",
        "an unwritten index has an arbitrary value on a device: the access then reads or "
        "writes elsewhere, or faults",
        "mask the access as the load of the indices was masked, or fill them first",
        *(event for event, _ in noted),
    )
    return _from_origin(finding, anomaly.origin)


def find_unwritten_outputs(trace: Trace, machine: Machine) -> Iterator[Finding]:
    """Yield findings on outputs that the kernel wrote only in part."""
    for tensor in trace.allocations:
        if tensor.output is not None and tensor.output.unwritten:
            output = tensor.output
            of = math.prod(tensor.shape)
            yield UNWRITTEN.finding(
                f"the kernel never wrote {output.unwritten} of {of} elements of {tensor}, "
                f"which it returns; the first is {list(output.first)}",
                "the elements of an output that a kernel does not write have arbitrary values",
                "write the rest: the tail of a dimension that is not a multiple of a tile, or "
                "a default; or return a tensor of the size that is written",
                lines=(tensor.location,),
            )


@deduplicated
def find_uninitialised_registers(trace: Trace, machine: Machine) -> Found:
    """Yield findings on reductions that continue in an engine's registers without a reset."""
    reset: set[tuple[object, ...]] = set()
    for event, command, key in register_reductions(trace):
        if command not in ("reduce", "read"):
            reset.add(key)
        elif key not in reset and event.operand("reduce_res"):
            yield REGISTER.finding(
                f"{event.opcode} continues a reduction in the registers of the "
                f"{event.engine.value} engine, which were not reset",
                "the reduction registers of an engine hold the values of the last kernel",
                "use reduce_cmd.reset_reduce for the first instruction of a reduction",
                event,
            )


def _from_origin(finding: Finding, origin: Origin | None) -> Finding:
    """Add the tensor with unwritten elements, and their first reader, to a finding."""
    if origin is None:
        return finding
    happened = f"{finding.happened}; it comes from {origin}"
    lines = unique_locations(
        *finding.locations, origin.allocation.location, origin.location
    )
    return replace(finding, happened=happened, locations=lines)
