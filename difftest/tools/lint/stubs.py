"""Stubs of ``nki`` and ``neuronxcc.nki`` (PEP 561), for editors and type checkers.

The stubs list the names of the simulator's modules, with the signatures that AWS documents. They
form a distribution, so that pip can install and remove them. They are generated on demand, and no
list of names is kept by hand.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, IntEnum
from importlib.metadata import version
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from difftest.simulator.entry.install import embedded_modules
from difftest.simulator.frontend.arguments import Annotation, Unmodelled
from difftest.simulator.frontend.classic.memories import Buffer
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.frontend.levels import LIFETIMES
from difftest.tools.api.documented import (
    CLASSIC,
    TODAY,
    DocumentedName,
    documented_names,
)

_HEADER = """\
# Written by `difftest stubs`: the names that the simulator of nki-difftest has.
"""
_IMPORTS = """\
from enum import Enum, IntEnum
from typing import Any

import numpy as _np
from typing_extensions import deprecated
"""
_ANNOTATIONS = """
# Numbers in brackets: mypy takes them of what it does not know, pyright where a class says so.
MYPY: bool
if MYPY:
    def __getattr__(name: str) -> Any: ...
"""
_ANNOTATION = """\
if not MYPY:
    from {module} import {kind} as _{name}
    {name} = _{name}
"""
_NO_TENSORS = frozenset({"arange", "par_dim", "ds"})

_FORMS = ("__{}__", "__r{}__", "__i{}__")
"""The method names of an operator: plain, reflected, and in place."""
_DATA = Path(__file__).parent / "data"
_DOCUMENTED = json.loads((_DATA / "stubs.json").read_text(encoding="utf-8"))
_MEMBERS = _DOCUMENTED["members"]
_RETURNED = _DOCUMENTED["returned"]
_BASES = _DOCUMENTED["bases"]
"""AWS's documentation of each class: its attributes and methods, their return types, and its bases.

Other attributes of the simulator's classes are private.
"""
_SHORT = _DOCUMENTED["modules"]
_TENSORS = _DOCUMENTED["sections"]
_OPERATORS = _DOCUMENTED["operators"]
"""The short names of current modules in the table of levels, the sections with functions that
return a tensor (except ``_NO_TENSORS``), and the operators that a tensor may have.
"""
_SAME = frozenset({"NkiTensor", "NkiGrid"})
"""Classes whose views have the class itself."""


def stub_files() -> dict[str, str]:
    """Return the texts of the distribution's files by path."""
    served = embedded_modules()
    homes = _homes(served)
    project = (_DATA / "stubs.pyproject.toml").read_text(encoding="utf-8")
    texts = {"pyproject.toml": project.format(version=version("nki-difftest"))}
    for root in ("neuronxcc", "nki"):
        texts[f"{root}-stubs/py.typed"] = "partial\n"
    for name, module in sorted(served.items()):
        root, *inner = name.split(".")
        if any(other.startswith(f"{name}.") for other in served):
            inner.append("__init__")
        file = f"{root}-stubs/{'/'.join(inner)}.pyi"
        texts[file] = StubModule(name, module, homes).text
    return texts


def public_names(name: str, module: ModuleType) -> list[str]:
    """Return the public names of a module: documented, exported, or part of any NKI level."""
    namespace = vars(module)
    names = set(namespace.get("__all__") or filter(_is_public, namespace))
    names.update(entry.name for entry in _documented(name))
    for path in LIFETIMES:
        prefix, _, own = path.partition(".")
        if _SHORT.get(prefix) == name and own.isidentifier():
            names.add(own)
    return sorted(key for key in names if getattr(module, key, None) is not None)


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _documented(name: str) -> list[DocumentedName]:
    """Return the documented names of a module."""
    dialect = CLASSIC if name.startswith(CLASSIC.package) else TODAY
    return [
        entry
        for entry in documented_names(dialect)
        if f"{dialect.package}{entry.module}" == name
    ]


def _homes(served: dict[str, ModuleType]) -> dict[tuple[str, int], str]:
    """Return the outermost module that contains a class, by package and class identity."""
    homes: dict[tuple[str, int], str] = {}
    for name in sorted(served, key=lambda name: (name.count("."), name)):
        for own in public_names(name, served[name]):
            value = getattr(served[name], own)
            if isinstance(value, type):
                homes.setdefault((name.partition(".")[0], id(value)), name)
    return homes


