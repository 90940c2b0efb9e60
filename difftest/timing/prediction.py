"""The predicted time of a kernel: what a benchmark or a profile of it would say. Never measured."""

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
"""Up to so many instructions the extremes of the throttle window's phase are scheduled too."""
EXTREMES = (0.0, 0.999)
MANY = 1_000_000
"""Beyond so many instructions no other compiler's time is predicted beside the likely one's."""
_frozen = cache(gc.get_freeze_count)  # it counts one by one: ten milliseconds in a session


@dataclass(frozen=True, eq=False)
class Prediction:
    """A predicted latency and the timeline that it comes from. All times in microseconds.

    Asking for a total is an UnknownCostError where an instruction's cost is unknown.
    """

    schedule: Schedule
    low: float
    """Of the kernel's own part: the throttle window begins where it helps most."""
    middle: float
    high: float
    recompiled: Callable[[Compiler], float] = field(repr=False)
    """The kernel's own part as another compiler would have it."""

    @property
    def program(self) -> Program:
        return self.schedule.program

    @property
    def unknown(self) -> dict[str, int]:
        """Instructions of unknown cost, and how many of each. No total stands without them."""
        return dict(Counter(step.opcode for step in self.program.unknown))

    @property
    def latency(self) -> float:
        """Predicted nc_latency (benchmarks): the kernel's own part and the fixed one."""
        self._need_costs()
        return self.middle + self._overhead

    @property
    def total_time(self) -> float:
        """Predicted total_time (profiles): with the runtime's preamble and postamble."""
        self._need_costs()
        return self.middle + self._around[0]

    @cached_property
    def error_budget(self) -> ErrorBudget:
        """What the kernel's own part rests on."""
        with _no_collection():
            return error_budget(self.schedule)

    @property
    def latency_estimate(self) -> Estimate:
        """Predicted nc_latency, with what its interval comes from."""
        self._need_costs()
        return self._estimate(self._overhead, LAUNCH)

    @property
    def total_time_estimate(self) -> Estimate:
        """The same of a profile's total_time."""
        self._need_costs()
        return self._estimate(*self._around)

    @property
    def estimates(self) -> dict[str, Estimate]:
        """Metric of a published time -> what is predicted of it; ``""`` for all others."""
        launch = self.program.parameters.launched_overhead.value / 1e3
        other = self._estimate(launch, LAUNCHED), self.total_time_estimate, self.latency_estimate
        return dict(zip(("launched latency", "profile total_time", ""), other, strict=True))

    @property
    def latency_interval(self) -> Interval:
        """Between which microseconds nc_latency would lie on a device, nine times of ten."""
        return self.latency_estimate.interval()

    @property
    def total_time_interval(self) -> Interval:
        """The same of a profile's total_time."""
        return self.total_time_estimate.interval()

    @cached_property
    def compiled(self) -> Interval:
        """The kernel's own part as the fastest and the slowest compiler would have it.

        Where they decide as the likely one does, its program and its timeline are theirs; where
        not, what instructions cost is taken over. Of very many instructions it is not asked, for
        the memory that it takes: the prediction's own time is both.
        """
        if self.program.compiler is not LIKELY or len(self.program.instructions) > MANY:
            return Interval(self.middle, self.middle)
        ends = [self.middle, *(self.recompiled(compiler) for compiler in (FASTEST, SLOWEST))]
        return Interval(min(ends), max(ends))

    @cached_property
    def question(self) -> str:
        """What of the compiler an interval of several hundred per cent comes from, and the answers.

        In words; empty if none is as wide. Each guess is changed alone, to both of its ends.
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
        far = max(ends, key=lambda time: abs(math.log(time / self.middle)))
        name, other = ends[far]
        taken = self.schedule.toolchain if name == "toolchain" else getattr(likely, name)
        return (
            f"one question to the compiler makes the most of it, {QUESTIONS[name]}: {far:,.1f} us "
            f"if the answer is {parse_answer(other)}, {self.middle:,.1f} us if it is "
            f"{parse_answer(taken)}, as taken here"
        )

    @property
    def caution(self) -> str:
        """What to know before the time is believed, in words; empty if most of it was measured."""
        depends = compiler_caution(self.middle, self.compiled)
        wide = "" if self.unknown else width_caution(self.latency_interval, self.latency)
        warnings = [wide, caution(self.error_budget), depends, self.question]
        if len(self.program.instructions) > MANY:
            warnings.append(
                f"of more than {MANY:,} instructions nobody asks what another compiler would make, "
                "so that the range is too narrow if that matters"
            )
        return "; ".join(filter(None, warnings))

    def _estimate(self, fixed: float, unsure: float) -> Estimate:
        phase = max(self.high - self.middle, self.middle - self.low)
        return Estimate(self.error_budget, self.middle, fixed, unsure, phase, self.compiled)

    def get_latency_percentile(self, percentile: float) -> float:
        """Predicted nc_latency at a percentile, as ``nki.benchmark`` gives measured ones.

        0 and 100 are the ends of the span that the random phase of the tensor engine's throttle
        window makes, 50 the middle; other spread is not predicted.

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
        """What a profile has before and after the kernel's own part, and how unsure that is.

        The longer postamble was traced of long classic kernels, and none that is half as long; of
        today's, of those whose stores come from software, whatever their length.
        """
        figures = self.program.parameters
        schedule = self.schedule
        part = min(1.0, max(0.0, 2e3 * self.middle / figures.long_kernel.value - 1.0))
        if schedule.toolchain is Toolchain.TODAY:
            part = float(schedule.timeline.stores_in_software)
        short = figures.postamble.value / 1e3
        long = figures.long_postamble.value / 1e3
        after = short + part * (long - short)
        unsure = max(part, 1.0 - part) * (long - short) if 0.0 < part < 1.0 else LONG_PROFILE
        return figures.preamble.value / 1e3 + after, unsure if part else PROFILE

    @property
    def _overhead(self) -> float:
        return self.program.parameters.latency_overhead.value / 1e3

    def _need_costs(self) -> None:
        if self.unknown:
            raise UnknownCostError(f"no total: {self.describe_unknown()}")

    def describe_unknown(self) -> str:
        """The instructions of unknown cost in words; empty if there are none."""
        if not self.unknown:
            return ""
        which = ", ".join(f"{count} {opcode}" for opcode, count in sorted(self.unknown.items()))
        return (
            f"the cost of {which} is unknown on {self.program.machine.name}; without them the "
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
    trace : of one launch, recorded.
    machine : the machine that it was launched for.
    dge : who makes descriptors: a :class:`~difftest.timing.compiler.Toolchain`. None is the one
        that the user's own call would get: today's, or in the classic dialect that of
        ``nki.benchmark``, which True means too; False is that of a profile with static ones.
    progress : told how far it is: half of it when each instruction has its cost and dependences,
        all of it when they are scheduled.
    compiler : what it is taken to do; ``FASTEST`` and ``SLOWEST`` bound what is inferred of it.
    lowered : the program that the trace is, where that is known.

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
            ends += [schedule(program, dge=dge, phase=phase, order=order).end for phase in EXTREMES]
        elif middle.timeline.cold_time:
            quarter = program.parameters.throttle_window.value / 4
            ends += [middle.end - quarter, middle.end + quarter]

    def recompiled(other: Compiler) -> float:
        with _no_collection():
            changed = recompile(program, trace, other)
            order = planned_order(changed, dge=dge)
            same = middle.stands_for(changed, order)
            return (middle if same else schedule(changed, dge=dge, order=order)).end / 1e3

    return Prediction(middle, min(ends) / 1e3, middle.end / 1e3, max(ends) / 1e3, recompiled)


def _half(progress: Progress | None, number: int) -> Progress | None:
    """The progress of the first or the second half, as that of the whole."""
    return progress and (lambda done, total: progress(number * total + done, 2 * total))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Without garbage collection: nothing here is garbage, and looking for it doubles the time.

    What was made meanwhile counts as old afterwards, or all of it would be looked at at once.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not _frozen():  # else the program keeps something frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
