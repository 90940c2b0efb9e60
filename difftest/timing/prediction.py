"""The predicted time of a kernel in a benchmark or a profile. Never measured."""

from __future__ import annotations

import contextlib
import gc
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Trace
from difftest.timing.compiler import (
    FASTEST,
    LIKELY,
    QUESTIONS,
    SLOWEST,
    Compiler,
    Toolchain,
    parse_answer,
)
from difftest.timing.evidence import UnknownCostError
from difftest.timing.interval import (
    ASKS,
    LAUNCH,
    LAUNCHED,
    LONG_PROFILE,
    PROFILE,
    ErrorBudget,
    Estimate,
    Interval,
    caution,
    compiler_caution,
    error_budget,
    width_caution,
)
from difftest.timing.program import Program, Progress, lower, recompile
from difftest.timing.schedule import MIDDLE, Schedule, planned_order, schedule

SMALL = 2_000
"""Up to this many instructions, both extremes of the throttle window's phase are scheduled."""
EXTREMES = (0.0, 0.999)
MANY = 1_000_000
"""Beyond this many instructions, only the likely compiler's time is predicted."""
_frozen = cache(gc.get_freeze_count)  # counts one by one: ten milliseconds in a session


@dataclass(frozen=True, eq=False)
class Prediction:
    """A predicted latency and its timeline. All times in microseconds.

    A total raises UnknownCostError if an instruction's cost is unknown.
    """

    schedule: Schedule
    low: float
    """The kernel's own part with the phase of the throttle window that helps most."""
    middle: float
    high: float
    recompiled: Callable[[Compiler], float] = field(repr=False)
    """The kernel's own part with another compiler."""

    @property
    def program(self) -> Program:
        return self.schedule.program

    @property
    def unknown(self) -> dict[str, int]:
        """Return opcode -> number of instructions with unknown cost; these prevent a total."""
        return dict(Counter(step.opcode for step in self.program.unknown))

    @property
    def latency(self) -> float:
        """Return the predicted nc_latency (benchmarks): the kernel's own and the fixed part."""
        self._need_costs()
        return self.middle + self._overhead

    @property
    def total_time(self) -> float:
        """Return the predicted total_time (profiles), with the runtime's preamble and postamble."""
        self._need_costs()
        return self.middle + self._around[0]

    @cached_property
    def error_budget(self) -> ErrorBudget:
        """The evidence for the kernel's own part."""
        with _no_collection():
            return error_budget(self.schedule)

    @property
    def latency_estimate(self) -> Estimate:
        """Return the predicted nc_latency with the parts of its interval."""
        self._need_costs()
        return self._estimate(self._overhead, LAUNCH)

    @property
    def total_time_estimate(self) -> Estimate:
        """Return the predicted total_time of a profile with the parts of its interval."""
        self._need_costs()
        return self._estimate(*self._around)

    @property
    def estimates(self) -> dict[str, Estimate]:
        """Return metric of a published time -> its estimate; ``""`` for all other metrics."""
        launch = self.program.parameters.launched_overhead.value / 1e3
        other = (
            self._estimate(launch, LAUNCHED),
            self.total_time_estimate,
            self.latency_estimate,
        )
        return dict(
            zip(("launched latency", "profile total_time", ""), other, strict=True)
        )

    @property
    def latency_interval(self) -> Interval:
        """Return the interval (us) that holds a device's nc_latency nine times out of ten."""
        return self.latency_estimate.interval()

    @property
    def total_time_interval(self) -> Interval:
        """Return the interval that holds a profile's total_time nine times out of ten."""
        return self.total_time_estimate.interval()

    @cached_property
    def compiled(self) -> Interval:
        """The kernel's own part with the fastest and the slowest compiler.

        A compiler that decides as the likely one shares its program and its timeline; other
        compilers share the instruction costs. For very many instructions both ends are the
        prediction's own time, because further compilers take much memory.
        """
        if self.program.compiler is not LIKELY or len(self.program.instructions) > MANY:
            return Interval(self.middle, self.middle)
        ends = [
            self.middle,
            *(self.recompiled(compiler) for compiler in (FASTEST, SLOWEST)),
        ]
        return Interval(min(ends), max(ends))

    @cached_property
    def question(self) -> str:
        """The compiler question behind an interval of several hundred per cent, with its answers.

        In words; empty if no interval is that wide. Each answer is changed alone, to both of its
        ends.
        """
        if self.compiled.high < ASKS * self.compiled.low:
            return ""
        likely = self.program.compiler
        ends = {
            self.recompiled(likely._replace(**{name: other})): (name, other)
            for extreme in (FASTEST, SLOWEST)
            for name, other in extreme._asdict().items()
            if other != getattr(likely, name)
        }
        extreme_time = max(ends, key=lambda time: abs(math.log(time / self.middle)))
        name, other = ends[extreme_time]
        taken = getattr(likely, name)
        return (
            f"one question to the compiler makes the most of it, {QUESTIONS[name]}: "
            f"{extreme_time:,.1f} us if the answer is {parse_answer(other)}, "
            f"{self.middle:,.1f} us if it is {parse_answer(taken)}, as taken here"
        )

    @property
    def caution(self) -> str:
        """Return the caveats of the time in words; empty if most of it was measured."""
        depends = compiler_caution(self.middle, self.compiled)
        wide = (
            "" if self.unknown else width_caution(self.latency_interval, self.latency)
        )
        warnings = [wide, caution(self.error_budget), depends, self.question]
        if len(self.program.instructions) > MANY:
            warnings.append(
                f"of more than {MANY:,} instructions nobody asks what another compiler would make, "
                "so that the range is too narrow if that matters"
            )
        return "; ".join(filter(None, warnings))

    def _estimate(self, fixed: float, unsure: float) -> Estimate:
        phase = max(self.high - self.middle, self.middle - self.low)
        return Estimate(
            self.error_budget, self.middle, fixed, unsure, phase, self.compiled
        )

    def get_latency_percentile(self, percentile: float) -> float:
        """Return the predicted nc_latency at a percentile, as ``nki.benchmark`` reports it.

        0 and 100 are the ends of the range that the random phase of the tensor engine's throttle
        window gives; 50 is the middle. No other spread is predicted.

        Raises
        ------
        ValueError : the percentile is not from 0 to 100.
        UnknownCostError : an instruction's cost is unknown.
        """
        if not 0 <= percentile <= 100:
            raise ValueError(f"a percentile is from 0 to 100, got {percentile}")
        self._need_costs()
        if percentile <= 50:
            part = percentile / 50
            start = self.low
            end = self.middle
        else:
            part = percentile / 50 - 1
            start = self.middle
            end = self.high
        return start + part * (end - start) + self._overhead

    @property
    def _around(self) -> tuple[float, float]:
        """Return a profile's time before and after the kernel's own part, and its uncertainty.

        With static descriptors, traces show the longer postamble for long kernels, and not for
        kernels half as long. With generated ones no classic kernel has it. Two of five kernels of
        the current dialect have it; both store with software-made descriptors.
        """
        figures = self.program.parameters
        toolchain = self.schedule.toolchain
        before = figures.preamble.value / 1e3
        short = figures.postamble.value / 1e3
        longer = figures.long_postamble.value / 1e3 - short
        if toolchain is Toolchain.CLASSIC_BENCHMARK:
            before = figures.generated_preamble.value / 1e3
            return before + figures.generated_postamble.value / 1e3, PROFILE
        if toolchain is not Toolchain.CLASSIC_PROFILE:
            unsure = longer if self.schedule.timeline.stores_in_software else PROFILE
            return before + short, unsure
        part = min(1.0, max(0.0, 2e3 * self.middle / figures.long_kernel.value - 1.0))
        unsure = max(part, 1.0 - part) * longer if 0.0 < part < 1.0 else LONG_PROFILE
        return before + short + part * longer, unsure if part else PROFILE

    @property
    def _overhead(self) -> float:
        return self.program.parameters.latency_overhead.value / 1e3

    def _need_costs(self) -> None:
        if self.unknown:
            raise UnknownCostError(f"no total: {self.describe_unknown()}")

    def describe_unknown(self) -> str:
        """Return the instructions of unknown cost in words; empty if there are none."""
        if not self.unknown:
            return ""
        counts = ", ".join(
            f"{count} {opcode}" for opcode, count in sorted(self.unknown.items())
        )
        return (
            f"the cost of {counts} is unknown on {self.program.machine.name}; without them the "
            f"kernel takes at least {self.middle:,.1f} us (predicted)"
        )


