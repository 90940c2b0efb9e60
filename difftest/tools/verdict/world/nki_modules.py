"""NKI as a candidate has it: the names that AWS documents, and no others of the simulator.

``data/nki.json`` has the names of AWS's stubs by level, of modules and of classes.
"""

from __future__ import annotations

import enum
import functools
import importlib
import json
import pkgutil
import sys
import types
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

from difftest.simulator import frontend
from difftest.simulator.entry import artifacts, nki_kernel
from difftest.simulator.entry import kernel as classic_kernel
from difftest.simulator.frontend.arguments import Members, Unmodelled
from difftest.simulator.frontend.classic import expressions, memories, tensor
from difftest.simulator.frontend.classic import language as classic_language
from difftest.simulator.frontend.classic.creation import finfo
from difftest.simulator.frontend.launchable import Launchable
from difftest.simulator.frontend.nki import (
    constants,
    dynamic,
    grids,
    views,
)
from difftest.simulator.frontend.nki import tensor as nki_tensor
from difftest.simulator.frontend.nki import virtual_registers as registers
from difftest.simulator.frontend.nki.language.creation import TileSizes
from difftest.simulator.trace import Iteration
from difftest.tools.api.documented import CLASSIC, TODAY, documented_names
from difftest.tools.verdict.world.calls import check_arguments
from difftest.tools.verdict.world.held import (
    CALLABLE,
    CLASSES,
    HELD,
    READERS,
    SETTERS,
    Facade,
    Module,
    Table,
    kept,
    kind_of,
    list_function,
)
from difftest.tools.verdict.world.instances import type_of
from difftest.tools.verdict.world.kinds import CLASS_ATTRIBUTES
from difftest.tools.verdict.world.refusal import STATE, refusal, unavailable
from difftest.tools.verdict.world.texts import Opaque

_TABLE: dict[str, Any] = json.loads(
    resources.files("difftest.tools.verdict")
    .joinpath("data/nki.json")
    .read_text("utf-8")
)
_CLASSIC_TENSOR = (
    "T assert_shape astype broadcast_to dtype expand_dims itemsize ndim reshape shape "
    "size view"
)
"""Source: the pages of ``nki.language`` at tag v2.26.0, and classic kernels of AWS."""
_GRID = (
    "block_shape buffer cut data dtype element_shape index_step_elements is_data_representable "
    "is_remainder shape word"
)
"""Source: the release notes of v2.33 on grids of tiles."""


def stub_members(place: str) -> frozenset[str]:
    """Return the public members of a class in AWS's stubs, at any level."""
    return frozenset(_TABLE["members"][place])


@functools.cache
def documented(module: str) -> frozenset[str]:
    """Return the names of a module that AWS has at any level."""
    names = set(_TABLE["modules"].get(module, ()))
    names |= set(_TABLE["more"].get(module, {"names": ""})["names"].split())
    for dialect in (TODAY, CLASSIC):
        rows = documented_names(dialect)
        names |= {row.name for row in rows if dialect.package + row.module == module}
    return frozenset(names)


_TENSOR = stub_members("nki.language.NkiTensor") - {
    "is_identity",
    "sim_value",
    "device_value",
}
"""Without three names of level 0.4 that are of AWS's own simulator."""
_SIZES = stub_members("nki.language._TileSize") | stub_members("nki.language.tile_size")
_MEMBERS: dict[type, frozenset[str]] = {
    nki_tensor.NkiTensor: _TENSOR,
    nki_tensor.ComparedTensor: _TENSOR,
    nki_tensor.IndirectTensor: _TENSOR,
    dynamic.DynamicView: _TENSOR,
    views.EmptyView: _TENSOR,
    registers.DeviceValue: frozenset(),
    registers.VirtualRegister: stub_members("nki.isa.VirtualRegister"),
    registers.NkiScalar: frozenset({"dtype"}),
    constants.NkiInstruction: stub_members("nki.isa.NkiInstruction"),
    grids.NkiGrid: frozenset(_GRID.split()),
    grids.NkiTileGrid: frozenset(_GRID.split()),
    grids.NkiBlockGrid: frozenset(_GRID.split()),
    tensor.Tensor: frozenset(_CLASSIC_TENSOR.split()),
    expressions.IndexExpression: frozenset({"shape", "ndim"}),
    expressions.MGrid: frozenset({"p", "x", "y", "z", "w"}),
    memories.Buffer: frozenset({"alloc", "auto_alloc", "mod_alloc"}),
    finfo: frozenset({"min", "max", "eps", "tiny", "bits", "dtype"}),
    TileSizes: _SIZES,
    memories.TileSize: _SIZES,
    artifacts.Artifacts: frozenset(),
}
"""The members of classes of NKI; a class that is not listed has none."""
_CALLABLE: tuple[type, ...] = (
    Launchable,
    nki_kernel.Simulation,
    functools.partial,
)


def _read_member(value: Any, name: str) -> Any:
    """Return a member of an object of NKI that AWS documents."""
    kind = type(value)
    if name in _MEMBERS.get(kind, ()):
        found = _shared(getattr(value, name))
        # The name of a tensor may be an opaque text, or the simulator's own.
        return Opaque(found) if name == "name" and type(found) is str else found
    if name == "__class__":
        return type_of(value)
    is_private = name.startswith("_")
    if not is_private and not hasattr(kind, name) and name not in vars_of(value):
        return getattr(value, name)
    return unavailable(f"the attribute {name} of {_article(kind.__name__)}")


