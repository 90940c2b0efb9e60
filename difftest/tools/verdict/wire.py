"""What the judge and a worker send each other: a JSON header, and bytes behind it.

A frame is a header, which says how many blobs there are, and the blobs. Nothing is ever unpickled:
each side takes numbers, texts and raw bytes, and checks them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.dtypes import NKI_NAMES, Array, dtype_name
from difftest.tools.verdict.outcome import Outcome

MOST = 2**31  # bytes of a blob
MOST_BLOBS, MOST_ANSWER, MOST_HEADER = 2**12, 2**28, 2**20
"""Blobs of a frame; bytes of the one that a worker answers with, and of its header."""
_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("how", "error", "kind", "dialect"), str),
    **dict.fromkeys(("functions", "constants"), dict),
    **dict.fromkeys(("coverage", "missing"), list),
    "signature": (list, type(None)),
    "printed": int,
    "is_rule": bool,
}
"""What an answer's header may hold."""


_LANGUAGES = (*(f"difftest.simulator.frontend.{d}.language" for d in ("nki", "classic")), "numpy")


class WireError(Exception):
    """What came is no frame: the other side broke the protocol, or ended within one."""


class WorkerEnd(Exception):
    """A worker that will not answer any more, and why; ``report`` has the candidate's own words."""

    def __init__(self, outcome: Outcome, text: str, report: str = "") -> None:
        super().__init__(text)
        self.outcome = outcome
        self.report = report


class Frame(NamedTuple):
    """One message."""

    header: dict[str, Any]
    blobs: list[bytes]


def send(connection: Connection, header: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> None:
    """Send a header of what JSON has or :func:`told`, and blobs; OSError if nobody reads."""
    connection.send_bytes(
        json.dumps({**header, "blobs": len(blobs)}, default=encode_value).encode()
    )
    for blob in blobs:
        connection.send_bytes(blob)


def receive(
    connection: Connection, header: int = MOST, max_bytes: int = MOST, blobs: int = MOST_BLOBS
) -> Frame | None:
    """The next message; None if the other side has ended; WireError if it is no frame."""
    try:
        told = json.loads(connection.recv_bytes(header))
        count = told.pop("blobs")
        if type(count) is not int or not 0 <= count <= blobs:
            raise WireError(f"a frame of {count!r:.20} blobs")
        return Frame(told, [connection.recv_bytes(max_bytes) for _ in range(count)])
    except (EOFError, ConnectionError):
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise WireError(f"no frame: {error}") from None


def encode_value(value: Any) -> Any:
    """A kernel's parameter that JSON lacks: a number of NumPy's; by name what a language has."""
    if isinstance(value, np.generic):
        return value.item()
    is_dtype = isinstance(value, np.dtype)  # a copy of it is another object
    name = dtype_name(value) if is_dtype else getattr(value, "__name__", "")
    for home in _LANGUAGES:
        held = getattr(sys.modules.get(home), name, None)
        if held is value or (is_dtype and held == value):
            return {"named": [home, name]}
    raise TypeError(f"a parameter is a number, a text, or what nl or np has by a name; got {value}")


def decode_value(value: Any) -> Any:
    """What :func:`told` made this of."""
    is_name = isinstance(value, dict) and list(value) == ["named"]
    return getattr(sys.modules[value["named"][0]], value["named"][1]) if is_name else value


def validate_reply(frame: Frame) -> Frame:
    """An answer whose header is of the form that it must have; else WireError."""
    for name, value in frame.header.items():
        kind = _KINDS.get(name)
        fits = kind is not None and isinstance(value, kind)
        if not fits or (kind is int and isinstance(value, bool)):
            raise WireError(f"an answer's {name!r:.40} is {value!r:.40}")
    return frame


def printable(text: str) -> str:
    """The text without what a terminal obeys, or what hides other characters."""
    return "".join(char if char in "\n\t" or char.isprintable() else "?" for char in text)


def array_header(array: Array) -> list[Any]:
    """What a header says of an array whose bytes are a blob."""
    return [list(array.shape), dtype_name(array.dtype)]


def array_of(form: Any, blob: bytes) -> Array:
    """The array of a form and its bytes; its own memory."""
    shape, name = form
    return np.frombuffer(bytearray(blob), NKI_NAMES[name]).reshape(shape)


def is_plain(value: Any) -> bool:
    """Whether JSON has a value as it is: Python writes no integer of very many digits."""
    is_short = type(value) is int and value.bit_length() < 2**12
    return is_short or value is None or type(value) in (float, str, bool)
