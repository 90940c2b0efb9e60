"""Detectors of hazards that a run in program order hides.

``DETECTORS`` is the table, with an id, a severity and a reader for each detector;
docs/reference/detectors has a section on each. A reader takes a trace and the machine, and yields
findings. The simulator records the necessary facts about data in the trace: no detector runs
anything.
"""

from difftest.analysis.detectors.table import DETECTORS, DetectionResult, detect

__all__ = ["DETECTORS", "DetectionResult", "detect"]
