"""Enumerations of ``nki.isa`` and ``nki.language``, and objects that kernels pass around.

Source: the stubs of AWS's documentation at v2.32.0.
"""

from __future__ import annotations

import dataclasses
from types import new_class
from typing import Any

from difftest.simulator.errors import SignatureError
from difftest.simulator.frontend.arguments import (
    Members,
    Numbered,
    as_member,
    no_member,
    not_taken,
)
from difftest.simulator.frontend.levels import READ_AS, check_level
from difftest.simulator.trace import Engine, IdentityEnum, Iteration, LoopKind, Space
from difftest.support.annotations import own_annotations

Named: Any = new_class("Named", (IdentityEnum,), {"metaclass": Members})
engine: Any = Named(
    "engine",
    {
        "tensor": 1,
        "vector": 5,
        "scalar": 2,
        "gpsimd": 3,
        "dma": 4,
        "sync": 6,
        "unknown": 0,
    },
)
UNKNOWN = engine.unknown
reduce_cmd: Any = Named(
    "reduce_cmd",
    {"idle": 0, "reset": 1, "reduce": 2, "reset_reduce": 3, "load_reduce": 4},
)
dge_mode: Any = Named("dge_mode", {"unknown": 0, "swdge": 1, "hwdge": 2, "none": 3})
oob_mode: Any = Named("oob_mode", {"error": 0, "skip": 1})
matmul_perf_mode: Any = Named(
    "matmul_perf_mode", {"none": "none", "double_row": "double_row"}
)
nc_version: Any = Numbered("nc_version", {"gen2": 2, "gen3": 3, "gen4": 4})
"""Kernels compare generations with each other and with integers (aws-neuron/nki-library)."""
dependency: Any = Named("dependency", {"runtime": "runtime", "schedule": "schedule"})
dma_engine: Any = Named("dma_engine", {"dma": 1, "gpsimd_dma": 2})
READ_AS["nisa.sendrecv(use_gpsimd_dma)"] = lambda value, dst: {
    "dma_engine": dma_engine.gpsimd_dma if value else dma_engine.dma
}


class MemoryRegion(IdentityEnum, metaclass=Members):
    """The memory of a tensor: ``nl.sbuf``, ``nl.psum``, ``nl.private_hbm``, ``nl.shared_hbm``."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"


ENUMERATIONS = {
    kind.__name__: kind
    for kind in (
        dge_mode,
        dma_engine,
        engine,
        matmul_perf_mode,
        nc_version,
        oob_mode,
        reduce_cmd,
    )
}
NAMES = {**ENUMERATIONS, "MemoryRegion": MemoryRegion}
"""All names of ``nki.isa.constants``."""

_SPACES = {region: Space[region.name.upper()] for region in MemoryRegion}
_REGIONS = {space: region for region, space in _SPACES.items()}
_NAMED = {region.value: space for region, space in _SPACES.items()} | {
    "hbm": Space.PRIVATE_HBM
}
_ENGINES = {
    member: Engine[member.name.upper()] for member in engine if member.name != "sync"
}


def space_of(buffer: object, where: str) -> Space:
    """Return the simulator's memory for a member of ``nl.MemoryRegion``.

    Its name as a string, and None for SBUF, are accepted where the level has them (to NKI 0.2).

    Raises
    ------
    KernelError : the buffer is not a memory.
    """
    if isinstance(buffer, MemoryRegion):
        return _SPACES[buffer]
    if buffer is None:
        check_level("buffer=None")
        return Space.SBUF
    if isinstance(buffer, str) and buffer in _NAMED:
        check_level("a buffer named by a string")
        return _NAMED[buffer]
    raise not_taken(
        where,
        "buffer as a memory of nki.language",
        f"{buffer!r:.40} as buffer",
        f"buffer={buffer!r}",
        limit="nl.sbuf, nl.psum, nl.hbm, nl.private_hbm, nl.shared_hbm",
    )


def region_of(space: Space) -> MemoryRegion:
    """Return the member of ``nl.MemoryRegion`` for one of the simulator's memories."""
    return _REGIONS[space]


def engine_of(value: object, where: str) -> Engine:
    """Return the trace's engine for a member of ``nisa.engine``.

    Raises
    ------
    KernelError : the value is not a member, or is the Sync Engine, which computes nothing.
    """
    try:
        return _ENGINES[value]
    except (KeyError, TypeError):
        names = (f"engine.{member.name}" for member in _ENGINES)
        raise no_member(engine, value, where, names) from None


