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
from difftest.analysis.detectors.detector import Detector, Reader, Suspicion
from difftest.analysis.detectors.silence import is_silenced
from difftest.analysis.finding import Finding, Severity
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

DETECTORS: tuple[Detector, ...] = (
    Detector(
        id=order.CARRIED,
        severity=Severity.ERROR,
        title="an iteration of affine_range reads what another one writes",
        group=_AFFINE,
        reader=order.affine,
    ),
    Detector(
        id=order.REDUCTION,
        severity=Severity.WARNING,
        title="iterations of affine_range add to one tensor, not by a matmul in PSUM",
        group=_AFFINE,
        reader=order.affine,
    ),
    Detector(
        id=order.REWRITTEN,
        severity=Severity.ERROR,
        title="iterations of affine_range share a tensor that each writes and reads",
        group=_AFFINE,
        reader=order.affine,
    ),
    Detector(
        id=order.WRITTEN_TWICE,
        severity=Severity.ERROR,
        title="several iterations of affine_range write one element",
        group=_AFFINE,
        reader=order.affine,
    ),
    Detector(
        id=order.ORDER,
        severity=Severity.ERROR,
        title="the outputs depend on the order of affine_range, through masks or indices",
        group=_AFFINE,
        reader=order.affine,
    ),
    Detector(
        id=programs.RACE,
        severity=Severity.ERROR,
        title="a program touches what another one writes, with no barrier between",
        group=_PROGRAMS,
        reader=programs.programs,
    ),
    Detector(
        id=programs.WRITTEN_TWICE,
        severity=Severity.WARNING,
        title="several programs write one element",
        group=_PROGRAMS,
        reader=programs.programs,
    ),
    Detector(
        id=programs.IGNORED_ID,
        severity=Severity.WARNING,
        title="all programs write the same place by the same instruction",
        group=_PROGRAMS,
        reader=programs.programs,
    ),
    Detector(
        id=programs.ORDER,
        severity=Severity.ERROR,
        title="the outputs depend on the order of programs, through masks or indices",
        group=_PROGRAMS,
        reader=programs.programs,
    ),
    Detector(
        id=programs.OTHER_BARRIER,
        severity=Severity.WARNING,
        title="the barrier between two programs is on another tensor",
        group=_PROGRAMS,
        reader=programs.programs,
    ),
    Detector(
        id=programs.TRIP_COUNTS,
        severity=Severity.ERROR,
        title="a loop on the device turns differently often in two programs",
        group=_PROGRAMS,
        reader=programs.programs,
    ),
    Detector(
        id=programs.ADDRESSES,
        severity=Severity.WARNING,
        title="two programs exchange tensors that lie at other addresses",
        group=_PROGRAMS,
        reader=programs.programs,
    ),
    Detector(
        id=scatters.ADDED_TWICE,
        severity=Severity.ERROR,
        title="a scatter adds to one place more than once",
        group=_SCATTERS,
        reader=scatters.scatters,
    ),
    Detector(
        id=scatters.TWICE,
        severity=Severity.WARNING,
        title="a scatter writes values that differ to one place",
        group=_SCATTERS,
        reader=scatters.scatters,
    ),
    Detector(
        id=scatters.AFTER_WRITE,
        severity=Severity.WARNING,
        title="a scatter adds to what a plain write has just written",
        group=_SCATTERS,
        reader=scatters.scatters,
    ),
    Detector(
        id=scatters.SKIPPED,
        severity=Severity.WARNING,
        title="a scatter that adds skips indices out of bounds",
        group=_SCATTERS,
        reader=scatters.scatters,
    ),
    Detector(
        id=scatters.VIEW,
        severity=Severity.NOTE,
        title="a scatter that skips indices has a part of a tensor as its source",
        group=_SCATTERS,
        reader=scatters.scatters,
    ),
    Detector(
        id=scatters.OFFSET,
        severity=Severity.NOTE,
        title="a DMA's offset is read from inside a tensor",
        group=_SCATTERS,
        reader=scatters.offsets,
    ),
    Detector(
        id=collectives.SHARED,
        severity=Severity.WARNING,
        title="two exchanges of ranks share a buffer",
        group=_COLLECTIVES,
        reader=collectives.collectives,
    ),
    Detector(
        id=psum.CHAINS,
        severity=Severity.WARNING,
        title="several accumulation chains in one PSUM tensor",
        group=_PSUM,
        reader=psum.psum,
    ),
    Detector(
        id=psum.START,
        severity=Severity.WARNING,
        title="a chain whose start is left to the compiler, on a tensor used again",
        group=_PSUM,
        reader=psum.psum,
    ),
    Detector(
        id=psum.FOREIGN,
        severity=Severity.WARNING,
        title="a matmul adds to what no matmul wrote",
        group=_PSUM,
        reader=psum.psum,
    ),
    Detector(
        id=psum.ADDITION,
        severity=Severity.WARNING,
        title="+= in PSUM of anything but a matmul",
        group=_PSUM,
        reader=psum.psum,
    ),
    Detector(
        id=traps.SCOPE,
        severity=Severity.ERROR,
        title="a tensor is used outside the loop that makes it",
        group=_TRAPS,
        reader=traps.traps,
    ),
    Detector(
        id=traps.REDUCTION,
        severity=Severity.WARNING,
        title="reduce_res of an instruction is added up over iterations",
        group=_TRAPS,
        reader=traps.traps,
    ),
    Detector(
        id=partitions.START,
        severity=Severity.ERROR,
        title="an operand begins at a partition from which an engine does not reach so far",
        group=_MEMORY,
        reader=partitions.partitions,
    ),
    Detector(
        id=memory.SBUF,
        severity=Severity.WARNING,
        title="the live tensors do not fit SBUF",
        group=_MEMORY,
        reader=memory.memory,
    ),
    Detector(
        id=memory.PSUM,
        severity=Severity.ERROR,
        title="the live tensors do not fit the banks of PSUM",
        group=_MEMORY,
        reader=memory.memory,
    ),
    Detector(
        id=memory.ALIAS,
        severity=Severity.WARNING,
        title="a placed tensor is read after another one was written over it",
        group=_MEMORY,
        reader=memory.aliases,
    ),
    Detector(
        id=memory.UNORDERED,
        severity=Severity.WARNING,
        title="a placed tensor is read after another name's write to its bytes",
        group=_MEMORY,
        reader=memory.aliases,
    ),
    Detector(
        id=uninitialised.OUTPUT,
        severity=Severity.ERROR,
        title="an output depends on what nothing wrote",
        group=_UNINITIALISED,
        reader=uninitialised.uninitialised,
    ),
    Detector(
        id=uninitialised.INDEX,
        severity=Severity.ERROR,
        title="an index depends on what nothing wrote",
        group=_UNINITIALISED,
        reader=uninitialised.uninitialised,
    ),
    Detector(
        id=uninitialised.REGISTER,
        severity=Severity.ERROR,
        title="a reduction goes on in registers that nothing has reset",
        group=_UNINITIALISED,
        reader=uninitialised.registers,
    ),
    Detector(
        id=uninitialised.UNWRITTEN,
        severity=Severity.WARNING,
        title="the kernel returns a tensor of which it wrote a part",
        group=_UNINITIALISED,
        reader=uninitialised.unwritten,
    ),
    Detector(
        id=numbers.NAN_MADE,
        severity=Severity.WARNING,
        title="an instruction makes a NaN of numbers, and it reaches an output",
        group=_NUMBERS,
        reader=numbers.numbers,
    ),
    Detector(
        id=numbers.INFINITY_MADE,
        severity=Severity.WARNING,
        title="an instruction makes an infinity of finite numbers, and one reaches an output",
        group=_NUMBERS,
        reader=numbers.numbers,
    ),
    Detector(
        id=numbers.ACTIVATION_RANGE,
        severity=Severity.WARNING,
        title="an activation function gets an argument outside its valid range",
        group=_NUMBERS,
        reader=numbers.numbers,
    ),
    Detector(
        id=numbers.INTEGER_ROUNDED,
        severity=Severity.WARNING,
        title="an integer beyond 2**24 goes through float32",
        group=_NUMBERS,
        reader=numbers.numbers,
    ),
    Detector(
        id=narrow.NARROW,
        severity=Severity.WARNING,
        title="a running sum is kept in a narrow dtype",
        group=_NUMBERS,
        reader=narrow.narrow,
    ),
    Detector(
        id=numbers.FLOAT8_CODES,
        severity=Severity.ERROR,
        title="float8 codes that trn1 and trn2 do not have",
        group=_NUMBERS,
        reader=numbers.numbers,
    ),
    Detector(
        id=numbers.NAN_SEARCHED,
        severity=Severity.ERROR,
        title="a search for the largest values gets a NaN",
        group=_NUMBERS,
        reader=numbers.numbers,
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
        settled = [one.differs if differs(one.loop) else one.agrees for one in self.suspicions]
        found = list(self.findings)
        silenced = list(self.silenced)
        for one in settled:
            if one is not None:
                (silenced if is_silenced(one) else found).append(one)
        return Detected(tuple(_sorted(iter(found))), (), tuple(silenced))


def detect(trace: Trace, machine: Machine) -> Detected:
    """Let every detector read a trace."""
    readers: dict[Reader, None] = dict.fromkeys(one.reader for one in DETECTORS)
    found: list[Finding] = []
    silenced: list[Finding] = []
    suspicions: list[Suspicion] = []
    for reader in readers:
        for one in reader(trace, machine):
            if isinstance(one, Finding):
                (silenced if is_silenced(one) else found).append(one)
            elif is_silenced(one.differs):
                silenced.append(one.differs)
            else:
                suspicions.append(one)
    return Detected(tuple(_sorted(iter(found))), tuple(suspicions), tuple(silenced))


def _sorted(found: Iterator[Finding]) -> list[Finding]:
    return sorted(found, key=lambda one: (_RANK[one.severity], one.evidence))
