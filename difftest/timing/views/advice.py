"""Findings as text, the largest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from difftest.analysis.finding import Finding, Severity
from difftest.timing.advice import Advice


def findings(found: Iterable[Finding]) -> Iterator[str]:
    """Each finding as a few lines: what, where, what it is worth, the rule, what to do."""
    number = 0
    for number, one in enumerate(found, start=1):
        where = f"{Path(one.location.file).name}:{one.location.line}" if one.location else ""
        worth = _worth(one) if isinstance(one, Advice) else ""
        yield f"{number}. {one.id}: {one.happened}"
        yield f"   {where}{'  ' if where and worth else ''}{worth}"
        if one.location and one.location.text:
            yield f"   > {one.location.text}"
        yield f"   {one.rule}"
        yield f"   {one.remedy}"
    if not number:
        yield "nothing found"


def _worth(one: Advice) -> str:
    if one.severity is Severity.NOTE:
        return f"{one.lost:,.1f} us of waiting"
    if one.lost:
        return f"{one.lost:,.1f} us lost, {one.work:,.1f} us of work (predicted)"
    return f"{one.work:,.1f} us of work, hidden behind other engines (predicted)"
