"""Python's operators on tiles, in terms of the functions that they stand for."""

from __future__ import annotations

from typing import Any

from difftest.simulator.dtypes import BOOL
from difftest.simulator.plain.indices import Offset, PlainIndex, inside
from difftest.simulator.plain.meanings import meant


def _binary(op: str, x: Any, y: Any) -> Any:
    return meant(f"nl.{op}", x=x, y=y, dtype=None, mask=None)


def _forward(op: str) -> Any:
    return lambda self, other: _binary(op, self, other)


def _reverse(op: str) -> Any:
    return lambda self, other: _binary(op, other, self)


def _in_place(op: str) -> Any:
    return lambda self, other: meant("in place", target=self, op=op, other=other)


class Operators:
    """What a tile does with ``+`` and ``[...] =``, and the methods that are instructions."""

    __slots__ = ()
    dtype: Any

    def __add__(self, other: Any) -> Any:
        other = inside(other)
        return Offset(self, other) if isinstance(other, PlainIndex) else _binary("add", self, other)

    def __radd__(self, other: Any) -> Any:
        other = inside(other)
        return Offset(self, other) if isinstance(other, PlainIndex) else _binary("add", other, self)

    __sub__, __rsub__ = _forward("subtract"), _reverse("subtract")
    __mul__, __rmul__ = _forward("multiply"), _reverse("multiply")
    __truediv__, __rtruediv__ = _forward("divide"), _reverse("divide")
    __pow__, __rpow__ = _forward("power"), _reverse("power")
    __mod__, __rmod__ = _forward("mod"), _reverse("mod")
    __and__, __rand__ = _forward("bitwise_and"), _reverse("bitwise_and")
    __or__, __ror__ = _forward("bitwise_or"), _reverse("bitwise_or")
    __xor__, __rxor__ = _forward("bitwise_xor"), _reverse("bitwise_xor")
    __lshift__, __rlshift__ = _forward("left_shift"), _reverse("left_shift")
    __rshift__, __rrshift__ = _forward("right_shift"), _reverse("right_shift")
    __lt__, __le__ = _forward("less"), _forward("less_equal")
    __gt__, __ge__ = _forward("greater"), _forward("greater_equal")
    __eq__, __ne__ = _forward("equal"), _forward("not_equal")
    __hash__ = object.__hash__
    __isub__, __imul__ = _in_place("subtract"), _in_place("multiply")
    __iadd__, __itruediv__ = _in_place("add"), _in_place("divide")

    def __neg__(self) -> Any:
        return meant("nl.negative", x=self, dtype=None, mask=None)

    def __invert__(self) -> Any:
        name = "nl.logical_not" if self.dtype == BOOL else "nl.invert"
        return meant(name, x=self, dtype=None, mask=None)

    def __setitem__(self, key: Any, value: Any) -> None:
        meant("assignment", target=self[key], value=value)  # type: ignore[index]

    @property
    def T(self) -> Any:
        """The tile transposed."""
        return meant(".T", x=self)

    def astype(self, dtype: Any) -> Any:
        """A copy cast to ``dtype``."""
        return meant("astype", src=self, dtype=dtype)

    def view(self, dtype: Any) -> Any:
        """The bits of a whole HBM tensor as another dtype of the same size."""
        return meant("view", src=self, dtype=dtype)