def vars_of(value: Any) -> Mapping[str, Any]:
    """Return the attributes of an object itself; empty without any."""
    return getattr(value, "__dict__", {})


def _article(name: str) -> str:
    return f"an {name}" if name[:1] in "AEIOU" else f"a {name}"


def _shared(value: Any) -> Any:
    """Return a value of NKI; let a candidate call it if it is a method."""
    if isinstance(value, _METHODS):
        return Facade(getattr(value, "__name__", "method"), _caller(value))
    return kept(value)


_METHODS = (types.MethodType, types.FunctionType, functools.partial)


def _caller(method: Callable[..., Any]) -> Callable[..., Any]:
    def call_kept(*args: Any, **kwargs: Any) -> Any:
        check_arguments(method, args, kwargs)
        return kept(method(*args, **kwargs))

    return call_kept


def _read_kernel(value: Any, name: str) -> Any:
    if name == "func":
        return kept(value.func)
    if name in ("__name__", "__doc__"):
        return getattr(value, name)
    if name == "with_schedule":
        return _shared(value.with_schedule)
    return unavailable(f"the attribute {name} of a kernel")


def _read_member_of(value: Any, name: str) -> Any:
    """Return the name or the value of a member of an enumeration of NKI."""
    if name == "name":
        return value.name
    if name == "value" and isinstance(value, int):
        return int(value)
    return unavailable(f"the attribute {name} of {value!r}")


def _read_enumeration(value: Any, name: str) -> Any:
    if name == "__members__":
        return dict(value.__members__)
    if name in value.__members__:
        return value.__members__[name]
    if name.startswith("_") or hasattr(enum.IntEnum, name):
        return unavailable(f"{value.__name__}.{name}")
    return getattr(value, name)


def _read_unmodelled(value: Unmodelled, name: str) -> Any:
    if name.startswith("_"):
        return unavailable(f"{value.name}.{name}")
    return getattr(value, name)


def _set_size(value: Any, name: str) -> Any:
    if name in _SIZES:
        return value
    raise refusal(f"nl.tile_size.{name} is set")


def _register_types() -> None:
    """Register the types of the simulator's objects that kernels hold."""
    for info in pkgutil.walk_packages(frontend.__path__, f"{frontend.__name__}."):
        module = importlib.import_module(info.name)
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == info.name:
                _register(value)
    for module in (artifacts, classic_kernel, nki_kernel):
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == module.__name__:
                _register(value)
    for kind in (functools.partial, Iteration, type(classic_language.tile_size)):
        _register(kind)
    HELD.add(Members)
    READERS[Members] = _read_enumeration
    SETTERS[memories.TileSize] = SETTERS[TileSizes] = _set_size


def _register(kind: type) -> None:
    if issubclass(kind, BaseException) or kind is constants.NKIObject:
        return
    HELD.add(kind)
    if issubclass(kind, Launchable):
        READERS[kind] = _read_kernel
    elif issubclass(kind, enum.Enum):
        READERS[kind] = _read_member_of
    elif kind is Unmodelled:
        READERS[kind] = _read_unmodelled
        CALLABLE.add(kind)
    else:
        READERS[kind] = _read_member
    if issubclass(kind, _CALLABLE):
        CALLABLE.add(kind)


_register_types()
for _limits in (classic_language.fp32, classic_language.constants.bfp16):
    CLASS_ATTRIBUTES[_limits] = frozenset({"min"})


def nki_tables(modules: Mapping[str, types.ModuleType]) -> dict[str, Table]:
    """Return the tables of NKI's modules by the names that a candidate imports.

    Parameters
    ----------
    modules : the embedded modules by the names that kernels import.
    """
    return {name: _table(name, module) for name, module in modules.items()}


_OF_HOST = {"simulate", "simulate_kernel"}
"""Functions that launch a kernel: a candidate is launched by the judge alone."""


def _table(name: str, module: Any) -> Table:
    listed = documented(name) - _OF_HOST
    names = {
        key: _listed(f"{name}.{key}", value)
        for key, value in vars(module).items()
        if key in listed and not isinstance(value, types.ModuleType)
    }
    if hasattr(module, "__version__"):
        names["__version__"] = module.__version__

    def find(key: str) -> Any:
        if key in listed:
            return _listed(f"{name}.{key}", getattr(module, key))
        if not STATE.loading and key not in vars(module):
            getattr(module, key)  # raises an error with the closest name
        return unavailable(f"{name}.{key}", "use a name that AWS documents")

    return Table(names, find)


def _listed(name: str, value: Any) -> Any:
    """Return a value of a module of NKI; let a candidate hold it."""
    if isinstance(value, types.SimpleNamespace):
        return Module(
            name, {key: _listed(key, item) for key, item in vars(value).items()}
        )
    if isinstance(value, type):
        if value in _NOT_MADE:
            return kind_of(value)
        CLASSES.add(value)
    elif isinstance(value, (types.FunctionType, functools.partial)):
        list_function(value)
    return value


_NOT_MADE = (
    nki_tensor.NkiTensor,
    registers.NkiScalar,
    registers.VirtualRegister,
    constants.NkiInstruction,
)
"""Classes that kernels name in annotations and in ``isinstance``, and do not call."""


def loaded_modules() -> dict[str, types.ModuleType]:
    """Return the embedded modules that are installed, by their names."""
    roots = ("nki", "neuronxcc")
    return {
        name: module
        for name, module in sys.modules.items()
        if name.partition(".")[0] in roots and module is not None
    }


CLASSES |= {constants.NKIObject, dynamic.NkiValidationError}
