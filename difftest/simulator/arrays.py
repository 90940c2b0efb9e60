"""Conversion of the caller's arrays to HBM tensors, and of returned tensors to arrays.

PyTorch tensors and JAX arrays count as arrays. Neither framework is imported here: if a value of
a framework exists, its owner has imported the framework. Source: AWS's guide of the simulator at
v2.32.0 (NumPy in gives NumPy out, torch in torch out) and the kernels that its quick start calls
with JAX arrays.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from difftest.simulator.dtypes import Array, dtype_name, to_bits
from difftest.simulator.elements import unwritten_error
from difftest.simulator.errors import KernelError, Location, UnwrittenError, warn
from difftest.simulator.frontend.annotations import mutable_parameters
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.frontend.nki.constants import is_record
from difftest.simulator.memory import FROM_UNWRITTEN
from difftest.simulator.misuses import (
    DTYPE_WITHOUT_TORCH,
    EMPTY_ARGUMENT,
    READ_ONLY_ARGUMENT,
    RETURN_OF_NO_TENSOR,
)
from difftest.simulator.strictness import report_undefined, report_violation
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Output, Space


class SharedArgumentWarning(UserWarning):
    """Two arguments share memory, and the kernel wrote different values to them."""


class Arguments:
    """The kernel's arguments: arrays become HBM tensors, and written ones are copied back."""

    def __init__(
        self,
        tensor: Callable[[Array, str, bool], Any],
        function: Callable[..., Any],
        signature: inspect.Signature,
        check: Callable[[object, str], Any],
        *,
        by_reference: bool,
    ) -> None:
        self.tensor = tensor
        """A function of an array, its name and whether the kernel may write to it; it returns a
        tensor."""
        self.known = check
        """A function that raises for a dtype that the kernel's dialect lacks."""
        self.parameters = signature.parameters
        self.mutable_parameters = mutable_parameters(function, signature)
        """The names of parameters that the kernel may write to."""
        self.location = Location.of_definition(inspect.unwrap(function))
        self.by_reference = by_reference
        self.mutable: list[tuple[Array, Any]] = []
        """For each array that the kernel may write to: the caller's array, and the tensor."""
        self._uncopied: list[tuple[Array, Any]] = []
        """The pairs of ``mutable`` whose tensor is the caller's array. Arrays with gaps are copied.
        ``np.memmap`` is left out: a process that is killed would leave a changed file."""
        self.given: list[tuple[Array, Any]] = []
        """The caller's arrays, and the kernel's tensors for them."""

    def convert(self, name: str, value: Any) -> Any:
        """Return an argument with its arrays converted to tensors."""
        array = value if isinstance(value, np.ndarray) else framework_array(value)
        if array is not None:
            return self._as_tensor(name, array)
        dtype = named_dtype(value)
        if dtype is not None:
            return self.known(dtype, f"argument {name!r}")
        if isinstance(value, (list, tuple)):
            return self._sequence(name, value)
        if isinstance(value, dict):
            return {key: self.convert(name, item) for key, item in value.items()}
        if is_record(value):
            return self._record(name, value)
        return value

    def _sequence(self, name: str, value: Any) -> Any:
        """Return a list or tuple with its arrays converted; itself if it has none."""
        items = [self.convert(name, item) for item in value]
        if all(item is old for item, old in zip(items, value, strict=True)):
            return value
        kind = type(value)
        if hasattr(value, "_fields"):
            return kind(*items)
        return kind(items)

    def _record(self, name: str, value: Any) -> Any:
        """Return a dataclass or ``NKIObject`` with its arrays converted; itself if it has none."""
        fields = vars(value)
        items = {key: self.convert(name, item) for key, item in fields.items()}
        if all(items[key] is old for key, old in fields.items()):
            return value
        clone = copy.copy(value)
        vars(clone).update(items)
        return clone

    def _as_tensor(self, name: str, array: Array) -> Any:
        self.known(array.dtype, f"argument {name!r}")
        if not array.size:
            raise EMPTY_ARGUMENT(f"argument {name!r} of shape {array.shape}")
        mutable = name in self.mutable_parameters
        if mutable and not array.flags.writeable:
            raise READ_ONLY_ARGUMENT(f"argument {name!r}, an array that is read-only")
        mutable = mutable or (self.by_reference and array.flags.writeable)
        data = np.ascontiguousarray(array)
        tensor = self.tensor(data.reshape(array.shape), name, mutable)
        if mutable:
            self.mutable.append((array, tensor))
        if mutable and data is array:  # of np.memmap, data are another object
            self._uncopied.append((array, tensor))
        self.given.append((array, tensor))
        return tensor

    def write_in_place(self) -> None:
        """Let the kernel write to the caller's arrays, except to those that share memory.

        A launch then takes time for the parts that the kernel writes, not for whole arrays.
        """
        arrays = [array for array, _ in self.given]
        for array, tensor in self._uncopied:
            sharing = [other for other in arrays if np.may_share_memory(array, other)]
            tensor._storage.in_place = len(sharing) == 1

    @contextlib.contextmanager
    def restored_on_error(self) -> Iterator[None]:
        """Give the caller's arrays their old values if the block ends with an error."""
        try:
            yield
        except BaseException:
            for _, tensor in self.mutable:
                tensor._storage.restore()
            raise

    @property
    def written(self) -> list[Tile]:
        """The tensors of the arguments that an instruction wrote to."""
        tensors = [tensor for _, tensor in self.mutable]
        return [tensor for tensor in tensors if tensor._storage.allocation.writes]

    def origin(self, tile: Tile) -> Array | None:
        """Return the caller's array that a tile is as a whole, in the same shape; else None."""
        for array, tensor in self.given:
            if tile._storage is tensor._storage and tile._pattern == tensor._pattern:
                if tile.dtype == tensor.dtype:
                    return array
                return None
        return None

    def copy_back(self) -> None:
        """Write the kernel's results to the caller's arrays, in the order of the arguments.

        One array may be several arguments. If the order then matters, a warning is issued.
        """
        written = [
            (array, tensor._storage.data)
            for array, tensor in self.mutable
            if tensor._storage.allocation.writes and not tensor._storage.in_place
        ]
        pairs = itertools.combinations([array for array, _ in written], 2)
        if any(itertools.starmap(np.may_share_memory, pairs)):
            written = self._changed(written)
        for array, data in written:
            array[...] = data

    def _changed(self, written: list[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
        """Return the arrays that got other values; warn if the order of writing them matters."""
        changed = [
            (array, data)
            for array, data in written
            if array.tobytes() != data.tobytes()
        ]
        if _depends_on_order(changed):
            shapes = ", ".join(str(list(array.shape)) for array, _ in changed)
            text = (
                "the kernel wrote different values to two arguments that share memory: the values "
                f"of the last argument stay ({shapes}). Pass a copy for one of them"
            )
            warn(SharedArgumentWarning(text), self.location)
        return changed


def _depends_on_order(changed: list[tuple[Array, Array]]) -> bool:
    """Return whether arrays that share memory end differently if the last one is written first."""
    before = [array.copy() for array, _ in changed]
    ends: list[list[bytes]] = []
    for order in (changed, changed[::-1]):
        for array, data in order:
            array[...] = data
        ends.append([array.tobytes() for array, _ in changed])
        for (array, _), old in zip(changed, before, strict=True):
            array[...] = old
    return ends[0] != ends[1]


# -- returned tensors ------------------------------------------------------------------------------


def flatten(returned: Any) -> list[Any]:
    """Return the values that a kernel returned, without tuples and lists around them."""
    if returned is None:
        return []
    if isinstance(returned, (tuple, list)):
        return [leaf for value in returned for leaf in flatten(value)]
    return [returned]


def as_arrays(returned: list[Any]) -> tuple[tuple[Array, Array | None], ...]:
    """Return the returned tensors as separate arrays, and where each is unwritten."""
    outputs = []
    ids: set[int] = set()
    for value in returned:
        missing = _never_written(value)
        storage = value._storage
        # A whole tensor's memory is handed over once. An argument's may be the caller's array.
        own = value._is_whole() and not storage.lent and id(storage) not in ids
        ids.add(id(storage))
        elements = value._elements() if own else value._elements().copy()
        if not value._holds_bits:
            elements = to_bits(elements, value.dtype)
        outputs.append((elements, missing))
    return tuple(outputs)


def note_outputs(
    returned: Iterable[Any],
    outputs: Iterable[tuple[Array, Array | None]],
    arguments: Iterable[Any],
) -> None:
    """Record in the trace which tensors leave the kernel, and their unwritten elements.

    Parameters
    ----------
    returned, outputs : the tensors, and the result of :func:`as_arrays` for them.
    arguments : the tensors of all arguments.
    """
    for tensor in arguments:
        if tensor._storage.allocation.writes:
            tensor._storage.allocation.output = Output(returned=False)
    for tensor, (_, missing) in zip(returned, outputs, strict=True):
        allocation = tensor._storage.allocation
        if missing is not None and missing.any():
            first = tuple(
                int(k) for k in np.unravel_index(missing.argmax(), missing.shape)
            )
            allocation.output = Output(int(np.count_nonzero(missing)), first)
        elif allocation.output is None or not allocation.output.returned:
            allocation.output = Output()


def _never_written(value: Any) -> Array | None:
    """Return where a returned tensor is unwritten; raise if it cannot be returned."""
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
        # AWS's simulator gives it, and its documentation returns such tiles
        report_violation(error)
    value._check_bounds()
    missing = value._unwritten()
    if missing is not None and missing.all():
        raise UnwrittenError(
            "a kernel writes all elements that it returns",
            happened="the kernel returned a tensor in which no element was written",
            received=repr(value),
            remedy="check the loops' trip counts (M // TILE is 0 if M is smaller than TILE), "
            "or store a default first",
            location=value._storage.allocation.location,
        )
    lost = value._unwritten(FROM_UNWRITTEN)
    if lost is not None:  # computed from unwritten elements
        report_undefined(unwritten_error(value, lost, returned=True))
    gaps: Array | None = missing
    return gaps


def warn_of_private(returned: Iterable[Any]) -> None:
    """Warn of returned tensors in private HBM, which AWS's compiler rejects since NKI 0.3."""
    for value in returned:
        if not isinstance(value, Tile) or value._space is not Space.PRIVATE_HBM:
            continue
        # an argument may be returned
        if value._storage.allocation.location is not None:
            warnings.warn(
                f"a kernel returns {value!r}: the compiler rejects outputs that are not in "
                "nl.shared_hbm since NKI 0.3 (AWS's simulator does not)",
                stacklevel=3,
            )


def outputs_of(result: Any, arguments: Iterable[Any]) -> Any:
    """Return a launch's outputs as the API does: one, a tuple, or None, in the arguments' kind."""
    for number, missing in enumerate(result.unwritten):
        if missing is not None:
            warnings.warn(
                f"output {number} has {int(missing.sum())} of {missing.size} elements that the "
                "kernel never wrote; on a device they have arbitrary values",
                stacklevel=3,
            )
    if not result.outputs:
        return None
    single = len(result.outputs) == 1
    return as_caller_arrays(arguments, result.outputs[0] if single else result.outputs)


# -- tensors of PyTorch and JAX --------------------------------------------------------------------

_BITS = {1: "uint8", 2: "int16"}
"""For each itemsize, a dtype that both NumPy and torch have."""
_NARROW = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
}
"""The dtypes that torch and ml_dtypes have and NumPy lacks, by torch's name."""


def framework_array(value: Any) -> Array | None:
    """Return a framework's tensor as an array; None for anything else.

    A torch tensor on the CPU shares its memory with the array. A kernel that writes to an argument
    thus writes to the tensor. JAX arrays, and copies of tensors on devices, are read-only.
    """
    torch = sys.modules.get("torch")
    jax = sys.modules.get("jax")
    if torch is not None and isinstance(value, torch.Tensor):
        tensor = value.detach().cpu()
        narrow = _NARROW.get(str(tensor.dtype).removeprefix("torch."))
        if narrow is None:
            array: Array = np.asarray(tensor.numpy())
        else:
            bits = tensor.view(getattr(torch, _BITS[narrow.itemsize]))
            array = bits.numpy().view(narrow)
        if value.device.type != "cpu":
            array.flags.writeable = False
        return array
    if jax is not None and isinstance(value, jax.Array):
        return np.asarray(value)
    return None


def named_dtype(value: Any) -> str | None:
    """Return the name of a torch dtype; None for anything else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.dtype):
        return None
    return str(value).rpartition(".")[2]


def check_outputs(arguments: Iterable[Any], arrays: Iterable[Array]) -> None:
    """Raise unless the outputs can have the arguments' kind.

    Raises
    ------
    DtypeError : the arguments are torch's, and torch lacks the dtype of an output.
    """
    convert = next(filter(None, map(_converter, tree_leaves(arguments))), None)
    if convert is not _as_torch:
        return
    for array in arrays:
        name = dtype_name(array.dtype)
        if not hasattr(sys.modules["torch"], name):
            raise DTYPE_WITHOUT_TORCH(f"an output in {name}")


def as_caller_arrays(arguments: Iterable[Any], outputs: Any) -> Any:
    """Return outputs, an array or a tuple of arrays, in the arguments' kind: torch, JAX or NumPy.

    None, from a kernel that returns nothing, stays None.
    """
    convert = next(filter(None, map(_converter, tree_leaves(arguments))), None)
    if convert is None or outputs is None:
        return outputs
    if isinstance(outputs, tuple):
        return tuple(map(convert, outputs))
    return convert(outputs)


def _converter(value: Any) -> Callable[[Array], Any] | None:
    """Return the function that converts an array to the framework of ``value``, if any."""
    torch = sys.modules.get("torch")
    jax = sys.modules.get("jax")
    if torch is not None and isinstance(value, torch.Tensor):
        return _as_torch
    if jax is not None and isinstance(value, jax.Array):
        return lambda array: jax.numpy.asarray(array)
    return None


def tree_leaves(values: Iterable[Any]) -> Iterable[Any]:
    """Yield the leaves of nested lists, mappings and records."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from tree_leaves(value)
        elif isinstance(value, Mapping):
            yield from tree_leaves(value.values())
        elif is_record(value):
            yield from tree_leaves(vars(value).values())
        else:
            yield value


def _as_torch(array: Array) -> Any:
    torch = sys.modules["torch"]
    name = next((name for name, dtype in _NARROW.items() if dtype == array.dtype), None)
    if name is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(_BITS[array.dtype.itemsize])).view(
        getattr(torch, name)
    )
