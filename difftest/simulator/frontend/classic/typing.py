"""The module that kernels import as ``neuronxcc.nki.typing`` (usually ``nt``)."""

from __future__ import annotations

from difftest.simulator.frontend.arguments import Annotation

tensor = Annotation("tensor", mutable=False)
mutable_tensor = Annotation("mutable_tensor", mutable=True)
scalar = Annotation("scalar", mutable=False)


def is_mutable(annotation: object) -> bool:
    """Whether a parameter's annotation lets the kernel write to it."""
    if isinstance(annotation, str):
        return "mutable_tensor" in annotation
    return isinstance(annotation, Annotation) and annotation.mutable


__all__ = ["mutable_tensor", "scalar", "tensor"]
