"""Annotations of parameters, which may also stand for an argument: ``nt.tensor[shape, dtype]``."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import as_dtype
from difftest.simulator.frontend.arguments import AnyTensor


class Annotation:
    """``nt.tensor`` and ``nt.tensor[128, 512]``: annotations, with or without a shape."""

    def __init__(self, name: str, *, mutable: bool, shape: tuple[Any, ...] | None = None) -> None:
        self.name = name
        self.mutable = mutable
        self.shape = shape

    def __getitem__(self, shape: Any) -> Annotation:
        sizes = shape if isinstance(shape, tuple) else (shape,)
        return Annotation(self.name, mutable=self.mutable, shape=sizes)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, AnyTensor)

    def __repr__(self) -> str:
        return f"nt.{self.name}" + (f"{list(self.shape)}" if self.shape else "")


def as_argument(value: Any) -> Any:
    """An argument; for ``nt.tensor[shape, dtype]``, which stands for one, zeros."""
    if not isinstance(value, Annotation) or value.shape is None or len(value.shape) != 2:
        return value
    shape, dtype = value.shape
    return np.zeros(tuple(shape), as_dtype(dtype, "nt.tensor"))
