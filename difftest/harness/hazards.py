"""Which hazards of a case its reference excuses."""

from __future__ import annotations

import numpy as np

from difftest.analysis.finding import Finding
from difftest.harness.questions import Reference

NOT_FINITE = ("nan-made", "infinity-made")
"""Findings that an output is not finite."""


def wanted(finding: Finding, reference: Reference | Exception) -> bool:
    """Whether the reference wants what was found: NaN or infinities in outputs of their dtypes."""
    if finding.id not in NOT_FINITE or isinstance(reference, Exception):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return not all(
            np.isfinite(values.astype(reference.dtype_of(index)).astype(np.float64)).all()
            for index, values in enumerate(reference.values)
        )
