"""A launch of today's dialect in plain mode."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from difftest.simulator.errors import kernel_location, not_modelled
from difftest.simulator.plain.indices import Shape
from difftest.simulator.plain.meanings import MEANINGS
from difftest.simulator.plain.nki.tensors import PlainNkiStorage, PlainNkiTensor
from difftest.simulator.plain.rounding import Array
from difftest.simulator.plain.running import Run
from difftest.simulator.trace import Space

TODAYS = "today's "
"""How the names of this dialect's meanings begin, beside those of the classic one."""
HINTS = ("name",)
"""Arguments that change no value."""


class NkiRun(Run):
    """One launch; its tensors are :class:`PlainNkiTensor`."""

    def call(
        self, name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What the function ``name`` does; the arguments are known to fit ``signature``.

        Raises
        ------
        NotModelledError : the plain mode does not have it.
        """
        meaning = MEANINGS.get(TODAYS + name)
        if meaning is None:
            raise not_modelled(f"{name} in plain mode", "its use")
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        creates = "shape" in signature.parameters or name.endswith("_like")
        given = {
            key: value for key, value in bound.arguments.items() if creates or key not in HINTS
        }
        return meaning(name, given)

    def allocate(
        self,
        shape: Shape,
        dtype: np.dtype[Any],
        space: Space = Space.SBUF,
        *,
        partition: int = 0,
        name: str = "",
    ) -> PlainNkiTensor:
        """As of the plain mode, in this dialect's tensors."""
        if not space.is_hbm:
            self._check_size(shape, dtype, space, partition)
        return PlainNkiStorage(
            shape, dtype, space, partition=partition, name=name, location=kernel_location()
        ).tensor()

    def argument(self, array: Array, name: str, mutable: bool) -> PlainNkiTensor:
        """A kernel's argument, which is not copied."""
        return PlainNkiStorage(
            array.shape, array.dtype, Space.SHARED_HBM, data=array, mutable=mutable, name=name
        ).tensor()
