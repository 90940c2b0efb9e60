"""Inspection of launches for hazards: detectors read the trace, and reruns settle doubtful cases.

:class:`Inspector` receives each launch (:mod:`difftest.simulator.launch_listeners`). The pytest
plugin, ``difftest run`` and ``difftest check`` each have one.
"""

from difftest.analysis.inspection.inspector import Inspector, fails, finding_text
from difftest.analysis.inspection.memory import memory_text

__all__ = ["Inspector", "fails", "finding_text", "memory_text"]
