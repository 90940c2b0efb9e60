"""A candidate's modules: loaded from the sources that the judge has read, with guards."""

from __future__ import annotations
import __future__

import ast
import importlib
import importlib.util
import os
import random
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any

from difftest.simulator.errors import pass_through
from difftest.tools.verdict.sources import SourceFile, decoded_text
from difftest.tools.verdict.world.attributes import read
from difftest.tools.verdict.world.guard import Guarded
from difftest.tools.verdict.world.held import Libraries, Module, OwnModule
from difftest.tools.verdict.world.libraries import standard_tables
from difftest.tools.verdict.world.nki_modules import loaded_modules, nki_tables
from difftest.tools.verdict.world.python_names import builtin_names
from difftest.tools.verdict.world.refusal import (
    INTERNAL,
    STATE,
    Absent,
    exact_text,
    unavailable,
)

pass_through(os.path.dirname(__file__))


class CandidateModules:
    """A candidate's modules, and the names that they may import.

    Parameters
    ----------
    sources : the candidate's files, the kernel's file first.
    allowed : the modules that ``--allow`` opens.
    write : writes the text that the candidate prints.
    prepare : changes a file's syntax tree before the guards are put in.
    names : further names of each file, which no source can spell.
    faults : why files of the candidate cannot be used, by the names of their modules.
    """

    def __init__(
        self,
        sources: Sequence[SourceFile],
        allowed: Sequence[str],
        write: Callable[[str], object],
        prepare: Callable[[ast.Module, str], ast.Module],
        names: Mapping[str, Any],
        faults: Mapping[str, str] | None = None,
    ) -> None:
        STATE.reset()
        self.sources = {source.name: source for source in sources}
        self.allowed = frozenset(allowed)
        self.faults = faults or {}
        self.modules: dict[str, OwnModule] = {}
        self._prepare = prepare
        self._codes: dict[str, CodeType] = {}
        self._tables = standard_tables(write) | nki_tables(loaded_modules())
        self._libraries = Libraries(self._tables)
        self._builtins = builtin_names(write) | dict(names)
        for name, guard in {
            "imported": self.imported,
            "member": self.member,
            "all_names": self.all_names,
            "skipped": self.skipped,
        }.items():
            self._builtins[f"{INTERNAL}{name}"] = guard
        STATE.builtins = self._builtins
        STATE.is_open = bool(allowed)
        STATE.modules = self.modules
        STATE.files = frozenset(source.file for source in sources)

    def first(self) -> OwnModule:
        """Return the module of the kernel's file, after all modules of the candidate are reset."""
        self.modules.clear()
        self._libraries = Libraries(self._tables)
        random.seed()  # its state would count the runs
        return self.module(next(iter(self.sources)))

    def module(self, name: str) -> OwnModule:
        """Return a module of the candidate; run it if it has not run."""
        if name in self.modules:
            return self.modules[name]
        source = self.sources[name]
        module = OwnModule(name, {})
        self.modules[name] = module
        space = vars(module)
        space["__builtins__"] = self._builtins
        space["__file__"] = source.file
        space["__name__"] = name
        before = STATE.loading
        STATE.loading = True
        try:
            exec(self._code(source), space)
        finally:
            STATE.loading = before
        return module

    def _code(self, source: SourceFile) -> CodeType:
        if source.name not in self._codes:
            with warnings.catch_warnings():
                # Python 3.14 warns of a return in finally, which the guards make harmless.
                warnings.simplefilter("ignore", SyntaxWarning)
                self._codes[source.name] = self._compiled(source)
        return self._codes[source.name]

    def _compiled(self, source: SourceFile) -> CodeType:
        """Return the code of a source with guards."""
        tree = ast.parse(decoded_text(source.text), source.file)
        flags = _future_flags(tree)
        tree = self._prepare(tree, source.file)
        tree = Guarded(source.name, source.package).module_of(tree)
        code: CodeType = compile(tree, source.file, "exec", flags, dont_inherit=True)
        return code

    def skipped(self, name: str, *names: str) -> None:
        """Bind the names of a skipped statement to absent values."""
        space = vars(self.modules[name])
        reason = sys.exc_info()[1]
        for own in filter(None, names):
            space[own] = Absent(f"{own}, which needs {reason},")

    def imported(self, name: str, has_alias: bool, is_tried: bool) -> Any:
        """Return the module of ``import name``."""
        found = self._find(name, is_tried=is_tried)
        if has_alias or "." not in name:
            return found
        top = name.partition(".")[0]
        if any(own.partition(".")[0] == top for own in self.sources):
            return self._own_package(name, found)
        return self._find(top, is_tried=is_tried)

    def _own_package(self, name: str, found: Any) -> Any:
        """Return the top package of the candidate, with the modules below it as attributes."""
        while "." in name:
            name, _, child = name.rpartition(".")
            above = self.modules.get(name) or OwnModule(name, {})
            self.modules.setdefault(name, above)
            vars(above)[child] = found
            found = above
        return found

    def member(
        self, member: str, module: str, level: int, package: str, is_tried: bool
    ) -> Any:
        """Return the value of ``from module import member``."""
        name = self._absolute(module, level, package)
        if f"{name}.{member}" in self.sources:
            return self.module(f"{name}.{member}")
        found = self._find(name, is_tried=is_tried)
        if type(found) is Absent:
            return unavailable(f"{name}.{member}")
        value = self._libraries.get(f"{name}.{member}")
        if value is not None:
            return value
        try:
            return read(found, member)
        except AttributeError:
            text = f"cannot import name {member!r} from {name!r}"
            raise ImportError(text) from None

    def all_names(
        self, target: str, module: str, level: int, package: str, is_tried: bool
    ) -> None:
        """Bind the public names of a module: ``from module import *``."""
        found = self._find(self._absolute(module, level, package), is_tried=is_tried)
        if type(found) is Absent:
            return
        listed = vars(found).get("__all__") or list(vars(found))
        texts = [exact_text(name, "a name of __all__") for name in listed]
        names = [name for name in texts if not name.startswith(("_", INTERNAL))]
        vars(self.modules[target]).update({name: vars(found)[name] for name in names})

    def _absolute(self, module: str, level: int, package: str) -> str:
        return importlib.util.resolve_name("." * level + module, package)

    def _find(self, name: str, *, is_tried: bool) -> Any:
        """Return a module by its whole name; an absent value if it is not here."""
        if name in self.sources:
            return self.module(name)
        if name.partition(".")[0] in self.allowed or name in self.allowed:
            return open_module(importlib.import_module(name))
        if name in self.faults:
            return unavailable(f"{name} ({self.faults[name]})")
        if (library := self._libraries.get(name)) is not None:
            return library
        if any(own.startswith(f"{name}.") for own in self.sources):
            return self.modules.setdefault(name, OwnModule(name, {}))
        STATE.asked.add(name)
        if is_tried:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return Absent(name)


def open_module(module: ModuleType) -> Module:
    """Return a module that ``--allow`` opens: all of its names, without guards."""

    def find(name: str) -> Any:
        value = getattr(module, name)
        return open_module(value) if isinstance(value, ModuleType) else value

    return Module(module.__name__, {}, find)


def _future_flags(tree: ast.Module) -> int:
    """Return the compiler's flags for the ``from __future__`` imports of a file."""
    flags = 0
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                feature = getattr(__future__, alias.name, None)
                flags |= getattr(feature, "compiler_flag", 0)
    return flags
