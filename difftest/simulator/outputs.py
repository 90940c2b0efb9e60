"""What a kernel gives back: its tensors as arrays, if it may return them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import Array, to_bits
from difftest.simulator.errors import KernelError, UnwrittenError
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.instructions.definedness import check_returned
from difftest.simulator.strictness import note
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Output


def flatten(returned: Any) -> list[Any]:
    """What a kernel returned, without the tuples and lists around it."""
    if returned is None:
        return []
    if isinstance(returned, (tuple, list)):
        return [leaf for value in returned for leaf in flatten(value)]
    return [returned]


def as_arrays(returned: list[Any]) -> tuple[tuple[Array, Array | None], ...]:
    """The returned tensors as arrays of their own, and where each was never written."""
    outputs = []
    given: set[int] = set()
    for value in returned:
        missing = _never_written(value)
        storage = value.storage
        # A whole tensor's memory is given away, once; a parameter's may be the caller's array.
        own = value.is_whole() and storage.mutable and id(storage) not in given
        given.add(id(storage))
        elements = value.elements() if own else value.elements().copy()
        if not value.holds_bits:
            elements = to_bits(elements, value.dtype)
        outputs.append((elements, missing))
    return tuple(outputs)


def note_outputs(
    returned: Iterable[Any],
    outputs: Iterable[tuple[Array, Array | None]],
    arguments: Iterable[Any],
) -> None:
    """Have the trace know which tensors leave the kernel, and what of them nothing wrote.

    Parameters
    ----------
    returned, outputs : the tensors, and what :func:`as_arrays` gives for them.
    arguments : those that the kernel may write to.
    """
    for tensor in arguments:
        if tensor.storage.allocation.writes:
            tensor.storage.allocation.output = Output()
    for tensor, (_, missing) in zip(returned, outputs, strict=True):
        allocation = tensor.storage.allocation
        if missing is not None and missing.any():
            first = tuple(int(k) for k in np.unravel_index(missing.argmax(), missing.shape))
            allocation.output = Output(int(np.count_nonzero(missing)), first)
        elif allocation.output is None:
            allocation.output = Output()


def _never_written(value: Any) -> Array | None:
    """Where a returned tensor was never written; raises if it cannot be returned."""
    if not isinstance(value, Tile):
        raise KernelError(
            "a kernel returns tensors",
            happened="the kernel returned something that is no tensor",
            received=f"{type(value).__name__} {value!r:.80}",
            remedy="return the tensors created with buffer=nl.shared_hbm",
        )
    if not value.space.is_hbm:
        error = KernelError(
            "a kernel returns tensors in HBM",
            happened="the kernel returned a tile that is on chip",
            received=repr(value),
            remedy="store it into a tensor with buffer=nl.shared_hbm and return that",
            location=value.storage.allocation.location,
        )
        if not isinstance(value, Tensor):
            raise error
        note(error)  # AWS's simulator gives it, and its documentation returns such tiles
    value.check_bounds()
    missing = value.unwritten()
    if missing is not None and missing.all():
        raise UnwrittenError(
            "a kernel writes what it returns",
            happened="the kernel returned a tensor that nothing wrote",
            received=f"{value!r}, of which nothing was ever written",
            remedy="check the loops' trip counts (M // TILE is 0 if M is smaller than TILE), "
            "or store a default first",
            location=value.storage.allocation.location,
        )
    check_returned(value)
    gaps: Array | None = missing
    return gaps
