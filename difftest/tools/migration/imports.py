"""Resolve the local names of NKI modules in a file, and rewrite the imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Any

import libcst as cst
from libcst import matchers as m
from libcst.helpers import get_full_name_for_node

from difftest.tools.migration.rules import IMPORT, OTHERS, Rule
from difftest.tools.syntax import annotation_nodes, bound_names, dotted_name

CLASSIC = "neuronxcc"
WITHOUT_NKI = {
    "nki",
    "numpy",
    "ml_dtypes",
    "scipy",
    "torch",
    "torch_xla",
    "torchvision",
    "jax",
    "jaxlib",
    "pytest",
    "hypothesis",
}
"""Packages without code in the classic dialect, in addition to Python's standard library."""
MODULES = {
    "neuronxcc.nki": "nki",
    "neuronxcc.nki.isa": "nisa",
    "neuronxcc.nki.language": "nl",
    "neuronxcc.nki.typing": "nt",
    "numpy": "np",
}
TODAY = {"nki": "nki", "nisa": "nki.isa", "nl": "nki.language"}


class ModuleNames:
    """The local names of NKI modules in a file. Rules call the modules nki, nisa, nl, nt and np.

    ``today`` returns the new name of a module that is migrated too, and None for other modules.
    """

    def __init__(
        self, module: cst.Module, today: Callable[[str], str | None] | None = None
    ) -> None:
        self._module_of: dict[str, str] = {}
        self._is_package = today is not None
        self._renamed = today or (lambda name: None)
        self._new_names: set[str] = set()
        for statement in m.findall(module, m.Import() | m.ImportFrom()):
            for name, local in _imported(statement):
                if name in MODULES:
                    self._module_of[local] = MODULES[name]

    def local(self, module: str) -> str:
        """Return the file's name of ``nisa`` or ``nl``; ``module`` itself without an import."""
        own = (local for local, meant in self._module_of.items() if meant == module)
        return next(own, module)

    def of(self, node: cst.CSTNode | None) -> str:
        """Return the canonical name of a LibCST node, such as ``nl.load``; else ""."""
        if not isinstance(node, cst.Attribute):
            return ""
        return self._meant(get_full_name_for_node(node) or "")

    def meant(self, node: ast.AST) -> str:
        """Return the canonical name of a node of ``ast``, such as ``nl.load``; else ""."""
        return self._meant(dotted_name(node))

    def called(self, node: ast.AST | None) -> str:
        """Return the canonical name of the function that a node calls; else ""."""
        return self.meant(node.func) if isinstance(node, ast.Call) else ""

    def has_type(self, annotation: ast.AST) -> bool:
        """Return whether an annotation, or a string inside it, names an NKI type."""
        nodes = annotation_nodes(annotation)
        return any(self.meant(node).startswith("nt.") for node in nodes)

    def _meant(self, full: str) -> str:
        fitting = [local for local in self._module_of if full.startswith(f"{local}.")]
        if not fitting:
            return ""
        longest = max(fitting, key=len)
        return f"{self._module_of[longest]}{full[len(longest) :]}"

    def rules_broken(self, statement: Any) -> list[Rule]:
        """Return the rules that an import breaks: NKI imports not rewritten, or other modules."""
        is_from = isinstance(statement, cst.ImportFrom)
        if is_from and (statement.relative or statement.module is None):
            return [] if self._is_package else [OTHERS]
        named = [statement.module] if is_from else [it.name for it in statement.names]
        names = [get_full_name_for_node(name) or "" for name in named]
        if self._new_names.issuperset(names):
            return []
        return _rules_of_modules(names, is_from)

    def with_new_names(self, module: cst.Module) -> cst.Module:
        """Return the file with the new names of migrated modules in its imports."""
        renamed = module.visit(_Renaming(self._renamed, self._new_names))
        assert isinstance(renamed, cst.Module)
        return renamed

    def with_modules_named(self, module: cst.Module) -> cst.Module:
        """Return the file with ``nl.par_dim`` in place of a ``par_dim`` imported by name.

        A name that the file also binds in another way is left unchanged.
        """
        bound = _bound_names(module)
        meant: dict[str, str] = {}
        body = []
        for line in module.body:
            single: dict[str, str] = {}
            if isinstance(line, cst.SimpleStatementLine):
                single = self._single_names(line.body[0])
            if not single or bound & set(single):
                body.append(line)
                continue
            meant |= single
            modules = {name.partition(".")[0] for name in single.values()}
            body += self._missing_imports(modules, line)
        if not meant:
            return module
        whole = module.with_changes(body=body).visit(_Naming(meant))
        assert isinstance(whole, cst.Module)
        return whole

    def _single_names(self, statement: Any) -> dict[str, str]:
        """Return ``{"par_dim": "nl.par_dim"}`` for an import of names from NKI modules."""
        single: dict[str, str] = {}
        if not isinstance(statement, cst.ImportFrom):
            return single
        for full, local in _imported(statement):
            module, _, name = full.rpartition(".")
            if module.startswith(CLASSIC) and MODULES.get(module, "nki") != "nki":
                single[local] = f"{self.local(MODULES[module])}.{name}"
        return single

    def _missing_imports(self, modules: set[str], line: Any) -> list[Any]:
        """Return the imports of whole modules that replace an import of single names."""
        lines = []
        for name, local in MODULES.items():
            if local in modules and local not in self._module_of:
                self._module_of[local] = local
                new = cst.parse_statement(f"import {name} as {local}")
                lines.append(new.with_changes(leading_lines=line.leading_lines))
        return lines

    def imported_today(self, body: Any) -> list[Any]:
        """Return the statements of a module with NKI imports of the current dialect."""
        statements: list[Any] = []
        has_nisa = any("neuronxcc.nki.isa" in dict(_nki_modules(line)) for line in body)
        for line in body:
            modules = _nki_modules(line)
            lines = _import_lines(modules, has_nisa)
            if lines:
                lines[0] = lines[0].with_changes(leading_lines=line.leading_lines)
            statements += lines if modules else [line]
        return statements


