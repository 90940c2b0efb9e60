"""The order that the compiler gives the Tensor Engine's instructions, before anything runs.

A device's engine takes its instructions in one order, which stands in its code (TRACE). The
compiler makes it: it takes, of what it expects to be ready, the first in program order. What it
expects is inferred:

- an instruction takes the cycles of its elements, and nothing to begin or to hand on its result;
- a DMA takes what one alone does, from its trigger to its semaphore.
"""

from __future__ import annotations

from difftest.simulator.trace import Engine
from difftest.timing.descriptors import ON_DEVICE, Toolchain
from difftest.timing.program import LoweredInstruction, Program
from difftest.timing.scheduler import Order, Scheduler
from difftest.timing.units import Unit


def planned_order(program: Program, *, dge: bool | Toolchain) -> Order | None:
    """The order that the compiler gives; None if it is that in which they get ready."""
    part = program.compiler.expected
    tensor = any(step.engine is Engine.TENSOR for step in program.instructions)
    if not tensor or part is None:
        return None
    planner = Planner(program, dge=dge, part=part)
    planner.run()
    return planner.taken


class Planner(Scheduler):
    """The compiler's own schedule, with the times that it expects; ``part`` of each latency."""

    second_waits = dict.fromkeys(Engine, 0.0)
    hops = dict.fromkeys(Engine, second_waits)
    same_engine = 0.0

    def __init__(self, program: Program, *, dge: bool | Toolchain, part: float) -> None:
        super().__init__(program, dge=dge, phase=0.0)
        self.part = part
        self.taken: Order = [[] for _ in self.cores]
        self.sums: dict[int, list[int]] = {}
        """Tensor -> the products to come that add up in it, the next one last."""
        self.begun: list[set[int]] = [set() for _ in self.cores]
        """Core -> those of them that have some of their products."""
        for step in reversed(self.instructions):
            if step.matmul is not None and not step.matmul.turns:
                self.sums.setdefault(step.tensors[0], []).append(step.index)
        for unit in self.by_number:
            unit.may_wait = unit.engine is Engine.TENSOR

    def _may_take(self, unit: Unit, place: int, now: float) -> bool:
        """Whether it begins no sum while an earlier one is not whole (TRACE)."""
        step = self.instructions[place]
        if step.matmul is None or step.matmul.turns:
            return True
        total, begun = step.tensors[0], self.begun[step.core]
        if total not in begun and any(self.sums[other][-1] < place for other in begun):
            if unit.coming:
                self._arm(unit, max(unit.coming[0][0], unit.free))
            return False
        left = self.sums[total]
        del left[-1 if left[-1] == place else left.index(place)]
        (begun.add if left else begun.discard)(total)
        return True

    def _issue(self, unit: Unit, step: LoweredInstruction, now: float) -> None:
        figures, engine, producer = self.clockwork, unit.engine, unit.engine
        if step.transfer is not None:
            producer = Engine.DMA
            way = self.ways[step.transfer.kind]
            busy = self._triggering(step, step.transfer, way, now)[0]
            dma = self.cores[step.core].dma
            time = dma.alone(step.transfer, way in ON_DEVICE) * self.part
        elif step.matmul is not None:
            busy = time = figures.cycles(engine, step.matmul.passes * step.matmul.rows)
            self.taken[step.core].append(step.index)
        else:
            busy = time = step.times[engine].cycles * self.part
        self.timeline.engine[step.index] = engine
        unit.free = now + busy
        self._done(step, (step.index, producer, now, now + time))
