"""The table of detectors, and what they find in a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from difftest.analysis.detectors import (
    arguments,
    memory,
    numbers,
    order,
    partitions,
    programs,
    psum,
    scatters,
    traps,
    uninitialised,
)
from difftest.analysis.finding import Detector, Finding, Severity, Suspicion, is_silenced
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
        ("Memory", partitions.partitions, partitions.HAZARDS),
        ("Memory", memory.memory, (memory.SBUF, memory.PSUM)),
        ("Memory", memory.large, (memory.LARGE,)),
        ("Memory", memory.aliases, (memory.ALIAS, memory.UNORDERED)),
        ("Uninitialised memory", uninitialised.uninitialised, uninitialised.HAZARDS),
        ("Uninitialised memory", uninitialised.registers, (uninitialised.REGISTER,)),
        ("Uninitialised memory", uninitialised.unwritten, (uninitialised.UNWRITTEN,)),
        ("Arguments", arguments.arguments, (arguments.NOT_RETURNED,)),
        ("Numbers", numbers.numbers, numbers.HAZARDS),
        ("Numbers", numbers.narrow, (numbers.NARROW,)),
    )
    for hazard in hazards
)

_READERS = {detector.reader: f"the detector {detector.id}" for detector in DETECTORS}
_RANK = {severity: rank for rank, severity in enumerate(Severity)}


class Detected(NamedTuple):
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
        settled = (case.differs if differs(case.loop) else case.agrees for case in self.suspicions)
        return _detected([*self.findings, *self.silenced, *filter(None, settled)])


def detect(trace: Trace, machine: Machine) -> Detected:
    """Let every detector read a trace."""
    results: list[Finding | Suspicion] = []
    for reader, name in _READERS.items():
        with unless_broken(name):
            results += reader(trace, machine)
    return _detected(results)


def _detected(results: Iterable[Finding | Suspicion]) -> Detected:
    """Results in their order, apart from those that the kernel's author looked at and allows."""
    findings, suspicions, silenced = list[Finding](), list[Suspicion](), list[Finding]()
    for result in results:
        finding = result.differs if isinstance(result, Suspicion) else result
        if is_silenced(finding.id, *finding.locations):
            silenced.append(finding)
        elif isinstance(result, Suspicion):
            suspicions.append(result)
        else:
            findings.append(result)
    findings.sort(key=lambda finding: (_RANK[finding.severity], finding.evidence))
    return Detected(tuple(findings), tuple(suspicions), tuple(silenced))
