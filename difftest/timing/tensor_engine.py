"""The Tensor Engine: weights load during the previous matmul, and rows stream through.

A matmul loads its stationary operand (LDWEIGHTS) and streams the rows of its moving operand. The
next weights load while the rows of this matmul stream, so the longer of the two sets the pace.
float32 takes two such pairs at two cycles a row.

The engine starts at half speed and counts its rows in free-running windows of 3.4 us. A busy window
makes the next window fast, and an idle window makes it slow again (TRACE; EXPLORER). On the device
a window begins at a random time; here the time is a parameter.
"""

from __future__ import annotations

from typing import NamedTuple

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Event, Purpose
from difftest.timing.cost_table import WIDE_STRIDE, elements, inner_stride
from difftest.timing.parameters import TimingParameters

PACKED = 4
"""Elements of the contraction in one element of nc_matmul_mx, at the rate of one (ARCH4)."""


class Matmul(NamedTuple):
    """The work of one nc_matmul or nc_transpose on the Tensor Engine."""

    passes: int
    """Pairs of LDWEIGHTS and MATMUL."""
    rows: float
    """Cycles that the rows of one pass take, warm and without overhead."""
    four_byte: bool
    strided: bool
    """True if the weights' elements are apart in memory."""
    flops: int
    """2 for each multiplication and addition of the operands' true sizes."""
    width: int = 1
    """Elements of the contraction that a cell takes in one cycle of a row: 2 in the mode
    double_row, 4 of MX operands (ARCH4)."""
    transposes: bool = False
    """True for a transpose."""
    partial: bool = False
    """True if the stationary operand of a product fills a part of the PE array."""

    @property
    def is_simple(self) -> bool:
        """Return whether this is a product without MX operands."""
        return not self.transposes and self.width < PACKED


def matmul(event: Event, machine: Machine) -> Matmul:
    """Return the work of an nc_matmul or nc_transpose event on the Tensor Engine."""
    stationary = event.reads[0]
    size = stationary.dtype.itemsize
    packed = stationary.dtype.names is not None
    four_byte = size >= 4 and not packed
    strided = inner_stride(stationary) != size
    depth = stationary.partitions
    columns = elements(stationary)
    passes = 1 + four_byte
    if event.purpose is Purpose.TRANSPOSE:
        cycles = depth * passes
        if machine.nc_version >= 3:
            passes = 1  # ARCH3: one pass from trn2 on
        flops = 2 * depth * depth * columns
        return Matmul(passes, cycles, four_byte, strided, flops, transposes=True)
    moving = event.reads[1]
    rows = elements(event.writes[0])  # in double_row, half the rows of the operand
    slow = 1 + (inner_stride(moving) > WIDE_STRIDE)
    width = PACKED if packed else max(1, elements(moving) // rows)
    return Matmul(
        passes=passes,
        rows=rows * slow * passes,
        four_byte=four_byte,
        strided=strided,
        flops=2 * depth * columns * rows * (PACKED if packed else 1),
        width=width,
        partial=min(depth, columns) < machine.partitions,
    )


class Throttle:
    """The clock state of the engine: the rows in each window decide the speed of the next."""

    def __init__(self, parameters: TimingParameters, phase: float) -> None:
        self.window = parameters.throttle_window.value
        self.slowdown = parameters.throttle_slowdown.value
        cold_rows = self.window * parameters.clocks[Engine.TENSOR].value / self.slowdown
        self.warming = parameters.warm_share.value * cold_rows
        self.cooling = parameters.cold_share.value * cold_rows
        self.edge = (phase - 1.0) * self.window
        """When the present window began; the phase is the part of a window before time 0."""
        self.warm = False
        self.counted = 0.0
        self.cold_time = 0.0

    def speed(self, now: float) -> float:
        """Return the slowdown of rows at ``now`` as a factor; times must not go back."""
        while now >= self.edge + self.window:
            self._close()
        return 1.0 if self.warm else self.slowdown

    def _close(self) -> None:
        counted = self.counted
        self.warm = counted > self.cooling if self.warm else counted >= self.warming
        self.counted = 0.0
        self.edge += self.window

    def count(self, start: float, end: float, rows: float) -> None:
        """Count ``rows`` streamed evenly from ``start`` to ``end``."""
        while end > self.edge + self.window:
            border = self.edge + self.window
            if start < border:
                share = rows * (border - start) / (end - start)
                self.counted += share
                rows -= share
                start = border
            self._close()
        self.counted += rows


class TensorEngine:
    """The state of the Tensor Engine between two instructions; times in ns."""

    def __init__(self, parameters: TimingParameters, phase: float) -> None:
        self.parameters = parameters
        self.throttle = Throttle(parameters, phase)
        self.clock = parameters.clocks[Engine.TENSOR].value * parameters.row_share.value
        self._shadow = 0.0
        """When the next weights may begin to load, so that the present weights are in use before
        the next arrive. Loads overlap if their latency exceeds their interval."""
        self._loading = 0.0
        """When the next load of weights may begin."""
        self._streamed = 0.0
        self._drain = parameters.drain.value
        self._known: dict[Matmul, tuple[float, float, float, float]] = {}

    def _look_up(self, work: Matmul) -> tuple[float, float, float, float]:
        """Return the weights' load time and interval, the rows in cycles, and the overhead."""
        figures = self.parameters
        interval = figures.weights_interval[work.four_byte, work.strided]
        if work.transposes and work.strided and not work.four_byte:
            interval = figures.turned_interval
        overhead = figures.row_overhead
        if work.four_byte:
            overhead = figures.row_overhead_fp32
        rows = work.rows
        if work.partial:
            rows *= figures.partial_slowdown.value
        load = figures.load_weights[work.four_byte, work.strided]
        costs = self._known[work] = (load.value, interval.value, rows, overhead.value)
        return costs

    def issue(self, now: float, work: Matmul) -> tuple[float, float]:
        """Run ``work``, whose operands are ready at ``now``.

        Returns
        -------
        When its result is in PSUM, and when the next instruction may begin to load weights.
        """
        load, interval, rows, overhead = self._known.get(work) or self._look_up(work)
        for _ in range(work.passes):
            begin = max(now, self._loading, self._shadow)
            stream = max(begin + load, self._streamed)
            slow = self.throttle.speed(stream)
            cycles = rows * slow if slow > 1.0 else rows + overhead
            end = stream + cycles / self.clock
            self.throttle.count(stream, end, rows)
            self._loading = begin + interval
            self._shadow = stream - max(0.0, load - interval)
            self._streamed = end
            if slow > 1.0:
                self.throttle.cold_time += end - stream
        following = self._loading if self._loading > self._shadow else self._shadow
        return self._streamed + self._drain, following
