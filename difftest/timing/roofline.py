"""The least time that the arithmetic and the traffic of a kernel take, each on its own."""

from __future__ import annotations

from typing import NamedTuple

from difftest.simulator.trace import Engine
from difftest.timing.prediction import Prediction
from difftest.timing.program import Program


class Roofline(NamedTuple):
    """Bounds of a kernel's own part, microseconds, and where it stands under them."""

    tensor_bound: float
    """The Tensor Engine streaming every row at full speed, never waiting."""
    memory_bound: float
    """Every byte between HBM and the core at the full rate of the DMA engines."""
    predicted: float
    intensity: float
    """Floating-point operations of the matmuls for each byte of HBM traffic."""
    ridge: float
    """The intensity from which on arithmetic is the limit, at two-byte dtypes."""

    @property
    def limit(self) -> str:
        """Which bound is the higher one."""
        return "arithmetic" if self.tensor_bound >= self.memory_bound else "memory"

    @property
    def share(self) -> float:
        """The higher bound over the prediction: 1 is as good as it can be."""
        return max(self.tensor_bound, self.memory_bound) / self.predicted


def roofline(prediction: Prediction) -> Roofline:
    """The bounds of a prediction's kernel."""
    return bounds_of(prediction.program)._replace(predicted=prediction.middle)


def bounds_of(program: Program) -> Roofline:
    """The same of a program that is not scheduled; what is predicted of it is infinite."""
    clock, rate = program.clockwork.clocks[Engine.TENSOR].value, program.hbm_rate
    cycles = flops = moved = 0.0
    for step in program.instructions:
        if step.matmul:
            cycles += step.matmul.passes * step.matmul.rows
            flops += 0 if step.matmul.turns else step.matmul.flops
        if step.transfer:
            moved += step.transfer.bytes * (step.transfer.reads_hbm + step.transfer.writes_hbm)
    return Roofline(
        tensor_bound=cycles / clock / program.cores / 1e3,
        memory_bound=moved / rate / 1e3,
        predicted=float("inf"),
        intensity=flops / moved if moved else float("inf"),
        ridge=2 * program.machine.pe_cells * clock * program.cores / rate,
    )