class StubModule:
    """The stub of one module."""

    def __init__(
        self, name: str, module: ModuleType, homes: dict[tuple[str, int], str]
    ) -> None:
        self.name = name
        self._homes = homes
        self._imports: set[str] = set()
        self._private: dict[str, str] = {}
        documented = _documented(name)
        returning = {own.name for own in documented if own.section in _TENSORS}
        self._tensors = returning - _NO_TENSORS
        self._is_classic = name.startswith(CLASSIC.package)
        self._tensor = self._tensor_of()
        declared = ""
        for own in public_names(name, module):
            text = self._declared(own, getattr(module, own))
            declared += f"\n{text}" if text else ""
        doc = (inspect.getdoc(module) or "").partition("\n")[0]
        self.text = f'{_HEADER}"""{doc}"""\n\n{_IMPORTS}'
        self.text += "".join(sorted(self._imports))
        for private in self._private.values():
            self.text += f"\n{private}"
        self.text += declared

    def _tensor_of(self) -> str:
        """Return the name of the tensor class in this module, and import it if necessary."""
        if not self._tensors:
            return "Any"
        if self._is_classic:
            self._imports.add("from neuronxcc.nki import tensor as _tensor\n")
            return "_tensor"
        return "NkiTensor"

    def _declared(self, name: str, value: Any) -> str:
        if isinstance(value, type):
            return self._class(name, value)
        if isinstance(value, (ModuleType, SimpleNamespace)):
            self._imports.add(f"from {self.name} import {name} as {name}\n")
            return ""
        if isinstance(value, FunctionType):
            returned = self._tensor if name in self._tensors else "Any"
            mark = self._deprecation(name)
            return mark + function_text(name, value, self._type, returned)
        if isinstance(value, Unmodelled):
            return f'{name}: Any\n"""Documented; the simulator refuses its use."""\n'
        if isinstance(value, Annotation):
            self._imports.add(_ANNOTATIONS)
            module, kind = ("nki.language", "NkiTensor")
            if name == "scalar":
                module, kind = ("typing", "Any")
            elif self._is_classic:
                module, kind = ("neuronxcc.nki", "tensor")
            return _ANNOTATION.format(module=module, kind=kind, name=name)
        return f"{name}: {self._kind(value)}\n"

    def _deprecation(self, name: str) -> str:
        """Return the decorator of a name that a level of the current dialect removed."""
        for short, module in _SHORT.items():
            row = LIFETIMES.get(f"{short}.{name}")
            if module == self.name and row and row.ended:
                text = f"ended with NKI {row.ended}: {row.instead}"
                return f"@deprecated({text!r})\n"
        return ""

    def _class(self, name: str, value: type) -> str:
        if value.__module__.partition(".")[0] == "numpy":
            if not hasattr(np, name):
                return f"{name} = _np.{value.__name__}\n"
            self._imports.add(f"from numpy import {name} as {name}\n")
            return ""
        home = self._homes[self.name.partition(".")[0], id(value)]
        if home != self.name:
            self._imports.add(f"from {home} import {name} as {name}\n")
            return ""
        write = enum_text if issubclass(value, Enum) else class_text
        return write(name, value)

    def _type(self, value: Any) -> str:
        """Return the annotation of a parameter with this default."""
        if isinstance(value, Enum):
            return self._of_enum(value)
        return annotation_of(value)

    def _of_enum(self, value: Enum) -> str:
        kind = type(value)
        home = self._homes.get((self.name.partition(".")[0], id(kind)))
        if home is None:
            return "Any"
        if home != self.name:
            self._imports.add(
                f"from {home} import {kind.__name__} as {kind.__name__}\n"
            )
        return kind.__name__

    def _kind(self, value: Any) -> str:
        """Return the type of a constant."""
        if isinstance(value, Enum):
            return self._of_enum(value)
        if isinstance(value, np.dtype):
            return "_np.dtype[Any]"
        if isinstance(value, (int, float, str)):
            return type(value).__name__
        kind = f"_{type(value).__name__.lstrip('_')}"
        if isinstance(value, Buffer):
            kind = "_Hbm" if value.space.is_hbm else f"_{value.space.value.title()}"
        self._private[kind] = class_text(kind, value)
        return kind


def annotation_of(default: object) -> str:
    """Return the type of a parameter that its default implies, or ``Any``."""
    return {bool: "bool", str: "str"}.get(type(default), "Any")


