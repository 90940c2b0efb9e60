"""The values of the roles of a drawn call, and their creation in a kernel of each dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from difftest.simulator import Space
from difftest.simulator.core import current
from difftest.simulator.dtypes import DTYPES, FLOAT8_E8M0FNU, NKI_NAMES, TFLOAT32
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.nki import isa as nki_isa
from difftest.simulator.frontend.nki import language as nki_language
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.copy import memset

with embedded():  # loads every instruction, and is how kernels spell them
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl

NAMES = {
    "classic": {"nl": nl, "nisa": nisa, "np": np},
    "nki": {"nl": nki_language, "nisa": nki_isa, "np": np},
}
"""The imports of a kernel of a dialect, by name."""
NEWER_DTYPES = tuple(dtype for dtype in NKI_NAMES.values() if dtype not in DTYPES)
"""The dtypes that only the current dialect has."""


@dataclass(frozen=True)
class Operand:
    """The value of a role: a separate tensor, in a buffer."""

    values: Any
    dtype: np.dtype[Any]
    space: Space
    written: bool = True
    """True if it holds its values before the call; a destination need not."""
    at: str = ""
    """The part of it that the call takes, of an indirect operand: ``{src}[{places}, 0]``."""

    @property
    def is_newer(self) -> bool:
        """True if its dtype is one that a classic kernel cannot load or return."""
        return self.dtype in NEWER_DTYPES

    @property
    def constant(self) -> int:
        """A kernel fills a tensor of a newer dtype with this: a scale lacks zero."""
        return int(self.dtype == FLOAT8_E8M0FNU)

    @property
    def array(self) -> Any:
        """The values as a host keeps them; zeros of a newer dtype, which it cannot make."""
        if self.is_newer:
            return np.zeros(np.shape(self.values), np.uint8)
        if self.dtype == TFLOAT32:
            return np.asarray(self.values, np.float32).view(TFLOAT32)
        return np.asarray(self.values).astype(self.dtype)


@dataclass(frozen=True)
class Affine:
    """An index over two axes: ``start + step * partition + along * column``."""

    shape: tuple[int, int]
    start: int
    step: int
    along: int

    def __str__(self) -> str:
        rows, columns = self.shape
        along = f"{self.along} * nl.arange({columns})[None, :]"
        return f"{self.step} * nl.arange({rows})[:, None] + {along} + {self.start}"

    def __call__(self) -> Any:
        """The index expression of the classic dialect."""
        return eval(str(self), {"nl": nl})


def place(tensor: Any, operand: Operand) -> Any:
    """The operand in its buffer, with its values if it holds them, in a classic kernel."""
    if operand.is_newer:
        core = current()
        tile = core.tile._whole(
            core.allocate(tensor.shape, operand.dtype, operand.space)
        )
        return gate.issue(memset, (operand.constant,), (tuple(tensor.shape),), dst=tile)
    dtype = nl.tfloat32 if operand.dtype == TFLOAT32 else operand.dtype
    if operand.written and operand.space is Space.SBUF:
        return nl.load(tensor)
    tile = nl.ndarray(tensor.shape, dtype, buffer=getattr(nl, operand.space.value))
    if operand.written and operand.space is Space.PSUM:
        tile[...] = nl.load(tensor)
    elif operand.written:
        nisa.dma_copy(dst=tile, src=tensor)
    return tile


def place_today(tensor: Any, operand: Operand) -> Any:
    """Return the statements of a kernel of the current dialect."""
    buffer = getattr(nki_language, operand.space.value)
    made = nki_language.ndarray(tensor.shape, operand.dtype, buffer=buffer)
    if operand.is_newer:
        assert operand.space in (Space.SBUF, Space.PSUM), (
            "MX tensors of these calls lie on chip"
        )
        nki_isa.memset(made, operand.constant)
    elif operand.written and operand.space is Space.PSUM:
        nki_isa.tensor_copy(made, nki_language.load(tensor))
    elif operand.written:
        nki_isa.dma_copy(made, tensor)
    return made


def returned(tile: Any) -> Any:
    """The tile's elements in an output of the kernel."""
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(
        dst=out, src=nisa.tensor_copy(tile) if tile._space is Space.PSUM else tile
    )
    return out


def returned_today(tensor: Any) -> Any:
    """Return the statement in a kernel of the current dialect."""
    out = nki_language.ndarray(
        tensor.shape, tensor.dtype, buffer=nki_language.shared_hbm
    )
    if nki_language.is_psum(tensor.buffer):
        tensor = nki_language.copy(tensor)
    nki_isa.dma_copy(out, tensor)
    return out
