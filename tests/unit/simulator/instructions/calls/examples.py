"""Every instruction's example and every rule's limits, registered."""

from tests.unit.simulator.instructions.calls import computing as computing
from tests.unit.simulator.instructions.calls import limits_computing as limits_computing
from tests.unit.simulator.instructions.calls import limits_moving as limits_moving
from tests.unit.simulator.instructions.calls import limits_today as limits_today
from tests.unit.simulator.instructions.calls import moving as moving
from tests.unit.simulator.instructions.calls import reducing as reducing
from tests.unit.simulator.instructions.calls import today as today
from tests.unit.simulator.instructions.calls.drawn import EXAMPLES as EXAMPLES
from tests.unit.simulator.instructions.calls.drawn import FORMS as FORMS
from tests.unit.simulator.instructions.calls.drawn import drawn as drawn
from tests.unit.simulator.instructions.calls.limits import LIMITS as LIMITS
