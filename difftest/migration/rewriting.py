"""A classic kernel file in today's words, statement by statement, with LibCST.

Needs LibCST (``pip install nki-difftest[migrate]``). Comments, blank lines and whatever is no NKI
stay as they are. What is not mechanical stays too, under a comment with the rule and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import libcst as cst
from libcst import matchers as m

from difftest.migration.imports import Names
from difftest.migration.rules import (
    CAST,
    GONE,
    INSIDE,
    INSTRUCTIONS,
    ITEMSIZE,
    MASK,
    MATMUL,
    NO_TILE,
    NUMPY_OPS,
    OPERATOR,
    RANGES,
    ROUNDED,
    SEVERAL,
    SHAPE,
    STORE,
    SUM,
    TARGET,
    UNKNOWN_CALL,
    Calling,
)
from difftest.simulator.frontend.nki import isa, language

COMMENT = "# difftest migrate: {}; {}"
TODAYS_MODULES = {"nl": language, "nisa": isa}
CLAUSES = ("orelse", "finalbody")
"""Blocks of a compound statement beside its body."""
Rule = tuple[str, str]


class NotMechanicalError(Exception):
    """A statement that no rule rewrites; the rule and the remedy are its arguments."""


@dataclass(frozen=True)
class Migrated:
    """The rewritten file, and what was left under a comment: rule and remedy, in order."""

    text: str
    left: tuple[Rule, ...]


@dataclass
class Scope:
    """What is known of the names of one function."""

    tiles: set[str] = field(default_factory=set)
    sums: set[str] = field(default_factory=set)
    """PSUM tiles that start at zero."""
    taken: set[str] = field(default_factory=set)
    """Every name that occurs: a new one is none of them."""

    def new_name(self, wish: str) -> str:
        """``wish``, with a number if the function has such a name."""
        name, number = wish, 1
        while name in self.taken:
            number += 1
            name = f"{wish}_{number}"
        self.taken.add(name)
        return name


def migrate(text: str) -> Migrated:
    """Rewrite a classic kernel file in today's dialect, as far as rules go.

    Raises
    ------
    libcst.ParserSyntaxError : the text is no Python.
    """
    module = cst.parse_module(text)
    names = Names(module)
    rewriting = _Rewriting(names)
    body = rewriting.block(names.imported_today(module.body), Scope())
    return Migrated(module.with_changes(body=body).code, tuple(rewriting.left))


def _code(node: cst.CSTNode) -> str:
    return str(cst.Module([]).code_for_node(node))


def _found(node: cst.CSTNode, matcher: Any) -> list[Any]:
    """The nodes of a kind in a tree."""
    return list(m.findall(node, matcher))


class _Rewriting:
    """The walk over the statements of a file."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.left: list[Rule] = []

    def block(self, statements: Any, scope: Scope) -> list[Any]:
        """The statements, rewritten; one may become several."""
        return [new for old in statements for new in self._statement(old, scope)]

    def _statement(self, statement: Any, scope: Scope) -> list[Any]:
        if isinstance(statement, cst.SimpleStatementLine):
            return self._line(statement, scope)
        if isinstance(statement, cst.Match):
            return [self._commented(statement, list(self._unfit(statement, scope)))]
        if isinstance(statement, cst.FunctionDef):
            scope = self._scope(statement)
            statement = self._signature(statement)
        rules = list(self._unfit(_header(statement), scope))
        changes: dict[str, Any] = {}
        if isinstance(statement, cst.For):
            changes["iter"] = self._iterated(statement.iter)
        if isinstance(statement.body, cst.IndentedBlock):
            inner = self.block(statement.body.body, scope)
            changes["body"] = statement.body.with_changes(body=inner)
        for clause in CLAUSES:
            if getattr(statement, clause, None) is not None:
                [changes[clause]] = self._statement(getattr(statement, clause), scope)
        if hasattr(statement, "handlers"):
            changes["handlers"] = self.block(statement.handlers, scope)
        return [self._commented(statement.with_changes(**changes), rules)]

    def _scope(self, function: cst.FunctionDef) -> Scope:
        taken = {name.value for name in _found(function, m.Name())}
        return Scope(taken=taken)

    def _signature(self, function: cst.FunctionDef) -> cst.FunctionDef:
        """Without the classic decorators, their arguments and annotations."""
        decorators = []
        for decorator in function.decorators:
            inner = decorator.decorator
            name = self.names.of(inner.func if isinstance(inner, cst.Call) else inner)
            if name == "nki.compiler.skip_middle_end_transformations":
                continue
            if name == "nki.jit" and isinstance(inner, cst.Call):
                kept = [a for a in inner.args if a.keyword is None or a.keyword.value != "mode"]
                bare = inner.with_changes(args=kept) if kept else inner.func
                decorator = decorator.with_changes(decorator=bare)
            decorators.append(decorator)
        parameters = [
            one.with_changes(annotation=None)
            if one.annotation and (self.names.of(one.annotation.annotation) or "")[:3] == "nt."
            else one
            for one in function.params.params
        ]
        return function.with_changes(
            decorators=decorators, params=function.params.with_changes(params=parameters)
        )

    def _iterated(self, node: cst.BaseExpression) -> cst.BaseExpression:
        if isinstance(node, cst.Call) and self.names.of(node.func) in RANGES:
            return node.with_changes(func=cst.Name("range"))
        return node

    def _commented(self, statement: Any, rules: list[Rule]) -> Any:
        """The statement under a comment for each rule that it breaks."""
        self.left.extend(rules)
        comments = [
            cst.EmptyLine(comment=cst.Comment(COMMENT.format(*rule)))
            for rule in dict.fromkeys(rules)
        ]
        if not comments:
            return statement
        return statement.with_changes(leading_lines=[*statement.leading_lines, *comments])

    def _line(self, line: cst.SimpleStatementLine, scope: Scope) -> list[Any]:
        """A line of statements; what was written in one line stays together above a comment."""
        try:
            new = self._rewritten(line.body[0], scope) if len(line.body) == 1 else None
        except NotMechanicalError as problem:
            rule, remedy = problem.args
            return [self._commented(line, [(rule, remedy)])]
        self._learn(line, scope)
        if new is None:
            return [self._commented(line, list(self._unfit(line, scope)))]
        lines: list[Any] = [cst.parse_statement(text) for text in new]
        rules = [rule for one in lines for rule in self._unfit(one, scope)]
        lines[-1] = lines[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
        lines[0] = lines[0].with_changes(leading_lines=line.leading_lines)
        return [self._commented(lines[0], rules), *lines[1:]]

    def _learn(self, line: cst.SimpleStatementLine, scope: Scope) -> None:
        """Which names are tiles from here on, and which of them are zeros in PSUM."""
        for one in line.body:
            if not isinstance(one, cst.Assign):
                continue
            for target in one.targets:
                name = _code(target.target)
                scope.tiles.discard(name)
                scope.sums.discard(name)
                called = one.value.func if isinstance(one.value, cst.Call) else None
                made = self.names.of(called) or ""
                if made.startswith(("nl.", "nisa.")) and made not in NO_TILE:
                    scope.tiles.add(name)
                if made == "nl.zeros" and self.names.psum in _code(one.value):
                    scope.sums.add(name)

    def _rewritten(self, one: Any, scope: Scope) -> list[str] | None:
        """The lines that a statement becomes; None if it stays as it is."""
        before: list[str] = []
        if isinstance(one, cst.Assign) and self._makes(one.value):
            if len(one.targets) != 1:
                raise NotMechanicalError(*SEVERAL)
            self._assigned(one.targets[0].target, one.value, before, scope)
            return before
        if isinstance(one, cst.AugAssign) and self._makes(one.value):
            self._added(one, before, scope)
            return before
        if isinstance(one, cst.Expr) and self._is_store(one.value):
            operands = self._operands(one.value, STORE, before, scope)
            if set(operands) != set(STORE):
                raise NotMechanicalError(*CAST)
            moved = {"dst": operands["dst"], "src": operands["value"]}
            return [*before, self._call("nisa.dma_copy", moved)]
        if isinstance(one, (cst.Expr, cst.Return, cst.Assign)) and one.value is not None:
            hoisted = self._hoisted(one.value, before, scope)
            if before:
                return [*before, _code(one.deep_replace(one.value, hoisted))]
        return None

    def _makes(self, node: Any) -> bool:
        """Whether an expression is a call of an instruction that returned a tile."""
        return isinstance(node, cst.Call) and self.names.of(node.func) in INSTRUCTIONS

    def _is_store(self, node: Any) -> bool:
        return isinstance(node, cst.Call) and self.names.of(node.func) == "nl.store"

    def _assigned(self, target: Any, call: Any, before: list[str], scope: Scope) -> None:
        """``target = instruction(...)``, a new tile or a place in one."""
        if isinstance(target, cst.Name):
            used = {name.value for name in _found(call, m.Name())}
            name = target.value
            if name in used:  # the old tile is read while the new one is written
                fresh = scope.new_name(f"new_{name}")
                self._allocated(fresh, call, before, scope)
                before.append(f"{name} = {fresh}")
            else:
                self._allocated(name, call, before, scope)
            return
        base = target.value if isinstance(target, cst.Subscript) else None
        known = isinstance(base, cst.Name) and base.value in scope.tiles
        if not isinstance(base, cst.Name) or not (known or _is_of_tile(target)):
            raise NotMechanicalError(*TARGET)
        calling, operands = self._parts(call, before, scope)
        if operands.pop("dtype", f"{base.value}.dtype") != f"{base.value}.dtype":
            raise NotMechanicalError(*CAST)
        self._issue(call, calling, _code(target), operands, before)

    def _added(self, one: Any, before: list[str], scope: Scope) -> None:
        """``psum += nc_matmul(...)``: the Tensor Engine accumulates."""
        target = one.target.value if isinstance(one.target, cst.Subscript) else one.target
        is_matmul = self.names.of(one.value.func) == MATMUL
        if not isinstance(one.operator, cst.AddAssign) or not is_matmul:
            raise NotMechanicalError(*OPERATOR)
        if _code(target) not in scope.sums:
            raise NotMechanicalError(*SUM)
        calling, operands = self._parts(one.value, before, scope)
        if "dtype" in operands:
            raise NotMechanicalError(*CAST)
        self._issue(one.value, calling, _code(one.target), operands, before)

    def _allocated(self, name: str, call: Any, before: list[str], scope: Scope) -> None:
        """A new tile for the result of a call, and the instruction that writes to it."""
        calling, operands = self._parts(call, before, scope)
        if calling.shape is None or ("engine" in operands and calling.buffer == "psum"):
            raise NotMechanicalError(*SHAPE)
        nl = self.names.local("nl")
        dtype = operands.pop("dtype", calling.dtype.format(**operands, nl=nl))
        shape, buffer = calling.shape.format(**operands), f"{nl}.{calling.buffer}"
        before.append(f"{name} = {nl}.ndarray({shape}, dtype={dtype}, buffer={buffer})")
        self._issue(call, calling, name, operands, before)

    def _parts(self, call: Any, before: list[str], scope: Scope) -> tuple[Calling, dict[str, str]]:
        calling = INSTRUCTIONS[self.names.of(call.func) or ""]
        operands = self._operands(call, calling.parameters, before, scope)
        if calling.first not in operands:
            raise NotMechanicalError(*UNKNOWN_CALL)
        return calling, operands

    def _issue(
        self, call: Any, calling: Calling, dst: str, operands: dict[str, str], before: list[str]
    ) -> None:
        name = calling.name or self.names.of(call.func) or ""
        before.append(self._call(name, {"dst": dst} | operands))

    def _call(self, name: str, operands: dict[str, str]) -> str:
        module, function = name.split(".")
        ordered = {"dst": operands["dst"]} | operands
        text = ", ".join(f"{role}={value}" for role, value in ordered.items())
        return f"{self.names.local(module)}.{function}({text})"

    def _operands(
        self, call: Any, parameters: tuple[str, ...], before: list[str], scope: Scope
    ) -> dict[str, str]:
        """The arguments by name; instructions and helpers among them get a line of their own."""
        operands: dict[str, str] = {}
        for number, argument in enumerate(call.args):
            if argument.star or (argument.keyword is None and number >= len(parameters)):
                raise NotMechanicalError(*UNKNOWN_CALL)
            role = argument.keyword.value if argument.keyword else parameters[number]
            if role == "mask":
                raise NotMechanicalError(*MASK)
            value = self._hoisted(argument.value, before, scope)
            if role not in ROUNDED and isinstance(value, cst.Call):
                value = self._named(role, value, before, scope)
            text = _code(value)
            numpy = self.names.of(value) or ""
            if role in NUMPY_OPS and numpy.startswith("np."):
                text = f"{self.names.local('nl')}.{numpy[3:]}"
            operands[role] = text
        return operands

    def _named(self, role: str, call: cst.Call, before: list[str], scope: Scope) -> cst.Name:
        """A name for the value of a call that the new lines need more than once."""
        name = scope.new_name(role)
        before.append(f"{name} = {_code(call)}")
        return cst.Name(name)

    def _hoisted(self, node: Any, before: list[str], scope: Scope) -> Any:
        """An expression whose instructions, arguments of calls, come on lines before it."""
        if self._makes(node):
            name = scope.new_name((self.names.of(node.func) or "").split(".")[1] + "_result")
            self._allocated(name, node, before, scope)
            scope.tiles.add(name)
            return cst.Name(name)
        if not isinstance(node, cst.Call):
            return node
        arguments = [
            one.with_changes(value=self._hoisted(one.value, before, scope)) for one in node.args
        ]
        return node.with_changes(args=arguments)

    def _unfit(self, node: cst.CSTNode, scope: Scope) -> Iterator[Rule]:
        """The rules that a statement still breaks."""
        for one in _found(node, m.Import() | m.ImportFrom()):
            yield from self.names.rules_broken(one)
        for one in _found(node, m.Attribute()):
            name = self.names.of(one)
            if name in GONE:
                yield GONE[name]
            elif name is not None and _is_unknown(name):
                yield f"today's dialect has no {name}", "docs/api.md lists what it has"
            if one.attr.value == "itemsize":
                yield ITEMSIZE
        for one in _found(node, m.Call()):
            name = self.names.of(one.func) or ""
            keywords = {a.keyword.value for a in one.args if a.keyword}
            if name.startswith(("nl.", "nisa.")) and "mask" in keywords:
                yield MASK
            elif name == "nl.store" or (name in INSTRUCTIONS and "dst" not in keywords):
                yield INSIDE
            elif name.startswith("nisa.") and "dst" not in keywords and _is_issue(name):
                yield UNKNOWN_CALL
        operators = m.BinaryOperation() | m.UnaryOperation() | m.AugAssign()
        for one in _found(node, operators):
            if any(self._is_tile(side, scope) for side in one.children):
                yield OPERATOR
        for one in _found(node, m.Assign()):
            targets = [target.target for target in one.targets]
            if any(isinstance(t, cst.Subscript) and self._is_tile(t, scope) for t in targets):
                yield OPERATOR

    def _is_tile(self, node: cst.CSTNode, scope: Scope) -> bool:
        base = node.value if isinstance(node, cst.Subscript) else node
        return isinstance(base, cst.Name) and base.value in scope.tiles


def _is_of_tile(target: cst.Subscript) -> bool:
    """Whether an index is one that lists do not have: of several axes, or an ellipsis."""
    [first, *others] = target.slice
    index = first.slice
    return bool(others) or (isinstance(index, cst.Index) and isinstance(index.value, cst.Ellipsis))


def _header(statement: Any) -> Any:
    """A compound statement without the blocks that are looked at one by one."""
    empty: dict[str, Any] = {clause: None for clause in CLAUSES if hasattr(statement, clause)}
    if isinstance(statement.body, cst.IndentedBlock):
        empty["body"] = cst.IndentedBlock([])
    if hasattr(statement, "handlers"):
        empty |= {"handlers": [], "finalbody": cst.Finally(cst.IndentedBlock([]))}
    return statement.with_changes(**empty)


def _is_unknown(name: str) -> bool:
    """Whether today's modules lack a name, as ``nl.load`` or ``nisa.engine.vector``."""
    module, first = name.split(".")[:2]
    return module in TODAYS_MODULES and not hasattr(TODAYS_MODULES[module], first)


def _is_issue(name: str) -> bool:
    """Whether a name of ``nisa`` is an instruction's, and not a query's or an enum's."""
    return not name.startswith("nisa.get_") and name.count(".") == 1
