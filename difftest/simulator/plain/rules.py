"""What instructions take: roles of arguments, stated beside each meaning.

A role is called with an argument's value, its name and its instruction, and gives it back
converted; it raises where the documentation does not allow it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np

from difftest.simulator.dtypes import as_dtype, is_float, is_integer, name_of
from difftest.simulator.errors import (
    BufferError,
    DtypeError,
    KernelError,
    NkiError,
    ShapeError,
    not_modelled,
)
from difftest.simulator.frontend.arguments import as_engine
from difftest.simulator.plain.indices import PlainMask, integer, mask_over
from difftest.simulator.plain.rounding import is_number
from difftest.simulator.plain.tensors import PlainTensor
from difftest.simulator.strictness import note
from difftest.simulator.trace import Engine, Space

Role = Callable[[Any, str, str], Any]
ON_CHIP = (Space.SBUF, Space.PSUM)
HBM = (Space.SHARED_HBM, Space.PRIVATE_HBM)
DMA = (*HBM, Space.SBUF)


def view(*spaces: Space, dtypes: tuple[np.dtype[Any], ...] = ()) -> Role:
    """A tensor in one of these memories, of one of these dtypes (of any if none is named)."""

    def role(value: Any, name: str, where: str) -> PlainTensor:
        if not isinstance(value, PlainTensor):
            raise KernelError(
                f"{where} takes a tile as {name}",
                happened=f"{where} got a {type(value).__name__} as {name}",
                received=f"{value!r:.80}",
            )
        if value.space not in spaces:
            raise BufferError(
                f"{where} takes {name} in certain memories",
                happened=f"{where} got {name} in {value.space.value}",
                received=repr(value),
                limit=", ".join(space.value for space in spaces),
            )
        if dtypes and value.dtype not in dtypes:
            raise DtypeError(
                f"{where} takes {name} of certain dtypes",
                happened=f"{where} got {name} of {name_of(value.dtype)}",
                received=repr(value),
                limit=", ".join(map(name_of, dtypes)),
            )
        return value

    return role


def tile(*spaces: Space, dtypes: tuple[np.dtype[Any], ...] = ()) -> Role:
    """:func:`view` with the partitions first and at least two dimensions (SBUF or PSUM)."""
    checked = view(*(spaces or ON_CHIP), dtypes=dtypes)
    return lambda value, name, where: checked(value, name, where).tile()


def optional(role: Role) -> Role:
    """The role, or None."""
    return lambda value, name, where: None if value is None else role(value, name, where)


def number(value: Any, name: str, where: str) -> Any:
    """A real number."""
    if not is_number(value):
        raise KernelError(
            f"{where} takes {name} as a number",
            happened=f"{where} got a {type(value).__name__} as {name}",
            received=f"{value!r:.80}",
        )
    return value


def number_or(role: Role) -> Role:
    """A number, or what the role takes."""
    return lambda value, name, where: value if is_number(value) else role(value, name, where)


def whole(value: Any, name: str, where: str) -> int:
    """An integer known when the kernel is traced."""
    return integer(value, f"{where}'s {name}")


def dtype(value: Any, name: str, where: str) -> np.dtype[Any] | None:
    """A dtype, or None for the instruction's own."""
    return None if value is None else as_dtype(value)


def needed_dtype(value: Any, name: str, where: str) -> np.dtype[Any]:
    """A dtype that has no default."""
    return as_dtype(value)


def dtype_of(dst: Any, wanted: np.dtype[Any] | None, where: str) -> None:
    """A dtype, where it is named beside a ``dst``, is that of the ``dst``."""
    if wanted is not None and wanted != dst.dtype:
        raise DtypeError(
            f"{where} writes into dst, in dst's dtype",
            happened=f"{where} got another dtype than dst's",
            received=f"{wanted}, dst {dst}",
        )


def absent(value: Any, name: str, where: str) -> None:
    """An argument that neither mode models."""
    if value not in (None, False):
        raise not_modelled(f"{where}'s {name}", f"{value!r:.80}")


def truth(mask: Any, where: str) -> bool:
    """A mask over nothing that is walked: whether the call is made at all."""
    require(not isinstance(mask, PlainMask), f"{where}: no tile to mask", error=KernelError)
    return bool(mask_over(mask, ()).all())


