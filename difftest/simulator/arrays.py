"""The caller's arrays: given to a kernel they are tensors in HBM; what it returns are arrays."""

from __future__ import annotations

import copy
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import Array, to_bits
from difftest.simulator.errors import KernelError, Location, UnwrittenError, warn
from difftest.simulator.frontend import foreign
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.frontend.classic.typing import is_mutable
from difftest.simulator.frontend.nki.constants import is_record
from difftest.simulator.instructions.definedness import check_returned
from difftest.simulator.misuses import EMPTY_ARGUMENT, READ_ONLY_ARGUMENT, RETURN_OF_NO_TENSOR
from difftest.simulator.strictness import note
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Output, Space


class SharedArgumentWarning(UserWarning):
    """Two arguments are one place in memory, and the kernel wrote different values to them."""


class Arguments:
    """The kernel's arguments: arrays become HBM tensors, mutable ones are copied back."""

    def __init__(
        self,
        tensor: Callable[[Array, str, bool], Any],
        function: Callable[..., Any],
        signature: inspect.Signature,
        known: Callable[[object, str], Any],
        *,
        by_reference: bool,
    ) -> None:
        self.tensor = tensor
        """Makes a tensor in HBM of an array, its name, and whether the kernel may write to it."""
        self.known = known
        """Raises for a dtype that the kernel's dialect does not have."""
        self.parameters = signature.parameters
        code = getattr(inspect.unwrap(function), "__code__", None)
        self.location = None if code is None else Location(code.co_filename, code.co_firstlineno)
        self.by_reference = by_reference
        self.mutable: list[tuple[Array, Array, Any]] = []
        """The caller's arrays that the kernel may write to, what becomes of them, the tensors."""
        self.given: list[tuple[Array, Any]] = []
        """All of the caller's arrays, and the tensors that the kernel gets for them."""

    def convert(self, name: str, value: Any) -> Any:
        """An argument as the kernel gets it, with tensors for the arrays inside."""
        array = value if isinstance(value, np.ndarray) else foreign.as_array(value)
        if array is not None:
            return self._tensor(name, array)
        dtype = foreign.named_dtype(value)
        if dtype is not None:
            return self.known(dtype, f"argument {name!r}")
        if isinstance(value, (list, tuple)):
            items = [self.convert(name, item) for item in value]
            if all(item is old for item, old in zip(items, value, strict=True)):
                return value
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(value, dict):
            return {key: self.convert(name, item) for key, item in value.items()}
        if is_record(value):
            return self._record(name, value)
        return value

    def _record(self, name: str, value: Any) -> Any:
        """A dataclass or ``NKIObject`` with its arrays converted; itself if it has none."""
        fields = vars(value)
        items = {key: self.convert(name, item) for key, item in fields.items()}
        if all(items[key] is old for key, old in fields.items()):
            return value
        clone = copy.copy(value)
        vars(clone).update(items)
        return clone

    def _tensor(self, name: str, array: Array) -> Any:
        self.known(array.dtype, f"argument {name!r}")
        if not array.size:
            raise EMPTY_ARGUMENT(f"argument {name!r} of shape {array.shape}")
        mutable = is_mutable(self.parameters[name].annotation)
        if mutable and not array.flags.writeable:
            raise READ_ONLY_ARGUMENT(f"argument {name!r}, an array that is read-only")
        mutable = mutable or (self.by_reference and array.flags.writeable)
        data = np.array(array, order="C") if mutable else np.ascontiguousarray(array)
        tensor = self.tensor(data.reshape(array.shape), name, mutable)
        if mutable:
            self.mutable.append((array, data, tensor))
        self.given.append((array, tensor))
        return tensor

    def copy_back(self) -> None:
        """Give the caller's arrays what the kernel wrote, in the order of the arguments.

        One array may be several of them. Where it matters which of them is last, a warning says so.
        """
        changed = [
            (array, data)
            for array, data, tensor in self.mutable
            if tensor._storage.allocation.writes and array.tobytes() != data.tobytes()
        ]
        pairs = itertools.combinations([array for array, _ in changed], 2)
        if any(itertools.starmap(np.may_share_memory, pairs)) and _depends_on_order(changed):
            shapes = ", ".join(str(list(array.shape)) for array, _ in changed)
            text = (
                "the kernel wrote different values to two arguments that share memory: those of "
                f"the last one stay ({shapes}). Pass a copy for one of them"
            )
            warn(SharedArgumentWarning(text), self.location)
        for array, data in changed:
            array[...] = data


