"""A module that behaves as torch does where the simulator touches it; torch is not a requirement.

The tests of `test_torch.py` also pass with torch itself (2.13.0, CPU): run them with
`DIFFTEST_TORCH=real` where it is installed.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import ml_dtypes
import numpy as np

_DTYPES = {
    **{
        name: np.dtype(name)
        for name in ("float32", "float16", "float64", "int8", "uint8")
    },
    **{
        name: np.dtype(name) for name in ("int16", "int32", "int64", "uint16", "uint32")
    },
    "bool": np.dtype(np.bool_),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
_NOT_NUMPYS = ("bfloat16", "float8_e5m2")


class dtype:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    """A tensor whose elements lie in an array."""

    def __init__(self, held, *, requires_grad=False, device="cpu"):
        self.held = held
        self.requires_grad = requires_grad
        self.device = SimpleNamespace(type=device)

    @property
    def dtype(self):
        (name,) = [name for name, known in _DTYPES.items() if known == self.held.dtype]
        return _MODULE[name]

    @property
    def shape(self):
        return self.held.shape

    def detach(self):
        return Tensor(self.held, device=self.device.type)

    def cpu(self):
        return self if self.device.type == "cpu" else Tensor(self.held.copy())

    def numpy(self):
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if self.dtype.name in _NOT_NUMPYS:
            raise TypeError(f"Got unsupported ScalarType {self.dtype.name}")
        return self.held

    def view(self, wanted):
        return Tensor(self.held.view(_DTYPES[wanted.name]))

    def t(self):
        return Tensor(self.held.T)

    def to(self, wanted):
        return Tensor(self.held.astype(_DTYPES[wanted.name]))

    def tolist(self):
        return self.held.tolist()

    def clone(self):
        return Tensor(self.held.copy())

    def requires_grad_(self):
        return Tensor(self.held, requires_grad=True)


def from_numpy(array):
    if array.dtype.type.__module__ != "numpy":
        raise TypeError(f"can't convert np.ndarray of type {array.dtype}")
    return Tensor(array)


_MODULE = {name: dtype(name) for name in _DTYPES}


def standin() -> ModuleType:
    """The module."""
    module = ModuleType("torch")
    for name, value in {**_MODULE, "dtype": dtype, "Tensor": Tensor}.items():
        setattr(module, name, value)
    module.from_numpy = from_numpy
    return module