def predict(
    trace: Trace,
    machine: Machine,
    *,
    dge: bool | Toolchain | None = None,
    progress: Progress | None = None,
    compiler: Compiler = LIKELY,
    lowered: Program | None = None,
) -> Prediction:
    """Predict the latency of the kernel whose trace this is.

    Parameters
    ----------
    trace : the recorded trace of one launch.
    machine : the machine of the launch.
    dge : who makes descriptors: a :class:`~difftest.timing.compiler.Toolchain`. None means the
        toolchain of the user's own call: the current one, or ``nki.benchmark`` in the classic
        dialect. True means ``nki.benchmark``; False means a profile with static descriptors.
    progress : called with the progress: half when each instruction has its cost and dependences,
        all when they are scheduled.
    compiler : the assumed compiler; ``FASTEST`` and ``SLOWEST`` bound the inferred decisions.
    lowered : the program of the trace, if you have it.

    Raises
    ------
    ValueError : the trace is empty.
    UnknownCostError : there is no timing data for the machine.
    """
    if not len(trace):
        raise ValueError("the trace is empty: launch the kernel with record=True")
    dge = Toolchain.of(dge, trace.dialect)
    with _no_collection():
        program = lowered or lower(trace, machine, _half(progress, 0), compiler)
        middle = schedule(program, dge=dge, phase=MIDDLE, progress=_half(progress, 1))
        ends = [middle.end]
        if middle.timeline.cold_time and len(program.instructions) <= SMALL:
            order = middle.order
            ends += [
                schedule(program, dge=dge, phase=phase, order=order).end
                for phase in EXTREMES
            ]
        elif middle.timeline.cold_time:
            quarter = program.parameters.throttle_window.value / 4
            ends += [middle.end - quarter, middle.end + quarter]

    def recompiled(other: Compiler) -> float:
        with _no_collection():
            changed = recompile(program, trace, other)
            order = planned_order(changed, dge=dge)
            same = middle.stands_for(changed, order)
            return (
                middle if same else schedule(changed, dge=dge, order=order)
            ).end / 1e3

    return Prediction(
        middle, min(ends) / 1e3, middle.end / 1e3, max(ends) / 1e3, recompiled
    )


def _half(progress: Progress | None, number: int) -> Progress | None:
    """Return a callback for the first or the second half that reports progress of the whole."""
    return progress and (lambda done, total: progress(number * total + done, 2 * total))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Run without garbage collection: nothing here is garbage, and a search doubles the time.

    New objects then count as old, so that the next collection does not visit all of them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not _frozen():  # otherwise the program keeps something frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
