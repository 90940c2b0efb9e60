"""The predicted time of a kernel in a benchmark or a profile. Never measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Trace
from difftest.timing.collection import no_collection
from difftest.timing.compiler import (
    FASTEST,
    LIKELY,
    QUESTIONS,
    SLOWEST,
    Compiler,
    Toolchain,
    answer_words,
)
from difftest.timing.evidence import UnknownCostError
from difftest.timing.interval import (
    DEPENDS,
    LAUNCH,
    LAUNCHED,
    LONG_PROFILE,
    MAINLY,
    PROFILE,
    WEAK,
    WIDE,
    ErrorBudget,
    Estimate,
    Interval,
    Unknown,
    error_budget,
    width,
)
from difftest.timing.program import Program, Progress, lower, recompile
from difftest.timing.schedule import MIDDLE, Schedule, planned_order, schedule

SMALL = 2_000
"""Up to this many instructions, both extremes of the throttle window's phase are scheduled."""
EXTREMES = (0.0, 0.999)
MANY = 1_000_000
"""Beyond this many instructions, only the likely compiler's time is predicted."""
LEAST_PART = 500
PARTS = 50
"""The part of a kernel that shows which question matters most: one of ``PARTS``, but not fewer
instructions than ``LEAST_PART``."""


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
    beginning: Callable[[int], Prediction] = field(repr=False)
    """The prediction of the kernel's first instructions, by their number."""

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
        with no_collection():
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
        return {
            "launched latency": self._estimate(launch, LAUNCHED),
            "profile total_time": self.total_time_estimate,
            "": self.latency_estimate,
        }

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
        times = (self.middle, self.recompiled(FASTEST), self.recompiled(SLOWEST))
        return Interval(min(times), max(times))

    @cached_property
    def largest_unknown(self) -> Unknown | None:
        """The fact behind a wide interval, with both answers; None if no interval is wide.

        It takes at most as long as the prediction.
        """
        estimate = self.latency_estimate
        budget = self.error_budget
        wide = width(estimate.interval(), estimate.total) > WIDE
        factor = max(self.middle / self.compiled.low, self.compiled.high / self.middle)
        weak = any(budget.shares.get(kind, 0.0) >= MAINLY for kind in WEAK)
        if not (wide or weak or factor > DEPENDS):
            return None
        source = budget.widest
        less, more = budget.ranges[source]
        if self.compiled.spread >= (less + more) / self.middle:
            return self._compiler_question(replace(estimate, compiled=None).interval())
        ends = (
            (self.middle * math.exp(-less / self.middle), "at the least"),
            (self.middle * math.exp(more / self.middle), "at the most"),
        )
        known = replace(estimate, ground=budget.without(source))
        question = f"the time of {source.subject} ({source.kind})"
        return Unknown(question, ends, known.interval())

    def _compiler_question(self, rest: Interval) -> Unknown:
        """Return the question to the compiler that changes the time most.

        The first part of the kernel shows which question that is. The whole kernel shows the time
        with the other answer.
        """
        low, high = self.compiled
        faster = self.middle / low > high / self.middle
        likely = self.program.compiler
        extreme = FASTEST if faster else SLOWEST
        others = {
            name: likely._replace(**{name: answer})
            for name, answer in extreme._asdict().items()
            if answer != getattr(likely, name)
        }
        part = self
        if len(self.program.instructions) > LEAST_PART:
            part = self.beginning(
                max(LEAST_PART, len(self.program.instructions) // PARTS)
            )

        def effect(question: str) -> float:
            """Return how far the other answer to a question moves the time, as a logarithm."""
            return abs(math.log(part.recompiled(others[question]) / part.middle))

        name = max(others, key=effect)
        time = self.recompiled(others[name])
        answers = (
            (self.middle, self._answer(name, likely, extreme)),
            (time, self._answer(name, extreme, extreme)),
        )
        least, most = sorted(answers)
        return Unknown(QUESTIONS[name], (least, most), rest)

    def _answer(self, name: str, compiler: Compiler, extreme: Compiler) -> str:
        """Return a compiler's answer to a question in words."""
        if name != "descriptors":
            return answer_words(getattr(compiler, name))
        disputed = self.schedule.disputed_sources(extreme.descriptors)
        sources = disputed[compiler is extreme]
        return f"if {' or '.join(sorted(source.words for source in sources))}"

    @property
    def caution(self) -> str:
        """Return the largest unknown in one line; empty if the interval is narrow."""
        if len(self.program.instructions) > MANY:
            return (
                f"for more than {MANY:,} instructions no other compiler is predicted, so that the "
                "interval may be too narrow"
            )
        if self.unknown or self.largest_unknown is None:
            return ""
        unknown = self.largest_unknown
        span = self.latency_interval
        if width(span, self.latency) <= WIDE:
            return str(unknown)
        low, high = unknown.rest
        return (
            f"{unknown}; with that known, a device takes {low:,.1f} to {high:,.1f} us"
        )

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
    with no_collection():
        program = lowered or lower(trace, machine, _half(progress, 0), compiler)
        middle = schedule(program, dge=dge, phase=MIDDLE, progress=_half(progress, 1))
        ends = [middle.end, *_ends_of_other_phases(middle)]

    def recompiled(other: Compiler) -> float:
        with no_collection():
            changed = recompile(program, trace, other)
            order = planned_order(changed, dge=dge)
            if middle.stands_for(changed, order):
                return middle.end / 1e3
            return schedule(changed, dge=dge, order=order).end / 1e3

    def beginning(count: int) -> Prediction:
        part = replace(trace, events=trace.events[:count])
        return predict(part, machine, dge=dge, compiler=compiler)

    times = min(ends) / 1e3, middle.end / 1e3, max(ends) / 1e3
    return Prediction(middle, *times, recompiled, beginning)


def _ends_of_other_phases(middle: Schedule) -> list[float]:
    """Return when a kernel ends with other phases of the throttle window, in ns.

    The list is empty if the Tensor Engine never streams at half speed.
    """
    program = middle.program
    if not middle.timeline.cold_time:
        return []
    if len(program.instructions) > SMALL:
        quarter = program.parameters.throttle_window.value / 4
        return [middle.end - quarter, middle.end + quarter]
    dge = middle.toolchain
    order = middle.order
    return [schedule(program, dge=dge, phase=p, order=order).end for p in EXTREMES]


def _half(progress: Progress | None, number: int) -> Progress | None:
    """Return a callback for the first or the second half that reports progress of the whole."""
    if progress is None:
        return None
    return lambda done, total: progress(number * total + done, 2 * total)
