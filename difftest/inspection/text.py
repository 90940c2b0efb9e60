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
        ("more", _more(finding.id)),
    ]
    head = f"{finding.severity.value} {finding.id}: {finding.happened}"
    return "\n".join([head, *(f"  {name + ':':<10}{text}" for name, text in rows if text)])


def _more(id: str) -> str:
    """Where more is said of a finding, and the comment that silences it."""
    if id in _PAGES:
        return f"{_PAGES[id]}, or # difftest: allow[{id}] on the line"
    return f"difftest lint --explain {id}, or # difftest: ignore[{id}] on the line"
