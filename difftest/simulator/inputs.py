"""What a kernel is given: arrays become tensors in HBM, and those it wrote to go back."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import KernelError, Location, ShapeError, warn
from difftest.simulator.frontend import foreign
from difftest.simulator.frontend.classic.typing import is_mutable
from difftest.simulator.frontend.nki.objects import is_record


class SharedArgumentWarning(UserWarning):
    """Two arguments are one place in memory, and the kernel wrote different values to them."""


class Arguments:
    """The kernel's arguments: arrays become HBM tensors, mutable ones are copied back."""

    def __init__(
        self,
        tensor: Callable[[Array, str, bool], Any],
        function: Callable[..., Any],
        known: Callable[[object, str], Any],
        *,
        by_reference: bool,
    ) -> None:
        self.tensor = tensor
        """Makes a tensor in HBM of an array, its name, and whether the kernel may write to it."""
        self.known = known
        """Raises for a dtype that the kernel's dialect does not have."""
        self.parameters = inspect.signature(function).parameters
        code = getattr(inspect.unwrap(function), "__code__", None)
        self.location = None if code is None else Location(code.co_filename, code.co_firstlineno)
        self.by_reference = by_reference
        self.copies: list[tuple[Array, Array]] = []
        self.written: list[tuple[Array, Any]] = []
        """The caller's arrays that the kernel may write to, and the tensors that it does."""

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
            raise ShapeError(
                "a kernel's tensors have at least one element",
                happened="an argument has no elements",
                received=f"argument {name!r} of shape {array.shape}",
            )
        mutable = is_mutable(self.parameters[name].annotation)
        if mutable and not array.flags.writeable:
            raise KernelError(
                "an nt.mutable_tensor is written in place",
                happened="a read-only array was given for an nt.mutable_tensor",
                received=f"argument {name!r}, an array that is read-only",
                remedy="pass a copy: array.copy()",
            )
        mutable = mutable or (self.by_reference and array.flags.writeable)
        data = np.ascontiguousarray(array).reshape(array.shape)
        if mutable:
            if np.shares_memory(data, array):
                data = data.copy()
            self.copies.append((array, data))
        tensor = self.tensor(data, name, mutable)
        if mutable:
            self.written.append((array, tensor))
        return tensor

    def copy_back(self) -> None:
        """Give the caller's arrays what the kernel wrote, in the order of the arguments.

        One array may be several of them. Where it matters which of them is last, a warning says so.
        """
        changed = [one for one in self.copies if one[0].tobytes() != one[1].tobytes()]
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