def _depends_on_order(changed: list[tuple[Array, Array]]) -> bool:
    """Whether arrays that share memory end otherwise if the last one gets its values first."""
    before = [array.copy() for array, _ in changed]
    ends: list[list[bytes]] = []
    for order in (changed, changed[::-1]):
        for array, data in order:
            array[...] = data
        ends.append([array.tobytes() for array, _ in changed])
        for (array, _), old in zip(changed, before, strict=True):
            array[...] = old
    return ends[0] != ends[1]


# -- what it gives back ----------------------------------------------------------------------------


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
        storage = value._storage
        # A whole tensor's memory is given away, once; a parameter's may be the caller's array.
        own = value._is_whole() and storage.mutable and id(storage) not in given
        given.add(id(storage))
        elements = value._elements() if own else value._elements().copy()
        if not value._holds_bits:
            elements = to_bits(elements, value.dtype)
        outputs.append((elements, missing))
    return tuple(outputs)


def note_outputs(
    returned: Iterable[Any], outputs: Iterable[tuple[Array, Array | None]], arguments: Iterable[Any]
) -> None:
    """Have the trace know which tensors leave the kernel, and what of them nothing wrote.

    Parameters
    ----------
    returned, outputs : the tensors, and what :func:`as_arrays` gives for them.
    arguments : the tensors of all arguments.
    """
    for tensor in arguments:
        if tensor._storage.allocation.writes:
            tensor._storage.allocation.output = Output()
    for tensor, (_, missing) in zip(returned, outputs, strict=True):
        allocation = tensor._storage.allocation
        if missing is not None and missing.any():
            first = tuple(int(k) for k in np.unravel_index(missing.argmax(), missing.shape))
            allocation.output = Output(int(np.count_nonzero(missing)), first)
        elif allocation.output is None:
            allocation.output = Output()


def _never_written(value: Any) -> Array | None:
    """Where a returned tensor was never written; raises if it cannot be returned."""
    if not isinstance(value, Tile):
        raise RETURN_OF_NO_TENSOR(f"{type(value).__name__} {value!r:.80}")
    if not value._space.is_hbm:
        error = KernelError(
            "a kernel returns tensors in HBM",
            happened="the kernel returned a tile that is on chip",
            received=repr(value),
            remedy="store it into a tensor with buffer=nl.shared_hbm and return that",
            location=value._storage.allocation.location,
        )
        if not isinstance(value, Tensor):
            raise error
        note(error)  # AWS's simulator gives it, and its documentation returns such tiles
    value._check_bounds()
    missing = value._unwritten()
    if missing is not None and missing.all():
        raise UnwrittenError(
            "a kernel writes what it returns",
            happened="the kernel returned a tensor that nothing wrote",
            received=f"{value!r}, of which nothing was ever written",
            remedy="check the loops' trip counts (M // TILE is 0 if M is smaller than TILE), "
            "or store a default first",
            location=value._storage.allocation.location,
        )
    check_returned(value)
    gaps: Array | None = missing
    return gaps


def warn_of_private(returned: Iterable[Any]) -> None:
    """Warn of returned tensors in private HBM, which AWS's compiler refuses since NKI 0.3."""
    for value in returned:
        if not isinstance(value, Tile) or value._space is not Space.PRIVATE_HBM:
            continue
        if value._storage.allocation.location is not None:  # an argument may be returned
            warnings.warn(
                f"a kernel returns {value!r}: the compiler rejects outputs that are not in "
                "nl.shared_hbm since NKI 0.3 (AWS's simulator does not)",
                stacklevel=3,
            )


def outputs_of(result: Any, arguments: Iterable[Any]) -> Any:
    """A launch's outputs as the API gives them: one, a tuple, or None; of the arguments' kind."""
    for number, missing in enumerate(result.unwritten):
        if missing is not None:
            warnings.warn(
                f"output {number} has {int(missing.sum())} of {missing.size} elements that the "
                "kernel never wrote; on a device they are whatever was there",
                stacklevel=3,
            )
    if not result.outputs:
        return None
    single = len(result.outputs) == 1
    return foreign.like(arguments, result.outputs[0] if single else result.outputs)
