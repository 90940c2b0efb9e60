"""Operands of compute instructions that begin at a partition where an engine cannot begin.

A tensor in SBUF or PSUM begins at partition 0, 32, 64 or 96, and an engine reaches the partitions
in four quadrants of 32 (``trainium_inferentia2_arch.rst`` at v2.32.0, "start_partition"):

- up to 128 partitions from 0 on;
- up to 64 partitions from 64 on;
- up to 32 partitions from 32 or 96 on.

A DMA begins anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from difftest.analysis.finding import (
    ERROR,
    WARNING,
    Finding,
    Found,
    Hazard,
    deduplicated,
)
from difftest.analysis.footprint import footprint
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Event, Purpose, Region, Space, Trace

START = Hazard(
    "partition-start", ERROR, "an operand begins where an engine does not reach so far"
)
UNEQUAL = Hazard(
    "partition-unequal",
    WARNING,
    "two operands of a tensor_tensor begin at different partitions",
)
HAZARDS = (START, UNEQUAL)

_COMPUTE = frozenset(
    {Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.UNKNOWN}
)
_MOVES = frozenset({Purpose.REGISTER, Purpose.BARRIER, Purpose.SEND, Purpose.EXCHANGE})
"""Instructions whose operands are addresses of a sequencer or of a transfer."""
_SCALES = frozenset({"dst_scale", "stationary_scale", "moving_scale"})
"""Operands that hold the scales of MX tensors."""
_PACKED = (0, 4, 8, 12)
"""Partitions of a quadrant where scales begin: four tensors share its first 16
(``mxfp-matmul.rst`` at v2.32.0, "Packing Scale Values")."""


@deduplicated
def find_partition_misuse(trace: Trace, machine: Machine) -> Found:
    """Yield findings on on-chip operands whose first partition is invalid."""
    for event in trace.events:
        if event.engine not in _COMPUTE or event.purpose in _MOVES:
            continue
        for region in event.writes + event.reads:
            if not _begins_its_tensor(region):
                yield from _operand_findings(
                    trace, event, region, machine.start_partition_step
                )
        if trace.dialect == "nki" and event.opcode == "tensor_tensor":
            yield from _pair_findings(event)


def _begins_its_tensor(region: Region) -> bool:
    """Return whether a region begins at partition 0 of a tensor that the compiler places."""
    tensor = region.allocation
    return not tensor.address and region.offset < tensor.partition_step


def _operand_findings(
    trace: Trace, event: Event, region: Region, step: int
) -> Iterator[Finding]:
    """Yield a finding if an engine does not reach all partitions of an operand."""
    if region.allocation.space.is_hbm or _is_gathered(event, region):
        return
    first = footprint(region).first
    count = region.partitions
    if region.role in _SCALES and first % step in _PACKED:
        inside = first % step
        first = first - inside
        count = count + inside
    reach = _reach(first, step)
    if count > reach:
        yield _start_finding(trace, event, region, reach)


def _is_gathered(event: Event, region: Region) -> bool:
    """Return whether an index tile chooses the partitions; the rule is then for the index."""
    return not region.whole and any(other.role == "index" for other in event.reads)


def _reach(first: int, step: int) -> int:
    """Return the most partitions of an operand that begins at ``first``; 0 if it cannot.

    ``step`` is the size of a quadrant. From the third quadrant on an operand has up to two
    quadrants, from an odd one up to one.
    """
    quadrant, inside = divmod(first, step)
    if inside:
        return 0
    if quadrant:
        return step * (quadrant & -quadrant)
    return 4 * step


def _start_finding(trace: Trace, event: Event, region: Region, reach: int) -> Finding:
    """Return a finding on an operand with an invalid first partition."""
    first = footprint(region).first
    count = region.partitions
    rule = (
        "an operand of an engine begins at partition 0; with 64 partitions or fewer at 64 too, "
        "with 32 or fewer at 32 and 96 too"
    )
    if reach:
        rule += f": from {first} on it has {reach} at most"
        remedy = (
            f"split it into instructions of {reach} partitions, or move it to partition 0 by "
            "a DMA, which begins anywhere"
        )
    else:
        rule += (
            f". The compiler refuses any other (Invalid access of {count} partitions starting at "
            f"partition {first})"
        )
        remedy = (
            "use all partitions from 0 on, or move the rows by nisa.dma_copy, which begins "
            "anywhere"
        )
    noun = "partition" if count == 1 else "partitions"
    return START.finding(
        f"{event.opcode} takes {count} {noun} of {region.allocation} from partition {first} on",
        rule,
        remedy,
        event,
        severity=ERROR if trace.dialect == "nki" else WARNING,
    )


def _pair_findings(event: Event) -> Iterator[Finding]:
    """Yield a finding if a tensor_tensor reads SBUF operands from different partitions."""
    operands = [event.operand(role) for role in ("data1", "data2")]
    pair = [
        one
        for one in operands
        if one is not None and one.allocation.space is Space.SBUF
    ]
    if len(pair) < 2 or any(_is_gathered(event, one) for one in pair):
        return
    first, other = (footprint(one).first for one in pair)
    if first != other:
        yield UNEQUAL.finding(
            f"tensor_tensor reads data1 from partition {first} on and data2 from {other} on",
            "two operands in SBUF begin at one partition: the compiler rejected other operands "
            "('different partition start offsets', observed on trn2)",
            "copy one of them to the other's partitions first (nisa.tensor_copy)",
            event,
        )
