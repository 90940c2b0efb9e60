"""The language of candidates, checked on the syntax tree before any of a candidate's code runs.

Each file is read once, here, and the worker receives the checked text.
docs/reference/language.md states the rules.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from difftest.tools.verdict.sources import NKI, CandidateFiles, Violation, live_nodes

_TEXT = (
    resources.files("difftest.tools.verdict")
    .joinpath("data/language.json")
    .read_text("utf-8")
)
_WORDS: dict[str, Any] = json.loads(_TEXT)


def _names(module: str, names: str) -> frozenset[str]:
    """Return the listed names of a module; ``*`` lists all public names."""
    listed = vars(importlib.import_module(module)) if names == "*" else names.split()
    return frozenset(name for name in listed if not name.startswith("_"))


MODULES = {module: _names(module, names) for module, names in _WORDS["modules"].items()}
"""The names that a candidate may import in addition to NKI and the files of its own folder."""
BUILTINS = frozenset(_WORDS["builtins"].split())
FORBIDDEN = frozenset(name for name in dir(builtins) if name[0] != "_") - BUILTINS
ATTRIBUTES = frozenset(_WORDS["attributes"].split())
"""Attributes that lead out of a value: to its class's ancestors, a frame, a file, raw memory."""
DUNDERS = frozenset(_WORDS["dunders"].split())
"""Special methods that a class of a candidate may have."""
BASES = frozenset(_WORDS["bases"].split())
PUBLIC = frozenset(_WORDS["public"].split())
"""Public names of named tuples that begin with an underscore."""
CAUGHT = frozenset(_WORDS["caught"].split())
"""The exceptions that `except` may name around statements other than imports."""
ABSENT = frozenset(_WORDS["absent"].split())
"""The exceptions that `except` names around an optional import."""

PAGE = "docs/reference/language.md"
_SHOWN = 5  # violations in a message
_LOOKS = re.compile(r"\{[^{}:!]*[.\[]")
"""A field of a format string that reads an attribute or an element."""
_META = ("__all__", "__version__", "__author__")
_ASYNC = (ast.AsyncFor, ast.AsyncFunctionDef, ast.AsyncWith, ast.Await)
_OWN = "own\N{MIDDLE DOT}"
_KINDS = {
    ast.Attribute: "attribute",
    ast.MatchClass: "attribute",
    ast.FunctionDef: "method",
}
_BINDS = (ast.FunctionDef, ast.ClassDef, ast.arg, ast.MatchAs, ast.MatchStar)
_PLACES = ("id", "attr", "arg", "name", "asname", "rest", "names", "kwd_attrs")
"""The fields of a node that hold a name, or several names."""


class OutsideLanguage(Exception):
    """A candidate breaks rules of the language. Violations in the kernel's file come first."""

    def __init__(self, breaches: Sequence[Violation]) -> None:
        self.breaches = tuple(breaches)
        super().__init__("\n".join(map(str, breaches[:_SHOWN])))


class Language:
    """The files of a candidate, read and checked; OutsideLanguage if a line breaks a rule.

    ``sources`` has them by their modules' names, the kernel's file the first. ``allowed`` are the
    modules that ``--allow`` opens.
    """

    def __init__(self, file: Path, allowed: Sequence[str] = ()) -> None:
        self.allowed = allowed
        files = CandidateFiles(file)
        self.sources = files.sources
        breaches = list(files.faults.values())
        trees = list[ModuleCheck]()
        for name, source in files.sources.items():
            names = ModuleCheck(files.trees[name], source.file, allowed)
            trees.append(names)
            for found in files.imports_of(name):
                if found.file is None:
                    names.imported(found.node, found.module, found.member, found.bound)
        own = {name for names in trees for name in names.private}
        self.asked = {name for names in trees for name in names.asked}
        breaches += [breach for names in trees for breach in names.breaches(own)]
        if breaches:
            raise OutsideLanguage(
                sorted(breaches, key=lambda breach: breach.file != str(file))
            )


