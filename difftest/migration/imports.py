"""What the names of NKI's modules are in a file, and their imports in today's dialect."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Any

import libcst as cst
from libcst import matchers as m
from libcst.helpers import get_full_name_for_node

from difftest.migration.rules import IMPORT, OTHERS

CLASSIC = "neuronxcc"
WITHOUT_NKI = (
    *("nki", "numpy", "ml_dtypes", "scipy", "torch", "torch_xla", "torchvision", "jax", "jaxlib"),
    *("pytest", "hypothesis"),
)
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
    """How a file calls NKI's modules; the rules call them nki, nisa, nl, nt and np.

    Parameters
    ----------
    module : the file.
    today : the new name of a module that is rewritten too; None for any other.
    """

    def __init__(
        self, module: cst.Module, today: Callable[[str], str | None] | None = None
    ) -> None:
        self._module_of: dict[str, str] = {}
        self._is_package = today is not None
        self._renamed = today or (lambda name: None)
        self._new_names: set[str] = set()
        for one in m.findall(module, m.Import() | m.ImportFrom()):
            prefix = ""
            if isinstance(one, cst.ImportFrom) and one.module is not None:
                prefix = f"{get_full_name_for_node(one.module)}."
            for alias in _aliases(one):
                name = f"{prefix}{alias.evaluated_name}"
                if name in MODULES:
                    local = alias.evaluated_alias or (alias.evaluated_name if prefix else name)
                    self._module_of[local] = MODULES[name]

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
        return self._meant(get_full_name_for_node(node) or "")

    def meant(self, node: ast.AST) -> str | None:
        """The same of a syntax tree of Python's own."""
        return self._meant(ast.unparse(node)) if isinstance(node, ast.Attribute) else None

    def _meant(self, full: str) -> str | None:
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
            return [] if self._is_package else [OTHERS]
        named = [one.module] if is_from else [alias.name for alias in one.names]
        if all(self._is_new(name) for name in named):
            return []
        packages = {(get_full_name_for_node(name) or "").partition(".")[0] for name in named}
        if CLASSIC in packages or (is_from and "nki" in packages):
            return [IMPORT]
        return [] if packages <= {*sys.stdlib_module_names, *WITHOUT_NKI} else [OTHERS]

    def _is_new(self, name: Any) -> bool:
        """Whether an import names a module that is rewritten too, by its new name."""
        return (get_full_name_for_node(name) or "") in self._new_names

    def with_new_names(self, module: cst.Module) -> cst.Module:
        """The file with the new names of the modules that are rewritten too."""
        made = module.visit(_Renaming(self._renamed, self._new_names))
        assert isinstance(made, cst.Module)
        return made

    def with_modules_named(self, module: cst.Module) -> cst.Module:
        """The file with ``nl.par_dim`` for a ``par_dim`` that it imported by itself.

        A name that the file also binds otherwise is left alone.
        """
        bound = _bound_names(module)
        meant: dict[str, str] = {}
        body = []
        for line in module.body:
            one = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
            single = self._single_names(one)
            if not single or bound & set(single):
                body.append(line)
                continue
            meant |= single
            modules = {name.partition(".")[0] for name in single.values()}
            body += self._missing_imports(modules, line)
        if not meant:
            return module
        made = module.with_changes(body=body).visit(_Naming(meant))
        assert isinstance(made, cst.Module)
        return made

    def _single_names(self, one: Any) -> dict[str, str]:
        """``{"par_dim": "nl.par_dim"}`` for an import of single names of NKI's modules."""
        if not isinstance(one, cst.ImportFrom) or one.module is None:
            return {}
        module = MODULES.get(get_full_name_for_node(one.module) or "")
        is_classic = (get_full_name_for_node(one.module) or "").startswith(CLASSIC)
        if module in (None, "nki") or not is_classic:
            return {}
        return {
            alias.evaluated_alias or str(alias.evaluated_name): f"{self.local(str(module))}."
            f"{alias.evaluated_name}"
            for alias in _aliases(one)
        }

    def _missing_imports(self, modules: set[str], line: Any) -> list[Any]:
        """The imports of whole modules that stand for one of single names."""
        made = []
        for local in sorted(modules):
            names = {"nl": "language", "nisa": "isa", "nt": "typing"}
            if local not in names or local in self._module_of:
                continue
            self._module_of[local] = local
            text = f"import {CLASSIC}.nki.{names[local]} as {local}"
            made.append(cst.parse_statement(text).with_changes(leading_lines=line.leading_lines))
        return made

    def imported_today(self, body: Any) -> list[Any]:
        """The statements of a module with the imports of NKI in today's words."""
        statements: list[Any] = []
        lines = [one for one in body if self._imports_nki(one)]
        have = {MODULES[name] for line in lines for name, _ in self._modules(line.body[0])}
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


class _Renaming(cst.CSTTransformer):
    """Puts new names of modules into imports, and notes them."""

    def __init__(self, today: Callable[[str], str | None], noted: set[str]) -> None:
        super().__init__()
        self.today, self.noted = today, noted

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom:
        if updated_node.relative or updated_node.module is None:
            return updated_node
        name = self._noted(get_full_name_for_node(updated_node.module) or "")
        return updated_node.with_changes(module=name) if name else updated_node

    def leave_ImportAlias(
        self, original_node: cst.ImportAlias, updated_node: cst.ImportAlias
    ) -> cst.ImportAlias:
        name = self._noted(get_full_name_for_node(updated_node.name) or "")
        return updated_node.with_changes(name=name) if name else updated_node

    def _noted(self, name: str) -> Any:
        new = self.today(name)
        if new is None:
            return None
        self.noted.add(new)
        return cst.parse_expression(new)


class _Naming(cst.CSTTransformer):
    """Puts a name with its module for one that was imported by itself."""

    def __init__(self, meant: dict[str, str]) -> None:
        super().__init__()
        self.meant = meant

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> Any:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> Any:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> Any:
        if updated_node.value in self.meant:
            return cst.parse_expression(self.meant[updated_node.value])
        return updated_node


def _bound_names(module: cst.Module) -> set[str]:
    """The names that a file binds by other means than imports."""
    tree = ast.parse(module.code)
    bound = {
        one.id
        for one in ast.walk(tree)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
    functions = [one for one in ast.walk(tree) if isinstance(one, (ast.FunctionDef, ast.ClassDef))]
    arguments = {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    return bound | arguments | {one.name for one in functions}


def _aliases(one: Any) -> list[cst.ImportAlias]:
    return [] if isinstance(one.names, cst.ImportStar) else list(one.names)
