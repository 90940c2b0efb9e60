"""The table of detectors, and what they find in a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from difftest.analysis.detectors import (
    memory,
    numbers,
    order,
    programs,
    psum,
    scatters,
    traps,
    uninitialised,
)
from difftest.analysis.finding import Detector, Finding, Severity, Suspicion
from difftest.analysis.silence import is_silenced
from difftest.breakdown import unless_broken
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Location, Trace

DETECTORS: tuple[Detector, ...] = tuple(
    Detector(**vars(hazard), group=group, reader=reader)
    for group, reader, hazards in (
        ("Order of iterations", order.affine, order.HAZARDS),
        ("Programs of a grid", programs.programs, programs.HAZARDS),
        ("Writes through indices", scatters.scatters, scatters.HAZARDS),
        ("Writes through indices", scatters.offsets, (scatters.OFFSET,)),
        ("Collectives", programs.collectives, (programs.SHARED,)),
        ("PSUM", psum.psum, psum.HAZARDS),
        ("The classic compiler's traps", traps.traps, (traps.SCOPE, traps.REDUCTION)),
        ("Memory", memory.partitions, (memory.START,)),
        ("Memory", memory.memory, (memory.SBUF, memory.PSUM)),
        ("Memory", memory.aliases, (memory.ALIAS, memory.UNORDERED)),
        ("Uninitialised memory", uninitialised.uninitialised, uninitialised.HAZARDS),
        ("Uninitialised memory", uninitialised.registers, (uninitialised.REGISTER,)),
        ("Uninitialised memory", uninitialised.unwritten, (uninitialised.UNWRITTEN,)),
        ("Numbers", numbers.numbers, numbers.HAZARDS),
        ("Numbers", numbers.narrow, (numbers.NARROW,)),
    )
    for hazard in hazards
)

_RANK = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True)
class Detected:
    """What the detectors say of one trace.

    Attributes
    ----------
    findings : the worst first, then in program order.
    suspicions : what runs in other orders have to settle.
    silenced : findings that a comment at the kernel's line allows.
    """

    findings: tuple[Finding, ...]
    suspicions: tuple[Suspicion, ...] = ()
    silenced: tuple[Finding, ...] = ()

    def settled(self, differs: Callable[[Location | None], bool]) -> Detected:
        """The same with its suspicions settled: whether outputs depend on the order of a loop."""
        settled = [case.differs if differs(case.loop) else case.agrees for case in self.suspicions]
        findings = list(self.findings)
        silenced = list(self.silenced)
        for finding in settled:
            if finding is not None:
                (silenced if _is_allowed(finding) else findings).append(finding)
        return Detected(tuple(_sorted(iter(findings))), (), tuple(silenced))


def detect(trace: Trace, machine: Machine) -> Detected:
    """Let every detector read a trace."""
    readers = {detector.reader: detector.id for detector in DETECTORS}
    findings, silenced = list[Finding](), list[Finding]()
    suspicions: list[Suspicion] = []
    for reader, id in readers.items():
        with unless_broken(f"the detector {id}"):
            for result in reader(trace, machine):
                if isinstance(result, Finding):
                    (silenced if _is_allowed(result) else findings).append(result)
                elif _is_allowed(result.differs):
                    silenced.append(result.differs)
                else:
                    suspicions.append(result)
    return Detected(tuple(_sorted(iter(findings))), tuple(suspicions), tuple(silenced))


def _sorted(findings: Iterator[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (_RANK[finding.severity], finding.evidence))


def _is_allowed(finding: Finding) -> bool:
    """Whether the kernel's author has looked at a finding and allows it."""
    return is_silenced(finding.id, *finding.locations)