def is_special(name: str) -> bool:
    """Return whether a name is special in Python: two underscores on both sides."""
    return name.startswith("__") and name.endswith("__") and name.strip("_") != ""


def is_private(name: str) -> bool:
    """Return whether a name is private: it begins with an underscore."""
    is_public = is_special(name) or name in PUBLIC
    return name.startswith("_") and not is_public and name.strip("_") != ""


class ModuleCheck:
    """The names of one module, and its violations of the language.

    The private ones begin with an underscore, and are bound or are members here. Its nodes are
    without those that run only where the file is run as a script.
    """

    def __init__(self, tree: ast.Module, file: str, allowed: Sequence[str]) -> None:
        self.file = file
        self.allowed = frozenset(allowed)
        self._found: set[tuple[int, str, str]] = set()
        self._modules: dict[str, str] = {}
        """The names that imports bind, and their modules."""
        self.asked: set[str] = set()
        self._uses: list[tuple[ast.AST, str]] = []
        self.nodes = list(live_nodes(tree))
        self._above: dict[ast.AST, ast.AST] = {
            child: node for node in self.nodes for child in ast.iter_child_nodes(node)
        }
        self._bound = {name for node in self.nodes for name in _bound(node)}
        members = (node for node in self.nodes if isinstance(node, ast.Attribute))
        stored = {
            member.attr for member in members if isinstance(member.ctx, ast.Store)
        }
        self.private = {name for name in self._bound | stored if is_private(name)}

    def add(self, node: ast.AST, what: str, remedy: str) -> None:
        self._found.add((getattr(node, "lineno", 1), what, remedy))

    def breaches(self, private: set[str]) -> Iterator[Violation]:
        """Yield the violations of the module, given the private names of the whole candidate."""
        for node in self.nodes:
            self._check(node)
        for node, name in self._uses:
            if name not in private:
                self.add(node, f"{name} is a name of another's", "use what is public")
        for line, what, remedy in sorted(self._found):
            yield Violation(self.file, line, what, remedy)

    def imported(
        self, node: ast.AST, base: str, member: str, shown: str | None
    ) -> None:
        """Keep the name that an import of another module binds; add a violation if excluded."""
        top = base.partition(".")[0]
        name = f"{base}.{member}" if member else base
        if top in self.allowed or base in self.allowed:
            return
        if top in NKI:
            self._modules[shown or member or top] = name if member or shown else top
            if any(part.startswith("_") for part in name.split(".")):
                self.add(node, f"{name} is private", "import what AWS documents")
        elif self._is_tried(node):  # it is answered as absent
            self.asked |= set() if isinstance(self._above[node], ast.If) else {name}
        elif base not in MODULES:
            told = (
                f"the import of {base}" if base else "an import from above the package"
            )
            self.add(
                node, told, f"{PAGE} lists what may be imported; --allow {top} opens it"
            )
        elif member and member not in MODULES[base]:
            told = f"the import of {'*' if member == '*' else name}"
            self.add(node, told, f"import one of those that {PAGE} lists")
        else:
            self._modules[shown or member or top] = name if member or shown else top
            self.asked |= {name} if top == "os" else set()

    def _is_tried(self, node: ast.AST) -> bool:
        """Return whether an import is optional: in a ``try`` for imports, or in TYPE_CHECKING."""
        while (above := self._above.get(node)) is not None:
            asked = getattr(above, "test", None)
            name = getattr(asked, "attr", getattr(asked, "id", ""))
            is_typing = isinstance(above, ast.If) and name == "TYPE_CHECKING"
            is_try = isinstance(above, ast.Try) and _of_import(above)
            if (is_typing or is_try) and node in getattr(above, "body", ()):
                return True
            node = above
        return False

    def _check(self, node: ast.AST) -> None:
        for name in _words(node):
            if is_special(name) and not self._is_listed(node, name):
                kind = _KINDS.get(type(node), "name")
                self.add(node, f"the {kind} {name}", "use what is public")
            elif name == "super" and not isinstance(
                getattr(node, "ctx", None), ast.Load
            ):
                self.add(node, "a super of its own", "give it another name")
        if isinstance(node, ast.Attribute):
            self._attribute(node)
        elif isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.ClassDef):
            self._class(node)
        elif isinstance(node, ast.Try) and not _of_import(node):
            self._try(node)
        elif isinstance(node, _ASYNC) or (
            isinstance(node, ast.comprehension) and node.is_async
        ):
            self.add(
                self._above.get(node, node),
                "async",
                "a kernel runs in order: leave it out",
            )
        elif isinstance(node, ast.MatchClass):
            for name in node.kwd_attrs:
                self._member(node, name)
        elif type(node).__name__ == "TryStar":
            self.add(node, "except*", "ask beforehand")

    def _is_listed(self, node: ast.AST, name: str) -> bool:
        """Return whether the language allows a special name at a node."""
        if isinstance(node, ast.FunctionDef):
            return name in DUNDERS and isinstance(self._above.get(node), ast.ClassDef)
        if isinstance(node, (ast.Name, ast.alias)) and name in _META:
            return True
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "super().__init__":
            return True
        return name == "__name__" and isinstance(getattr(node, "ctx", None), ast.Load)

    def _member(self, node: ast.AST, name: str, value: object = None) -> None:
        """Check the name of an attribute, and the literal that it belongs to."""
        if name in ATTRIBUTES:
            self.add(
                node, f"the attribute {name}", "it leads out of a value: leave it out"
            )
        elif is_private(name):
            self._uses.append((node, name))
        elif name == "format" and not (
            isinstance(value, str) and not _LOOKS.search(value)
        ):
            self.add(
                node, "format of what is no plain literal", 'write an f-string: f"{x}"'
            )

    def _attribute(self, node: ast.Attribute) -> None:
        value = node.value.value if isinstance(node.value, ast.Constant) else None
        self._member(node, node.attr, value)
        root = _root(node)
        module = self._modules.get(root.id) if root is not None else None
        if module is None:
            return
        if not isinstance(node.ctx, ast.Load):
            if ".tile_size." not in ast.unparse(node):
                self.add(
                    node, f"{ast.unparse(node)} is set", "leave modules as they are"
                )
            return
        for part in ast.unparse(node).split(".")[1:]:
            if module not in MODULES:
                return
            if part not in MODULES[module]:
                self.add(
                    node, f"{module}.{part}", f"use one of those that {PAGE} lists"
                )
                return
            module = f"{module}.{part}"

    def _name(self, node: ast.Name) -> None:
        name = node.id
        call = self._above.get(node)
        above = self._above.get(call) if call is not None else None
        called = isinstance(call, ast.Call) and call.func is node
        if name in FORBIDDEN - self._bound:
            self.add(node, name, f"{PAGE} lists the functions of Python that there are")
        elif name in ("getattr", "hasattr") and not called:
            self.add(
                node, f"{name} as a value", 'call it with a literal: getattr(nl, "exp")'
            )
        elif name == "super":
            asked = (
                called and isinstance(above, ast.Attribute) and ast.unparse(above.value)
            )
            if asked != "super()":
                self.add(
                    node, "super as a value", "call it for a method: super().method()"
                )
        elif name == "type" and not isinstance(call, ast.Subscript):
            named = isinstance(above, ast.Attribute) and above.attr == "__name__"
            if not called or not (
                named or isinstance(above, (ast.Compare, ast.FormattedValue))
            ):
                self.add(node, "type as a value", "use isinstance, or type(x).__name__")

    def _call(self, node: ast.Call) -> None:
        """Check ``getattr(x, "name")`` as ``x.name``."""
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            value = node.args[1] if len(node.args) > 1 else None
            name = value.value if isinstance(value, ast.Constant) else None
            if not isinstance(name, str) or is_private(name):
                told = f"{node.func.id} of a name that is no public literal"
                self.add(node, told, 'write getattr(nl, "exp")')
            else:
                attribute = ast.Attribute(node.args[0], name, ast.Load())
                self._check(ast.copy_location(attribute, node))

    def _class(self, node: ast.ClassDef) -> None:
        """Check that each base of a class is listed, or is a class of the candidate."""
        own = {name for name in self._bound - BUILTINS if name not in self._modules}
        for base in node.bases:
            name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
            if _root(base) is None or name not in BASES | own:
                told = f"the class {node.name} of {ast.unparse(base)}"
                self.add(
                    node,
                    told,
                    f"derive it from one of those that {PAGE} lists, or from none",
                )
        if any(keyword.arg != "total" for keyword in node.keywords):
            self.add(node, f"the class {node.name} has a metaclass", "leave it out")

    def _try(self, node: ast.Try) -> None:
        for handler in node.handlers:
            if handler.name or not set(_kinds(handler)) <= CAUGHT:
                told = "an except that catches what the machine refuses"
                self.add(handler, told, f"{PAGE} lists what may be caught")
        roots = [
            root
            for line in node.body
            for part in ast.walk(line)
            if (root := _root(part))
        ]
        if any(
            self._modules.get(root.id, "").partition(".")[0] in NKI for root in roots
        ):
            self.add(
                node,
                "a try around instructions",
                "ask beforehand, by the shape or the dtype",
            )


