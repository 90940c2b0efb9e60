"""Rewrite statements of the classic dialect in the current dialect."""

from __future__ import annotations

import ast
from typing import TypeGuard

from difftest.simulator.frontend.levels import GONE
from difftest.tools.migration import views
from difftest.tools.migration.calls import (
    INSTRUCTIONS,
    MAKERS,
    MATMUL,
    OPERATORS,
    RANGES,
)
from difftest.tools.migration.functions import FunctionWriter, ResultTarget
from difftest.tools.migration.indices import EVERYTHING, Grid, box
from difftest.tools.migration.operands import NewOperand, expression
from difftest.tools.migration.rules import (
    CAST,
    MASK,
    NEW_AXIS,
    OPERATOR,
    SEVERAL,
    SUM,
    TARGET,
    UNKNOWN_CALL,
    NotMechanicalError,
)
from difftest.tools.syntax import base_of, is_none, keyword_of, literal_of


class ExpressionWriter(FunctionWriter):
    """A writer of expressions. Comprehensions and conditional expressions are left unchanged."""

    def value(self, node: ast.expr, wish: str | None = None) -> ast.expr:
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Call):
            return self._call(node, wish)
        if isinstance(node, ast.BinOp):
            return self._operator(node, wish)
        if isinstance(node, ast.UnaryOp):
            return self._sign(node)
        return self._with_new_parts(node)

    def _with_new_parts(self, node: ast.expr) -> ast.expr:
        """Rewrite the parts of an expression that itself stays as it is."""
        if isinstance(node, ast.Attribute) and not self.names.meant(node):
            return ast.Attribute(self.value(node.value), node.attr, node.ctx)
        if isinstance(node, (ast.Tuple, ast.List)):
            return type(node)([self.value(element) for element in node.elts], node.ctx)
        if isinstance(node, ast.Starred):
            return ast.Starred(self.value(node.value), node.ctx)
        return node

    def _subscript(self, node: ast.Subscript) -> ast.expr:
        grids = self.scope.grids
        if grids.uses(node.value):
            return node
        items = self.items(node)
        base = self.value(node.value)
        if any(map(grids.uses, items)):
            text, _ = views.view(ast.unparse(base), items, grids, EVERYTHING)
            return expression(text)
        if any(map(is_none, items)):
            return expression(_expanded(ast.unparse(base), items))
        if isinstance(node.slice, ast.Tuple) or len(items) > 1:
            return ast.Subscript(base, ast.Tuple(items, ast.Load()), node.ctx)
        return ast.Subscript(base, items[0], node.ctx)

    def _call(self, node: ast.Call, wish: str | None) -> ast.expr:
        name = self.names.meant(node.func)
        if name in RANGES:
            return ast.Call(ast.Name("range", ast.Load()), node.args, [])
        if name == "nki.simulate_kernel" and node.args:
            kernel = ast.unparse(node.args[0])
            run = expression(f"{self.names.local('nki')}.simulate({kernel})")
            return ast.Call(run, node.args[1:], node.keywords)
        if self.computes(node):
            return expression(self.computed(node, None, wish))
        if name.startswith(("nl.", "nisa.")):
            return self._nki_call(node, name)
        if isinstance(node.func, ast.Attribute) and not name:
            return self._method_call(node, node.func)
        function = node.func
        if isinstance(function, ast.Subscript):
            function = self._subscript(function)
        return self._with_new_arguments(node, function)

    def _method_call(self, node: ast.Call, method: ast.Attribute) -> ast.expr:
        """Rewrite the call of a method. A tile's ``broadcast_to`` becomes a function."""
        inner = self.value(method.value)
        is_tile = isinstance(inner, ast.Name) or self.scope.tile(inner) is not None
        if method.attr == "broadcast_to" and is_tile and self.scope.function:
            sizes = ", ".join(ast.unparse(self.value(size)) for size in node.args)
            name = self.nl("broadcast_to")
            return expression(f"{name}({ast.unparse(inner)}, {sizes})")
        function = ast.Attribute(inner, method.attr, method.ctx)
        return self._with_new_arguments(node, function)

    def _with_new_arguments(self, node: ast.Call, function: ast.expr) -> ast.Call:
        """Return the call of another function, with rewritten arguments."""
        arguments = [self.value(argument) for argument in node.args]
        keywords = [ast.keyword(it.arg, self.value(it.value)) for it in node.keywords]
        return ast.Call(function, arguments, keywords)

    def _is_call_of(self, node: ast.expr | None, name: str) -> TypeGuard[ast.Call]:
        return self.names.called(node) == name

    def _nki_call(self, node: ast.Call, name: str) -> ast.expr:
        """Rewrite a call of an NKI function that both dialects have."""
        if keyword_of(node, "mask") is not None:
            raise NotMechanicalError(MASK)
        change = self._shape_or_dtype if name in MAKERS else self.of_numpy
        arguments = [change(argument) for argument in node.args]
        keywords = [ast.keyword(it.arg, change(it.value)) for it in node.keywords]
        if name == "nl.rand" and len(arguments) == 1 and not keywords:
            keywords.append(ast.keyword("dtype", expression(self.nl("float32"))))
        return ast.Call(node.func, arguments, keywords)

    def _shape_or_dtype(self, node: ast.expr) -> ast.expr:
        """Return an argument of an allocation.

        A shape loses ``par_dim``, and its block dimensions go after the partitions.
        """
        new = self.of_numpy(node)
        if not isinstance(new, (ast.Tuple, ast.List)):
            return new
        for place, size in enumerate(new.elts):
            if self._is_call_of(size, "nl.par_dim"):
                if place and not self.scope.moves_blocks:
                    raise NotMechanicalError(GONE["nl.par_dim"])
                others = new.elts[:place] + new.elts[place + 1 :]
                return ast.Tuple([size.args[0], *others], ast.Load())
        return new

    def _operator(self, node: ast.BinOp, wish: str | None) -> ast.expr:
        if self.scope.grids.is_index(node):
            return node
        left = self.value(node.left)
        right = self.value(node.right)
        first = NewOperand(ast.unparse(left), self.scope.tile(left))
        second = NewOperand(ast.unparse(right), self.scope.tile(right))
        if first.tile is None and second.tile is None:
            return ast.BinOp(left, node.op, right)
        wanted = ResultTarget(node, None, wish)
        return expression(self.binary(_function_of(node.op), first, second, wanted))

    def _sign(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.value(node.operand)
        if self.scope.tile(operand) is None:
            return ast.UnaryOp(node.op, operand)
        if not isinstance(node.op, ast.USub):
            raise NotMechanicalError(OPERATOR)
        return expression(f"{self.nl('negative')}({ast.unparse(operand)})")


def _expanded(base: str, items: list[ast.expr]) -> str:
    """Rewrite ``t[:, 0:1, None]`` as ``t[:, 0:1].expand_dim(2)``."""
    kept: list[str] = []
    views = ""
    for dim, item in enumerate(items):
        if is_none(item):
            views += f".expand_dim({dim})"
        elif isinstance(item, ast.Slice):
            kept.append(ast.unparse(item))
        else:
            raise NotMechanicalError(NEW_AXIS)
    return f"{base}[{', '.join(kept)}]{views}"


def _function_of(operator: ast.operator) -> str:
    """Return the function of ``nl`` that an operator between tiles becomes."""
    name = OPERATORS.get(type(operator).__name__)
    if name is None:
        raise NotMechanicalError(OPERATOR)
    return name


class StatementWriter(ExpressionWriter):
    """A writer of one statement. Its new lines are in ``lines``."""

    def statement(self, node: ast.stmt) -> list[str] | None:
        """Return the lines that replace a statement, or None if it stays unchanged."""
        if isinstance(node, ast.AnnAssign):
            return self._annotated(node)
        if isinstance(node, ast.Assign):
            return self._assignment(node)
        if isinstance(node, ast.AugAssign):
            return self._update(node)
        if not isinstance(node, (ast.Expr, ast.Return)) or node.value is None:
            return None
        if isinstance(node, ast.Expr) and self._is_call_of(node.value, "nl.store"):
            return self._store(node.value)
        return self._with_value(node, self.value(node.value))

    def _annotated(self, node: ast.AnnAssign) -> list[str] | None:
        """Rewrite an assignment without its annotation, if that is an NKI type."""
        if node.value is None or not self.names.has_type(node.annotation):
            return None
        plain = ast.Assign([node.target], node.value, lineno=1)
        return self.statement(plain) or [ast.unparse(plain)]

    def defines_grid(self, node: ast.stmt) -> bool:
        """Record the index or the mask that a statement names. Return False if there is none."""
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            return False
        grids = self.scope.grids
        target = node.targets[0]
        if not grids.uses(node.value):
            return False
        if isinstance(target, ast.Name) and _is_mask(node.value):
            box(node.value, grids)
            grids.define(target.id, node.value)
            return True
        if not grids.is_index(node.value):
            return False
        return self._define(target, grids.defined(node.value))

    def _define(self, target: ast.expr, grid: Grid | None) -> bool:
        """Record the indices that a target names. Return False if there are none."""
        grids = self.scope.grids
        if isinstance(target, ast.Name) and grid is not None:
            grids.define(target.id, grid)
            return True
        parts = getattr(target, "elts", ())
        names = [part.id for part in parts if isinstance(part, ast.Name)]
        if not isinstance(grid, tuple) or len(names) != len(grid):
            return False
        for name, index in zip(names, grid, strict=True):
            grids.define(name, index)
        return True

    def _with_value(self, node: ast.stmt, value: ast.expr) -> list[str] | None:
        """Write the statement with another value; return None if nothing changes."""
        old = node.value  # type: ignore[attr-defined]
        if not self.lines and ast.unparse(value) == ast.unparse(old):
            return None
        node.value = value  # type: ignore[attr-defined]
        self.emit(ast.unparse(ast.fix_missing_locations(node)))
        return self.lines

    # -- assignments -----------------------------------------------------------------------------

    def _assignment(self, node: ast.Assign) -> list[str] | None:
        if len(node.targets) > 1:
            if self._is_instruction(node.value):
                raise NotMechanicalError(SEVERAL)
            return self._with_value(node, self.value(node.value))
        target = node.targets[0]
        if isinstance(target, ast.Name):
            return self._to_name(node, target.id)
        if isinstance(target, ast.Subscript):
            return self._to_place(node, target)
        return self._with_value(node, self.value(node.value))

    def _is_instruction(self, node: ast.expr) -> bool:
        """Return whether an expression is a call of a classic instruction."""
        return self.names.called(node) in INSTRUCTIONS

    def _to_name(self, node: ast.Assign, name: str) -> list[str] | None:
        self.scope.moves_blocks = name in self.scope.blocks
        value = self.value(node.value, name)
        self.scope.moves_blocks = False
        if isinstance(value, ast.Name) and value.id == name and self.lines:
            return self.lines
        return self._with_value(node, value)

    def _to_place(self, node: ast.Assign, target: ast.Subscript) -> list[str] | None:
        """Rewrite ``tile[...] = ...`` so that the value is written to the tile."""
        value = node.value
        tile = self.scope.tile(target.value)
        is_of_tile = isinstance(target.slice, ast.Tuple)
        is_of_tile = is_of_tile or literal_of(target.slice) is ...
        if tile is None and not is_of_tile:  # it may be a list
            if self._is_instruction(value):
                raise NotMechanicalError(TARGET)
            return self._with_value(node, self.value(value))
        if isinstance(value, ast.Call) and self.computes(value):
            limits = self.limits(keyword_of(value, "mask"))
            dst = self.destination(target, limits).text
            if self.has_dtype(dst, self.dtype(keyword_of(value, "dtype"))):
                self.computed(value, dst)
            else:  # round to the requested dtype first, then copy
                source = self.operand(value, limits)
                self.issue("nisa.tensor_copy", dst, {"src": source.text})
        else:
            self._write(value, self.destination(target).text, tile is not None)
        return self.lines

    def _write(self, value: ast.expr, dst: str, is_tile: bool) -> None:
        """Write a tile, a number or a binary operation to a destination."""
        if self._writes_operation(value, dst):
            return
        if self.scope.is_integer(value) or _is_float(value):
            self.issue("nisa.memset", dst, {"value": ast.unparse(value)})
        elif self._is_call_of(value, "nl.matmul"):
            self._product(value, dst)
        else:
            source = self.operand(value)
            if source.tile is None and not is_tile:
                raise NotMechanicalError(OPERATOR)
            self.issue("nisa.tensor_copy", dst, {"src": source.text})

    def _writes_operation(self, value: ast.expr, dst: str) -> bool:
        """Write an operation on tiles; return False for another expression."""
        if not isinstance(value, ast.BinOp) or type(value.op).__name__ not in OPERATORS:
            return False
        left = self.operand(value.left)
        right = self.operand(value.right)
        if left.tile is None and right.tile is None:
            return False
        self.binary(_function_of(value.op), left, right, ResultTarget(value, dst))
        return True

    # -- updates ---------------------------------------------------------------------------------

    def _update(self, node: ast.AugAssign) -> list[str] | None:
        """Rewrite ``tile += ...`` as an update in place."""
        value = node.value
        tile = self.scope.tile(base_of(node.target))
        if self._is_product(value) and isinstance(node.op, ast.Add):
            if tile is None or not tile.is_zero or tile.buffer != "psum":
                raise NotMechanicalError(SUM)
            self._product(value, self.destination(node.target).text)
            return self.lines
        if tile is None:
            if self._is_instruction(value):
                raise NotMechanicalError(OPERATOR)
            return self._with_value(node, self.value(value))
        name = _function_of(node.op)
        whole = self.destination(node.target)
        operand = self.operand(value)
        self.binary(name, whole, operand, ResultTarget(value, whole.text))
        return self.lines

    def _is_product(self, node: ast.expr) -> TypeGuard[ast.Call]:
        """Return whether an expression is a matrix product of tiles."""
        return self.names.called(node) in (MATMUL, "nl.matmul")

    def _product(self, call: ast.Call, dst: str) -> None:
        """Write a matrix product that accumulates in PSUM."""
        if self.names.called(call) == MATMUL:
            if keyword_of(call, "dtype") is not None:
                raise NotMechanicalError(CAST)
            self.instruction(call, ResultTarget(call, dst))
            return
        arguments = self.given(call)
        transposed = arguments.pop("transpose_x", None)
        if set(arguments) != {"x", "y"}:
            raise NotMechanicalError(UNKNOWN_CALL)
        x = self.operand(arguments["x"]).text
        y = self.operand(arguments["y"]).text
        if transposed is None or ast.unparse(transposed) != "True":
            x = f"{self.nl('copy')}({self.nl('transpose')}({x}))"
        self.issue(MATMUL, dst, {"stationary": x, "moving": y})

    def _store(self, call: ast.Call) -> list[str]:
        """Rewrite ``nl.store`` as a DMA. A source in PSUM is copied to SBUF first."""
        arguments = self.given(call)
        limits = self.limits(arguments.pop("mask", None))
        if set(arguments) != {"dst", "value"}:
            raise NotMechanicalError(CAST)
        dst = self.operand(arguments["dst"], limits)
        source = self.in_sbuf(self.operand(arguments["value"], limits))
        self.issue("nisa.dma_copy", dst.text, {"src": source.text})
        return self.lines


def _is_mask(node: ast.expr) -> bool:
    """Return whether an expression is a comparison or a conjunction of comparisons."""
    conjunction = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd)
    return conjunction or isinstance(node, (ast.Compare, ast.BoolOp))


def _is_float(node: ast.expr) -> bool:
    """Return whether an expression is a floating-point literal, possibly with a sign."""
    if isinstance(node, ast.UnaryOp):
        return _is_float(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, float)
