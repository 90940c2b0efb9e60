"""Stubs of ``nki`` and ``neuronxcc.nki`` (PEP 561), for editors and type checkers.

They say what the simulator's modules have, with the signatures that AWS documents. They are the
files of a distribution, so that ``pip install`` takes and removes them, and are written on demand:
no list of names is kept by hand.
"""

from __future__ import annotations

import inspect
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from difftest.api.documented import CLASSIC, TODAY, documented_names
from difftest.lint.stub_classes import annotation_of, class_text, enum_text, function_text
from difftest.simulator.frontend.arguments import Annotation, Unmodelled
from difftest.simulator.frontend.classic.memories import Buffer
from difftest.simulator.frontend.install import modules
from difftest.simulator.frontend.nki.levels import LIFETIMES

_HEADER = """\
# Written by `difftest stubs`: the names that the simulator of nki-difftest has.
"""
_IMPORTS = """\
from enum import Enum, IntEnum
from typing import Any

import numpy as _np
from typing_extensions import deprecated
"""
_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.26"]
build-backend = "hatchling.build"

[project]
name = "nki-difftest-stubs"
version = "{version}"
description = "Stubs of nki and neuronxcc.nki, written by difftest"
requires-python = ">=3.10"
dependencies = ["numpy"]

[tool.hatch.build.targets.wheel]
packages = ["nki-stubs", "neuronxcc-stubs"]
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
_SHORT = {"nl": "nki.language", "nisa": "nki.isa", "ncc": "nki.collectives"}
"""What the table of levels calls the modules of today's dialect."""
_TENSORS = (
    *("Creation operations", "Math operations", "Bitwise operations", "Logical operations"),
    *("Comparison operations", "Reduction operations", "Tensor manipulation operations"),
    "Activation and Backpropagation functions",
)
"""The sections of AWS's summaries whose functions return a tensor, but for these."""
_NO_TENSORS = frozenset({"arange", "par_dim", "ds"})


def stub_files() -> dict[str, str]:
    """The texts of the distribution by path."""
    served = modules()
    homes = _homes(served)
    texts = {"pyproject.toml": _PYPROJECT.format(version=version("nki-difftest"))}
    for root in ("neuronxcc", "nki"):
        texts[f"{root}-stubs/py.typed"] = "partial\n"
    for name, module in sorted(served.items()):
        root, _, inner = name.partition(".")
        has_parts = any(other.startswith(f"{name}.") for other in served)
        file = f"{inner.replace('.', '/')}/__init__" if has_parts else inner.replace(".", "/")
        texts[f"{root}-stubs/{file.removeprefix('/')}.pyi"] = StubModule(name, module, homes).text
    return texts


def write_stubs(folder: Path) -> list[Path]:
    """Write the distribution into a folder; the files, in order."""
    files = []
    for name, text in sorted(stub_files().items()):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        files.append(file)
    return files


def public_names(name: str, module: ModuleType) -> list[str]:
    """Every name of a module that is documented, served, or of some level of NKI."""
    namespace = vars(module)
    listed = namespace.get("__all__") or [one for one in namespace if not one.startswith("_")]
    dialect = CLASSIC if name.startswith(CLASSIC.package) else TODAY
    documented = {
        one.name for one in documented_names(dialect) if f"{dialect.package}{one.module}" == name
    }
    levelled = {
        own for prefix, _, own in (one.partition(".") for one in LIFETIMES)
        if _SHORT.get(prefix) == name and own.isidentifier()
    }  # fmt: skip
    return sorted(
        one for one in {*listed, *documented, *levelled} if getattr(module, one, None) is not None
    )


def _homes(served: dict[str, ModuleType]) -> dict[tuple[str, int], str]:
    """The module that declares a class, by the package and the class: the outermost that has it."""
    homes: dict[tuple[str, int], str] = {}
    for name, module in sorted(served.items(), key=lambda item: (item[0].count("."), item[0])):
        for own in public_names(name, module):
            value = getattr(module, own)
            if isinstance(value, type):
                homes.setdefault((name.partition(".")[0], id(value)), name)
    return homes


class StubModule:
    """The stub of one module."""

    def __init__(self, name: str, module: ModuleType, homes: dict[tuple[str, int], str]) -> None:
        self.name = name
        self._homes = homes
        self._imports: set[str] = set()
        self._private: dict[str, str] = {}
        dialect = CLASSIC if name.startswith(CLASSIC.package) else TODAY
        self._tensors = {
            one.name
            for one in documented_names(dialect)
            if f"{dialect.package}{one.module}" == name and one.section in _TENSORS
        } - _NO_TENSORS
        self._is_classic = dialect is CLASSIC
        self._tensor = self._tensor_of()
        parts = [self._declared(own, getattr(module, own)) for own in public_names(name, module)]
        doc = (inspect.getdoc(module) or "").partition("\n")[0]
        head = [f'{_HEADER}"""{doc}"""\n', _IMPORTS + "".join(sorted(self._imports))]
        self.text = "\n".join([*head, *self._private.values(), *filter(None, parts)])

    def _tensor_of(self) -> str:
        """What a tensor is called in this module, which may have to import it."""
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
            return function_text(name, value, self._type, returned, self._lifetime(name))
        if isinstance(value, Unmodelled):
            return f'{name}: Any\n"""Documented; the simulator refuses its use."""\n'
        if isinstance(value, Annotation):
            self._imports.add(_ANNOTATIONS)
            return self._annotation(name)
        return f"{name}: {self._kind(value)}\n"

    def _annotation(self, name: str) -> str:
        """What a parameter is that ``nt`` annotates: a tensor, or anything."""
        module, kind = (
            ("neuronxcc.nki", "tensor") if self._is_classic else ("nki.language", "NkiTensor")
        )
        if name == "scalar":
            module, kind = "typing", "Any"
        return _ANNOTATION.format(module=module, kind=kind, name=name)

    def _lifetime(self, name: str) -> str | None:
        """Until when a name of today's dialect exists, if it has ended."""
        short = next((one for one, module in _SHORT.items() if module == self.name), "")
        row = LIFETIMES.get(f"{short}.{name}")
        return f"ended with NKI {row.ended}: {row.instead}" if row and row.ended else None

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
        return enum_text(name, value) if issubclass(value, Enum) else class_text(name, value)

    def _type(self, value: Any) -> str:
        """The annotation of a parameter with this default; of an enumeration, its class here."""
        if isinstance(value, Enum):
            return self._of_enum(value)
        return annotation_of(value)

    def _of_enum(self, value: Enum) -> str:
        kind = type(value)
        home = self._homes.get((self.name.partition(".")[0], id(kind)))
        if home is None:
            return "Any"
        if home != self.name:
            self._imports.add(f"from {home} import {kind.__name__} as {kind.__name__}\n")
        return kind.__name__

    def _kind(self, value: Any) -> str:
        """The type of a constant."""
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
