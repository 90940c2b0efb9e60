"""The messages between the judge and a worker: a JSON header, followed by bytes.

A frame is a header with the number of blobs, and the blobs. Neither side unpickles data: each
accepts numbers, texts and raw bytes, and checks them.
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
from difftest.tools.verdict.sources import Violation

MOST = 2**31
"""The limit on the bytes of a blob."""
MOST_BLOBS = 2**12
"""The limit on the blobs of a frame."""
MOST_HEADER = 2**20
"""The limit on the bytes of the header of a worker's answer. Its blob is a tape."""
_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("how", "error", "kind", "dialect", "file", "remedy"), str),
    "message": str,
    **dict.fromkeys(("functions", "constants"), dict),
    **dict.fromkeys(("coverage", "missing", "asked"), list),
    "signature": (list, type(None)),
    **dict.fromkeys(("printed", "line"), int),
    "is_rule": bool,
}
"""The members that an answer's header may have, and their types."""


_LANGUAGES = (
    *(f"difftest.simulator.frontend.{d}.language" for d in ("nki", "classic")),
    "numpy",
)


class WireError(Exception):
    """The received bytes are not a frame: the other side broke the protocol or ended early."""


class WorkerEnd(Exception):
    """A worker cannot answer further requests.

    Attributes
    ----------
    report : the candidate's own output.
    is_death : whether the worker's process ended without an answer.
    """

    def __init__(
        self, outcome: Outcome, text: str, report: str = "", *, is_death: bool = False
    ) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.report = report
        self.is_death = is_death


class Frame(NamedTuple):
    """A message between the judge and a worker."""

    header: dict[str, Any]
    blobs: list[bytes]


def send(
    connection: Connection, header: Mapping[str, Any], blobs: Sequence[bytes] = ()
) -> None:
    """Send a header and blobs; raise OSError if the other side has closed the connection."""
    connection.send_bytes(
        json.dumps({**header, "blobs": len(blobs)}, default=encode_value).encode()
    )
    for blob in blobs:
        connection.send_bytes(blob)


def receive(
    connection: Connection,
    header: int = MOST,
    max_bytes: int = MOST,
    blobs: int = MOST_BLOBS,
) -> Frame | None:
    """Return the next message, or None if the other side has ended; raise WireError if invalid."""
    try:
        members = json.loads(connection.recv_bytes(header))
        count = members.pop("blobs")
        if type(count) is not int or not 0 <= count <= blobs:
            raise WireError(f"a frame of {count!r:.20} blobs")
        return Frame(members, [connection.recv_bytes(max_bytes) for _ in range(count)])
    except (EOFError, ConnectionError):
        return None
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as error:
        raise WireError(f"no frame: {error}") from None


def encode_value(value: Any) -> Any:
    """Encode a kernel parameter as JSON: NumPy scalars as numbers, operators and dtypes by name."""
    if isinstance(value, np.generic):
        return value.item()
    # compared by value: a copy is another object
    is_dtype = isinstance(value, np.dtype)
    name = dtype_name(value) if is_dtype else getattr(value, "__name__", "")
    for home in _LANGUAGES:
        held = getattr(sys.modules.get(home), name, None)
        if held is value or (is_dtype and held == value):
            return {"named": [home, name]}
    raise TypeError(
        "a parameter is a number, a text, a list, a dictionary, or an object of nl or np; got "
        f"{value}: pass its parts as parameters"
    )


def decode_value(value: Any) -> Any:
    """Return the value that :func:`encode_value` encoded."""
    is_name = isinstance(value, dict) and list(value) == ["named"]
    if not is_name:
        return value
    module, name = value["named"]
    return getattr(sys.modules[module], name)


def validate_reply(frame: Frame) -> Frame:
    """Return an answer; raise WireError if its header has an unknown member or a wrong type."""
    for name, value in frame.header.items():
        kind = _KINDS.get(name)
        fits = kind is not None and isinstance(value, kind)
        if not fits or (kind is int and isinstance(value, bool)):
            raise WireError(f"an answer's {name!r:.40} is {value!r:.40}")
    return frame


def violation_of(header: Mapping[str, Any]) -> Violation:
    """Return the refusal in a worker's answer."""
    what, remedy, file = (
        one_line(str(header.get(name, ""))) for name in ("error", "remedy", "file")
    )
    return Violation(file, int(header.get("line", 1)), what, remedy)


OWN_WORDS = "| "
"""The prefix of each line of a text that a kernel's process wrote. It may imitate a verdict."""


def own_words(text: str) -> str:
    """Return a text of a kernel's process, with each line marked by :data:`OWN_WORDS`."""
    lines = printable(text).splitlines()
    return "\n".join(f"{OWN_WORDS}{line}".rstrip() for line in lines)


def one_line(text: str) -> str:
    """Return a name or a phrase of a kernel's process, with " " for unprintable characters."""
    return "".join(char if char.isprintable() else " " for char in text)


def printable(text: str) -> str:
    """Return the text with "?" for control characters and other unprintable characters."""
    return "".join(
        char if char in "\n\t" or char.isprintable() else "?" for char in text
    )


def array_header(array: Array) -> list[Any]:
    """Return the shape and dtype of an array whose bytes travel as a blob."""
    return [list(array.shape), dtype_name(array.dtype)]


def array_of(form: Any, blob: bytes) -> Array:
    """Return the array of a shape, a dtype and bytes; the array owns its memory."""
    shape, name = form
    return np.frombuffer(bytearray(blob), NKI_NAMES[name]).reshape(shape)


def is_plain(value: Any) -> bool:
    """Return whether JSON can hold a value unchanged; very long integers are excluded."""
    is_short = type(value) is int and value.bit_length() < 2**12
    return is_short or value is None or type(value) in (float, str, bool)
