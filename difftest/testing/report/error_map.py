"""Where an output is wrong, and how far: a map of its elements, as text and as a picture.

The last two axes are shown, partitions down and the free dimension to the right; of more dimensions
a slice each. A map that is too large shows the worst of each block of elements.
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
"""How many slices of an output are shown, those with the most wrong elements."""
RIGHT = "."
UNWRITTEN = "u"
NOT_FINITE = "n"
LEVELS = "1234567"
"""Decades of the error over the largest expected value: 7 is all of it, 1 a millionth or less."""
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
"""Colour and meaning. From yellow, near, to red and pink, far; purple and blue are no numbers. The
worst last: a block shows its worst element."""
_CODES = "".join(KINDS)

Codes = NDArray[np.uint8]


def error_maps(mismatch: Mismatch) -> list[dict[str, Any]]:
    """The slices of a wrong output with the most wrong elements; none without evidence.

    As JSON has them: ``slice`` are the indices of the leading axes, ``shape`` and ``wrong`` count
    elements, ``rows`` have a character for each cell, ``block`` is how many elements a cell has;
    ``title`` and ``spoken`` say which slice it is, how much is wrong, and what there is to see.
    """
    if mismatch.evidence is None:
        return []
    codes = _codes(mismatch.evidence, unwritten=mismatch.kind == "unwritten")
    flat = codes.reshape(-1, *(1, *codes.shape)[-2:])
    lead = codes.shape[:-2]
    wrong = np.count_nonzero(flat, axis=(1, 2))
    worst = sorted(np.argsort(-wrong, kind="stable")[:SLICES].tolist())
    return [
        _map(flat[place], tuple(map(int, np.unravel_index(place, lead))) if lead else ())
        for place in worst
        if wrong[place]
    ]


def _map(codes: Codes, slice: tuple[int, ...]) -> dict[str, Any]:
    (rows, columns), wrong = codes.shape, int(np.count_nonzero(codes))
    block = math.ceil(rows / ROWS) or 1, math.ceil(columns / COLUMNS) or 1
    where = f"slice [{', '.join([*map(str, slice), ':', ':'])}]: " if slice else ""
    cells = tuple(_lines(codes, block))
    counts = Counter("".join(cells))
    size = "" if block == (1, 1) else f", cells of {block[0]} x {block[1]}"
    spoken = [f"{counts[code]} {KINDS[code][1]}" for code in _CODES[:0:-1] if counts[code]]
    return {
        "slice": slice,
        "shape": (rows, columns),
        "rows": cells,
        "wrong": wrong,
        "block": block,
        "title": f"{where}{wrong:,} of {rows * columns:,} elements ({rows} x {columns}) wrong",
        "spoken": ", ".join(spoken) + size,
    }


def _codes(seen: WrongOutput, *, unwritten: bool) -> Codes:
    """What each element shows: a place in ``_CODES``."""
    if unwritten:
        return np.where(seen.wrong, _CODES.index(UNWRITTEN), 0).astype(np.uint8)
    with np.errstate(all="ignore"):
        error = np.abs(seen.got.astype(np.float64) - seen.value)
        finite = np.isfinite(seen.value)
        scale = float(np.abs(seen.value[finite]).max(initial=0.0)) or 1.0
        level = np.clip(np.floor(np.log10(error / scale)) + len(LEVELS), 1, len(LEVELS))
    level = np.where(np.isfinite(error), level, _CODES.index(NOT_FINITE))
    return np.where(seen.wrong, level, 0).astype(np.uint8)


def _lines(codes: Codes, block: tuple[int, int]) -> Iterator[str]:
    """The cells as text, the worst element of each block."""
    for start in range(0, codes.shape[0], block[0]):
        row = codes[start : start + block[0]].max(axis=0)
        cells = np.maximum.reduceat(row, np.arange(0, row.size, block[1]))
        yield "".join(_CODES[code] for code in cells)


def png(rows: Sequence[str]) -> str:
    """The cells of a map as a PNG of a palette, a pixel each, as a data URI."""
    numbers = {ord(code): number for number, code in enumerate(_CODES)}
    lines = [b"\0" + row.translate(numbers).encode("latin-1") for row in rows]
    palette = bytes.fromhex("".join(colour[1:] for colour, _ in KINDS.values()))
    head = struct.pack(">IIBBBBB", len(rows[0]), len(lines), 8, 3, 0, 0, 0)
    chunks: list[tuple[bytes, bytes]] = [
        (b"IHDR", head),
        (b"PLTE", palette),
        (b"tRNS", b"\0"),  # what is right has the page's own colour
        (b"IDAT", zlib.compress(b"".join(lines))),
        (b"IEND", b""),
    ]
    file = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(file).decode("ascii")


def legend(maps: list[Any]) -> list[tuple[str, str]]:
    """The colours that some maps have, as (colour, meaning)."""
    used = set("".join("".join(picture["rows"]) for picture in maps)) - {RIGHT}
    return [KINDS[code] for code in reversed(_CODES) if code in used]
