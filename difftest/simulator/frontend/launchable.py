"""Launchables: a function of one dialect, with its grid and its machine."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import math
import os
from collections.abc import Callable, Iterator
from operator import attrgetter
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, TypeVar

from difftest.simulator.errors import KernelError, Location
from difftest.simulator.frontend.levels import check_level
from difftest.simulator.instructions.checks import wrong_kind
from difftest.simulator.machine import MACHINES, TRN1, TRN2, TRN3, Machine
from difftest.simulator.misuses import CALL_WITH_GRID
from difftest.support.tracebacks import is_user_file

_OURS = __name__.rpartition(".")[0]
"""The package of both dialects' modules."""
_Own = TypeVar("_Own", bound="Launchable")

TARGET_VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
"""AWS's environment variable that names the machine (stub of ``nki.jit``, v2.32.0)."""
TARGETS = {
    **dict.fromkeys(("trn1", "inf2", "gen2"), TRN1),
    **dict.fromkeys(("trn2", "gen3"), TRN2),
    **dict.fromkeys(("trn3", "gen4"), TRN3),
}
PARAMETER = "platform_target"
"""The parameter of ``nki.jit`` that named the machine up to NKI 0.2 (migration guide, v2.32.0)."""
DEFAULT_MACHINE = TRN2
"""The default machine: the timing model covers it, and its limits also hold on later machines.
AWS's own simulator defaults to trn3.
"""

MOST_PROGRAMS = 2**12
"""The most programs of a grid, and the most ranks, of a tape or a command: each runs the kernel."""


class Target(NamedTuple):
    """The machine passed to ``nki.jit``, as before NKI 0.3, and the kernel's line."""

    name: str
    location: Location | None


class Launchable:
    """A function of the classic dialect, and its launch settings.

    Calling it inlines it in the running kernel.
    """

    dialect = "classic"
    level: str | None = None
    func = property(attrgetter("function"))
    """The function under AWS's name; aws-neuron/nki-library's tests read it."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        grid: tuple[int, ...] = (),
        machine: Machine = TRN2,
        by_reference: bool = True,
    ) -> None:
        self.function = function
        self.grid = grid
        self._machine = machine
        self.by_reference = by_reference
        """True if parameters may be written, as in kernels of SDKs before 2.21 (``nki.trace``)."""
        functools.update_wrapper(self, function)

    @property
    def machine(self) -> Machine:
        """The machine of launches that name none."""
        return self._machine

    def on(self: _Own, grid: tuple[int, ...]) -> _Own:
        """Return a copy with a grid."""
        gridded = copy.copy(self)
        gridded.grid = grid
        return gridded

    def check_target(self) -> None:
        """Check the kernel's ``platform_target`` against the level of the running launch."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.grid:
            raise CALL_WITH_GRID(repr(self))
        self.check_target()
        return self.function(*args, **kwargs)

    @property
    def qualname(self) -> str:
        """The qualified name of the function, or of the one inside it, as in a partial."""
        own = getattr(self.function, "__qualname__", "")
        return own or getattr(function_in(self.function), "__qualname__", "")

    def __repr__(self) -> str:
        grid = f"{list(self.grid)}" if self.grid else ""
        return f"<NKI kernel {self.function.__module__}.{self.qualname}{grid}>"


class NkiLaunchable(Launchable):
    """A function of the current dialect. Arguments may be written: they are updated in place."""

    dialect = "nki"

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        level: str | None = None,
        target: Target | None = None,
    ) -> None:
        super().__init__(function)
        self.level = level
        """The level of NKI whose modules made the kernel; None for all levels."""
        self.target = target

    @property
    def machine(self) -> Machine:
        """The machine of the environment variable, else of ``nki.jit``, else the default."""
        named = os.environ.get(TARGET_VARIABLE)
        if not named and self.target is not None:
            return machine_of(self.target.name, PARAMETER, self.target.location)
        return machine_of(named)

    def check_target(self) -> None:
        if self.target is not None:
            check_level("nki.jit with platform_target", self.target.location)


def as_launchable(kernel: Any) -> Launchable:
    """Return ``kernel`` itself, or a plain function of either dialect with writable parameters."""
    if isinstance(kernel, Launchable):
        return kernel
    need_function(kernel)
    if is_nki(kernel):
        return NkiLaunchable(kernel)
    return Launchable(kernel)


def machine_of(
    target: str | None, where: str = TARGET_VARIABLE, location: Location | None = None
) -> Machine:
    """Return the machine that ``target`` names; the default for None or empty.

    ``where`` is the source of the name, by default AWS's environment variable. ``location`` is the
    kernel's line.

    Raises
    ------
    KernelError : there is no such machine.
    """
    if not target:
        return DEFAULT_MACHINE
    machine = TARGETS.get(str(target).lower())
    if machine is None:
        raise KernelError(
            f"{where} names a machine",
            happened=f"{where} is {target}, which is not modelled",
            received=f"{where}={target}",
            limit=f"{', '.join(TARGETS)}: {', '.join(MACHINES)} are modelled",
            location=location,
        )
    return machine


def function_in(kernel: Any) -> FunctionType | None:
    """Return the Python function that a call of ``kernel`` runs.

    None for classes and C functions.
    """
    if not callable(kernel):
        return None
    while not isinstance(kernel, FunctionType) or hasattr(kernel, "__wrapped__"):
        inner = getattr(kernel, "__wrapped__", None)
        inner = inner or getattr(kernel, "__func__", None)
        if isinstance(kernel, functools.partial):
            inner = kernel.func
        called = inspect.getattr_static(type(kernel), "__call__", None)
        kernel = inner or called
        if inner is None and not isinstance(called, FunctionType):
            return None
    return kernel


