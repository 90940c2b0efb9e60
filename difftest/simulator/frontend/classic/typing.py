"""The module that kernels import as ``neuronxcc.nki.typing`` (usually ``nt``)."""

from __future__ import annotations

from difftest.simulator.frontend.arguments import Annotation

tensor = Annotation("tensor", mutable=False)
mutable_tensor = Annotation("mutable_tensor", mutable=True)
mutable = Annotation("mutable", mutable=True)
"""The mark in ``nt.tensor[nt.mutable]``, which AWS's kernels have for ``nt.mutable_tensor``."""
scalar = Annotation("scalar", mutable=False)

__all__ = ["mutable", "mutable_tensor", "scalar", "tensor"]
