"""What can be said of a trace without knowing how long anything takes.

Which elements an access pattern touches (:mod:`~difftest.analysis.footprint`), which instruction
must wait for which (:mod:`~difftest.analysis.dependences`), and what a finding on a kernel is
(:mod:`~difftest.analysis.finding`). The timing model stands on it. It sees the trace and the
machine, and neither the data nor the simulator that made the trace.
"""
