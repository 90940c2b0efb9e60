"""Launches that are looked at for hazards: the trace is read, and doubts are settled by runs.

:class:`Inspector` is told of each launch (:mod:`difftest.simulator.launch_listeners`); the pytest
plugin, ``difftest run`` and ``difftest check`` each have one.
"""

from difftest.analysis.inspection.inspector import Inspector, fails, finding_text
from difftest.analysis.inspection.memory import memory_text

__all__ = ["Inspector", "fails", "finding_text", "memory_text"]
