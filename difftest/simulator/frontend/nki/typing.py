"""The module that kernels import as ``nki.typing``: annotations, evaluated and never enforced."""

from __future__ import annotations

from typing import Any


class AnnotatedTensor:
    """``nt.tensor[128, 512]``: a tensor of a shape, for readers."""

    def __getitem__(self, shape: Any) -> AnnotatedTensor:
        return self


tensor = AnnotatedTensor()
