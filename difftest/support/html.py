"""HTML for notebooks, which display it within their own page. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

_CELL = "padding: 2px 10px 2px 0; text-align: {}; vertical-align: top"
_CODE = "margin: 0; padding: 0; background: none; white-space: pre-wrap; font-size: 90%"


def element(
    tag: str, *children: Element | str, style: str = "", **more: str
) -> Element:
    """Return an element with a style, other attributes, and its children in order."""
    made = Element(tag, {"style": style, **more} if style else more)
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + child
        else:
            made.text = (made.text or "") + child
    return made


def code(text: str) -> Element:
    """Return preformatted text, whose long lines wrap."""
    return element("pre", text, style=_CODE)


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[Element | str]],
    *,
    caption: str = "",
    numbers: Sequence[bool] = (),
) -> Element:
    """Return a table; columns of ``numbers`` are aligned to the right.

    ``headings`` is empty for a table without them.
    """
    made = element("table", style="margin: 0 0 8px 0; border-collapse: collapse")
    if caption:
        made.append(
            element("caption", caption, style="text-align: left; white-space: nowrap")
        )
    if headings:
        made.append(_row("th", headings, numbers))
    for cells in rows:
        made.append(_row("td", cells, numbers))
    return made


def _row(tag: str, cells: Sequence[Element | str], numbers: Sequence[bool]) -> Element:
    made = element("tr", style="background: none")
    for place, cell in enumerate(cells):
        side = "right" if any(numbers[place : place + 1]) else "left"
        made.append(element(tag, cell, style=_CELL.format(side)))
    return made


def panel(colour: str, *children: Element) -> str:
    """Return the HTML of a panel with a coloured left edge."""
    style = f"border-left: 4px solid {colour}; padding: 4px 0 4px 12px"
    made = element("div", *children, style=style)
    text = ElementTree.tostring(made, encoding="unicode", method="html")
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
