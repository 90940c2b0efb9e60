"""The report of a failing case as HTML for a notebook, with maps of the wrong elements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from xml.etree.ElementTree import Element

from difftest.analysis.finding import Finding
from difftest.analysis.inspection import finding_text
from difftest.support.html import code, element, panel, table
from difftest.testing.harness.error_map import error_maps, legend, png
from difftest.testing.harness.verdict import Mismatch

_RED = "#b42318"
_SIDE = 12
"""Pixels of a cell of a small map."""
_WIDEST, _HIGHEST = 480, 256
"""The most pixels of a map."""


def report_html(
    title: str,
    rows: Iterable[tuple[str, str]],
    findings: Iterable[Finding],
    outputs: Iterable[tuple[str, Mismatch]],
) -> str:
    """Return a report as HTML: its title, rows, maps of wrong outputs, and findings.

    Parameters
    ----------
    rows : labels and texts; a row without a text is left out.
    outputs : verdicts whose outputs get a map, if they have evidence, after their sizes.
    """
    cells = [(element("b", label), code(text)) for label, text in rows if text]
    parts = [element("p", element("b", title)), table((), cells)]
    maps = []
    for sizes, mismatch in outputs:
        for map in error_maps(mismatch):
            parts.append(_figure(sizes, map))
            maps.append(map)
    parts += [_legend(colour, meaning) for colour, meaning in legend(maps)]
    parts += [code(finding_text(finding)) for finding in findings]
    return panel(_RED, *parts)


def _figure(sizes: str, map: dict[str, Any]) -> Element:
    """Return the picture of a map: partitions down, the free dimension to the right."""
    rows = map["rows"]
    width = min(_WIDEST, _SIDE * len(rows[0]))
    height = min(_HIGHEST, _SIDE * len(rows))
    style = (
        f"width: {width}px; height: {height}px; image-rendering: pixelated; "
        "border: 1px solid #808080; margin: 0"
    )
    words = f"{map['title']}: {map['spoken']}"
    picture = element("img", style=style, src=png(rows), alt=words)
    caption = element("figcaption", f"{sizes}: {map['title']}; partitions down")
    return element("figure", caption, picture, style="margin: 8px 0")


def _legend(colour: str, meaning: str) -> Element:
    """Return the line of a colour in the legend of the maps."""
    square = element(
        "span",
        style=f"display: inline-block; width: 10px; height: 10px; background: {colour}",
    )
    return element("div", square, f" {meaning}", style="font-size: 90%")
