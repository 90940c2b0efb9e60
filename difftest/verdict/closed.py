"""The world in which a candidate runs: its own files, NKI, and the few names that a list has.

Its files are run here as the judge has read and checked them; nothing is looked for on a disk.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import importlib.util
import io
import logging
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from difftest.harness.coverage import Place
from difftest.verdict.language import (
    BUILTINS,
    MODULES,
    NKI,
    SourceFile,
    own_name,
    renamed,
)

_import = builtins.__import__
_MARK = "which way?"  # a name that no source can have


class Quiet:
    """A logger: whatever it is asked, it keeps nothing."""

    def __call__(self, *args: object, **more: object) -> Quiet:
        return self

    def __getattr__(self, name: str) -> Quiet:
        if name.startswith("_"):
            raise AttributeError(name)
        return self


def _in_place_of(out: io.TextIOBase) -> dict[str, dict[str, Any]]:
    """What is given for modules that have files, processes or the whole of Python."""
    levels = {name: level for name, level in vars(logging).items() if name.isupper()}
    return {
        "logging": {**dict.fromkeys(MODULES["logging"], Quiet()), **levels},
        "warnings": {
            **dict.fromkeys(MODULES["warnings"], Quiet()),
            "catch_warnings": lambda **options: contextlib.nullcontext([]),
        },
        "os": {"environ": {}, "getenv": lambda name, default=None: default},
        "sys": {
            **{name: getattr(sys, name) for name in ("maxsize", "float_info")},
            "version_info": tuple(sys.version_info),
            **dict.fromkeys(("stdout", "stderr"), out),
        },
    }


class ClosedWorld:
    """A candidate's modules, and what they may import.

    Each run of a kernel begins anew: what an earlier one left in a module is not there. Of the
    sources the kernel's is the first. It prints to ``out``; ``allowed`` names opened modules.
    """

    def __init__(
        self, sources: Sequence[SourceFile], allowed: Sequence[str], out: io.TextIOBase
    ) -> None:
        self.sources = {source.name: source for source in sources}
        self.allowed = frozenset(allowed)
        self.modules: dict[str, ModuleType] = {}
        self._codes: dict[str, CodeType] = {}
        self._lists = {name: ModuleType(name) for name in MODULES}
        own = _in_place_of(out)
        for name, module in self._lists.items():
            space = own.get(name) or vars(importlib.import_module(name))
            shown = {member: space[member] for member in MODULES[name] if member in space}
            if name == "functools":  # without a say in what is copied
                shown["wraps"] = lambda wrapped: functools.wraps(wrapped)
            vars(module).update(shown, __all__=sorted(shown), __path__=[])
        for name, module in self._lists.items():
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(self._lists[parent], child, module)
        real = vars(builtins)
        self._builtins = {name: real[name] for name in BUILTINS if name in real} | {
            "__build_class__": real["__build_class__"],
            "__import__": self.imported,
            "__name__": "builtins",
            "type": lambda value: type(value),
            _MARK: self._way,
        }
        self.ways: dict[Place, dict[int, set[int]]] = {}

    def module(self, name: str) -> ModuleType:
        """A module of the candidate's, run if it has not been."""
        if name in self.modules:
            return self.modules[name]
        source = self.sources[name]
        package = name if source.is_package else name.rpartition(".")[0]
        module = ModuleType(name)
        vars(module).update(
            __builtins__=self._builtins,
            __file__=source.file,
            __package__=package,
            __spec__=ModuleSpec(name, None, origin=source.file, is_package=source.is_package),
        )
        self.modules[name] = sys.modules[name] = module  # dataclasses look there
        if name not in self._codes:
            tree = marked(renamed(ast.parse(source.text, source.file), self.sources), source.file)
            self._codes[name] = compile(tree, source.file, "exec", dont_inherit=True)
        exec(self._codes[name], vars(module))
        return module

    def _way(self, test: Any, file: str, line: int, column: int) -> Any:
        """A condition; what those of its line came to is kept, but of a tensor's."""
        if not type(test).__module__.startswith("difftest."):
            self.ways.setdefault((file, line), {}).setdefault(column, set()).add(int(not test))
        return test

    def first(self) -> ModuleType:
        """The module of the kernel's file, as nothing had run before."""
        for name in self.modules:
            sys.modules.pop(name, None)
        self.modules.clear()
        return self.module(next(iter(self.sources)))

    def imported(
        self,
        name: str,
        space: Mapping[str, Any] | None = None,
        _: object = None,
        wanted: Sequence[str] | None = None,
        level: int = 0,
    ) -> Any:
        package = str((space or {}).get("__package__", ""))
        name = importlib.util.resolve_name("." * level + name, package)
        top = name.partition(".")[0]
        if any(f"{module}.".startswith(f"{name}.") for module in self.sources):
            return self._own(name, wanted or ())
        if name.startswith(("numpy._core.", "numpy.core.")):  # NumPy's C code: f"{x.dtype}"
            _import(name, {}, {}, ("__name__",), 0)
            return ModuleType(name)  # it takes the other from sys.modules
        if top in NKI or top in self.allowed or name in self.allowed:
            return _import(name, {}, {}, tuple(wanted or ()), 0)
        if name in self._lists:
            return self._lists[name if wanted else top]
        raise ModuleNotFoundError(f"No module named {name!r} for a candidate", name=name)

    def _own(self, name: str, wanted: Sequence[str]) -> ModuleType:
        """A module of the candidate's; a package runs where a name of its own is wanted."""
        inner = [member for member in wanted if f"{name}.{member}" in self.sources]
        runs = name in self.sources and (len(inner) < len(wanted) or not wanted)
        module = self.module(name) if runs else self.modules.get(name) or ModuleType(name)
        for member in inner:
            setattr(module, member, self.module(f"{name}.{member}"))
        while not wanted and "." in name:  # ``import a.b`` gives a
            name, _, child = name.rpartition(".")
            above = self.modules.get(name) or ModuleType(name)
            setattr(above, own_name(child), module)
            module = above
        return module


