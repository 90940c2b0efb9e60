"""Every instruction's example, registered."""

from __future__ import annotations

from tests.unit.simulator.instructions.calls import computing as computing
from tests.unit.simulator.instructions.calls import moving as moving
from tests.unit.simulator.instructions.calls import reducing as reducing
from tests.unit.simulator.instructions.calls.drawn import EXAMPLES as EXAMPLES
from tests.unit.simulator.instructions.calls.drawn import drawn as drawn
