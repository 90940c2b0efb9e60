"""torch's tensors as arguments and results of kernels, where the caller has torch.

Nothing here imports torch: whoever has a tensor has loaded it. A tensor on the CPU and its array
share their memory, so that what a kernel writes to an argument is in the tensor. Dtypes that NumPy
does not know travel as integers of their size. Source: the stub ``nki.simulate`` at v2.32.0.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from difftest.simulator.dtypes import Array, DType, as_dtype, name_of
from difftest.simulator.errors import DtypeError, KernelError

_BITS = {1: "uint8", 2: "int16"}
"""By size in bytes: the dtype of torch and NumPy as which other dtypes travel."""


def torch_module() -> Any:
    """The module ``torch``, if something has imported it."""
    module = sys.modules.get("torch")
    return module if hasattr(module, "Tensor") else None


def is_tensor(value: object) -> bool:
    """Whether a value is a torch tensor."""
    torch = torch_module()
    return torch is not None and isinstance(value, torch.Tensor)


def is_dtype(value: object) -> bool:
    """Whether a value is one of torch's dtypes."""
    torch = torch_module()
    return torch is not None and isinstance(value, torch.dtype)


def dtype_of(value: Any) -> DType:
    """The simulator's dtype of the same name as one of torch's.

    Raises
    ------
    DtypeError : there is none.
    """
    return as_dtype(str(value).rpartition(".")[2], f"the torch dtype {value}")


def array_of(tensor: Any, name: str) -> Array:
    """The elements of a tensor as an array that shares its memory.

    Raises
    ------
    KernelError : the tensor is not on the CPU. DtypeError : the simulator has no such dtype.
    """
    if tensor.device.type != "cpu":
        raise KernelError(
            "the simulator takes torch tensors that are on the CPU",
            happened="a torch tensor on a device was given to the simulator",
            received=f"argument {name!r} on {tensor.device}",
            remedy="pass tensor.cpu()",
        )
    dtype = dtype_of(tensor.dtype)
    plain = tensor.detach()
    if _known_to_numpy(dtype):
        array: Array = plain.numpy()
        return array
    bits = getattr(torch_module(), _BITS[dtype.itemsize])
    held: Array = plain.view(bits).numpy()
    return held.view(dtype)


def check_output(array: Array) -> None:
    """Raise unless torch has the dtype of an output.

    Raises
    ------
    DtypeError : it has not.
    """
    name = name_of(array.dtype)
    if getattr(torch_module(), name, None) is None:
        raise DtypeError(
            "a kernel that is called with torch tensors returns dtypes that torch has",
            happened="torch has no dtype for an output",
            received=f"an output in {name}",
            remedy="call the kernel with NumPy arrays, or return another dtype",
        )


def tensor_of(array: Array) -> Any:
    """A tensor with the elements of an array, whose memory it shares."""
    torch = torch_module()
    if _known_to_numpy(array.dtype):
        return torch.from_numpy(array)
    bits = _BITS[array.dtype.itemsize]
    return torch.from_numpy(array.view(bits)).view(getattr(torch, name_of(array.dtype)))


def _known_to_numpy(dtype: DType) -> bool:
    """Whether a dtype is NumPy's own, and none that ml_dtypes or the simulator added."""
    return dtype.type.__module__ == np.__name__
