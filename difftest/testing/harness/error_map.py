"""Maps of the errors in an output, as text and as a picture.

A map shows the last two axes: partitions down, the free dimension to the right. An output of more
dimensions has a map for each slice. A map that is too large shows the worst element of each block.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difftest.testing.harness.verdict import Mismatch, WrongOutput

ROWS, COLUMNS = 128, 192
"""The most cells of a map."""
SLICES = 4
"""The number of shown slices. They have the most wrong elements."""
RIGHT = "."
UNWRITTEN = "u"
NOT_FINITE = "n"
LEVELS = "1234567"
"""Decades of the error relative to the largest expected value: 7 is 1 or more, 1 is the least."""
KINDS = {
    RIGHT: ("#cbd5e1", "right"),
    "1": ("#fde68a", "less than 1e-5 of the largest expected value, as rounding is"),
    "2": ("#fcd34d", "at least 1e-5 of the largest expected value"),
    "3": ("#fbbf24", "at least 1e-4 of the largest expected value"),
    "4": ("#f97316", "at least 1e-3 of the largest expected value"),
    "5": ("#ea580c", "at least 1e-2 of the largest expected value"),
    "6": ("#dc2626", "at least 1e-1 of the largest expected value"),
    "7": ("#db2777", "at least the largest expected value"),
    NOT_FINITE: ("#a855f7", "NaN or infinity on one side"),
    UNWRITTEN: ("#2563eb", "never written"),
}
"""The colour and the meaning of each code, the worst last: a block shows its worst element. Small
errors are yellow, large ones red and pink. Purple and blue mark elements without a number."""
_CODES = "".join(KINDS)

Codes = NDArray[np.uint8]


def error_maps(mismatch: Mismatch) -> list[dict[str, Any]]:
    """Return maps of the slices with the most wrong elements, as data; none without evidence.

    Each map has ``slice``, the indices of the leading axes; ``shape`` and ``wrong``, which count
    elements; ``rows``, with a character for each cell; and ``block``, the elements of a cell.
    ``title`` names the slice and the number of wrong elements. ``spoken`` describes the picture.
    """
    if mismatch.evidence is None:
        return []
    codes = _codes(mismatch.evidence, unwritten=mismatch.kind == "unwritten")
    flat = codes.reshape(-1, *(1, *codes.shape)[-2:])
    lead = codes.shape[:-2]
    wrong = np.count_nonzero(flat, axis=(1, 2))
    worst = sorted(np.argsort(-wrong, kind="stable")[:SLICES].tolist())
    return [
        _error_map(flat[place], _indices(place, lead))
        for place in worst
        if wrong[place]
    ]


def _indices(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the indices of a place in row-major order; empty for an empty shape."""
    if not shape:
        return ()
    return tuple(map(int, np.unravel_index(place, shape)))


def _error_map(codes: Codes, slice: tuple[int, ...]) -> dict[str, Any]:
    """Return the map of one slice as data."""
    rows, columns = codes.shape
    wrong = int(np.count_nonzero(codes))
    block = math.ceil(rows / ROWS) or 1, math.ceil(columns / COLUMNS) or 1
    where = f"slice [{', '.join([*map(str, slice), ':', ':'])}]: " if slice else ""
    cells = tuple(_lines(codes, block))
    counts = Counter("".join(cells))
    size = "" if block == (1, 1) else f", cells of {block[0]} x {block[1]}"
    worst_first = _CODES[:0:-1]  # without the right elements
    spoken = [
        f"{counts[code]} {KINDS[code][1]}" for code in worst_first if counts[code]
    ]
    return {
        "slice": slice,
        "shape": (rows, columns),
        "rows": cells,
        "wrong": wrong,
        "block": block,
        "title": f"{where}{wrong:,} of {rows * columns:,} elements ({rows} x {columns}) wrong",
        "spoken": ", ".join(spoken) + size,
    }


def _codes(output: WrongOutput, *, unwritten: bool) -> Codes:
    """Return the code of each element: a place in ``_CODES``."""
    if unwritten:
        return np.where(output.wrong, _CODES.index(UNWRITTEN), 0).astype(np.uint8)
    with np.errstate(all="ignore"):
        error = np.abs(output.got.astype(np.float64) - output.value)
        finite = np.isfinite(output.value)
        scale = float(np.abs(output.value[finite]).max(initial=0.0)) or 1.0
        level = np.clip(np.floor(np.log10(error / scale)) + len(LEVELS), 1, len(LEVELS))
    level = np.where(np.isfinite(error), level, _CODES.index(NOT_FINITE))
    return np.where(output.wrong, level, 0).astype(np.uint8)


def _lines(codes: Codes, block: tuple[int, int]) -> Iterator[str]:
    """Yield the rows of cells as text; a cell shows the worst element of its block."""
    for start in range(0, codes.shape[0], block[0]):
        row = codes[start : start + block[0]].max(axis=0)
        cells = np.maximum.reduceat(row, np.arange(0, row.size, block[1]))
        yield "".join(_CODES[code] for code in cells)


def png(rows: Sequence[str]) -> str:
    """Return a map as the data URI of a PNG with a palette: one pixel for each cell."""
    numbers = {ord(code): number for number, code in enumerate(_CODES)}
    lines = [b"\0" + row.translate(numbers).encode("latin-1") for row in rows]
    palette = bytes.fromhex("".join(colour[1:] for colour, _ in KINDS.values()))
    head = struct.pack(">IIBBBBB", len(rows[0]), len(lines), 8, 3, 0, 0, 0)
    chunks: list[tuple[bytes, bytes]] = [
        (b"IHDR", head),
        (b"PLTE", palette),
        (b"tRNS", b"\0"),  # right elements are transparent: they have the page's colour
        (b"IDAT", zlib.compress(b"".join(lines))),
        (b"IEND", b""),
    ]
    file = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(file).decode("ascii")


def legend(maps: list[Any]) -> list[tuple[str, str]]:
    """Return the colours in some maps, as (colour, meaning)."""
    used = set("".join("".join(picture["rows"]) for picture in maps)) - {RIGHT}
    return [KINDS[code] for code in reversed(_CODES) if code in used]
