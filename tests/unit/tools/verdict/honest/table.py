"""An honest kernel: a file, and the contract that it keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from difftest import sizes
from difftest.testing.contract.spec import KernelSpec
from tests.unit.tools.verdict.kernels import HEAD

CLASSIC = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


def empty(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

"""
TODAY = HEAD + "\nimport math\n\nimport numpy as np\n"
PARTS = sizes(1, 128)
FREE = sizes(1, 8)


@dataclass(frozen=True)
class Honest:
    """A kernel named ``add`` and its contract.

    Attributes
    ----------
    body : of the function ``add``, whose parameters are ``parameters``.
    """

    body: str
    reference: Callable[..., Any] = lambda a, b: a.astype(np.float64) + b
    inputs: Mapping[str, str] = field(default_factory=lambda: {"a": "p n", "b": "p n"})
    domain: Mapping[str, Any] = field(default_factory=lambda: {"p": PARTS, "n": FREE})
    head: str = TODAY
    before: str = ""
    parameters: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The file."""
        names = self.parameters or ", ".join(self.inputs)
        lines = "".join(f"    {line}\n" for line in self.body.splitlines())
        return f"{self.head}\n{self.before}\n\n@nki.jit\ndef add({names}):\n{lines}"

    def spec(self, kernel: Any) -> KernelSpec:
        """The contract, of a candidate."""
        return KernelSpec(
            kernel=kernel,
            reference=self.reference,
            domain=dict(self.domain),
            inputs=dict(self.inputs),
            **self.more,
        )
