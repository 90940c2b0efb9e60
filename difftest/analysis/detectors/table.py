"""The table of detectors, and what they find in a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from difftest.analysis.detectors import (
    collectives,
    memory,
    narrow,
    numbers,
    order,
    partitions,
    programs,
    psum,
    scatters,
    traps,
    uninitialised,
)
from difftest.analysis.finding import Detector, Finding, Reader, Severity, Suspicion
from difftest.analysis.silence import is_silenced
from difftest.breakdown import unless_broken
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Location, Trace

_AFFINE = "Order of iterations"
_PROGRAMS = "Programs of a grid"
_SCATTERS = "Writes through indices"
_COLLECTIVES = "Collectives"
_PSUM = "PSUM"
_TRAPS = "The classic compiler's traps"
_MEMORY = "Memory"
_UNINITIALISED = "Uninitialised memory"
_NUMBERS = "Numbers"

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

Row = tuple[str, Severity, str]
"""A detector's id, the worst that its findings have, and what the kernel does wrong."""


def _detectors(group: str, reader: Reader, *rows: Row) -> Iterator[Detector]:
    for id, severity, title in rows:
        yield Detector(id=id, severity=severity, title=title, group=group, reader=reader)


DETECTORS: tuple[Detector, ...] = (
    *_detectors(
        _AFFINE,
        order.affine,
        (order.CARRIED, _ERROR, "an iteration of affine_range reads what another one writes"),
        (order.REDUCTION, _WARNING, "iterations of affine_range add to one tensor outside PSUM"),
        (order.REWRITTEN, _ERROR, "iterations of affine_range share what each writes and reads"),
        (order.WRITTEN_TWICE, _ERROR, "several iterations of affine_range write one element"),
        (order.ORDER, _ERROR, "outputs depend on the order of affine_range, through indices"),
    ),
    *_detectors(
        _PROGRAMS,
        programs.programs,
        (programs.RACE, _ERROR, "a program touches what another one writes, unordered"),
        (programs.WRITTEN_TWICE, _WARNING, "several programs write one element"),
        (programs.IGNORED_ID, _WARNING, "all programs write one place by one instruction"),
        (programs.ORDER, _ERROR, "outputs depend on the order of programs, through indices"),
        (programs.OTHER_BARRIER, _WARNING, "the barrier between two programs is on another tensor"),
        (programs.TRIP_COUNTS, _ERROR, "a device loop turns differently often in two programs"),
        (programs.ADDRESSES, _WARNING, "two programs exchange tensors that lie at other addresses"),
    ),
    *_detectors(
        _SCATTERS,
        scatters.scatters,
        (scatters.ADDED_TWICE, _ERROR, "a scatter adds to one place more than once"),
        (scatters.TWICE, _WARNING, "a scatter writes values that differ to one place"),
        (scatters.AFTER_WRITE, _WARNING, "a scatter adds to what a plain write has just written"),
        (scatters.SKIPPED, _WARNING, "a scatter that adds skips indices out of bounds"),
        (scatters.VIEW, _NOTE, "a scatter that skips indices has a part of a tensor as its source"),
    ),
    *_detectors(
        _SCATTERS,
        scatters.offsets,
        (scatters.OFFSET, _NOTE, "a DMA's offset is read from inside a tensor"),
    ),
    *_detectors(
        _COLLECTIVES,
        collectives.collectives,
        (collectives.SHARED, _WARNING, "two exchanges of ranks share a buffer"),
    ),
    *_detectors(
        _PSUM,
        psum.psum,
        (psum.CHAINS, _WARNING, "several accumulation chains in one PSUM tensor"),
        (psum.START, _WARNING, "a chain on a tensor used again leaves its start open"),
        (psum.FOREIGN, _WARNING, "a matmul adds to what no matmul wrote"),
        (psum.ADDITION, _WARNING, "+= in PSUM of anything but a matmul"),
    ),
    *_detectors(
        _TRAPS,
        traps.traps,
        (traps.SCOPE, _ERROR, "a tensor is used outside the loop that makes it"),
        (traps.REDUCTION, _WARNING, "reduce_res of an instruction is added up over iterations"),
    ),
    *_detectors(
        _MEMORY,
        partitions.partitions,
        (partitions.START, _ERROR, "an operand begins where an engine does not reach so far"),
    ),
    *_detectors(
        _MEMORY,
        memory.memory,
        (memory.SBUF, _WARNING, "the live tensors do not fit SBUF"),
        (memory.PSUM, _ERROR, "the live tensors do not fit the banks of PSUM"),
    ),
    *_detectors(
        _MEMORY,
        memory.aliases,
        (memory.ALIAS, _WARNING, "a placed tensor is read after another one was written over it"),
        (memory.UNORDERED, _WARNING, "a placed tensor is read after a write by another name"),
    ),
    *_detectors(
        _UNINITIALISED,
        uninitialised.uninitialised,
        (uninitialised.OUTPUT, _ERROR, "an output depends on what nothing wrote"),
        (uninitialised.INDEX, _ERROR, "an index depends on what nothing wrote"),
    ),
    *_detectors(
        _UNINITIALISED,
        uninitialised.registers,
        (uninitialised.REGISTER, _ERROR, "a reduction goes on in registers that nothing has reset"),
    ),
    *_detectors(
        _UNINITIALISED,
        uninitialised.unwritten,
        (uninitialised.UNWRITTEN, _WARNING, "the kernel returns a tensor of which it wrote a part"),
    ),
    *_detectors(
        _NUMBERS,
        numbers.numbers,
        (numbers.NAN_MADE, _WARNING, "an instruction makes a NaN of numbers, and it counts"),
        (numbers.INFINITY_MADE, _WARNING, "an instruction makes an infinity of finite numbers"),
        (numbers.ACTIVATION_RANGE, _WARNING, "an activation gets an argument outside its range"),
        (numbers.INTEGER_ROUNDED, _WARNING, "an integer beyond 2**24 goes through float32"),
    ),
    *_detectors(
        _NUMBERS,
        narrow.narrow,
        (narrow.NARROW, _WARNING, "a running sum is kept in a narrow dtype"),
    ),
    *_detectors(
        _NUMBERS,
        numbers.numbers,
        (numbers.FLOAT8_CODES, _ERROR, "float8 codes that trn1 and trn2 do not have"),
        (numbers.NAN_SEARCHED, _ERROR, "a search for the largest values gets a NaN"),
    ),
)

_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


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
