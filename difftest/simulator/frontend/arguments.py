"""Check and convert the arguments of the API's functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, EnumMeta, IntEnum
from types import new_class
from typing import Any, NoReturn, TypeVar, Union

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import as_dtype, as_nki_dtype
from difftest.simulator.errors import (
    DtypeError,
    KernelError,
    ShapeError,
    call_error,
    missing_name,
    not_modelled,
)
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.strictness import report_violation
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

Kind = TypeVar("Kind", bound=Enum)
LARGEST_ANGLE = float(np.nextafter(np.float32(np.pi), np.float32(0)))
"""The largest float32 in the range of the Scalar Engine's sin."""


class AnyTensor:
    """The class of tensors in kernels, in any mode: ``nki.tensor``."""

    __slots__ = ()


class Annotation:
    """The annotations ``nt.tensor`` and ``nt.tensor[128, 512]``, with or without a shape.

    ``nt.mutable`` in the brackets, alone or with a shape, makes the tensor mutable.
    """

    def __init__(
        self, name: str, *, mutable: bool, shape: tuple[Any, ...] | None = None
    ) -> None:
        self.name = name
        self.mutable = mutable
        self.shape = shape

    def __getitem__(self, shape: Any) -> Annotation:
        items = shape if isinstance(shape, tuple) else (shape,)
        sizes = tuple(item for item in items if not isinstance(item, Annotation))
        marks = [item.mutable for item in items if isinstance(item, Annotation)]
        shape = sizes or self.shape
        return Annotation(self.name, mutable=self.mutable or any(marks), shape=shape)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise for a call. The method exists because typing accepts callables as types."""
        received = ", ".join(f"{value!r:.40}" for value in (*args, *kwargs.values()))
        raise KernelError(
            f"nt.{self.name} annotates a parameter",
            happened=f"nt.{self.name} was called",
            received=received or "no argument",
            remedy="make a tensor with nl.ndarray",
        )

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # noqa: UP007  # an object has no |

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]  # noqa: UP007

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, AnyTensor)

    def __repr__(self) -> str:
        inside = [repr(size) for size in self.shape or ()]
        if self.mutable and not self.name.startswith("mutable"):
            inside.append("nt.mutable")
        if not inside:
            return f"nt.{self.name}"
        return f"nt.{self.name}[{', '.join(inside)}]"


def as_argument(value: Any) -> Any:
    """Return an argument; an annotation ``nt.tensor[shape, dtype]`` becomes an array of zeros."""
    if not isinstance(value, Annotation) or value.shape is None:
        return value
    if len(value.shape) != 2:
        return value
    shape, dtype = value.shape
    return np.zeros(tuple(shape), as_dtype(dtype, "nt.tensor"))


class Members(EnumMeta):
    """An enumeration that suggests a member for a misspelt one."""

    # before Python 3.12, members are looked up here, too
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in cls.__members__:
            return cls.__members__[name]
        raise missing_name(cls.__name__, name, cls.__members__, kind="enumeration")


Numbered: Any = new_class("Numbered", (IntEnum,), {"metaclass": Members})
engine: Any = Numbered(
    "engine",
    {"tensor": 1, "vector": 5, "scalar": 2, "gpsimd": 3, "sync": 6, "unknown": 0},
)
reduce_cmd: Any = Numbered(
    "reduce_cmd", {"idle": 0, "reset": 1, "reduce": 2, "reset_reduce": 3}
)
oob_mode: Any = Numbered("oob_mode", {"error": 0, "skip": 1})
dge_mode: Any = Numbered("dge_mode", {"none": 0, "swdge": 1, "hwdge": 2, "unknown": 3})
nc_version: Any = Numbered("nc_version", {"gen2": 2, "gen3": 3})


class DynamicSlice:
    """A slice of ``size`` elements from ``start``, at least one: ``nl.ds(start, size)``."""

    __slots__ = ("size", "start")
    _least = 1

    def __init__(self, start: int, size: int) -> None:
        self.start = as_integer(start, "nl.ds with start")
        self.size = as_integer(size, "nl.ds with size")
        if self.size < self._least:
            rule = "nl.ds has a size of 0 or more"
            if self._least == 1:
                rule = "nl.ds selects at least one element"
            raise ShapeError(
                rule,
                happened=f"nl.ds selected {self.size} elements",
                received=f"size {self.size}",
            )


class SliceOrNone(DynamicSlice):
    """A slice of ``size`` elements, which may be zero."""

    __slots__ = ()
    _least = 0


class Unmodelled:
    """A documented name that is not modelled, and the reason, if there is one. Any use raises.

    Modules of kernels import such names, or keep dtypes in tables, although their kernels may never
    use them. Naming one is therefore no error.
    """

    __slots__ = ("name", "nki_name", "why")

    def __init__(self, name: str, why: str | None = None) -> None:
        self.name = name
        self.why = why
        self.nki_name = name.rpartition(".")[2]
        """The name by which instructions know operators. They reject this one."""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        values = [repr(value) for value in args]
        values += [f"{name}={value!r}" for name, value in kwargs.items()]
        received = ", ".join(f"{text:.60}" for text in values) or "()"
        raise not_modelled(self.name, received, self.why)

    def __getattr__(self, name: str) -> Unmodelled:
        if name.startswith("__") or name in self.__slots__:
            raise AttributeError(name)  # Python's own protocols, such as copying
        return Unmodelled(f"{self.name}.{name}", self.why)

    def __mro_entries__(self, bases: tuple[object, ...]) -> NoReturn:
        raise not_modelled(self.name, "a class that is based on it", self.why)

    def __repr__(self) -> str:
        return f"{self.name} (not modelled)"


def unmodelled(module: str, names: Iterable[str]) -> dict[str, Unmodelled]:
    """Return one object for each name, so that a name equals itself and can be a key."""
    return {name: Unmodelled(f"{module}.{name}") for name in names}


def no_attribute(tensor: Any, name: str) -> Any:
    """Raise for an unknown attribute of a tensor, with a suggestion: its ``__getattr__``."""
    # the attribute itself has raised; repeat its error
    if name.startswith("_") or hasattr(type(tensor), name):
        return object.__getattribute__(tensor, name)
    if name == "as_tile":
        return Unmodelled(
            "as_tile of a tensor", "use the tensor itself, which is a tile"
        )
    public = [attribute for attribute in dir(tensor) if not attribute.startswith("_")]
    ended = ", as NumPy's arrays have: use nki.language" * hasattr(np.ndarray, name)
    raise missing_name(type(tensor).__name__, name, public, ended=ended, kind="class")


def absent(
    module: str, documented: frozenset[str], names: Mapping[str, Any]
) -> Callable[[str], Unmodelled]:
    """Return the ``__getattr__`` of an embedded module with the namespace ``names``.

    ``documented`` are the names that AWS documents at v2.26.0 and the simulator does not model.
    They can be named (``hasattr``, imports), but not used.
    """
    stubs = unmodelled(module, documented)

    def __getattr__(name: str) -> Unmodelled:
        if name in stubs:
            return stubs[name]
        public = names.get("__all__", names)
        raise missing_name(f"neuronxcc.{module}", name, public)

    return __getattr__


def fits(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Return whether a function of this signature accepts these arguments."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


HINTS = frozenset({"lazy_initialization", "directives", "precise_schedule", "name"})
"""Arguments that AWS does not document, that public kernels pass, and that change no value."""


def undocumented_argument(where: str, name: str, value: object) -> None:
    """Note an argument that AWS does not document at v2.26.0 and that changes no value here."""
    takes = "the arguments that AWS documents"
    got = f"the undocumented argument {name!r}"
    remedy = f"leave {name} out, if nothing needs it"
    report_violation(
        not_taken(where, takes, got, f"{name}={value!r:.80}", remedy=remedy)
    )


def no_extras(where: str, extras: Mapping[str, object]) -> None:
    """Note hints, and raise for keyword arguments that the simulator does not model."""
    for name, value in extras.items():
        if name in HINTS:
            undocumented_argument(where, name, value)
            continue
        raise not_modelled(f"{where}'s argument {name!r}", f"{name}={value!r}")


_ENGINES = {int(member): Engine[member.name.upper()] for member in engine}
_COMMANDS = {int(member): Accumulate[member.name.upper()] for member in reduce_cmd}


def as_name(name: object) -> str:
    """Return a tensor's name for traces and errors; it changes no value."""
    if name is None:
        return ""
    return f"{name}"


