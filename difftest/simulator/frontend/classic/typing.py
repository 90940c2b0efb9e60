"""The module that kernels import as ``neuronxcc.nki.typing`` (usually ``nt``)."""

from __future__ import annotations

from typing import Any

from difftest.simulator.frontend.arguments import AnyTensor


class _Annotation:
    """``nt.tensor`` and ``nt.tensor[128, 512]``: annotations, with or without a shape."""

    def __init__(self, name: str, *, mutable: bool, shape: tuple[Any, ...] | None = None) -> None:
        self.name = name
        self.mutable = mutable
        self.shape = shape

    def __getitem__(self, shape: Any) -> _Annotation:
        sizes = shape if isinstance(shape, tuple) else (shape,)
        return _Annotation(self.name, mutable=self.mutable, shape=sizes)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, AnyTensor)

    def __repr__(self) -> str:
        return f"nt.{self.name}" + (f"{list(self.shape)}" if self.shape else "")


tensor = _Annotation("tensor", mutable=False)
mutable_tensor = _Annotation("mutable_tensor", mutable=True)
scalar = _Annotation("scalar", mutable=False)


def is_mutable(annotation: object) -> bool:
    """Whether a parameter's annotation lets the kernel write to it."""
    if isinstance(annotation, str):
        return "mutable_tensor" in annotation
    return isinstance(annotation, _Annotation) and annotation.mutable


__all__ = ["mutable_tensor", "scalar", "tensor"]
