"""The table of detectors, and their results on a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from difftest.analysis.detectors import (
    affine_loops,
    arguments,
    classic_compiler,
    memory,
    numeric_anomalies,
    partitions,
    psum,
    races,
    scatters,
    uninitialised,
)
from difftest.analysis.finding import (
    Detector,
    Finding,
    InconclusiveFinding,
    Severity,
    is_suppressed,
)
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Location, Trace
from difftest.support.internal_errors import internal_error_scope

DETECTORS: tuple[Detector, ...] = tuple(
    Detector(**vars(hazard), group=group, reader=reader)
    for group, reader, hazards in (
        ("Order of iterations", affine_loops.find_loop_conflicts, affine_loops.HAZARDS),
        ("Programs of a grid", races.find_races, races.HAZARDS),
        ("Writes through indices", scatters.find_scatter_conflicts, scatters.HAZARDS),
        ("Writes through indices", scatters.find_unchecked_offsets, (scatters.OFFSET,)),
        ("Collectives", races.find_reused_buffers, (races.SHARED,)),
        ("PSUM", psum.find_psum_misuse, psum.HAZARDS),
        (
            "The classic compiler's traps",
            classic_compiler.find_compiler_violations,
            (classic_compiler.SCOPE, classic_compiler.REDUCTION),
        ),
        ("Memory", partitions.find_partition_misuse, partitions.HAZARDS),
        ("Memory", memory.find_overflows, (memory.SBUF, memory.PSUM)),
        ("Memory", memory.find_large_tensors, (memory.LARGE,)),
        ("Memory", memory.find_aliases, (memory.ALIAS, memory.UNORDERED)),
        (
            "Uninitialised memory",
            uninitialised.find_uninitialised_reads,
            uninitialised.HAZARDS,
        ),
        (
            "Uninitialised memory",
            uninitialised.find_uninitialised_registers,
            (uninitialised.REGISTER,),
        ),
        (
            "Uninitialised memory",
            uninitialised.find_unwritten_outputs,
            (uninitialised.UNWRITTEN,),
        ),
        ("Arguments", arguments.find_unreturned_arguments, (arguments.NOT_RETURNED,)),
        (
            "Numbers",
            numeric_anomalies.find_numeric_anomalies,
            numeric_anomalies.HAZARDS,
        ),
        (
            "Numbers",
            numeric_anomalies.find_narrow_accumulation,
            (numeric_anomalies.NARROW,),
        ),
    )
    for hazard in hazards
)

_READERS = {detector.reader: f"the detector {detector.id}" for detector in DETECTORS}
_RANK = {severity: rank for rank, severity in enumerate(Severity)}


def detectors() -> dict[str, Detector]:
    """Return all detectors by id."""
    return {detector.id: detector for detector in DETECTORS}


class DetectionResult(NamedTuple):
    """The detectors' results on one trace.

    Attributes
    ----------
    findings : the worst first, then in program order.
    inconclusive : cases that runs in other orders have to settle.
    suppressed : findings that a comment at the kernel's line allows.
    """

    findings: tuple[Finding, ...]
    inconclusive: tuple[InconclusiveFinding, ...] = ()
    suppressed: tuple[Finding, ...] = ()

    def resolved(self, differs: Callable[[Location | None], bool]) -> DetectionResult:
        """Return the result with its doubtful cases settled by ``differs``, by loop."""
        findings = (
            case.differs if differs(case.loop) else case.agrees
            for case in self.inconclusive
        )
        return _detected([*self.findings, *self.suppressed, *filter(None, findings)])


def detect(trace: Trace, machine: Machine) -> DetectionResult:
    """Run every detector on a trace."""
    results: list[Finding | InconclusiveFinding] = []
    for reader, name in _READERS.items():
        with internal_error_scope(name):
            results += reader(trace, machine)
    return _detected(results)


def _detected(results: Iterable[Finding | InconclusiveFinding]) -> DetectionResult:
    """Sort the results into findings, doubtful cases, and suppressed findings."""
    findings = list[Finding]()
    inconclusive = list[InconclusiveFinding]()
    suppressed = list[Finding]()
    for result in results:
        finding = result.differs if isinstance(result, InconclusiveFinding) else result
        if is_suppressed(finding.id, *finding.locations):
            suppressed.append(finding)
        elif isinstance(result, InconclusiveFinding):
            inconclusive.append(result)
        else:
            findings.append(result)
    findings.sort(key=lambda finding: (_RANK[finding.severity], finding.evidence))
    return DetectionResult(tuple(findings), tuple(inconclusive), tuple(suppressed))
