"""Compile a candidate's source so that each way from one value to another calls a guard.

The nodes that a file may have are a closed list. Another node becomes a refusal where it is
reached, not where it stands: a test or a benchmark beside a kernel may contain anything.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from difftest.simulator.errors import NkiError
from difftest.tools.verdict.world import classes, texts
from difftest.tools.verdict.world.attributes import call_method, read, writable
from difftest.tools.verdict.world.blocks import Context, caught, enter, leaving
from difftest.tools.verdict.world.calls import call
from difftest.tools.verdict.world.held import kept
from difftest.tools.verdict.world.instances import plain_kinds
from difftest.tools.verdict.world.kinds import NAMES
from difftest.tools.verdict.world.order import ordered
from difftest.tools.verdict.world.refusal import (
    C_CODE_KEEPS_TRACEBACKS,
    INTERNAL,
    STATE,
    Absent,
    UnavailableError,
    exact_text,
    is_of_others,
    is_special,
    need,
    refusal,
    unavailable,
)

_NATIVE = (
    *(ast.Expression, ast.Module, ast.Return, ast.Assign, ast.For, ast.While, ast.If),
    *(
        ast.Assert,
        ast.Expr,
        ast.Pass,
        ast.Break,
        ast.Continue,
        ast.Global,
        ast.Nonlocal,
    ),
    *(ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Dict, ast.Set),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension),
    *(ast.Yield, ast.YieldFrom, ast.Compare, ast.Constant, ast.Subscript, ast.Starred),
    *(ast.List, ast.Tuple, ast.Slice, ast.Load, ast.Store, ast.Del, ast.And, ast.Or),
    *(ast.operator, ast.unaryop, ast.cmpop, ast.keyword, ast.arguments, ast.arg),
    *(ast.Delete, ast.alias, ast.withitem, ast.match_case, ast.MatchSingleton),
    *(ast.MatchSequence, ast.MatchMapping, ast.MatchStar, ast.MatchAs, ast.MatchOr),
)
"""Nodes that stay as they are, with guards inside them."""
_READABLE = frozenset({"__doc__", "__debug__"})
_OWN_NAMES = frozenset({"__name__", "__file__"})
"""Names whose texts differ where a file is judged."""
_SETTABLE = frozenset(
    (
        *("__all__", "__author__", "__doc__", "__hash__", "__match_args__"),
        *("__slots__", "__version__"),
    )
)
"""Special names that a file may bind."""
MARK = "which way?"
"""The function that records the truth of a condition: its calls are not guarded."""


def _name(name: str, at: ast.AST) -> ast.Name:
    return ast.copy_location(ast.Name(INTERNAL + name, ast.Load()), at)


def _call(name: str, at: ast.AST, *args: ast.expr, **options: Any) -> ast.Call:
    """Return a call of a guard, at the place of a node."""
    call = ast.Call(_name(name, at), list(args), options.get("keywords", []))
    return ast.copy_location(call, at)


def _text(value: Any, at: ast.AST) -> ast.Constant:
    return ast.copy_location(ast.Constant(value), at)


class Guarded(ast.NodeTransformer):
    """A transformer that puts guards into the syntax tree of a file."""

    def __init__(self, module: str, package: str) -> None:
        self.module = module
        self.package = package
        self._tried = 0
        """The number of ``try`` statements around a node that handle a failed import."""
        self._matches = 0
        self._class = ""
        """The name of the class around a node, without underscores before it; empty outside."""
        self._class_names: list[str] | None = None
        """The special names that the class statement around the statements binds, if any."""

    def visit(self, node: ast.AST) -> Any:
        """Return a node with guards; another node than the listed ones refuses."""
        visitor: Callable[[Any], Any] | None = getattr(
            self, f"visit_{type(node).__name__}", None
        )
        if visitor is not None:
            return visitor(node)
        if isinstance(node, _NATIVE):
            return self.generic_visit(node)
        return self._refused(node, f"the syntax {type(node).__name__}")

    def _refused(self, node: ast.AST, what: str) -> Any:
        call = _call("refused", node, _text(what, node))
        if isinstance(node, ast.stmt):
            return ast.copy_location(ast.Expr(call), node)
        return call

    # -- expressions -------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> Any:
        """Refuse special names that a candidate may not use."""
        if not is_special(node.id):
            return node
        is_load = isinstance(node.ctx, ast.Load)
        if is_load:
            return self._loaded_name(node)
        is_method = isinstance(node.ctx, ast.Store) and self._binds_method(node.id)
        if is_method or node.id in _SETTABLE:
            return node
        return self._hidden_target(node)

    def _loaded_name(self, node: ast.Name) -> ast.expr:
        """Return a special name that is read, or its refusal."""
        if node.id in _OWN_NAMES:
            return _call("marked", node, node, keywords=[_is_opaque(node)])
        is_method = self._class_names is not None and node.id in classes.METHODS
        if is_method or node.id in _READABLE:
            return node
        return _call("refused", node, _text(f"the name {node.id}", node))

    def _binds_method(self, name: str) -> bool:
        """Return whether a class statement may bind a special name; its guard checks the value."""
        if self._class_names is None or name not in classes.METHODS:
            return False
        self._class_names.append(name)
        return True

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        """Refuse ``__name__ := value``: only a plain name may stand there."""
        if is_special(node.target.id):
            return self._refused(node, f"the name {node.target.id}")
        return self.generic_visit(node)

    def _hidden_target(self, node: ast.Name) -> ast.expr:
        """Return a target that refuses the assignment."""
        owner = _call("hidden", node, _text(node.id, node))
        return ast.copy_location(ast.Attribute(owner, "name", node.ctx), node)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """Guard ``value.name``, read or set."""
        value = self.visit(node.value)
        name = _text(self._mangled(node.attr), node)
        if isinstance(node.ctx, ast.Load):
            return _call("read", node, value, name)
        owner = _call("writable", node, value, name)
        target = ast.Attribute(owner, node.attr, node.ctx)
        if is_special(node.attr):
            target.attr = INTERNAL + "hidden"  # the guard refuses first
        return ast.copy_location(target, node)

    def _mangled(self, name: str) -> str:
        """Return the name of an attribute, as Python stores a private name of a class."""
        is_private = name.startswith("__") and not name.endswith("__")
        return f"_{self._class}{name}" if is_private and self._class else name

    def visit_Call(self, node: ast.Call) -> Any:
        """Guard ``function(...)`` and ``value.method(...)``."""
        if isinstance(node.func, ast.Name) and node.func.id == MARK:
            return self.generic_visit(node)
        args = [self.visit(arg) for arg in node.args]
        keywords = [self.visit(keyword) for keyword in node.keywords]
        if _is_super(node):
            return node
        if isinstance(node.func, ast.Attribute):
            value = self.visit(node.func.value)
            name = _text(self._mangled(node.func.attr), node)
            return _call("call_method", node, value, name, *args, keywords=keywords)
        function = self.visit(node.func)
        return _call("call", node, function, *args, keywords=keywords)

    def visit_keyword(self, node: ast.keyword) -> Any:
        """Guard ``**options``: a name of an own class decides itself which parameter it names."""
        node.value = self.visit(node.value)
        if node.arg is None:
            node.value = _call("options", node.value, node.value)
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        """Answer ``__name__ == "__main__"``: a candidate's file is no script."""
        if (is_equal := is_script_test(node)) is not None:
            return _text(not is_equal, node)
        if isinstance(node.ops[0], (ast.In, ast.NotIn)) and _is_constant_set(node):
            node.left = self.visit(node.left)
            return node
        self.generic_visit(node)
        if any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            node.left = self._present(node.left)
            node.comparators = list(map(self._present, node.comparators))
        return node

    def _present(self, node: ast.expr) -> ast.expr:
        """Guard an operand of ``is``: an absent value is a new one each time."""
        return node if isinstance(node, ast.Constant) else _call("present", node, node)

    def visit_Set(self, node: ast.Set) -> Any:
        """Let a set have the order of the run."""
        self.generic_visit(node)
        return _call("ordered", node, node)

    def visit_SetComp(self, node: ast.SetComp) -> Any:
        """Let a set have the order of the run."""
        self.generic_visit(node)
        return _call("ordered", node, node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        """Guard the texts of an f-string."""
        return _call("joined", node, *map(self.visit, node.values))

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        """Guard a field of an f-string."""
        spec: Any = _text("", node)
        if node.format_spec is not None:
            spec = self.visit(node.format_spec)
        value = self.visit(node.value)
        return _call("formatted", node, value, _text(node.conversion, node), spec)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        """Guard ``left % right``, which may make a text, and operators that may make a set."""
        self.generic_visit(node)
        if isinstance(node.op, _OF_SETS) and not _has_constant(node):
            return _call("ordered", node, node)
        if not isinstance(node.op, ast.Mod):
            return node
        if isinstance(node.right, ast.Constant) and isinstance(node.right.value, int):
            return node
        return _call("percent", node, node.left, node.right)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        """Check the parameters of a lambda."""
        node.args = self._arguments(node.args)
        body = self.visit(node.body)
        if entered := self._entered(node.args, node.body):
            pair = ast.Tuple([entered, body], ast.Load())
            last = _text(-1, node.body)
            body = ast.Subscript(ast.copy_location(pair, node.body), last, ast.Load())
        node.body = ast.copy_location(body, node.body)
        return node

    # -- functions and classes ---------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """Guard the decorators of a function, and check its parameters first."""
        is_fallback = self._class_names is not None and _is_fallback(node)
        node.decorator_list = [self._decorator(one) for one in node.decorator_list]
        node.args = self._arguments(node.args)
        if node.returns is not None:
            node.returns = self.visit(node.returns)
        self._type_parameters(node)
        if is_special(node.name) and self._class_names is None:
            return self._refused(node, f"a function {node.name}")
        is_bound = is_fallback or self._binds_method(node.name)
        if is_special(node.name) and not is_bound:
            hidden = _call("hidden", node, _text(node.name, node))
            return ast.copy_location(ast.Expr(hidden), node)
        body = self._body(node.body)
        if entered := self._entered(node.args, node.body[0]):
            line = ast.copy_location(ast.Expr(entered), node.body[0])
            line.lineno = line.end_lineno = node.body[0].lineno
            has_text = isinstance(node.body[0], ast.Expr) and isinstance(
                node.body[0].value, ast.Constant
            )
            body.insert(int(has_text), line)
        if is_fallback:
            name = _loaded(node.args.args[1], node.body[0])
            check = ast.Expr(_call("check_fallback", node.body[0], name))
            body.insert(0, ast.copy_location(check, node.body[0]))
        node.body = body
        return node

    def _decorator(self, node: ast.expr) -> ast.expr:
        return _call("decorator", node, self.visit(node))

    def _arguments(self, node: ast.arguments) -> ast.arguments:
        for arg in _parameters(node):
            if arg.annotation is not None:
                arg.annotation = self.visit(arg.annotation)
        node.defaults = [self.visit(value) for value in node.defaults]
        node.kw_defaults = [
            None if value is None else self.visit(value) for value in node.kw_defaults
        ]
        return node

    def _entered(self, node: ast.arguments, at: ast.AST) -> ast.Call | None:
        """Return the check of a function's parameters; None without any."""
        plain = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        checked: list[ast.expr] = [_loaded(arg, at) for arg in plain]
        if node.vararg is not None:
            star = ast.Starred(_loaded(node.vararg, at), ast.Load())
            checked.append(ast.copy_location(star, at))
        if node.kwarg is not None:
            star = ast.Starred(_loaded(node.kwarg, at), ast.Load())
            checked.append(ast.copy_location(star, at))
            named = _call("named", at, _loaded(node.kwarg, at))
            checked[-1] = ast.copy_location(ast.Starred(named, ast.Load()), at)
        return _call("enter", at, *checked) if checked else None

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Guard the bases, the keywords and the result of a class statement."""
        if is_special(node.name):
            return self._refused(node, f"a class {node.name}")
        self._type_parameters(node)
        bases = _call(
            "bases", node, _text(node.name, node), *map(self.visit, node.bases)
        )
        node.bases = [ast.copy_location(ast.Starred(bases, ast.Load()), node)]
        if node.keywords:
            keywords = [self.visit(keyword) for keyword in node.keywords]
            options = _call("class_options", node, keywords=keywords)
            node.keywords = [ast.copy_location(ast.keyword(None, options), node)]
        decorators = [self._decorator(one) for one in node.decorator_list]
        bound: list[str] = []
        around, self._class = self._class, node.name.lstrip("_")
        node.body = self._body(node.body, bound)
        self._class = around
        made = _call("made", node, *(_text(name, node) for name in bound))
        node.decorator_list = [*decorators, made]
        return node

    def _type_parameters(self, node: Any) -> None:
        """Guard the bounds and defaults of ``[T: bound = default]``, of Python 3.12."""
        for parameter in getattr(node, "type_params", []):
            if is_special(parameter.name):
                parameter.name = f"{INTERNAL}parameter"
            for name in ("bound", "default_value"):
                if (value := getattr(parameter, name, None)) is not None:
                    setattr(parameter, name, self.visit(value))

    def visit_TypeAlias(self, node: Any) -> Any:
        """Guard the value of ``type Name = value``, of Python 3.12."""
        if is_special(node.name.id):
            return self._refused(node, f"the name {node.name.id}")
        self._type_parameters(node)
        node.value = self.visit(node.value)
        return node

    # -- statements --------------------------------------------------------------------------------

    def _body(
        self, statements: list[ast.stmt], class_names: list[str] | None = None
    ) -> list[ast.stmt]:
        """Return statements with guards; a statement may become several.

        Of a class statement, ``class_names`` gets the special names that they bind.
        """
        result: list[ast.stmt] = []
        before = self._class_names
        self._class_names = class_names
        for statement in statements:
            found = self.visit(statement)
            result += found if isinstance(found, list) else [found]
        self._class_names = before
        return result

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """Guard the target; ``text %= value`` becomes an assignment."""
        if isinstance(node.op, ast.Mod) and isinstance(node.target, ast.Name):
            loaded = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
            value = _call("percent", node, loaded, self.visit(node.value))
            return ast.copy_location(ast.Assign([node.target], value), node)
        if isinstance(node.op, ast.Mod):
            return self._refused(node, "%= on an item or an attribute")
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        if not isinstance(node.op, _OF_SETS) or _has_constant(node):
            return node
        loaded = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        value = _call("ordered", node, loaded)
        return [node, ast.copy_location(ast.Assign([node.target], value), node)]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Guard an annotated name; ``__name__: str`` binds nothing."""
        if isinstance(node.target, ast.Name) and is_special(node.target.id):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> Any:
        """Replace ``import a.b`` by assignments of tables of names."""
        lines: list[ast.stmt] = []
        for alias in node.names:
            shown = alias.asname or alias.name.partition(".")[0]
            words = [_text(word, node) for word in (alias.name, bool(alias.asname))]
            value = _call("imported", node, *words, _text(bool(self._tried), node))
            lines.append(self._bound(shown, value, node))
        return lines

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        """Replace ``from a import b`` by assignments of values of tables of names."""
        if node.module == "__future__":
            return ast.copy_location(ast.Pass(), node)
        lines: list[ast.stmt] = []
        where = [_text(node.module or "", node), _text(node.level, node)]
        where += [_text(self.package, node), _text(bool(self._tried), node)]
        for alias in node.names:
            if alias.name == "*":
                call = _call("all_names", node, _text(self.module, node), *where)
                lines.append(ast.copy_location(ast.Expr(call), node))
                continue
            value = _call("member", node, _text(alias.name, node), *where)
            lines.append(self._bound(alias.asname or alias.name, value, node))
        return lines

    def _bound(self, name: str, value: ast.expr, node: ast.AST) -> ast.stmt:
        target = ast.copy_location(ast.Name(name, ast.Store()), node)
        if is_special(name):
            return ast.copy_location(
                ast.Expr(_call("refused", node, _text(name, node))), node
            )
        return ast.copy_location(ast.Assign([target], value), node)

    def visit_With(self, node: ast.With) -> Any:
        """Guard the context managers of ``with``."""
        for item in node.items:
            item.context_expr = _call(
                "context", item.context_expr, self.visit(item.context_expr)
            )
            if item.optional_vars is not None:
                item.optional_vars = self.visit(item.optional_vars)
        node.body = self._body(node.body)
        return node

    def visit_Try(self, node: ast.Try) -> Any:
        """Guard the errors that a handler gets."""
        handles = any(map(_handles_imports, node.handlers))
        self._tried += handles
        node.body = self._body(node.body)
        self._tried -= handles
        for handler in node.handlers:
            self._handler(handler)
        node.orelse = self._body(node.orelse)
        if node.finalbody:
            at = node.finalbody[0]
            line = ast.copy_location(ast.Expr(_call("leaving", at)), at)
            node.finalbody = [line, *self._body(node.finalbody)]
        return node

    def _handler(self, handler: ast.ExceptHandler) -> None:
        at = handler.body[0]
        if handler.name is not None and is_special(handler.name):
            handler.name = None
        handler.name = handler.name or f"{INTERNAL}error"
        if handler.type is None:
            handler.type = ast.copy_location(_name("BaseException", handler), handler)
        else:
            handler.type = _call("error_types", handler, self.visit(handler.type))
        loaded = ast.copy_location(ast.Name(handler.name, ast.Load()), at)
        line = ast.copy_location(ast.Expr(_call("caught", at, loaded)), at)
        handler.body = [line, *self._body(handler.body)]

    def visit_Raise(self, node: ast.Raise) -> Any:
        """Guard the error that is raised."""
        if node.exc is not None:
            node.exc = _call("raised", node, self.visit(node.exc))
        if node.cause is not None:
            node.cause = self.visit(node.cause)
        return node

    def visit_Match(self, node: ast.Match) -> Any:
        """Guard the values and classes that patterns name: Python itself would read them."""
        self._matches += 1
        holder = f"{INTERNAL}match{self._matches}"
        found: list[ast.keyword] = []
        for pattern in _patterns(node):
            if any(map(is_special, _names_of(pattern))):
                return self._refused(node, "a special name in a pattern")
            self._guard_pattern(pattern, holder, found)
        node.subject = _call("subject", node.subject, self.visit(node.subject))
        for case in node.cases:
            case.guard = None if case.guard is None else self.visit(case.guard)
            case.guard = _checked_guard(case)
            case.body = self._body(case.body)
        values_of = _call("holder", node, keywords=found)
        target = ast.copy_location(ast.Name(holder, ast.Store()), node)
        return [ast.copy_location(ast.Assign([target], values_of), node), node]

    def _guard_pattern(
        self, pattern: ast.AST, holder: str, found: list[ast.keyword]
    ) -> None:
        """Let a pattern name an attribute of the holder in place of a value or a class."""
        if isinstance(pattern, ast.MatchValue):
            pattern.value = self._held(pattern.value, holder, found, "pattern_value")
        elif isinstance(pattern, ast.MatchClass):
            facts = [len(pattern.patterns), *pattern.kwd_attrs]
            asked = [_text(fact, pattern) for fact in facts]
            pattern.cls = self._held(
                pattern.cls, holder, found, "pattern_class", *asked
            )
        elif isinstance(pattern, ast.MatchMapping):
            pattern.keys = [
                self._held(key, holder, found, "pattern_value") for key in pattern.keys
            ]

    def _held(
        self,
        node: ast.expr,
        holder: str,
        found: list[ast.keyword],
        guard: str,
        *more: Any,
    ) -> ast.expr:
        """Return an attribute of the holder that has the guarded value of a pattern."""
        if isinstance(node, (ast.Constant, ast.UnaryOp, ast.BinOp)):
            return node
        name = f"v{len(found)}"
        value = _call(guard, node, self.visit(node), *more)
        found.append(ast.copy_location(ast.keyword(name, value), node))
        owner = ast.copy_location(ast.Name(holder, ast.Load()), node)
        return ast.copy_location(ast.Attribute(owner, name, ast.Load()), node)

    def visit_MatchClass(self, node: ast.MatchClass) -> Any:
        """Return the pattern: its match statement has guarded it."""
        return self.generic_visit(node)

    def visit_MatchValue(self, node: ast.MatchValue) -> Any:
        """Return the pattern: its match statement has guarded it."""
        return node

    def visit_Global(self, node: ast.Global) -> Any:
        """Refuse special names that a function would share with its module."""
        if any(map(is_special, node.names)):
            return self._refused(node, "a special name")
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> Any:
        """Refuse special names that a function would share with another."""
        if any(map(is_special, node.names)):
            return self._refused(node, "a special name")
        return node

    def module_of(self, tree: ast.Module) -> ast.Module:
        """Return a file's tree: a statement that needs something absent is skipped alone."""
        body: list[ast.stmt] = []
        for statement in tree.body:
            names = sorted(set(_bound_names(statement)))
            found = self.visit(statement)
            lines = found if isinstance(found, list) else [found]
            if isinstance(statement, (ast.Pass, ast.FunctionDef)) and not names:
                body += lines
                continue
            skipped = _call(
                "skipped",
                statement,
                _text(self.module, statement),
                *(_text(name, statement) for name in names),
            )
            handler = ast.ExceptHandler(
                _name("UnavailableError", statement),
                None,
                [ast.copy_location(ast.Expr(skipped), statement)],
            )
            ast.copy_location(handler, statement)
            body.append(ast.copy_location(ast.Try(lines, [handler], [], []), statement))
        tree.body = body
        return ast.fix_missing_locations(tree)


def _is_opaque(at: ast.AST) -> ast.keyword:
    return ast.copy_location(ast.keyword("opaque", _text(True, at)), at)


_OF_SETS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
"""The operators that make sets of sets, or of the keys of dictionaries."""


def _has_constant(node: ast.BinOp | ast.AugAssign) -> bool:
    """Return whether an operand is a constant, so that the result is no set."""
    operands = [getattr(node, name, None) for name in ("left", "right", "value")]
    return any(isinstance(operand, ast.Constant) for operand in operands)


def _is_constant_set(node: ast.Compare) -> bool:
    """Return whether a comparison asks a set of constants alone, in which no order shows."""
    last = node.comparators[0]
    if len(node.comparators) > 1 or not isinstance(last, ast.Set):
        return False
    return all(isinstance(item, ast.Constant) for item in last.elts)


def is_script_test(node: ast.AST) -> bool | None:
    """Return whether a node is ``__name__ == "__main__"``, not ``!=``; None if it is neither."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    if not isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
        return None
    operands = {ast.unparse(node.left), ast.unparse(node.comparators[0])}
    if operands != {"__name__", "'__main__'"}:
        return None
    return isinstance(node.ops[0], ast.Eq)


def _checked_guard(case: ast.match_case) -> ast.expr | None:
    """Return the guard of a case; it checks first what the patterns of classes have read."""
    inner = list(ast.walk(case.pattern))
    names = sorted({name for pattern in inner for name in _captured(pattern)})
    if not names or not any(isinstance(one, ast.MatchClass) for one in inner):
        return case.guard
    at = case.pattern
    loaded = [ast.copy_location(ast.Name(name, ast.Load()), at) for name in names]
    check = _call("entered", at, *loaded)
    if case.guard is None:
        return check
    return ast.copy_location(ast.BoolOp(ast.And(), [check, case.guard]), at)


def _captured(pattern: ast.AST) -> list[str]:
    """Return the names that a pattern binds."""
    found = [getattr(pattern, "name", None), getattr(pattern, "rest", None)]
    return [name for name in found if name]


def _is_super(node: ast.Call) -> bool:
    is_name = isinstance(node.func, ast.Name) and node.func.id == "super"
    return is_name and not node.args and not node.keywords


def _is_fallback(node: ast.FunctionDef) -> bool:
    """Return whether a method is a plain ``__getattr__(self, name)``."""
    is_named = node.name == "__getattr__" and not node.decorator_list
    others = (node.args.posonlyargs, node.args.kwonlyargs, node.args.defaults)
    stars = (node.args.vararg, node.args.kwarg)
    return is_named and len(node.args.args) == 2 and not any((*others, *stars))


def _parameters(node: ast.arguments) -> list[ast.arg]:
    stars = [arg for arg in (node.vararg, node.kwarg) if arg is not None]
    return [*node.posonlyargs, *node.args, *node.kwonlyargs, *stars]


def _loaded(arg: ast.arg, at: ast.AST) -> ast.Name:
    return ast.copy_location(ast.Name(arg.arg, ast.Load()), at)


def _names_of(pattern: ast.AST) -> list[str]:
    """Return the names that a pattern binds, and the attributes that it reads."""
    return [*_captured(pattern), *getattr(pattern, "kwd_attrs", ())]


def _patterns(node: ast.Match) -> Iterator[ast.AST]:
    for case in node.cases:
        yield from ast.walk(case.pattern)


def _handles_imports(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler is for a failed import."""
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {ast.unparse(kind).rpartition(".")[2] for kind in kinds}
    return bool(
        names & {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
    )


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a top-level statement binds in its module."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]
        elif isinstance(node, _SCOPES):
            yield getattr(node, "name", "")
        else:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            pending += ast.iter_child_nodes(node)


# -- guards that are not of values -----------------------------------------------------------------


def refused(what: str) -> Absent:
    """Refuse syntax; while files load, return an absent value."""
    return unavailable(what)


def hidden(name: str) -> NoReturn:
    """Refuse an assignment to a special name."""
    need(Absent(f"the name {name}"))


def check_fallback(name: Any) -> None:
    """Raise AttributeError for a special name: an own ``__getattr__`` answers C code no question.

    NumPy asks an object for ``__array_interface__``, an address of memory.
    """
    if is_special(exact_text(name, "the name of an attribute")):
        raise AttributeError(name)


def decorator(function: Any) -> Callable[[Any], Any]:
    """Return a decorator whose call is guarded."""
    return lambda decorated: call(function, decorated)


def options(mapping: Any) -> dict[str, Any]:
    """Return the arguments of ``**mapping``; their names are plain texts."""
    found = {**mapping}
    for name in found:
        exact_text(name, "the name of an argument")
    return found


def entered(*values: Any) -> bool:
    """Check the values that a pattern has read from objects; return True."""
    enter(*values)
    return True


def named(options: dict[str, Any]) -> list[Any]:
    """Return the values of a function's further keywords."""
    return list(options.values())


def raised(error: Any) -> Any:
    """Return the error of a raise statement, marked as the candidate's own."""
    if type(error) is Absent:
        raise refusal(f"{error!r} is raised")
    if isinstance(error, type):
        return call(error)
    return kept(error)


def error_types(kinds: Any) -> Any:
    """Return the classes of an except clause; an absent one catches nothing."""
    if type(kinds) is tuple:
        return tuple(map(error_types, kinds))
    return () if type(kinds) is Absent and is_of_others(kinds) else present(kinds)


def present(value: Any) -> Any:
    """Return a value that is not absent."""
    if type(value) is Absent:
        need(value)
    return value


def subject(value: Any) -> Any:
    """Return the value that a match statement looks at; an opaque text in it is refused."""
    if texts.has_opaque(value):
        raise texts.opaque_refusal()
    return value


def pattern_value(value: Any) -> Any:
    """Return the value that a pattern compares."""
    return kept(value)


def pattern_class(kind: Any, patterns: int, *names: str) -> Any:
    """Return the class of a pattern; attributes are of own classes, or of the tables.

    Parameters
    ----------
    patterns : the number of patterns by position. One looks at the whole value, ``int(x)``, if the
        class has no ``__match_args__``.
    names : the attributes of the patterns by name.
    """
    plain = plain_kinds(kind)
    is_own = isinstance(plain, type) and texts.is_own_class(plain)
    has_others = not NAMES.get(plain, frozenset()).issuperset(names)
    by_place = patterns > 1 or (patterns and hasattr(plain, "__match_args__"))
    if (has_others or by_place) and not is_own:
        raise refusal(
            "attributes of a class that is not the candidate's own, in a pattern"
        )
    return plain


def holder(**found: Any) -> Any:
    """Return an object with the guarded values of a match statement's patterns."""
    return types.SimpleNamespace(**found)


_Guard = Callable[..., Any]


def _noting(guard: _Guard) -> _Guard:
    """Return a guard that notes the errors of the machine that leave it.

    C code may handle such an error. If it keeps the traceback, this shows the candidate's lines.
    """
    if C_CODE_KEEPS_TRACEBACKS:
        return guard

    def noting(*args: Any, **kwargs: Any) -> Any:
        try:
            return guard(*args, **kwargs)
        except NkiError as error:
            STATE.rejections.append(error)
            raise

    return noting


GUARDS: dict[str, Any] = {
    f"{INTERNAL}{name}": guard
    for name, guard in {
        "read": read,
        "writable": writable,
        "call": _noting(call),
        "call_method": _noting(call_method),
        "enter": enter,
        "caught": caught,
        "leaving": leaving,
        "context": Context,
        "joined": texts.joined,
        "formatted": texts.formatted,
        "percent": texts.percent,
        "bases": classes.bases,
        "class_options": classes.class_options,
        "made": classes.made_with,
        "refused": refused,
        "hidden": hidden,
        "check_fallback": check_fallback,
        "decorator": decorator,
        "entered": entered,
        "marked": texts.marked,
        "options": options,
        "ordered": ordered,
        "present": present,
        "named": named,
        "raised": raised,
        "error_types": error_types,
        "subject": subject,
        "pattern_value": pattern_value,
        "pattern_class": pattern_class,
        "holder": holder,
        "BaseException": BaseException,
        "UnavailableError": UnavailableError,
    }.items()
}
"""The guards by the names in compiled files."""