def _bound(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.alias):
        return (node.asname or node.name.partition(".")[0],)
    is_set = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    return tuple(_words(node)) if is_set or isinstance(node, _BINDS) else ()


def _words(node: ast.AST) -> Iterator[str]:
    for place in _PLACES:
        value = getattr(node, place, None)
        several = value if isinstance(value, list) else [value]
        yield from (text for text in several if isinstance(text, str))


def _kinds(handler: ast.ExceptHandler) -> list[str]:
    if handler.type is None:
        return ["Exception"]
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return [ast.unparse(kind) for kind in kinds]


def _of_import(node: ast.Try) -> bool:
    """Return whether a ``try`` contains imports only, and handles their absence."""
    kinds: set[type[ast.AST]] = {type(line) for line in node.body}
    told = {kind for handler in node.handlers for kind in _kinds(handler)}
    if any(isinstance(part, ast.Call) for line in node.body for part in ast.walk(line)):
        return False
    imports = {ast.Import, ast.ImportFrom} & kinds
    return (
        bool(imports and told)
        and told <= ABSENT
        and kinds - imports <= {ast.Assign, ast.Pass}
    )


def _root(node: ast.AST) -> ast.Name | None:
    """Return the first name of a chain, ``nl`` of ``nl.tile_size.pmax``; None if it has none."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def renamed(tree: ast.Module, modules: Mapping[str, object]) -> ast.Module:
    """Rename the candidate's private names in the tree so that no other module has them.

    So an attribute that begins with an underscore is of an object of its own, and of none of ours.
    """
    fields = (node.target for node in ast.walk(tree) if isinstance(node, ast.AnnAssign))
    taken = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    taken |= {node.id for node in fields if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.keyword)
            and isinstance(node.value, ast.Dict)
            and not node.arg
        ):
            for key in node.value.keys:  # f(**{"_rows": 1})
                if isinstance(key, ast.Constant) and key.value in taken:
                    key.value = own_name(str(key.value))
        for place in () if isinstance(node, ast.alias) else _PLACES:
            value = getattr(node, place, None)
            if isinstance(value, str):
                setattr(node, place, own_name(value))
            elif isinstance(value, list):
                own = [
                    own_name(item) if isinstance(item, str) else item for item in value
                ]
                setattr(node, place, own)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                shown = alias.asname or (
                    "" if isinstance(node, ast.Import) else alias.name
                )
                alias.asname = own_name(shown) if is_private(shown) else alias.asname
                is_file = any(name.endswith(f".{alias.name}") for name in modules)
                if isinstance(node, ast.ImportFrom) and not is_file:
                    alias.name = own_name(alias.name)
    return tree


def own_name(name: str) -> str:
    """Return the name that replaces a private name of the candidate."""
    return f"{_OWN}{name}" if is_private(name) else name


def plain_name(name: str) -> str:
    """Return the name as the candidate's file has it."""
    return name.removeprefix(_OWN)