def member_of(kind: Any, value: object, where: str) -> Any:
    """Return ``value`` as a member of one of the enumerations of ``nki.isa``.

    The number or string of a member is accepted where the level has it (to NKI 0.2): kernels of
    aws-neuron/nki-library still write it (``dge_mode=3``, ``perf_mode="double_row"``).

    Raises
    ------
    KernelError : the value is not a member.
    """
    if isinstance(value, kind):
        return value
    if type(value) not in (int, str):
        raise no_member(kind, value, where)
    member = as_member(kind, value, where)
    check_level("a number for a member of an enumeration")
    return member


class NKIObject:
    """The base class of a kernel's own dataclasses: ``nl.NKIObject``.

    A class without ``__init__`` takes its fields in order or as keywords. Omitted fields have their
    default or None, and ``__post_init__`` is called (NKI Language Guide, v2.32.0). A default
    without an annotation makes a field, too. ``@dataclass`` changes none of these rules. By itself,
    it would require values for fields without defaults, and ignore fields without annotations.
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        annotations = own_annotations(cls)
        defaults = [
            name for name, value in vars(cls).items() if _is_default(name, value)
        ]
        added = [name for name in defaults if name not in annotations]
        for name in annotations:
            if not hasattr(cls, name):
                setattr(cls, name, None)
        cls.__annotations__ = {**annotations, **dict.fromkeys(added, Any)}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fields = {
            name: getattr(type(self), name, None)
            for kind in reversed(type(self).__mro__)
            for name in own_annotations(kind)
        }
        name = type(self).__name__
        if len(args) > len(fields):
            limit = ", ".join(fields) or "no field"
            raise not_taken(
                name,
                "a value for each field",
                f"{len(args)} values for {len(fields)} fields",
                f"{', '.join(map(repr, args)):.80}",
                error=SignatureError,
                limit=limit,
            )
        values = dict(zip(fields, args, strict=False))
        twice = sorted(values.keys() & kwargs.keys())
        if twice:
            raise not_taken(
                name,
                "a value for a field once",
                f"two values for {', '.join(twice)}",
                f"{len(args)} values by position, and {', '.join(kwargs)} by name",
                error=SignatureError,
            )
        for field, value in {**fields, **values, **kwargs}.items():
            setattr(self, field, value)
        after = getattr(self, "__post_init__", None)
        if after is not None:
            after()


def _is_default(name: str, value: Any) -> bool:
    """Return whether a class attribute is a field's default: no method, no class, not mutable."""
    dunder = name.startswith("__") and name.endswith("__")
    behaves = callable(value) or hasattr(type(value), "__get__")
    return not (dunder or behaves or type(value).__hash__ is None)


def is_record(value: object) -> bool:
    """Return whether a kernel's argument is an object whose fields may be arrays."""
    named = isinstance(value, NKIObject) or dataclasses.is_dataclass(value)
    return named and not isinstance(value, type) and hasattr(value, "__dict__")


class NkiInstruction:
    """The result of an instruction: a handle for the scheduler, which changes no value.

    It keeps the loop iterations in which the instruction was issued.
    """

    __slots__ = ("_turns",)

    def __init__(self, handle: tuple[Iteration, ...] = ()) -> None:
        self._turns = handle

    def __repr__(self) -> str:
        return "of an instruction, whose result lies in its dst"

    def depends_on(self, *producers: Any, kind: Any = None) -> NkiInstruction:
        """Run after ``producers``: here instructions run in program order anyway.

        Producers must be of the same device loop, or of one around it (stub at v2.32.0). A hint to
        the compiler's schedulers has no such limit (``kind``, page at v2.33).
        """
        own = self._on_device()
        if kind is not None:
            check_level("depends_on of a kind")
            kind = member_of(dependency, kind, "depends_on")
        for producer in producers:
            if not isinstance(producer, NkiInstruction):
                raise not_taken(
                    "depends_on",
                    "what instructions return",
                    f"a {type(producer).__name__}",
                    f"{producer!r:.80}",
                )
            if kind is not dependency.schedule and producer._on_device() - own:
                got = "a producer of another loop"
                raise not_taken(
                    "depends_on",
                    "producers of its own loop on the device, or of one around it",
                    got,
                    got,
                    remedy="issue both in one body",
                )
        return self

    def _on_device(self) -> set[int]:
        return {
            turn.loop.id for turn in self._turns if turn.loop.kind is LoopKind.DYNAMIC
        }


ISSUED = NkiInstruction()
"""The handle of an instruction outside loops: the simulator schedules nothing."""