def _rules_of_modules(names: list[str], is_from: bool) -> list[Rule]:
    """Return the rule that an import of modules breaks, if it breaks one."""
    packages = {name.partition(".")[0] for name in names}
    if CLASSIC in packages or (is_from and "nki" in packages):
        return [IMPORT]
    return [] if packages <= WITHOUT_NKI | sys.stdlib_module_names else [OTHERS]


def _import_lines(modules: list[tuple[str, str]], has_nisa: bool) -> list[Any]:
    """Return the imports of the current dialect's modules for classic modules."""
    lines: list[Any] = []
    if "neuronxcc.nki.language" in dict(modules) and not has_nisa:
        lines.append(cst.parse_statement("import nki.isa as nisa"))
    for name, local in modules:
        new = TODAY.get(MODULES[name])
        if new is not None:
            alias = "" if local == new else f" as {local}"
            lines.append(cst.parse_statement(f"import {new}{alias}"))
    return lines


def _imported(node: Any) -> list[tuple[str, str]]:
    """Return the dotted name and the local name of each module or member that a node imports."""
    if not isinstance(node, (cst.Import, cst.ImportFrom)) or isinstance(
        node.names, cst.ImportStar
    ):
        return []
    prefix = ""
    if isinstance(node, cst.ImportFrom):
        if node.module is None:
            return []
        prefix = f"{get_full_name_for_node(node.module)}."
    imported = []
    for alias in node.names:
        name = str(alias.evaluated_name)
        imported.append((f"{prefix}{name}", alias.evaluated_alias or name))
    return imported


def _nki_modules(line: Any) -> list[tuple[str, str]]:
    """Return the modules of an import line, or an empty list unless all are known NKI modules."""
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return []
    modules = _imported(line.body[0])
    is_known = all(
        name in MODULES and name.startswith(CLASSIC) and local.isidentifier()
        for name, local in modules
    )
    return modules if is_known else []


class _Renaming(cst.CSTTransformer):
    """A transformer that renames modules in imports and records the new names."""

    def __init__(self, today: Callable[[str], str | None], noted: set[str]) -> None:
        super().__init__()
        self.today = today
        self.noted = noted

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> Any:
        if updated_node.relative or updated_node.module is None:
            return updated_node
        return self._renamed(updated_node, "module")

    def leave_ImportAlias(
        self, original_node: cst.ImportAlias, updated_node: cst.ImportAlias
    ) -> Any:
        return self._renamed(updated_node, "name")

    def _renamed(self, node: Any, part: str) -> Any:
        new = self.today(get_full_name_for_node(getattr(node, part)) or "")
        if new is None:
            return node
        self.noted.add(new)
        return node.with_changes(**{part: cst.parse_expression(new)})


class _Naming(cst.CSTTransformer):
    """A transformer that qualifies names imported by name with their modules."""

    def __init__(self, meant: dict[str, str]) -> None:
        super().__init__()
        self.meant = meant

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> Any:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> Any:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> Any:
        if updated_node.value in self.meant:
            return cst.parse_expression(self.meant[updated_node.value])
        return updated_node


def _bound_names(module: cst.Module) -> set[str]:
    """Return the names that a file binds other than by imports."""
    tree = ast.parse(module.code)
    bound = bound_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            bound.add(node.name)
    return bound
