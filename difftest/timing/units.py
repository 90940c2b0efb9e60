"""The parts of a core that issue instructions: its engines, their queues, and its memories."""

from __future__ import annotations

import math
from collections import deque

from difftest.simulator.trace import Engine
from difftest.timing.dma import DmaEngines, SharedHbm
from difftest.timing.parameters import MIN_CYCLES, TimingParameters
from difftest.timing.program import LoweredInstruction, Program
from difftest.timing.tensor_engine import TensorEngine

GENERATORS = (Engine.DMA, Engine.UNKNOWN)
"""The units that issue DMAs with hardware-generated descriptors; some machines have two."""
ENGINES = (
    Engine.SYNC,
    Engine.TENSOR,
    Engine.VECTOR,
    Engine.SCALAR,
    Engine.GPSIMD,
    *GENERATORS,
)


class Unit:
    """An engine that issues instructions, one after the other."""

    def __init__(self, engine: Engine, number: int) -> None:
        self.engine = engine
        self.number = number
        self.may_wait = engine in (Engine.TENSOR, Engine.GPSIMD)
        """True if the unit lets other units precede a ready instruction."""
        self.places: list[int] = []
        """The instructions in the unit's order, the next last; empty if any ready one will do."""
        self.free = 0.0
        self.coming: list[tuple[float, int]] = []
        """(when ready, place of an instruction)."""
        self.ready: list[int] = []
        self.wake = float("inf")
        self.last = -1


class SoftwareGenerator:
    """Makes the descriptors of copies that the GpSimd Engine dispatches, one after the other.

    It has a queue, and long bursts are slower (TODAY).
    """

    def __init__(self, parameters: TimingParameters) -> None:
        self._each = parameters.software_generation.value
        self._later = parameters.long_burst.value
        self._fast = parameters.burst
        self._burst = 0
        self._starts = deque(
            [-math.inf] * parameters.software_queue, parameters.software_queue
        )

    def take(
        self, now: float, dispatch: float, start: float, keep: float = 1.0
    ) -> tuple[float, float]:
        """Take a DMA whose dispatch may begin at ``now``; a pause ends a burst.

        Parameters
        ----------
        start : ns from the dispatch to the DMA's start if the queue is empty.
        keep : the share of the pitch that applies.

        Returns
        -------
        How long the DMA keeps the GpSimd Engine, and when it starts.
        """
        begin = max(now, self._starts[0])
        last = self._starts[-1]
        pause = begin + start > last + self._later
        self._burst = 1 if pause else self._burst + 1
        pitch = self._each if self._burst <= self._fast else self._later
        self._starts.append(max(begin + start, last + pitch * keep))
        return begin + dispatch - now, self._starts[-1]


class CopySharing:
    """The planned work of the engines that share copies without an engine of their own; ns.

    In the device traces all copies of a slow stream are on the scalar engine. Where many wait at
    once, the shares are about 4 to 5: a plan without performance modes would balance so. The rule
    is inferred from these shares (assumed).
    """

    def __init__(self, parameters: TimingParameters) -> None:
        self.planned = {Engine.SCALAR: 0.0, Engine.VECTOR: 0.0}
        self._scalar_free = parameters.table_load.value
        """When the scalar engine will be done with its work."""
        self._least = parameters.cycles(Engine.SCALAR, MIN_CYCLES)

    def choose(self, step: LoweredInstruction, ready: float) -> Engine:
        """Return the engine of a copy that is ready at ``ready``."""
        engine = Engine.SCALAR
        if self._scalar_free > ready + self._least:
            scalar = max(self.planned[Engine.SCALAR], ready)
            vector = max(self.planned[Engine.VECTOR], ready)
            engine = Engine.SCALAR if scalar <= vector else Engine.VECTOR
        self.add(engine, step, ready)
        return engine

    def add(self, engine: Engine, step: LoweredInstruction, ready: float) -> None:
        """Count an instruction on the engine, of these two, that it will run on."""
        timed = step.times[engine]
        planned = self.planned[engine]
        self.planned[engine] = (planned if planned > ready else ready) + timed.planned
        if engine is Engine.SCALAR:
            self._scalar_free = max(self._scalar_free, ready) + timed.interval


class PhysicalCore:
    """A physical core. With LNC 2 a logical core has two, which share only HBM.

    Parameters
    ----------
    program : the program of all cores.
    core : the number of this core.
    phase : see :func:`~difftest.timing.schedule.schedule`.
    hbm : the HBM that several cores share; None if there is one core.
    """

    def __init__(
        self, program: Program, core: int, phase: float, hbm: SharedHbm | None
    ) -> None:
        figures: TimingParameters = program.parameters
        first = core * len(ENGINES)
        self.units = {
            engine: Unit(engine, first + i) for i, engine in enumerate(ENGINES)
        }
        self.units[GENERATORS[1]].engine = Engine.DMA
        self._generated = 0
        self.tensor = TensorEngine(figures, phase)
        self.dma = DmaEngines(figures, hbm)
        self.loads, self.stores = (
            deque([-math.inf] * figures.outstanding, figures.outstanding)
            for _ in range(2)
        )
        """When the last DMAs of a queue are done: the next waits for the oldest's semaphore."""
        self.sharing = CopySharing(figures)
        self.software = SoftwareGenerator(figures)
        graph = program.dependence_graph
        table = graph.tables[core]
        self.table = table or ""
        """The functions that the Scalar Engine can compute now; named by the first user."""
        self.table_loads = int(table is not None)
        if self.table_loads:  # before all other work (TRACE)
            self.units[Engine.SCALAR].free = figures.table_load.value
        self.buffers = {
            space: memory.copy() for space, memory in graph.buffers[core].items()
        }

    def generator(self, count: int) -> Engine:
        """Return the unit that triggers the next DMA; ``count`` generators take turns."""
        self._generated += 1
        return GENERATORS[self._generated % count]
