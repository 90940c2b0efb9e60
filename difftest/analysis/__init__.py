"""Analyses of a trace that need no timing.

:mod:`~difftest.analysis.footprint` finds the elements that an access pattern touches.
:mod:`~difftest.analysis.dependences` finds the instructions that must wait for each other.
:mod:`~difftest.analysis.finding` defines findings on kernels. The timing model builds on these
modules. They read the trace and the machine, and neither the data nor the simulator.
"""