def member(kind: type[IntEnum]) -> Role:
    """A member of an enumeration of ``nki.isa``."""

    def role(value: Any, name: str, where: str) -> IntEnum:
        try:
            return kind(value)
        except (TypeError, ValueError):
            raise KernelError(
                f"{where} takes a {kind.__name__}",
                happened=f"{where} got {value!r:.40} as {kind.__name__}",
                received=f"{value!r}",
            ) from None

    return role


def engine(*allowed: Engine) -> Role:
    """One of these engines; the first stands for ``unknown``."""

    def role(value: Any, name: str, where: str) -> Engine:
        return choose(as_engine(value, where), where, *allowed)

    return role


def any_engine(value: Any, name: str, where: str) -> Engine:
    """An engine, which the operator and the operands limit further."""
    return as_engine(value, where)


def choose(wanted: Engine, where: str, *allowed: Engine) -> Engine:
    """The engine that runs an instruction; the first if the kernel names none."""
    if wanted is not Engine.UNKNOWN and wanted not in allowed:
        raise KernelError(
            f"{where} runs on the engines that implement it",
            happened=f"{where} was to run on the engine {wanted.value}",
            received=wanted.value,
            limit=", ".join(one.value for one in allowed),
        )
    return allowed[0] if wanted is Engine.UNKNOWN else wanted


def require(fact: bool, rule: str, *received: Any, error: type[NkiError] = ShapeError) -> None:
    """Raise unless ``fact`` holds of what a call received."""
    if not fact:
        given = ", ".join(map(str, received))
        raise error(rule, happened=f"a call got {given}", received=given)


def same_partitions(where: str, *tiles: PlainTensor) -> None:
    """The operands have the same number of partitions."""
    sizes = {tile.shape[0] for tile in tiles}
    require(len(sizes) == 1, f"{where}: operands have the same partitions", *tiles)


def same_elements(where: str, *tiles: PlainTensor) -> None:
    """The operands have the same partitions and elements in each."""
    same_partitions(where, *tiles)
    sizes = {tile.size for tile in tiles}
    require(len(sizes) == 1, f"{where}: operands have the same elements a partition", *tiles)


def not_both_in_psum(where: str, *tiles: PlainTensor) -> None:
    """At most one of two inputs is in PSUM."""
    both = all(tile.space is Space.PSUM for tile in tiles)
    require(not both, f"{where}: inputs are not both in PSUM", *tiles, error=BufferError)


def not_gpsimd_in_psum(where: str, on: Engine, *tiles: PlainTensor) -> None:
    """The GpSimd Engine cannot access PSUM."""
    reaches = on is Engine.GPSIMD and any(tile.space is Space.PSUM for tile in tiles)
    require(not reaches, f"{where}: GpSimd cannot access PSUM", *tiles, error=BufferError)


def integers_only(where: str, *dtypes: np.dtype[Any]) -> None:
    """Bitvec operators work on integers."""
    fit = all(map(is_integer, dtypes))
    require(fit, f"{where}: bitvec operators take integers", *dtypes, error=DtypeError)


def float_only(value: PlainTensor, where: str) -> None:
    """An operand of a float dtype."""
    require(is_float(value.dtype), f"{where} takes floats", value, error=DtypeError)


def one_element_each(value: Any, data: PlainTensor, where: str) -> Any:
    """A number, or a vector with one element in each of the data's partitions, as [P, 1]."""
    if not isinstance(value, PlainTensor):
        return value
    fits = value.shape[0] == value.size == data.shape[0]
    require(fits, f"{where} takes a scalar or one element in each partition", value, data)
    return value.rows()


def one_rank(x: PlainTensor, y: PlainTensor) -> tuple[PlainTensor, PlainTensor]:
    """Of operands of different rank one element a partition, or as many, get the other's rank."""
    if x.ndim == y.ndim or x.shape[0] != y.shape[0]:
        return x, y
    short, other = (x, y) if x.ndim < y.ndim else (y, x)
    shape = other.shape
    if np.squeeze(x.positions[0]).shape != np.squeeze(y.positions[0]).shape:
        short, other = (x, y) if x.size == x.shape[0] else (y, x)
        shape = (x.shape[0], *(1 for _ in other.shape[1:]))
        if short.size != short.shape[0]:
            return x, y
    error = ShapeError(
        "the operands of an instruction have the same number of dimensions",
        happened=f"operands of {x.ndim} and {y.ndim} dimensions met",
        received=f"{x} and {y}",
    )
    note(error)
    longer = short.at(short.positions.reshape(shape), 0)
    return (longer, y) if short is x else (x, longer)
