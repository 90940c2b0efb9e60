"""The least time that the arithmetic and the traffic of a kernel take, each on its own."""

from __future__ import annotations

from typing import NamedTuple

from difftest.simulator.trace import Engine
from difftest.timing.prediction import Prediction


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
    clockwork = prediction.program.clockwork
    clock = clockwork.clocks[Engine.TENSOR].value
    cycles = flops = moved = 0.0
    for one in prediction.program.instructions:
        if one.matmul:
            cycles += one.matmul.passes * one.matmul.rows
            flops += 0 if one.matmul.turns else one.matmul.flops
        if one.transfer:
            moved += one.transfer.bytes * (one.transfer.reads_hbm + one.transfer.writes_hbm)
    rate = prediction.program.hbm_rate
    cores = prediction.program.cores
    return Roofline(
        tensor_bound=cycles / clock / cores / 1e3,
        memory_bound=moved / rate / 1e3,
        predicted=prediction.middle,
        intensity=flops / moved if moved else float("inf"),
        ridge=2 * prediction.program.machine.pe_cells * clock * cores / rate,
    )
