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

from difftest.simulator.entry.install import modules
from difftest.simulator.frontend.arguments import Annotation, Unmodelled
from difftest.simulator.frontend.classic.memories import Buffer
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.frontend.levels import LIFETIMES
from difftest.tools.api.documented import CLASSIC, TODAY, documented_names

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
_MEMBERS, _RETURNED, _BASES = (
    _DOCUMENTED[key] for key in ("members", "returned", "bases")
)
"""AWS's documentation of each class: its attributes and methods, their return types, and its bases.

Other attributes of the simulator's classes are private.
"""
_SHORT, _TENSORS, _OPERATORS = (
    _DOCUMENTED[key] for key in ("modules", "sections", "operators")
)
"""The short names of current modules in the table of levels, the sections with functions that
return a tensor (except ``_NO_TENSORS``), and the operators that a tensor may have.
"""
_SAME = frozenset({"NkiTensor", "NkiGrid"})
"""Classes whose views have the class itself."""


def stub_files() -> dict[str, str]:
    """Return the texts of the distribution's files by path."""
    served = modules()
    homes = _homes(served)
    project = (_DATA / "stubs.pyproject.toml").read_text(encoding="utf-8")
    texts = {"pyproject.toml": project.format(version=version("nki-difftest"))}
    for root in ("neuronxcc", "nki"):
        texts[f"{root}-stubs/py.typed"] = "partial\n"
    for name, module in sorted(served.items()):
        root, _, inner = name.partition(".")
        has_parts = any(other.startswith(f"{name}.") for other in served)
        file = (
            f"{inner.replace('.', '/')}/__init__"
            if has_parts
            else inner.replace(".", "/")
        )
        texts[f"{root}-stubs/{file.removeprefix('/')}.pyi"] = StubModule(
            name, module, homes
        ).text
    return texts


def public_names(name: str, module: ModuleType) -> list[str]:
    """Return the public names of a module: documented, exported, or part of any NKI level."""
    namespace = vars(module)
    listed = namespace.get("__all__") or [
        word for word in namespace if not word.startswith("_")
    ]
    dialect = CLASSIC if name.startswith(CLASSIC.package) else TODAY
    documented = {
        row.name
        for row in documented_names(dialect)
        if f"{dialect.package}{row.module}" == name
    }
    levelled = {
        own for prefix, _, own in (path.partition(".") for path in LIFETIMES)
        if _SHORT.get(prefix) == name and own.isidentifier()
    }  # fmt: skip
    return sorted(
        key
        for key in {*listed, *documented, *levelled}
        if getattr(module, key, None) is not None
    )


def _homes(served: dict[str, ModuleType]) -> dict[tuple[str, int], str]:
    """Return the outermost module that contains a class, by package and class identity."""
    homes: dict[tuple[str, int], str] = {}
    for name, module in sorted(
        served.items(), key=lambda item: (item[0].count("."), item[0])
    ):
        for own in public_names(name, module):
            value = getattr(module, own)
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
        dialect = CLASSIC if name.startswith(CLASSIC.package) else TODAY
        self._tensors = {
            entry.name
            for entry in documented_names(dialect)
            if f"{dialect.package}{entry.module}" == name and entry.section in _TENSORS
        } - _NO_TENSORS
        self._is_classic = dialect is CLASSIC
        self._tensor = self._tensor_of()
        parts = [
            self._declared(own, getattr(module, own))
            for own in public_names(name, module)
        ]
        doc = (inspect.getdoc(module) or "").partition("\n")[0]
        head = [f'{_HEADER}"""{doc}"""\n', _IMPORTS + "".join(sorted(self._imports))]
        self.text = "\n".join([*head, *self._private.values(), *filter(None, parts)])

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
            return function_text(
                name, value, self._type, returned, self._lifetime(name)
            )
        if isinstance(value, Unmodelled):
            return f'{name}: Any\n"""Documented; the simulator refuses its use."""\n'
        if isinstance(value, Annotation):
            self._imports.add(_ANNOTATIONS)
            classic = ("neuronxcc.nki", "tensor")
            today = ("nki.language", "NkiTensor")
            module, kind = classic if self._is_classic else today
            if name == "scalar":
                module = "typing"
                kind = "Any"
            return _ANNOTATION.format(module=module, kind=kind, name=name)
        return f"{name}: {self._kind(value)}\n"

    def _lifetime(self, name: str) -> str | None:
        """Return the deprecation text of a name that a level of the current dialect removed."""
        short = next(
            (prefix for prefix, module in _SHORT.items() if module == self.name), ""
        )
        row = LIFETIMES.get(f"{short}.{name}")
        return (
            f"ended with NKI {row.ended}: {row.instead}" if row and row.ended else None
        )

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
        return (
            enum_text(name, value)
            if issubclass(value, Enum)
            else class_text(name, value)
        )

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
    members = [
        f"    {key} = {member.value!r}\n" for key, member in kind.__members__.items()
    ]
    return f"class {name}({base}):\n{''.join(members)}"


def function_text(
    name: str,
    function: Callable[..., Any],
    type_of: Callable[[Any], str],
    returned: str,
    ended: str | None = None,
) -> str:
    """Return the stub of a function. ``type_of`` maps a parameter's default to its type."""
    mark = f"@deprecated({ended!r})\n" if ended else ""
    listed = _parameters(inspect.signature(function).parameters.values(), type_of)
    return f"{mark}def {name}({listed}) -> {returned}:{doc_of(function)}\n    ...\n"


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
        return "".join(
            f"    {_protocol(kind, operator)}\n" for operator in _operators(owner)
        )
    if member.startswith("__") and member != "__init__":
        return f"    {_protocol(kind, member)}\n"
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
    returned = _view_of(kind)
    return {
        "__getitem__": f"def __getitem__(self, key: Any, /) -> {returned}: ...",
        "__setitem__": "def __setitem__(self, key: Any, value: Any, /) -> None: ...",
        "__class_getitem__": "def __class_getitem__(cls, shape: Any, /) -> Any: ...",
        "__len__": "def __len__(self) -> int: ...",
    }.get(
        name,
        f"def {name}(self) -> Any: ..."
        if name in ("__neg__", "__invert__", "__iter__")
        else f"def {name}(self, other: Any, /) -> Any: ...",
    )


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
