"""What the judge and a worker send each other: a JSON header, and bytes behind it.

A frame is 8 bytes with the header's length, the header, and the blobs whose sizes the header has.
Nothing is ever unpickled: each side takes numbers, texts and raw bytes, and checks them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from difftest.simulator.dtypes import NKI_NAMES, Array, name_of
from difftest.verdict.outcome import Outcome

LENGTH = 8
MOST = 2**31
"""Bytes of a header, and of all blobs of a frame."""


class WireError(Exception):
    """What came is no frame: the other side broke the protocol, or ended within one."""


class WorkerEnd(Exception):
    """A worker that will not answer any more, and why."""

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class Frame(NamedTuple):
    """One message."""

    header: dict[str, Any]
    blobs: list[bytes]


def write_frame(stream: BinaryIO, header: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> None:
    """Send a header of what JSON has, and blobs."""
    text = json.dumps({**header, "sizes": [len(one) for one in blobs]}).encode()
    stream.write(len(text).to_bytes(LENGTH, "big"))
    stream.write(text)
    for one in blobs:
        stream.write(one)
    stream.flush()


def read_frame(stream: BinaryIO) -> Frame | None:
    """The next message; None if the other side has ended.

    Raises
    ------
    WireError : what comes is no frame.
    """
    first = stream.read(LENGTH)
    if not first:
        return None
    try:
        header = json.loads(_exactly(stream, int.from_bytes(first, "big")))
        sizes = header.pop("sizes")
        if sum(sizes) > MOST or any(type(one) is not int or one < 0 for one in sizes):
            raise WireError("a frame is too long")
        return Frame(header, [_exactly(stream, size) for size in sizes])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise WireError(f"no frame: {error}") from None


def _exactly(stream: BinaryIO, size: int) -> bytes:
    if size > MOST:
        raise WireError(f"{size:,} bytes are too many")
    found = stream.read(size)
    if len(found) != size:
        raise WireError("the other side ended within a frame")
    return found


def form_of(array: Array) -> list[Any]:
    """What a header says of an array whose bytes are a blob."""
    return [list(array.shape), name_of(array.dtype)]


def array_of(form: Any, blob: bytes) -> Array:
    """The array of a form and its bytes; its own memory.

    Raises
    ------
    WireError : they are none, or do not fit each other.
    """
    try:
        shape, name = form
        dtype = NKI_NAMES[name]
        sizes = [size for size in shape if type(size) is int and 0 <= size <= MOST]
        if len(sizes) != len(shape) or math.prod(sizes) * dtype.itemsize != len(blob):
            raise WireError(f"{len(blob):,} bytes are no array {shape} of {name}")
    except (TypeError, ValueError, KeyError) as error:
        raise WireError(f"no array: {error!r:.80}") from None
    return np.frombuffer(bytearray(blob), dtype).reshape(shape)