def as_engine(value: object, where: str) -> Engine:
    """Return the trace's engine for a member of ``nki.isa.engine``."""
    if isinstance(value, engine):
        return _ENGINES[int(value)]
    names = (f"{member.name}_engine" for member in engine if member.value)
    raise no_member(engine, value, where, names)


def as_flag(value: object, name: str) -> bool:
    """Return whether a switch argument is on.

    Raises
    ------
    KernelError : the argument has no single truth value (an array of several elements).
    """
    if isinstance(value, bool):
        return value
    try:
        return bool(value)
    except (TypeError, ValueError):
        raise KernelError(
            f"{name} is True or False",
            happened=f"{name} is neither true nor false",
            received=f"{name}={value!r:.60}",
        ) from None


def same_dtype(dtype: object, dst: Any, where: str) -> None:
    """Raise unless ``dtype`` is None or the dtype of an existing ``dst``.

    Raises
    ------
    DtypeError : the dtypes differ.
    """
    if dtype is not None and as_nki_dtype(dtype) != getattr(dst, "dtype", dtype):
        raise not_taken(
            where,
            "dst's dtype or none",
            "another dtype than dst's",
            f"dtype={dtype!r}, dst = {dst!r}",
            error=DtypeError,
            remedy="leave dtype out, or give dst that dtype",
        )


def as_member(kind: type[Kind], value: object, where: str) -> Kind:
    """Return ``value`` as a member of one of the enumerations of ``nki.isa``."""
    if type(value) is kind:
        return value
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise no_member(kind, value, where) from None


def as_accumulate(value: object, where: str) -> Accumulate:
    """Return the command for the registers of an instruction's engine."""
    return _COMMANDS[as_member(reduce_cmd, value, where)]


