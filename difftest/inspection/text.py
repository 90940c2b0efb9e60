"""Findings on hazards as text."""

from __future__ import annotations

from difftest.analysis.detectors import DETECTORS
from difftest.analysis.finding import Finding

_PAGES = {one.id: one.page for one in DETECTORS}


def finding_text(finding: Finding) -> str:
    """What happened, the rule, the kernel's lines, the remedy, and where more is said."""
    first, *others = finding.locations or (None,)
    rows = [
        ("rule", finding.rule),
        ("where", str(first) if first else None),
        *(("and", str(location)) for location in others),
        ("remedy", finding.remedy),
        ("more", f"{_PAGES[finding.id]}, or # difftest: allow[{finding.id}] on the line"),
    ]
    head = f"{finding.severity.value} {finding.id}: {finding.happened}"
    return "\n".join([head, *(f"  {name + ':':<10}{text}" for name, text in rows if text)])