def need_function(kernel: Any) -> Any:
    """Return ``kernel`` if it contains a Python function.

    Raises
    ------
    KernelError : it is a class, a function written in C such as ``numpy.exp``, or not callable.
    """
    if function_in(kernel) is not None:
        return kernel
    raise KernelError(
        "a kernel is a Python function",
        happened=f"{kernel!r:.60} was to be a kernel",
        received=f"{type(kernel).__name__} {kernel!r:.80}",
        remedy="write a function of tensors that calls nki.language or nki.isa",
    )


def is_nki(kernel: Any) -> bool:
    """Return whether a function belongs to the current dialect, by its calls.

    If it names neither dialect, the functions that it calls decide.
    """
    return _is_nki(kernel, set()) is True


def _is_nki(value: Any, seen: set[FunctionType]) -> bool | None:
    """Return True for a value of the current dialect, False for the other one, None for neither."""
    named = _is_named_nki(value)
    function = None if named is not None else function_in(value)
    if function is None or function in seen:
        return named
    seen.add(function)
    used = _used_by(function)
    kinds = {_is_named_nki(item) for item in used} - {None}
    kinds = kinds or {_is_nki(item, seen) for item in used} - {None}
    kinds = kinds or {_is_nki(item, seen) for item in _members(function, used)} - {None}
    if kinds:
        return True in kinds
    return None


def _used_by(function: FunctionType) -> list[Any]:
    """Return the values of the names and of the closure that a function uses."""
    used = [function.__globals__.get(name) for name in _names(function.__code__)]
    for cell in function.__closure__ or ():
        if cell != CellType():
            used.append(cell.cell_contents)
    return used


def _members(function: FunctionType, used: list[Any]) -> list[Any]:
    """Return the attributes that a function may read of the values that it uses.

    A library's module has none: it calls no kernel.
    """
    names = set(_names(function.__code__))
    members: list[Any] = []
    owners = list(used)
    for owner in owners:  # the list grows while it is iterated
        if not isinstance(owner, ModuleType):
            members += [inspect.getattr_static(owner, name, None) for name in names]
        elif is_user_file(getattr(owner, "__file__", None) or "<"):
            own = [vars(owner).get(name) for name in names]
            members += own
            modules = [value for value in own if isinstance(value, ModuleType)]
            owners += [value for value in modules if value not in owners]
    return members


def _is_named_nki(value: Any) -> bool | None:
    """Return the dialect of a value as :func:`_is_nki` does, by its origin alone."""
    if isinstance(value, Launchable):
        return value.dialect == "nki"
    home = getattr(value, "__module__", None)
    if isinstance(value, ModuleType):
        home = value.__name__
    if isinstance(home, str):
        return _is_home_of_nki(home)
    return None


@functools.lru_cache(maxsize=1024)
def _is_home_of_nki(module: str) -> bool | None:
    if f"{module}.".startswith((f"{_OURS}.nki.", "nki.")):
        return True
    if f"{module}.".startswith((f"{_OURS}.", "neuronxcc.")):
        return False
    return None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


# -- the grid: ``kernel[4, nl.nc(2)]``, and what its dimensions may be -----------------------------


class GridDim(int):
    """A dimension of a launch grid: its size, and its parts on different physical cores.

    Attributes
    ----------
    parts : (size, whether its programs are on different physical cores) of each sub-dimension; the
        slowest-changing one first.
    """

    parts: tuple[tuple[int, bool], ...]

    def __new__(cls, *parts: tuple[int, bool]) -> GridDim:
        size = math.prod(size for size, _ in parts)
        if size < 1:
            raise KernelError(
                "a grid dimension is positive",
                happened=f"a grid has a dimension of {size}",
                received=f"{size}",
            )
        dim = super().__new__(cls, size)
        dim.parts = parts
        return dim

    def __reduce__(self) -> tuple[type[GridDim], tuple[tuple[int, bool], ...]]:
        return GridDim, self.parts

    def __mul__(self, other: Any) -> GridDim:
        return GridDim(*self.parts, *grid_dim(other).parts)

    def __rmul__(self, other: Any) -> GridDim:
        return GridDim(*grid_dim(other).parts, *self.parts)


def nc(size: Any) -> GridDim:
    """Return a dimension that is spread over physical NeuronCores."""
    return GridDim((int(grid_dim(size)), True))


def spmd_dim(*parts: Any) -> GridDim:
    """Return a dimension made of sub-dimensions: the product of their sizes."""
    return GridDim(
        *itertools.chain.from_iterable(grid_dim(part).parts for part in parts)
    )


def grid_dim(dim: Any) -> GridDim:
    """Return one dimension of the grid."""
    if isinstance(dim, GridDim):
        return dim
    try:
        size = dim.__index__()
    except (AttributeError, TypeError):
        raise wrong_kind(
            dim, "dimensions that are integers, nl.nc or nl.spmd_dim", "a launch grid"
        ) from None
    return GridDim((int(size), False))


def grid_shape(key: Any) -> tuple[GridDim, ...]:
    """Return the shape of ``kernel[key]``; it equals the tuple of its sizes."""
    dims = key if isinstance(key, tuple) else (key,)
    return tuple(grid_dim(dim) for dim in dims)


def physical_cores(grid: tuple[int, ...]) -> tuple[int, ...]:
    """Return the physical core of each program in order; empty if no dimension is spread."""
    parts = tuple(itertools.chain.from_iterable(grid_dim(dim).parts for dim in grid))
    if not any(spread for _, spread in parts):
        return ()
    cores = []
    for instance in itertools.product(*(range(size) for size, _ in parts)):
        core = 0
        for index, (size, spread) in zip(instance, parts, strict=True):
            if spread:
                core = core * size + index
        cores.append(core)
    return tuple(cores)