def marked(tree: ast.Module, file: str) -> ast.Module:
    """The tree, in which conditions of a function's expressions tell how they come out."""

    def told(node: ast.expr, at: ast.expr | ast.pattern) -> ast.expr:
        place = [ast.Constant(part) for part in (file, at.lineno, at.col_offset)]
        return ast.copy_location(ast.Call(ast.Name(_MARK, ast.Load()), [node, *place], []), at)

    def seen(node: Any) -> Any:
        return told(node, node) if isinstance(node, ast.expr) and node in conditions else node

    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
    nodes = {node for function in functions for node in ast.walk(function)}
    conditions: set[ast.AST] = {node for node in nodes if isinstance(node, ast.Compare)}
    for node in nodes:
        if isinstance(node, ast.BoolOp):
            conditions.update(node.values[:-1])
        elif isinstance(node, ast.comprehension):
            conditions.update(node.ifs)
        elif isinstance(node, ast.IfExp):
            conditions.add(node.test)
    for node in nodes:  # what stands in the head of a statement is told by the lines that run
        if isinstance(node, (ast.If, ast.While, ast.Assert)):
            conditions.difference_update(ast.walk(node.test))
    for node in nodes:
        if isinstance(node, ast.Match):
            arms = [case for case in node.cases if not isinstance(case.body[-1], ast.Raise)]
            none: list[ast.expr] = [told(ast.Constant(False), arm.pattern) for arm in arms]
            for arm in arms:
                arm.guard = told(arm.guard or ast.Constant(True), arm.pattern)
            all_of = ast.Tuple([*none, node.subject], ast.Load())
            node.subject = ast.Subscript(all_of, ast.Constant(-1), ast.Load())
        for name, value in ast.iter_fields(node):
            setattr(node, name, [*map(seen, value)] if isinstance(value, list) else seen(value))
    return ast.fix_missing_locations(tree)
