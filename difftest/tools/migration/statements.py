"""Rewrite statements of the classic dialect in the current dialect."""

from __future__ import annotations

import ast

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
from difftest.tools.migration.indices import EVERYTHING, box
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
from difftest.tools.migration.scope import KnownTile


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
        if isinstance(node, ast.Attribute):
            own = bool(self.names.meant(node))
            return (
                node
                if own
                else ast.Attribute(self.value(node.value), node.attr, node.ctx)
            )
        if isinstance(node, (ast.Tuple, ast.List)):
            return type(node)([self.value(element) for element in node.elts], node.ctx)
        if isinstance(node, ast.Starred):
            return ast.Starred(self.value(node.value), node.ctx)
        return node

    def _subscript(self, node: ast.Subscript) -> ast.expr:
        grids = self.scope.grids
        if grids.uses(node.value):
            return node
        items, base = self.items(node), self.value(node.value)
        if any(grids.uses(item) for item in items):
            return expression(
                views.view(ast.unparse(base), items, grids, EVERYTHING)[0]
            )
        if any(_is_new_axis(item) for item in items):
            return expression(self._expanded(ast.unparse(base), items))
        if isinstance(node.slice, ast.Tuple):
            return ast.Subscript(base, ast.Tuple(items, ast.Load()), node.ctx)
        return ast.Subscript(base, items[0], node.ctx)

    def _expanded(self, base: str, items: list[ast.expr]) -> str:
        """Rewrite ``t[:, 0:1, None]`` as ``t[:, 0:1].expand_dim(2)``."""
        kept: list[str] = []
        places: list[int] = []
        for item in items:
            if _is_new_axis(item):
                places.append(len(kept) + len(places))
            elif isinstance(item, ast.Slice):
                kept.append(ast.unparse(item))
            else:
                raise NotMechanicalError(*NEW_AXIS)
        return f"{base}[{', '.join(kept)}]" + "".join(
            f".expand_dim({n})" for n in places
        )

    def _call(self, node: ast.Call, wish: str | None) -> ast.expr:
        name = self.names.meant(node.func) or ""
        if name in RANGES:
            return ast.Call(ast.Name("range", ast.Load()), node.args, [])
        if name == "nki.simulate_kernel" and node.args:
            kernel = ast.unparse(node.args[0])
            run = expression(f"{self.names.local('nki')}.simulate({kernel})")
            return ast.Call(run, node.args[1:], node.keywords)
        if self.computes(node):
            return expression(self.computed(node, None, wish))
        if name.startswith(("nl.", "nisa.")) and any(
            key.arg == "mask" for key in node.keywords
        ):
            raise NotMechanicalError(*MASK)
        return self._plain_call(node, name)

    def _plain_call(self, node: ast.Call, name: str) -> ast.expr:
        """Rewrite the arguments of a call that stays a call."""
        function = node.func
        if isinstance(function, ast.Attribute) and not name:
            inner = self.value(function.value)
            function = ast.Attribute(inner, function.attr, function.ctx)
            is_tile = self.scope.tile(inner) is not None or isinstance(inner, ast.Name)
            if function.attr == "broadcast_to" and is_tile and self.scope.function:
                sizes = ", ".join(
                    ast.unparse(self.value(argument)) for argument in node.args
                )
                return expression(
                    f"{self.nl('broadcast_to')}({ast.unparse(inner)}, {sizes})"
                )
        elif isinstance(function, ast.Subscript):
            function = self._subscript(function)
        change = self.of_numpy if name.startswith(("nl.", "nisa.")) else self.value
        arguments = [change(argument) for argument in node.args]
        keywords = [
            ast.keyword(keyword.arg, change(keyword.value)) for keyword in node.keywords
        ]
        if name == "nl.rand" and len(arguments) == 1 and not keywords:
            keywords.append(ast.keyword("dtype", expression(self.nl("float32"))))
        if name in MAKERS:
            arguments = [self._without_blocks(arg) for arg in arguments]
            keywords = [
                ast.keyword(k.arg, self._without_blocks(k.value)) for k in keywords
            ]
        return ast.Call(function, arguments, keywords)

    def _without_blocks(self, node: ast.expr) -> ast.expr:
        """Return a shape without ``par_dim``, with its block dimensions after the partitions."""
        if not isinstance(node, (ast.Tuple, ast.List)):
            return node
        for place, size in enumerate(node.elts):
            if (
                isinstance(size, ast.Call)
                and self.names.meant(size.func) == "nl.par_dim"
            ):
                if place and not self.scope.moves_blocks:
                    raise NotMechanicalError(*GONE["nl.par_dim"])
                others = [*node.elts[:place], *node.elts[place + 1 :]]
                return ast.Tuple([size.args[0], *others], ast.Load())
        return node

    def _operator(self, node: ast.BinOp, wish: str | None) -> ast.expr:
        if self.scope.grids.is_index(node):
            return node
        left = self.value(node.left)
        right = self.value(node.right)
        sides = [
            NewOperand(ast.unparse(side), self.scope.tile(side))
            for side in (left, right)
        ]
        if all(side.tile is None for side in sides):
            return ast.BinOp(left, node.op, right)
        name = OPERATORS.get(type(node.op).__name__)
        if name is None:
            raise NotMechanicalError(*OPERATOR)
        return expression(
            self.binary(name, sides[0], sides[1], ResultTarget(node, None, wish))
        )

    def _sign(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.value(node.operand)
        if self.scope.tile(operand) is None:
            return ast.UnaryOp(node.op, operand)
        if not isinstance(node.op, ast.USub):
            raise NotMechanicalError(*OPERATOR)
        return expression(f"{self.nl('negative')}({ast.unparse(operand)})")


def _is_new_axis(item: ast.expr) -> bool:
    return isinstance(item, ast.Constant) and item.value is None


class StatementWriter(ExpressionWriter):
    """A writer of one statement. Its new lines are in ``lines``."""

    def statement(self, node: ast.stmt) -> list[str] | None:
        """Return the lines that replace a statement, or None if it stays unchanged."""
        if (
            isinstance(node, ast.AnnAssign)
            and node.value is not None
            and self._is_typing(node)
        ):
            node = ast.Assign([node.target], node.value, lineno=1)
            return self.statement(node) or [ast.unparse(node)]
        if isinstance(node, ast.Assign):
            return self._assignment(node)
        if isinstance(node, ast.AugAssign):
            return self._update(node)
        if isinstance(node, ast.Expr) and self._is_call_of(node.value, "nl.store"):
            return self._store(node.value)
        if isinstance(node, (ast.Expr, ast.Return)) and node.value is not None:
            return self._with_value(node, self.value(node.value))
        return None

    def defines_grid(self, node: ast.stmt) -> bool:
        """Record the index or the mask that a statement names. Return False if there is none."""
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            return False
        [target], grids = node.targets, self.scope.grids
        if not grids.uses(node.value):
            return False
        if isinstance(target, ast.Name) and _is_mask(node.value):
            box(node.value, grids)
            grids.define(target.id, node.value)
            return True
        if not grids.is_index(node.value):
            return False
        grid = grids.defined(node.value)
        if isinstance(target, ast.Name) and grid is not None:
            grids.define(target.id, grid)
            return True
        names = [
            item.id
            for item in getattr(target, "elts", [])
            if isinstance(item, ast.Name)
        ]
        if not isinstance(grid, tuple) or len(names) != len(grid):
            return False
        for name, index in zip(names, grid, strict=True):
            grids.define(name, index)
        return True

    def _is_typing(self, node: ast.AnnAssign) -> bool:
        """Return whether an annotation is an NKI type."""
        return self.names.has_type(node.annotation)

    def _is_call_of(self, node: ast.expr | None, name: str) -> bool:
        return isinstance(node, ast.Call) and self.names.meant(node.func) == name

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
        callee = (
            self.names.meant(node.value.func)
            if isinstance(node.value, ast.Call)
            else None
        )
        if callee in INSTRUCTIONS and len(node.targets) != 1:
            raise NotMechanicalError(*SEVERAL)
        [target, *others] = node.targets
        if others:
            return self._with_value(node, self.value(node.value))
        if isinstance(target, ast.Name):
            return self._to_name(node, target.id)
        if isinstance(target, ast.Subscript):
            return self._to_place(node, target, callee)
        return self._with_value(node, self.value(node.value))

    def _to_name(self, node: ast.Assign, name: str) -> list[str] | None:
        self.scope.moves_blocks = name in self.scope.blocks
        value = self.value(node.value, name)
        self.scope.moves_blocks = False
        if isinstance(value, ast.Name) and value.id == name and self.lines:
            return self.lines
        return self._with_value(node, value)

    def _to_place(
        self, node: ast.Assign, target: ast.Subscript, callee: str | None
    ) -> list[str] | None:
        """Rewrite ``tile[...] = ...`` so that the value is written to the tile."""
        base = target.value
        index = target.slice
        tile = self.scope.tile(base)
        is_whole = isinstance(index, ast.Constant) and index.value is ...
        if tile is None and not (
            is_whole or isinstance(index, ast.Tuple)
        ):  # it may be a list
            if callee in INSTRUCTIONS:
                raise NotMechanicalError(*TARGET)
            return self._with_value(node, self.value(node.value))
        if isinstance(node.value, ast.Call) and self.computes(node.value):
            limits = self.limits(_keyword(node.value, "mask"))
            dst = self.operand(target, limits).text.removesuffix("[...]")
            if self.has_dtype(dst, self.dtype(_keyword(node.value, "dtype"))):
                self.computed(node.value, dst)
            else:  # round to the requested dtype first, then copy
                source = self.operand(node.value, limits)
                self.issue("nisa.tensor_copy", dst, {"src": source.text})
            return self.lines
        return self._into(node, self.operand(target).text.removesuffix("[...]"), tile)

    def _into(
        self, node: ast.Assign, dst: str, tile: KnownTile | None
    ) -> list[str] | None:
        """Write a tile, a number or a binary operation to a destination."""
        value = node.value
        if isinstance(value, ast.BinOp) and type(value.op).__name__ in OPERATORS:
            sides = [self.operand(side) for side in (value.left, value.right)]
            if any(side.tile is not None for side in sides):
                name = OPERATORS[type(value.op).__name__]
                self.binary(name, sides[0], sides[1], ResultTarget(value, dst))
                return self.lines
        if self.scope.is_integer(value) or _is_float(value):
            self.issue("nisa.memset", dst, {"value": ast.unparse(value)})
            return self.lines
        if self._is_call_of(value, "nl.matmul"):
            self._product(value, dst)  # type: ignore[arg-type]
            return self.lines
        source = self.operand(value)
        if source.tile is None and tile is None:
            raise NotMechanicalError(*OPERATOR)
        self.issue("nisa.tensor_copy", dst, {"src": source.text})
        return self.lines

    # -- updates ---------------------------------------------------------------------------------

    def _update(self, node: ast.AugAssign) -> list[str] | None:
        """Rewrite ``tile += ...`` as an update in place."""
        base = (
            node.target.value if isinstance(node.target, ast.Subscript) else node.target
        )
        is_product = isinstance(node.value, ast.Call) and (
            self.names.meant(node.value.func) in (MATMUL, "nl.matmul")
        )
        if is_product and isinstance(node.op, ast.Add):
            tile = self.scope.tile(base)
            if tile is None or not tile.is_zero or tile.buffer != "psum":
                raise NotMechanicalError(*SUM)
            dst = self.operand(node.target).text.removesuffix("[...]")
            self._product(node.value, dst)  # type: ignore[arg-type]
            return self.lines
        if self.scope.tile(base) is None:
            if (
                isinstance(node.value, ast.Call)
                and self.names.meant(node.value.func) in INSTRUCTIONS
            ):
                raise NotMechanicalError(*OPERATOR)
            return self._with_value(node, self.value(node.value))
        name = OPERATORS.get(type(node.op).__name__)
        if name is None:
            raise NotMechanicalError(*OPERATOR)
        place = self.operand(node.target)
        whole = NewOperand(place.text.removesuffix("[...]"), place.tile)
        self.binary(
            name, whole, self.operand(node.value), ResultTarget(node.value, whole.text)
        )
        return self.lines

    def _product(self, call: ast.Call, dst: str) -> None:
        """Write a matrix product that accumulates in PSUM."""
        if self.names.meant(call.func) == MATMUL:
            if _keyword(call, "dtype") is not None:
                raise NotMechanicalError(*CAST)
            self.instruction(call, ResultTarget(call, dst))
            return
        arguments = self.given(call)
        transposed = arguments.pop("transpose_x", None)
        if set(arguments) != {"x", "y"}:
            raise NotMechanicalError(*UNKNOWN_CALL)
        x = self.operand(arguments["x"]).text
        y = self.operand(arguments["y"]).text
        if transposed is None or ast.unparse(transposed) != "True":
            x = f"{self.nl('copy')}({self.nl('transpose')}({x}))"
        self.issue(MATMUL, dst, {"stationary": x, "moving": y})

    def _store(self, call: ast.expr) -> list[str]:
        """Rewrite ``nl.store`` as a DMA. A source in PSUM is copied to SBUF first."""
        assert isinstance(call, ast.Call)
        arguments = self.given(call)
        limits = self.limits(arguments.pop("mask", None))
        if set(arguments) != {"dst", "value"}:
            raise NotMechanicalError(*CAST)
        dst = self.operand(arguments["dst"], limits)
        source = self.in_sbuf(self.operand(arguments["value"], limits))
        self.issue("nisa.dma_copy", dst.text, {"src": source.text})
        return self.lines


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next(
        (keyword.value for keyword in call.keywords if keyword.arg == name), None
    )


def _is_mask(node: ast.expr) -> bool:
    """Return whether an expression is a comparison or a conjunction of comparisons."""
    conjunction = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd)
    return conjunction or isinstance(node, (ast.Compare, ast.BoolOp))


def _is_float(node: ast.expr) -> bool:
    """Return whether an expression is a floating-point literal, possibly with a sign."""
    if isinstance(node, ast.UnaryOp):
        return _is_float(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, float)
