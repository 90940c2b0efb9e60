"""Rewrite a classic kernel file in the current dialect, statement by statement, with LibCST.

The extra ``migrate`` installs LibCST. Comments, blank lines and code without NKI are left
unchanged. So are statements that need a decision: a comment above each gives rule and remedy.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import libcst as cst
from libcst import matchers as m

from difftest.tools.migration.calls import RANGES
from difftest.tools.migration.imports import ModuleNames
from difftest.tools.migration.indices import Grids
from difftest.tools.migration.rules import NotMechanicalError, Rule
from difftest.tools.migration.scope import KnownTile, Scope, tiled_blocks
from difftest.tools.migration.statements import StatementWriter
from difftest.tools.migration.unmigrated import (
    Definitions,
    commented,
    nodes,
    rules_broken,
)
from difftest.tools.migration.validation import Sources
from difftest.tools.syntax import bound_names

CLAUSES = ("orelse", "finalbody")
"""Blocks of a compound statement, except its body."""
ITEMSIZE = "itemsize_of"
"""The function that replaces ``tensor.itemsize`` in the new file."""
_ITEMSIZE = '''

def {name}(dtype):
    """Bytes of an element: tensors of the current dialect have no itemsize."""
    if dtype in ({nl}.float32, {nl}.int32, {nl}.uint32):
        return 4
    return 2 if dtype in ({nl}.bfloat16, {nl}.float16, {nl}.int16, {nl}.uint16) else 1
'''


class MigrationResult(NamedTuple):
    """A rewritten file and its remaining comments.

    Attributes
    ----------
    text : the text of the new file.
    left : rule and remedy of each inserted comment, in order.
    kernels : the names of the file's kernels.
    returns : the tiles that its functions return, by function name.
    """

    text: str
    left: tuple[Rule, ...]
    kernels: frozenset[str]
    returns: dict[str, KnownTile]


class ProjectModules(Protocol):
    """Other files that are migrated at the same time."""

    def today(self, name: str) -> str | None:
        """Return the new name of a module, or None if it is not migrated."""

    def returns(self, name: str) -> dict[str, KnownTile]:
        """Return the tiles that the functions of a module return."""


def migrate_source(text: str, others: ProjectModules | None = None) -> MigrationResult:
    """Rewrite a classic kernel file in the current dialect, as far as the rules allow."""
    module = cst.parse_module(text)
    names = ModuleNames(module, None if others is None else others.today)
    imported = {} if others is None else _imported(module, others)
    module = names.with_new_names(names.with_modules_named(module))
    taken = {name.value for name in nodes(module, cst.Name)}
    called = {_code(call.func) for call in nodes(module, cst.Call)}
    returns = imported
    for _ in range(2):  # a kernel may call a function that is defined below it
        rewriting = _Rewriting(names, returns, taken)
        body = rewriting.block(
            names.imported_today(module.body), rewriting.new_scope(set())
        )
        returns = imported | rewriting.returns
        if not called & rewriting.returns.keys():
            break
    code = module.with_changes(body=body).code
    if f"{ITEMSIZE}(" in code:
        own = cst.parse_module(_ITEMSIZE.format(name=ITEMSIZE, nl=names.local("nl")))
        code = module.with_changes(body=_before_definitions(body, own.body)).code
    left = tuple(rewriting.left)
    return MigrationResult(code, left, kernels_of(code), rewriting.returns)


def _before_definitions(body: list[Any], new: Sequence[Any]) -> list[Any]:
    """Return statements with new statements before the first function or class."""
    kinds = (cst.FunctionDef, cst.ClassDef)
    place = next(n for n, statement in enumerate(body) if isinstance(statement, kinds))
    return [*body[:place], *new, *body[place:]]


def _imported(module: cst.Module, others: ProjectModules) -> dict[str, KnownTile]:
    """Return the tiles of functions that a file imports from other migrated files."""
    tiles: dict[str, KnownTile] = {}
    for node in ast.walk(ast.parse(module.code)):
        if isinstance(node, ast.ImportFrom) and node.module:
            returned = others.returns(node.module)
            for alias in node.names:
                if alias.name in returned:
                    tiles[alias.asname or alias.name] = returned[alias.name]
    return tiles


def kernels_of(code: str) -> frozenset[str]:
    """Return the functions of a file that a ``jit`` decorator makes kernels."""
    functions = (
        node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)
    )
    return frozenset(
        function.name
        for function in functions
        if any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)
    )


class _Rewriting:
    """A rewriter of a file's statements. ``returns`` holds the tiles found by an earlier pass."""

    def __init__(
        self, names: ModuleNames, returns: dict[str, KnownTile], taken: set[str]
    ) -> None:
        self.names = names
        self.known_returns = returns
        self.taken = taken
        self.returns: dict[str, KnownTile] = {}
        self.left: list[Rule] = []
        self.definitions = Definitions()

    def new_scope(self, taken: set[str]) -> Scope:
        return Scope(
            self.names, Grids(self.names), taken=taken, returns=self.known_returns
        )

    def block(self, statements: Any, scope: Scope) -> list[Any]:
        """Return the rewritten statements. One statement may become several."""
        return [new for old in statements for new in self._statement(old, scope)]

    def _statement(self, statement: Any, scope: Scope) -> list[Any]:
        if isinstance(statement, cst.SimpleStatementLine):
            return self._line(statement, scope)
        if isinstance(statement, cst.Match):
            return [self._commented(statement, rules_broken(statement, scope))]
        if isinstance(statement, cst.FunctionDef):
            return [self._function(statement)]
        targets = nodes(statement, cst.AssignTarget, cst.AnnAssign, cst.For)
        changed = _target_names(targets), _target_names(nodes(statement, cst.AugAssign))
        if isinstance(statement, (cst.For, cst.While)):
            scope.loosen(*changed)
        result = self._compound(statement, scope)
        if not isinstance(statement, (cst.For, cst.While, cst.With)):
            scope.loosen(*changed)
        return [result]

    def _compound(self, statement: Any, scope: Scope) -> Any:
        """Rewrite a statement with blocks. Counts that are named in a block end with it."""
        counts = dict(scope.counts)
        rules = rules_broken(_header(statement), scope)
        changes: dict[str, Any] = {}
        if isinstance(statement, cst.For):
            changes["iter"] = self._iterated(statement, scope)
        if isinstance(statement.body, cst.IndentedBlock):
            inner = self.block(statement.body.body, scope)
            scope.keep_counts(counts)
            changes["body"] = statement.body.with_changes(body=inner)
        for clause in CLAUSES:
            if getattr(statement, clause, None) is not None:
                [changes[clause]] = self._statement(getattr(statement, clause), scope)
        if hasattr(statement, "handlers"):
            changes["handlers"] = self.block(statement.handlers, scope)
        scope.keep_counts(counts)
        return self._commented(statement.with_changes(**changes), rules)

    def _iterated(self, loop: cst.For, scope: Scope) -> cst.BaseExpression:
        """Return the iterable of a loop. Record the variable of a loop over ``range``."""
        new = loop.iter
        if isinstance(new, cst.Call) and self.names.of(new.func) in RANGES:
            new = new.with_changes(func=cst.Name("range"))
        is_counted = m.matches(new, m.Call(func=m.Name("range")))
        if is_counted and isinstance(loop.target, cst.Name):
            scope.integers.add(loop.target.value)
        return new

    def _function(self, function: cst.FunctionDef) -> Any:
        """Rewrite a function in its own scope, and remove its unused index grids."""
        if any(self.names.of(node) for node in nodes(function, cst.Attribute)):
            visited = function.visit(_Preparing())
            assert isinstance(visited, cst.FunctionDef)
            function = visited
        scope = self.new_scope(set(self.taken))
        scope.function = function.name.value
        scope.blocks = tiled_blocks(
            ast.parse(textwrap.dedent(_code(function))), self.names
        )
        outer = self.definitions
        self.definitions = Definitions()
        result = self._compound(self._signature(function), scope)
        result, rules = self.definitions.settled(result)
        self.left += rules
        self.definitions = outer
        return result

    def _signature(self, function: cst.FunctionDef) -> cst.FunctionDef:
        """Remove classic decorators, their arguments, and classic annotations."""
        decorators = []
        for decorator in function.decorators:
            inner = decorator.decorator
            name = self.names.of(inner.func if isinstance(inner, cst.Call) else inner)
            if name == "nki.jit" and isinstance(inner, cst.Call):
                decorator = decorator.with_changes(decorator=_without_mode(inner))
            if name != "nki.compiler.skip_middle_end_transformations":
                decorators.append(decorator)
        parameters = []
        for parameter in function.params.params:
            if parameter.annotation and self._is_typing(parameter.annotation):
                parameter = parameter.with_changes(annotation=None)
            parameters.append(parameter)
        return function.with_changes(
            decorators=decorators,
            params=function.params.with_changes(params=parameters),
        )

    def _is_typing(self, annotation: cst.Annotation) -> bool:
        return self.names.has_type(ast.parse(_code(annotation.annotation), mode="eval"))

    def _commented(self, statement: Any, rules: list[Rule]) -> Any:
        """Return the statement below one comment for each rule that it breaks."""
        self.left.extend(dict.fromkeys(rules))
        return commented(statement, rules)

    def _line(self, line: cst.SimpleStatementLine, scope: Scope) -> list[Any]:
        """Rewrite the statements of one line, or keep the whole line below a comment."""
        parsed = ast.parse(_code(line.with_changes(leading_lines=[])).strip()).body
        statements = StatementWriter(scope)
        try:
            if len(parsed) == 1 and statements.defines_grid(parsed[0]):
                self.definitions.lines.append(line)
                return [line]
            new = statements.statement(parsed[0]) if len(parsed) == 1 else None
        except NotMechanicalError as problem:
            scope.loosen(set().union(*map(bound_names, parsed)), set())
            return [self._commented(line, [problem.rule])]
        if new is None:
            for statement in parsed:
                scope.learn(statement)
                self._note_return(statement, scope)
            return [self._commented(line, rules_broken(line, scope))]
        self._note_return(ast.parse(new[-1].strip()).body[0], scope)
        lines: list[Any] = [cst.parse_statement(text) for text in new]
        rules = [rule for part in lines for rule in rules_broken(part, scope)]
        lines[-1] = lines[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
        lines[0] = lines[0].with_changes(leading_lines=line.leading_lines)
        return [self._commented(lines[0], rules), *lines[1:]]

    def _note_return(self, statement: ast.stmt, scope: Scope) -> None:
        """Record the tile that a function returns, without parts that use its local names."""
        if not isinstance(statement, ast.Return) or statement.value is None:
            return
        tile = scope.tile(statement.value)
        if tile is None or scope.function is None:
            return
        nl = self.names.local("nl")
        is_global = (tile.dtype or "").startswith(f"{nl}.")
        result = KnownTile(None, tile.dtype if is_global else None, tile.buffer)
        before = self.returns.get(scope.function, result)
        self.returns[scope.function] = result if before == result else KnownTile()


def _code(node: cst.CSTNode) -> str:
    return str(cst.Module([]).code_for_node(node))


def _without_mode(call: cst.Call) -> cst.BaseExpression:
    """Return ``nki.jit(...)`` without ``mode``, and without parentheses if nothing is left."""
    kept = []
    for argument in call.args:
        if argument.keyword is None or argument.keyword.value != "mode":
            kept.append(argument)
    return call.with_changes(args=kept) if kept else call.func


def _target_names(statements: list[Any]) -> set[str]:
    names: set[str] = set()
    for statement in statements:
        if not isinstance(statement.target, cst.Subscript):
            names.update(name.value for name in nodes(statement.target, cst.Name))
    return names


class _Preparing(cst.CSTTransformer):
    """A transformer that puts each statement on its own line, and replaces ``tensor.itemsize``.

    ``a = 1; b = 2`` and ``for i in r: a = i`` are split, so that lines can be inserted before each.
    """

    def leave_SimpleStatementLine(
        self,
        original_node: cst.SimpleStatementLine,
        updated_node: cst.SimpleStatementLine,
    ) -> Any:
        if len(updated_node.body) == 1:
            return updated_node
        lines = _lines(updated_node)
        lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
        return cst.FlattenSentinel(lines)

    def leave_SimpleStatementSuite(
        self,
        original_node: cst.SimpleStatementSuite,
        updated_node: cst.SimpleStatementSuite,
    ) -> Any:
        return cst.IndentedBlock(_lines(updated_node))

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> Any:
        if updated_node.attr.value != "itemsize":
            return updated_node
        dtype = updated_node.with_changes(attr=cst.Name("dtype"))
        return cst.Call(cst.Name(ITEMSIZE), [cst.Arg(dtype)])


def _lines(several: Any) -> list[cst.SimpleStatementLine]:
    bare = cst.MaybeSentinel.DEFAULT
    lines = [
        cst.SimpleStatementLine([part.with_changes(semicolon=bare)])
        for part in several.body
    ]
    lines[-1] = lines[-1].with_changes(trailing_whitespace=several.trailing_whitespace)
    return lines


def _header(statement: Any) -> Any:
    """Return a compound statement without its blocks, which are rewritten separately."""
    empty: dict[str, Any] = {
        clause: None for clause in CLAUSES if hasattr(statement, clause)
    }
    if isinstance(statement.body, cst.IndentedBlock):
        empty["body"] = cst.IndentedBlock([])
    if hasattr(statement, "handlers"):
        empty |= {"handlers": [], "finalbody": cst.Finally(cst.IndentedBlock([]))}
    return statement.with_changes(**empty)


class Package:
    """The Python files below a folder, and the folder of their migrated versions.

    An import of ``kernels.classic.conv2d`` in ``kernels/classic`` becomes an import of
    ``kernels.nki.conv2d`` if the new files are written to ``.../kernels/nki``. The last parts of
    the new folder's path replace an equal number of parts of the name.
    """

    def __init__(self, folder: Path, output: Path, files: Iterable[Path]) -> None:
        self.folder = folder.resolve()
        self.output = output.resolve()
        self.files = sorted(self.folder / file.relative_to(folder) for file in files)
        self._results: dict[Path, MigrationResult | None] = {}

    def migrated(self) -> dict[Path, MigrationResult]:
        """Return the migrated files by their paths relative to the folder."""
        return {
            file.relative_to(self.folder): self._migrated(file) for file in self.files
        }

    def _migrated(self, file: Path) -> MigrationResult:
        result = self._results.get(file)
        if result is None:
            self._results[file] = None  # ends the recursion of circular imports
            try:
                result = self._results[file] = migrate_source(
                    file.read_text(encoding="utf-8"), self
                )
            except (cst.ParserSyntaxError, UnicodeDecodeError) as error:
                vars(error).setdefault("place", file.relative_to(self.folder))
                raise
        return result

    def _named(self, name: str) -> Iterator[tuple[int, list[str]]]:
        """Yield how many parts of a dotted name lead to the folder, and the parts after them."""
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            if list(self.folder.parts[-count:]) == parts[:count]:
                yield count, parts[count:]

    def file_of(self, name: str) -> Path | None:
        """Return the file of a dotted module name, or None if it is not in the folder."""
        for parts in (name.split("."), *(rest for _, rest in self._named(name))):
            place = self.folder.joinpath(*parts)
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file in self.files:
                    return file
        return None

    def sources(self, folder: Path, place: Path) -> Sources:
        """Return a file of the old or the new folder, with the root of its imports."""
        folder = folder.resolve()
        depth = max((self._depth(file) for file in self.files), default=0)
        if not depth:
            return Sources(folder / place, folder)
        root = folder.parents[depth - 1]
        return Sources(folder / place, root, folder.relative_to(root).parts[0])

    def _depth(self, file: Path) -> int:
        """Return how many parts of the folder's path the imports of a file contain."""
        text = file.read_text(encoding="utf-8")
        depth = 0
        for count in range(1, len(self.folder.parts)):
            name = ".".join(self.folder.parts[-count:])
            if f"from {name}" in text or f"import {name}" in text:
                depth = count
        return depth

    def today(self, name: str) -> str | None:
        """Return the dotted name of a migrated module, or None if it is not in the folder."""
        if self.file_of(name) is None:
            return None
        for count, rest in self._named(name):
            return ".".join([*self.output.parts[-count:], *rest])
        return name

    def returns(self, name: str) -> dict[str, KnownTile]:
        """Return the tiles of a module's functions; empty while the module is being migrated."""
        file = self.file_of(name)
        is_read = file in self._results and self._results[file] is None
        return {} if file is None or is_read else self._migrated(file).returns