def doc_of(value: object, indent: str = "    ") -> str:
    """Return the first line of a docstring as an indented docstring."""
    line = (inspect.getdoc(value) or "").partition("\n")[0].replace("\\", "\\\\")
    return f'\n{indent}"""{line}"""' if line else ""


def enum_text(name: str, kind: type[Enum]) -> str:
    """Return the stub of an enumeration with its members."""
    base = "IntEnum" if issubclass(kind, IntEnum) else "Enum"
    text = f"class {name}({base}):\n"
    for key, member in kind.__members__.items():
        text += f"    {key} = {member.value!r}\n"
    return text


def function_text(
    name: str,
    function: Callable[..., Any],
    type_of: Callable[[Any], str],
    returned: str,
) -> str:
    """Return the stub of a function. ``type_of`` maps a parameter's default to its type."""
    listed = _parameters(inspect.signature(function).parameters.values(), type_of)
    return f"def {name}({listed}) -> {returned}:{doc_of(function)}\n    ...\n"


def class_text(name: str, value: Any) -> str:
    """Return the stub of a class, or of an object's class, with its documented members."""
    owner = Tensor if name == "tensor" else value
    if name in ("_TileSize", "_TileSizes"):
        members = [f"    {attribute}: int\n" for attribute in sorted(dir(value))]
    else:
        members = [_member(name, owner, member) for member in _MEMBERS[name]]
    base = f"({_BASES[name]})" if name in _BASES else ""
    doc = doc_of(owner if isinstance(owner, type) else type(owner))
    return f"class {name}{base}:{doc}\n{''.join(members) or '    ...' + chr(10)}"


def _member(kind: str, owner: Any, member: str) -> str:
    if ":" in member:
        name, held = member.split(": ")
        if isinstance(inspect.getattr_static(owner, name, None), property):
            return f"    @property\n    def {name}(self) -> {held}: ...\n"
        return f"    {member}\n"
    if member == "operators":
        return "".join(_protocol(kind, operator) for operator in _operators(owner))
    if member.startswith("__") and member != "__init__":
        return _protocol(kind, member)
    return _method(kind, owner, member)


def _method(kind: str, owner: Any, member: str) -> str:
    """Return the stub of a method with documented arguments."""
    method = getattr(owner, member)
    parameters = list(inspect.signature(method).parameters.values())
    if isinstance(owner, type):
        parameters = parameters[1:]
    listed = ", ".join(filter(None, ["self", _parameters(parameters, annotation_of)]))
    if member == "__init__":
        return f"    def __init__({listed}) -> None: ...\n"
    returned = _RETURNED.get(member, _view_of(kind))
    return f"    def {member}({listed}) -> {returned}:{doc_of(method, ' ' * 8)}\n        ...\n"


def _operators(owner: type) -> Iterator[str]:
    """Yield the operators that a class has and ``object`` lacks."""
    for form in _FORMS:
        for operator in map(form.format, _OPERATORS):
            if any(operator in vars(base) for base in owner.__mro__[:-1]):
                yield operator


def _view_of(kind: str) -> str:
    return kind if kind in _SAME else "Any"


def _protocol(kind: str, name: str) -> str:
    """Return the stub of a special method: subscripts and operators."""
    signatures = {
        "__getitem__": f"(self, key: Any, /) -> {_view_of(kind)}",
        "__setitem__": "(self, key: Any, value: Any, /) -> None",
        "__class_getitem__": "(cls, shape: Any, /) -> Any",
        "__len__": "(self) -> int",
        "__neg__": "(self) -> Any",
        "__invert__": "(self) -> Any",
        "__iter__": "(self) -> Any",
    }
    binary = "(self, other: Any, /) -> Any"
    return f"    def {name}{signatures.get(name, binary)}: ...\n"


class _Verbatim(str):
    """A string whose ``repr`` is the text itself, for use in signatures."""

    __repr__ = str.__str__


def _parameters(
    parameters: Iterable[inspect.Parameter], type_of: Callable[[Any], str]
) -> str:
    """Return the parameters as in a signature, with the marks ``/`` and ``*``."""
    rows = []
    for row in parameters:
        kind = "Any"
        default = row.default
        if default is not row.empty:
            kind = "str | None" if row.name == "name" else type_of(default)
            default = _Verbatim(_default(default))
        rows.append(row.replace(annotation=_Verbatim(kind), default=default))
    return str(inspect.Signature(rows))[1:-1]


def _default(value: object) -> str:
    simple = value is None or isinstance(value, (bool, int, float, str))
    return repr(value) if simple and not isinstance(value, Enum) else "..."
