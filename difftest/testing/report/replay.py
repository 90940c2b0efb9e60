"""Replay a saved failure, and find the instruction at which a judge first disagrees.

There are four judges. The oracle computes the literal meaning of each instruction. The detectors
find hazards. The exact run bounds the error of rounding. The reference knows the outputs only, so
its instruction is the last one that wrote a wrong element.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from difftest.analysis.finding import Severity
from difftest.simulator.errors import Location, OracleError
from difftest.simulator.trace import Event, Trace
from difftest.testing.backends.base import Completed, Crashed, KernelCall, Unsupported
from difftest.testing.backends.embedded import EmbeddedSimulator, PlainSimulator
from difftest.testing.contract.case import Edge
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.explicit import CaseError
from difftest.testing.harness.bound_case import specs_by_kernel
from difftest.testing.harness.edges import judge_edge
from difftest.testing.harness.error_groups import raised_at
from difftest.testing.harness.failures import CaseFailure, DifferentialFailure
from difftest.testing.harness.kernel_calls import make_call, run_kernel
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Inconclusive, Mismatch, OneSided
from difftest.testing.harness.writers import name_writers
from difftest.testing.host.options import with_progress
from difftest.testing.report.failure import lines_around
from difftest.testing.report.line_tracing import (
    IssuingLines,
    OperandSnapshot,
    debug_at,
    trace_lines,
)
from difftest.testing.report.saved import SavedError, SavedFailure, read_saved

_NEAR = 2
"""The number of elements that are shown on each side of the first wrong element."""


class Disagreement(NamedTuple):
    """The first disagreement of a judge."""

    judge: str
    text: str
    number: int | None = None
    """The number of the instruction; None if the launch ended before it was complete."""
    location: Location | None = None


@dataclass(frozen=True)
class ReplayResult:
    """The result of a replay.

    Attributes
    ----------
    text : the report of the failure, or why the case is not judged; empty if the case agrees.
    stops : the disagreements of the judges, the first instruction first.
    trace : the trace of the run; None without one.
    lines : the source lines that issued its instructions.
    around : the contents of the tensors after the first stop's instruction, by role.
    source : the line of the first stop, with its neighbours.
    """

    text: str
    stops: tuple[Disagreement, ...]
    trace: Trace | None
    lines: IssuingLines
    around: dict[str, str]
    source: list[str] = field(default_factory=list)

    @property
    def event(self) -> Event | None:
        """The instruction of the first stop."""
        number = self.stops[0].number if self.stops else None
        if self.trace is None or number is None:
            return None
        # An instruction that only moves another's result has no event: take the other's.
        for event in reversed(self.trace.events):
            if event.number <= number:
                return event
        return None


def rerun_saved(
    saved: SavedFailure, tell: Callable[[ReplayResult], None], *, debug: bool = False
) -> ReplayResult:
    """Run a saved failure again, call ``tell`` with the result, and return the result.

    With ``debug`` the case then runs once more in Python's debugger, which stops at the first stop.
    """
    with saved.loaded() as (spec, edge, folder):
        every = [_replay(part, edge, folder, saved) for part in specs_by_kernel(spec)]
        wrong = [pair for pair in every if pair[0].text]
        again, run = wrong[0] if wrong else every[0]
        tell(again)
        at = _line(again) if again.stops else None
        if debug and at is not None:
            debug_at(run, *at)
        return again


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--pdb", "debug", is_flag=True, help="Stop at that line in Python's debugger."
)
@with_progress
def replay(file: Path, debug: bool) -> None:
    """Run a failure that `pytest --difftest-save DIR` saved.

    FILE holds the sources of the kernel, the reference and the test, and the case. The report says
    at which instruction the oracle, a detector, the exact run or the reference first disagrees, and
    shows its tensors. The exit code is 1 if the case still fails.
    """
    try:
        again = rerun_saved(
            read_saved(file),
            lambda run: click.echo("\n".join(replay_lines(run))),
            debug=debug,
        )
    except (SavedError, CaseError) as error:
        raise click.ClickException(str(error)) from None
    click.get_current_context().exit(bool(again.text or again.stops))


def _line(again: ReplayResult) -> tuple[str, int, int] | None:
    """Return the file and line of the first stop, and the number of instructions before it."""
    stop = again.stops[0]
    if stop.number is not None:
        return again.lines.of(stop.number)
    if stop.location is None:
        return None
    at = stop.location.file, stop.location.line
    before = [number for number, where in again.lines.at.items() if where == at]
    return (*at, max(before)) if before else None


def _replay(
    spec: KernelSpec, edge: Edge, folder: Path, saved: SavedFailure
) -> tuple[ReplayResult, Callable[[], Any]]:
    """Replay one kernel, and return the result and a function that runs it."""
    backend = EmbeddedSimulator(saved.level, saved.strictness)
    runner = Runner((backend,), record=True, verbose=True)
    call = make_call(spec, edge.case)
    exact = call._replace(exact=runner.settings_of(spec, edge.case), record=True)

    def run() -> Any:
        return backend.run(_fresh(exact))

    failure, trace, text = _judge(runner, spec, edge, lambda: _fresh(exact))
    lines = IssuingLines()
    trace_lines(folder, lambda: run_kernel(backend, _fresh(exact)), lines)
    oracle = run_kernel(PlainSimulator(saved.level, saved.strictness), _fresh(call))
    stops = sorted(_stops(failure, trace, lines, oracle), key=_order)
    again = ReplayResult(
        text.replace(str(folder), "..."), tuple(stops), trace, lines, {}
    )
    again.source.extend(_source_lines(again, folder))
    if again.event is not None:
        around = OperandSnapshot(again.event)
        trace_lines(folder, run, around)
        again.around.update(around.contents)
    return again, run


def _judge(
    runner: Runner, spec: KernelSpec, edge: Edge, fresh: Callable[[], KernelCall]
) -> tuple[CaseFailure | None, Trace | None, str]:
    """Judge a call as its test does; return the failure, the trace, and the text of a result.

    The text is empty if the call agrees with its reference.
    """
    (backend,) = runner.backends
    failure: CaseFailure | None = None
    trace: Trace | None = None
    text = ""
    try:
        if edge.why:
            outcome = run_kernel(backend, fresh())
            trace = outcome.trace if isinstance(outcome, Completed) else None
            judge_edge(runner, spec, edge, backend, outcome)
        else:
            for verdict in runner.check(spec, edge.case).values():
                if isinstance(verdict, Inconclusive) and not text:
                    text = f"{spec.name} is not judged: {verdict.reason}"
        runner.check_hazards()
    except CaseFailure as wrong:
        failure = wrong
    trace = trace or runner.traces.get(backend.name)
    if isinstance(failure, DifferentialFailure):
        name_writers(failure, backend.name, trace)
    return failure, trace, text if failure is None else str(failure)


def _order(stop: Disagreement) -> tuple[bool, float]:
    """Return the sort key of a disagreement: the oracle, then the first instruction."""
    number = np.inf if stop.number is None else stop.number
    return stop.judge != "the oracle", number


def _source_lines(again: ReplayResult, folder: Path) -> Iterator[str]:
    """Yield the source line of the first stop with its neighbours; nothing if it has none."""
    at = None
    if again.event is not None:
        at = again.event.location
    elif again.stops:
        at = again.stops[0].location
    if at is None:
        return
    file = Path(at.file)
    if folder in file.parents:
        file = file.relative_to(folder)
    yield f"  {file.as_posix()}:{at.line}"
    for number, text in lines_around(at, "")["lines"]:
        mark = ">" if number == at.line else " "
        yield f"  {mark} {number:>4} {text}"


def _fresh(call: KernelCall) -> KernelCall:
    """Return the call on copies of its arrays."""
    return call._replace(
        inputs=tuple(array.copy() for array in call.inputs),
        outputs=tuple(array.copy() for array in call.outputs),
    )


def _stops(
    failure: CaseFailure | None, trace: Trace | None, lines: IssuingLines, oracle: Any
) -> Iterator[Disagreement]:
    """Yield the first disagreement of each judge."""
    if isinstance(oracle, Crashed | Unsupported):
        error = oracle.error
        if isinstance(error, OracleError):
            yield Disagreement("the oracle", str(error), None, error.location)
    if failure is None:
        return
    yield from _hazards(failure)
    if lines.outside is not None:
        number, name = lines.outside
        text = f"{name} is farther from its exact values than rounding explains"
        yield Disagreement("the exact run", text, number)
    if not isinstance(failure, DifferentialFailure):
        return
    for backend, verdict in failure.verdicts.items():
        if isinstance(verdict, OneSided):
            at = raised_at(verdict.error, failure.spec)
            text = f"{type(verdict.error).__name__} is raised here"
            yield Disagreement("the kernel", text, None, at)
        elif isinstance(verdict, Mismatch):
            writer = failure.writers.get(backend)
            yield _last_writer(verdict, writer, is_known=trace is not None)


def _hazards(failure: CaseFailure) -> Iterator[Disagreement]:
    """Yield the hazards that may be the cause of a failure."""
    is_wrong = isinstance(failure, DifferentialFailure)
    for hazard in failure.findings:
        is_cause = is_wrong or hazard.severity is Severity.ERROR
        if hazard.evidence and is_cause:
            text = f"{hazard.id}: {hazard.happened}"
            first = min(hazard.evidence)
            yield Disagreement("a detector", text, first, hazard.location)


def _last_writer(
    verdict: Mismatch, event: Event | None, *, is_known: bool
) -> Disagreement:
    """Return the disagreement of the reference, at the last writer of the first wrong element."""
    first = verdict.first
    if first is None or verdict.output is None or not is_known:
        return Disagreement("the reference", verdict.message)
    name = verdict.argument or f"output {verdict.output}"
    text = f"{name} at {list(first.index)}: got {first.got}, expected {first.expected}"
    if event is None:
        return Disagreement("the reference", f"{text}; no instruction wrote it")
    text += f"; written here last{_neighbours(verdict)}"
    return Disagreement("the reference", text, event.number, event.location)


def _neighbours(verdict: Mismatch) -> str:
    """Return the received and the expected values around the first wrong element."""
    evidence = verdict.evidence
    first = verdict.first
    if evidence is None or first is None or not first.index:
        return ""
    box: list[slice | int] = list(first.index)
    for axis in range(len(box))[-2:]:
        at = first.index[axis]
        box[axis] = slice(max(0, at - _NEAR), at + _NEAR + 1)
    got = np.array2string(evidence.got[tuple(box)], precision=6)
    expected = np.array2string(evidence.value[tuple(box)], precision=6)
    whose = "without rounding" if first.exact else "got"
    return f"\n{whose} around it:\n{got}\nexpected around it:\n{expected}"


def replay_lines(again: ReplayResult) -> Iterator[str]:
    """Yield the lines of a result for a terminal."""
    yield again.text or "the case agrees with its reference here"
    if not again.stops:
        return
    stop, *others = again.stops
    event = again.event
    place = "" if event is None else f" at instruction {event.number}, {event.opcode}"
    yield ""
    yield f"{stop.judge} disagrees first{place}"
    yield textwrap.indent(stop.text, "  ")
    yield from again.source
    for role, text in again.around.items():
        yield f"  after it, {role or 'operand'}:"
        yield textwrap.indent(text, "    ")
    for other in others:
        at = "" if other.number is None else f" at instruction {other.number}"
        yield f"{other.judge} disagrees too{at}: {other.text.splitlines()[0]}"
