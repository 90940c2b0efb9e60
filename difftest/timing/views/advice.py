"""Findings as text, the largest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from difftest.timing.advice import Finding


def findings(found: Iterable[Finding]) -> Iterator[str]:
    """Each finding as a few lines: what, where, what it is worth, what to do."""
    number = 0
    for number, one in enumerate(found, start=1):
        where = f"{Path(one.location.file).name}:{one.location.line}" if one.location else ""
        worth = _worth(one)
        yield f"{number}. {one.kind}: {one.text}"
        yield f"   {where}{'  ' if where and worth else ''}{worth}"
        if one.location and one.location.text:
            yield f"   > {one.location.text}"
        yield f"   {one.remedy}"
    if not number:
        yield "nothing found"


def _worth(one: Finding) -> str:
    if one.symptom:
        return f"{one.lost:,.1f} us of waiting" if one.lost else ""
    if one.lost:
        return f"{one.lost:,.1f} us lost, {one.work:,.1f} us of work (predicted)"
    return f"{one.work:,.1f} us of work, hidden behind other engines (predicted)"
