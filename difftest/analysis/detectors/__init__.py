"""Hazards that a run in order hides, each found by a small reader of the trace.

``DETECTORS`` is the table: an id, a severity and a reader for each; docs/reference/detectors has a
section on each. A reader is a function of a trace and the machine that yields findings. What it
needs to know of data is in the trace, where the simulator notes it: no detector runs anything.
"""

from difftest.analysis.detectors.table import DETECTORS, DetectionResult, detect

__all__ = ["DETECTORS", "DetectionResult", "detect"]