def resets_registers(where: str, engine: str, op: Any, into: Any) -> bool:
    """Return whether a call without a ``reduce_cmd`` reduces into registers that it resets.

    On AWS's page ``idle`` is the default, so that ``reduce_res`` gets the accumulated result of
    earlier calls. Compilers treat a ``reduce_op`` with a ``reduce_res`` as ``reset_reduce``:
    kernels of both dialects have right sums on trn2. A pending reduction is read, as the page says.

    Parameters
    ----------
    where, engine : the call, and the engine whose registers it uses.
    op, into : the call's ``reduce_op`` and ``reduce_res``.
    """
    if op is None or into is None or engine in current().registers.unread:
        return False
    rule = "reduces only with a reduce_cmd, which is idle by default"
    did = "got a reduce_op and a reduce_res, and no reduce_cmd"
    received = f"reduce_res = {into!r} with reduce_cmd.idle"
    remedy = "pass reduce_cmd=nisa.reduce_cmd.reset_reduce"
    report_violation(call_error(where, rule, did, received, remedy=remedy))
    return True


def note_registers(engine: str, command: Accumulate, into: Any) -> None:
    """Record whether an engine's registers hold a reduction that no instruction has read."""
    unread = current().registers.unread
    if into is not None or command is Accumulate.RESET:
        unread.discard(engine)
    elif command is not Accumulate.IDLE:
        unread.add(engine)


def reads_out(values: dict[str, Any], where: str) -> None:
    """Record that a call of the Scalar Engine resets its registers, reduces and reads them."""
    note_registers("scalar", Accumulate.RESET_REDUCE, values["reduce_res"])


def ascending(axis: object, data: Tile, where: str) -> tuple[int, ...]:
    """Return ``axis``, one or several, as ascending axes counted from the front."""
    return _ascending(as_integers(axis, f"{where}'s axis"), len(data._tile_shape()))


@functools.lru_cache(maxsize=256)
def _ascending(axes: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Return axes of ``ndim`` in order; equal ones are the same tuple, which the gate finds fast.

    See :attr:`difftest.simulator.instructions.record.CallCache.is_ambiguous`.
    """
    return tuple(sorted([a + ndim if -ndim <= a < 0 else a for a in axes]))


def not_last(axes: tuple[int, ...], data: Tile, where: str) -> Any:
    """Return the error of a call that can only reduce the last consecutive axes; None if it does.

    The instruction can reduce any free axes, because its access pattern has them in any order. The
    classic ``nl.sum`` uses that. This is therefore a rule of calls. The instruction itself checks
    that the axes are free ones.
    """
    ndim = len(data._tile_shape())
    free = all(0 < axis < ndim for axis in axes)
    if not free or axes == tuple(range(ndim - len(axes), ndim)):
        return None
    return not_taken(
        where,
        "the last consecutive axes of the tile",
        f"the axes {list(axes)} of {ndim} dimensions",
        f"axis={axes[0] if len(axes) == 1 else list(axes)} of {data!r}",
        error=ShapeError,
        remedy="index the tile so that the axes to reduce come last",
    )


def last_axes(axis: object, data: Tile, where: str) -> tuple[int, ...]:
    """Return the axes as :func:`ascending` does.

    Raise unless they are the last consecutive ones.
    """
    axes = ascending(axis, data, where)
    if (error := not_last(axes, data, where)) is not None:
        raise error
    return axes


def as_pairs(
    pattern: Any, where: str, first: str, second: str
) -> list[tuple[int, int]]:
    """Return the pattern of an access or of numbers, as a list of pairs of integers."""
    try:
        return [
            (as_integer(stride, first), as_integer(other, second))
            for stride, other in pattern
        ]
    except (TypeError, ValueError):
        raise not_taken(
            where,
            f"pattern as a list of [{first}, {second}]",
            "a pattern that is not a list of pairs",
            f"pattern={pattern!r:.80}",
        ) from None


def need_two(tile: Tile, where: str) -> None:
    """Raise :class:`ShapeError` unless a tile, or a tensor in HBM, has two dimensions."""
    ndim = tile.ndim if tile._in_hbm else len(tile._tile_shape())
    if ndim != 2:
        raise not_taken(
            where,
            "two dimensions",
            f"a tensor of {ndim} dimensions",
            f"{tile!r}",
            error=ShapeError,
        )


def not_taken(where: str, takes: str, got: str, received: str, **more: Any) -> Any:
    """Return the error of a call for an argument, with the accepted and the received value."""
    return call_error(where, f"takes {takes}", f"got {got}", received, **more)


def no_member(kind: Any, value: object, where: str, names: Iterable[str] = ()) -> Any:
    """Return the error for a value that is not a member of an enumeration, or none of ``names``."""
    name = kind.__name__
    return not_taken(
        where,
        f"{name} as a member of nki.isa.{name}",
        f"{value!r:.40} as {name}",
        f"{name}={value!r}",
        limit=", ".join(
            f"nisa.{item}" for item in names or (f"{name}.{item.name}" for item in kind)
        ),
    )
