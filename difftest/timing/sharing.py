"""Which engine gets a copy for which the kernel names none.

In the device traces all copies of a slow stream are on the scalar engine; where many copies wait
at once, the scalar and the vector engine have shares of about 4 to 5 and otherwise what balances
their planned work. The plan knows no performance modes: N cycles on the vector engine, N cycles
and the access time on the scalar engine. The rule is inferred (assumed) from those shares.
"""

from __future__ import annotations

from difftest.simulator.trace import Engine
from difftest.timing.clockwork import MIN_CYCLES, Clockwork
from difftest.timing.program import LoweredInstruction


class Sharing:
    """The planned work of the engines that share copies; times in ns."""

    def __init__(self, clockwork: Clockwork) -> None:
        self.planned = {Engine.SCALAR: 0.0, Engine.VECTOR: 0.0}
        self._scalar_free = clockwork.table_load.value
        """When the scalar engine will have done what it was given."""
        self._least = clockwork.cycles(Engine.SCALAR, MIN_CYCLES)

    def choose(self, one: LoweredInstruction, ready: float) -> Engine:
        """The engine of a copy that is ready at ``ready``."""
        engine = Engine.SCALAR
        if self._scalar_free > ready + self._least:
            scalar = max(self.planned[Engine.SCALAR], ready)
            vector = max(self.planned[Engine.VECTOR], ready)
            engine = Engine.SCALAR if scalar <= vector else Engine.VECTOR
        self.add(engine, one, ready)
        return engine

    def add(self, engine: Engine, one: LoweredInstruction, ready: float) -> None:
        """Count an instruction on the one of the two engines that it will run on."""
        timed = one.times[engine]
        planned = self.planned[engine]
        self.planned[engine] = (planned if planned > ready else ready) + timed.planned
        if engine is Engine.SCALAR:
            self._scalar_free = max(self._scalar_free, ready) + timed.interval
