"""Tensors of PyTorch and arrays of JAX as NumPy arrays, and NumPy arrays as what they were.

Neither framework is imported here: a value of theirs exists only where its owner imported it.
Source: AWS's guide of the simulator at v2.32.0 (NumPy in gives NumPy out, torch in torch out) and
the kernels that its quick start calls with JAX arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from difftest.simulator.dtypes import Array, name_of
from difftest.simulator.frontend.nki.constants import is_record
from difftest.simulator.misuses import DTYPE_WITHOUT_TORCH

_BITS = {1: "uint8", 2: "int16"}
"""A dtype of both NumPy and torch of as many bytes."""
_NARROW = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
}
"""Dtypes that torch has, NumPy lacks and ml_dtypes brings, by torch's name."""


def as_array(value: Any) -> Array | None:
    """A framework's tensor as an array; None for anything else.

    A torch tensor on the CPU shares its memory with the array, so that what a kernel writes into an
    argument is in the tensor; copies of those on devices are read-only, and JAX arrays are.
    """
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
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
    """The name of one of torch's dtypes; None for anything else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.dtype):
        return None
    return str(value).rpartition(".")[2]


def check_outputs(arguments: Iterable[Any], arrays: Iterable[Array]) -> None:
    """Raise unless outputs can be what the arguments were.

    Raises
    ------
    DtypeError : the arguments are torch's, and torch has no dtype for an output.
    """
    convert = next(filter(None, map(_converter, _leaves(arguments))), None)
    if convert is not _as_torch:
        return
    for array in arrays:
        name = name_of(array.dtype)
        if not hasattr(sys.modules["torch"], name):
            raise DTYPE_WITHOUT_TORCH(f"an output in {name}")


def like(arguments: Iterable[Any], outputs: Any) -> Any:
    """Outputs, an array or a tuple of arrays, as what the arguments were: torch's, JAX's, NumPy's.

    None, of a kernel that returns nothing, stays None.
    """
    convert = next(filter(None, map(_converter, _leaves(arguments))), None)
    if convert is None or outputs is None:
        return outputs
    return tuple(map(convert, outputs)) if isinstance(outputs, tuple) else convert(outputs)


def _converter(value: Any) -> Callable[[Array], Any] | None:
    """What makes of an array a tensor of the framework that ``value`` is of."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(value, torch.Tensor):
        return _as_torch
    if jax is not None and isinstance(value, jax.Array):
        return lambda array: jax.numpy.asarray(array)
    return None


def _leaves(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _leaves(value)
        elif isinstance(value, Mapping):
            yield from _leaves(value.values())
        elif is_record(value):
            yield from _leaves(vars(value).values())
        else:
            yield value


def _as_torch(array: Array) -> Any:
    torch = sys.modules["torch"]
    name = next((name for name, dtype in _NARROW.items() if dtype == array.dtype), None)
    if name is None:
        return torch.from_numpy(array)
    bits = array.view(_BITS[array.dtype.itemsize])
    return torch.from_numpy(bits).view(getattr(torch, name))
