"""Expressions of the classic dialect in today's words."""

from __future__ import annotations

import ast

from difftest.migration import views
from difftest.migration.calls import MAKERS, OPERATORS, RANGES
from difftest.migration.functions import FunctionWriter
from difftest.migration.instructions import Wanted
from difftest.migration.masks import EVERYTHING
from difftest.migration.operands import NewOperand, expression
from difftest.migration.rules import GONE, MASK, NEW_AXIS, OPERATOR, NotMechanicalError


class ExpressionWriter(FunctionWriter):
    """Any expression; comprehensions, conditions and the like are left as they are."""

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
            return node if own else ast.Attribute(self.value(node.value), node.attr, node.ctx)
        if isinstance(node, (ast.Tuple, ast.List)):
            return type(node)([self.value(one) for one in node.elts], node.ctx)
        if isinstance(node, ast.Starred):
            return ast.Starred(self.value(node.value), node.ctx)
        return node

    def _subscript(self, node: ast.Subscript) -> ast.expr:
        grids = self.scope.grids
        if grids.uses(node.value):
            return node
        items, base = self.items(node), self.value(node.value)
        if any(grids.uses(item) for item in items):
            return expression(views.view(ast.unparse(base), items, grids, EVERYTHING)[0])
        if any(_is_new_axis(item) for item in items):
            return expression(self._expanded(ast.unparse(base), items))
        if isinstance(node.slice, ast.Tuple):
            return ast.Subscript(base, ast.Tuple(items, ast.Load()), node.ctx)
        return ast.Subscript(base, items[0], node.ctx)

    def _expanded(self, base: str, items: list[ast.expr]) -> str:
        """``t[:, 0:1, None]`` as ``t[:, 0:1].expand_dim(2)``."""
        kept: list[str] = []
        places: list[int] = []
        for item in items:
            if _is_new_axis(item):
                places.append(len(kept) + len(places))
            elif isinstance(item, ast.Slice):
                kept.append(ast.unparse(item))
            else:
                raise NotMechanicalError(*NEW_AXIS)
        return f"{base}[{', '.join(kept)}]" + "".join(f".expand_dim({n})" for n in places)

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
        if name.startswith(("nl.", "nisa.")) and any(one.arg == "mask" for one in node.keywords):
            raise NotMechanicalError(*MASK)
        return self._plain_call(node, name)

    def _plain_call(self, node: ast.Call, name: str) -> ast.expr:
        """A call that stays one, with its arguments in today's words."""
        function = node.func
        if isinstance(function, ast.Attribute) and not name:
            inner = self.value(function.value)
            function = ast.Attribute(inner, function.attr, function.ctx)
            is_tile = self.scope.tile(inner) is not None or isinstance(inner, ast.Name)
            if function.attr == "broadcast_to" and is_tile and self.scope.function:
                sizes = ", ".join(ast.unparse(self.value(one)) for one in node.args)
                return expression(f"{self.nl('broadcast_to')}({ast.unparse(inner)}, {sizes})")
        elif isinstance(function, ast.Subscript):
            function = self._subscript(function)
        change = self.of_numpy if name.startswith(("nl.", "nisa.")) else self.value
        arguments = [change(one) for one in node.args]
        keywords = [ast.keyword(one.arg, change(one.value)) for one in node.keywords]
        if name == "nl.rand" and len(arguments) == 1 and not keywords:
            keywords.append(ast.keyword("dtype", expression(self.nl("float32"))))
        if name in MAKERS:
            arguments = [self._without_blocks(one) for one in arguments]
            keywords = [ast.keyword(k.arg, self._without_blocks(k.value)) for k in keywords]
        return ast.Call(function, arguments, keywords)

    def _without_blocks(self, node: ast.expr) -> ast.expr:
        """A shape without ``par_dim``, its block dimensions behind the partitions."""
        if not isinstance(node, (ast.Tuple, ast.List)):
            return node
        for place, size in enumerate(node.elts):
            if isinstance(size, ast.Call) and self.names.meant(size.func) == "nl.par_dim":
                if place and not self.scope.moves_blocks:
                    raise NotMechanicalError(*GONE["nl.par_dim"])
                others = [*node.elts[:place], *node.elts[place + 1 :]]
                return ast.Tuple([size.args[0], *others], ast.Load())
        return node

    def _operator(self, node: ast.BinOp, wish: str | None) -> ast.expr:
        if self.scope.grids.is_index(node):
            return node
        left, right = self.value(node.left), self.value(node.right)
        sides = [NewOperand(ast.unparse(one), self.scope.tile(one)) for one in (left, right)]
        if all(side.tile is None for side in sides):
            return ast.BinOp(left, node.op, right)
        name = OPERATORS.get(type(node.op).__name__)
        if name is None:
            raise NotMechanicalError(*OPERATOR)
        return expression(self.binary(name, sides[0], sides[1], Wanted(node, None, wish)))

    def _sign(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.value(node.operand)
        if self.scope.tile(operand) is None:
            return ast.UnaryOp(node.op, operand)
        if not isinstance(node.op, ast.USub):
            raise NotMechanicalError(*OPERATOR)
        return expression(f"{self.nl('negative')}({ast.unparse(operand)})")


def _is_new_axis(item: ast.expr) -> bool:
    return isinstance(item, ast.Constant) and item.value is None
