"""What the names of NKI's modules are in a file, and their imports in today's dialect."""

from __future__ import annotations

import sys
from typing import Any

import libcst as cst
from libcst import matchers as m
from libcst.helpers import get_full_name_for_node

from difftest.migration.rules import IMPORT, OTHERS

CLASSIC = "neuronxcc"
WITHOUT_NKI = ("nki", "numpy", "ml_dtypes")
"""Packages that hold no code in the classic dialect, beside Python's own."""
MODULES = {
    "neuronxcc.nki": "nki",
    "neuronxcc.nki.isa": "nisa",
    "neuronxcc.nki.language": "nl",
    "neuronxcc.nki.typing": "nt",
    "numpy": "np",
}
TODAY = {"nki": "nki", "nisa": "nki.isa", "nl": "nki.language"}


class Names:
    """How a file calls NKI's modules; the rules call them nki, nisa, nl, nt and np."""

    def __init__(self, module: cst.Module) -> None:
        self._module_of: dict[str, str] = {}
        for one in m.findall(module, m.Import() | m.ImportFrom()):
            prefix = ""
            if isinstance(one, cst.ImportFrom) and one.module is not None:
                prefix = f"{get_full_name_for_node(one.module)}."
            for alias in _aliases(one):
                name = f"{prefix}{alias.evaluated_name}"
                if name in MODULES:
                    local = alias.evaluated_alias or (alias.evaluated_name if prefix else name)
                    self._module_of[local] = MODULES[name]

    @property
    def psum(self) -> str:
        """How the file names PSUM."""
        return f"{self.local('nl')}.psum"

    def local(self, module: str) -> str:
        """What the file calls ``nisa`` or ``nl``; itself, where it does not import that."""
        for local, meant in self._module_of.items():
            if meant == module:
                return local
        return module

    def of(self, node: cst.CSTNode | None) -> str | None:
        """``nl.load`` for what the file calls it; None for what is no module's."""
        if not isinstance(node, cst.Attribute):
            return None
        full = get_full_name_for_node(node) or ""
        for local, meant in self._module_of.items():
            if full.startswith(f"{local}.") and (local, meant) == self._longest(full):
                return f"{meant}{full[len(local) :]}"
        return None

    def _longest(self, full: str) -> tuple[str, str]:
        fitting = [pair for pair in self._module_of.items() if full.startswith(f"{pair[0]}.")]
        return max(fitting, key=lambda pair: len(pair[0]))

    def rules_broken(self, one: Any) -> list[tuple[str, str]]:
        """The rules for imports of NKI that no rule rewrites, and for those of other modules."""
        is_from = isinstance(one, cst.ImportFrom)
        if is_from and (one.relative or one.module is None):
            return [OTHERS]
        named = [one.module] if is_from else [alias.name for alias in one.names]
        packages = {(get_full_name_for_node(name) or "").partition(".")[0] for name in named}
        if CLASSIC in packages or (is_from and "nki" in packages):
            return [IMPORT]
        return [] if packages <= {*sys.stdlib_module_names, *WITHOUT_NKI} else [OTHERS]

    def imported_today(self, body: Any) -> list[Any]:
        """The statements of a module with the imports of NKI in today's words."""
        statements: list[Any] = []
        have = set(self._module_of.values())
        for line in body:
            if not self._imports_nki(line):
                statements.append(line)
                continue
            [one] = line.body
            new = [text for text in map(self._today, self._modules(one)) if text]
            if self._brings(one, "nl") and "nisa" not in have:
                new.insert(0, "import nki.isa as nisa")
            lines = [cst.parse_statement(text) for text in new]
            if lines:
                lines[0] = lines[0].with_changes(leading_lines=line.leading_lines)
            statements += lines
        return statements

    def _imports_nki(self, line: Any) -> bool:
        """Whether a line is an import of NKI's modules, all of which have a place today."""
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            return False
        modules = self._modules(line.body[0])
        return bool(modules) and all(
            name in MODULES and name.startswith(CLASSIC) and local.isidentifier()
            for name, local in modules
        )

    def _modules(self, one: Any) -> list[tuple[str, str]]:
        """What an import names: the module, and what it is called here."""
        if not isinstance(one, (cst.Import, cst.ImportFrom)):
            return []
        prefix = ""
        if isinstance(one, cst.ImportFrom):
            if one.module is None or isinstance(one.names, cst.ImportStar):
                return []
            prefix = f"{get_full_name_for_node(one.module)}."
        return [
            (prefix + str(a.evaluated_name), a.evaluated_alias or str(a.evaluated_name))
            for a in _aliases(one)
        ]

    def _brings(self, one: Any, module: str) -> bool:
        return any(MODULES[name] == module for name, _ in self._modules(one))

    def _today(self, named: tuple[str, str]) -> str | None:
        name, local = named
        module = TODAY.get(MODULES[name])
        if module is None:
            return None
        return f"import {module}" if module == local else f"import {module} as {local}"


def _aliases(one: Any) -> list[cst.ImportAlias]:
    return [] if isinstance(one.names, cst.ImportStar) else list(one.names)
