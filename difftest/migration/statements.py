"""Statements of the classic dialect in today's words."""

from __future__ import annotations

import ast

from difftest.migration.calls import INSTRUCTIONS, MATMUL, OPERATORS
from difftest.migration.expressions import ExpressionWriter
from difftest.migration.instructions import Wanted
from difftest.migration.masks import box
from difftest.migration.operands import NewOperand
from difftest.migration.rules import (
    CAST,
    OPERATOR,
    SEVERAL,
    SUM,
    TARGET,
    UNKNOWN_CALL,
    NotMechanicalError,
)
from difftest.migration.scope import KnownTile


class StatementWriter(ExpressionWriter):
    """One statement; its new lines are in ``lines``."""

    def statement(self, node: ast.stmt) -> list[str] | None:
        """The lines that a statement becomes; None if it stays as it is."""
        if isinstance(node, ast.AnnAssign) and node.value is not None and self._is_typing(node):
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
        """Note the index or the mask that a statement gives a name; False if it is no such."""
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
        names = [one.id for one in getattr(target, "elts", []) if isinstance(one, ast.Name)]
        if not isinstance(grid, tuple) or len(names) != len(grid):
            return False
        for name, index in zip(names, grid, strict=True):
            grids.define(name, index)
        return True

    def _is_typing(self, node: ast.AnnAssign) -> bool:
        """Whether an annotation is one of NKI's types."""
        named = node.annotation
        if isinstance(named, ast.Subscript):
            named = named.value
        return (self.names.meant(named) or "").startswith("nt.")

    def _is_call_of(self, node: ast.expr | None, name: str) -> bool:
        return isinstance(node, ast.Call) and self.names.meant(node.func) == name

    def _with_value(self, node: ast.stmt, value: ast.expr) -> list[str] | None:
        """The statement with another value."""
        old = node.value  # type: ignore[attr-defined]
        if not self.lines and ast.unparse(value) == ast.unparse(old):
            return None
        node.value = value  # type: ignore[attr-defined]
        self.emit(ast.unparse(ast.fix_missing_locations(node)))
        return self.lines

    # -- assignments -----------------------------------------------------------------------------

    def _assignment(self, node: ast.Assign) -> list[str] | None:
        made = self.names.meant(node.value.func) if isinstance(node.value, ast.Call) else None
        if made in INSTRUCTIONS and len(node.targets) != 1:
            raise NotMechanicalError(*SEVERAL)
        [target, *others] = node.targets
        if others:
            return self._with_value(node, self.value(node.value))
        if isinstance(target, ast.Name):
            return self._to_name(node, target.id)
        if isinstance(target, ast.Subscript):
            return self._to_place(node, target, made)
        return self._with_value(node, self.value(node.value))

    def _to_name(self, node: ast.Assign, name: str) -> list[str] | None:
        self.scope.moves_blocks = name in self.scope.blocks
        value = self.value(node.value, name)
        self.scope.moves_blocks = False
        if isinstance(value, ast.Name) and value.id == name and self.lines:
            return self.lines
        return self._with_value(node, value)

    def _to_place(
        self, node: ast.Assign, target: ast.Subscript, made: str | None
    ) -> list[str] | None:
        """``tile[...] = ...``: what is computed is written there."""
        base = target.value
        known = self.scope.tile(base)
        if known is None and not _is_of_tile(target):
            if made in INSTRUCTIONS:
                raise NotMechanicalError(*TARGET)
            return self._with_value(node, self.value(node.value))
        if isinstance(node.value, ast.Call) and self.computes(node.value):
            limits = self.limits(_keyword(node.value, "mask"))
            dst = self.operand(target, limits).text.removesuffix("[...]")
            if self.has_dtype(dst, self.dtype(_keyword(node.value, "dtype"))):
                self.computed(node.value, dst)
            else:  # rounded to its dtype before it is put
                source = self.operand(node.value, limits)
                self.issue("nisa.tensor_copy", dst, {"src": source.text})
            return self.lines
        dst = self.operand(target).text.removesuffix("[...]")
        return self._into(node, dst, known)

    def _into(self, node: ast.Assign, dst: str, known: KnownTile | None) -> list[str] | None:
        """A tile, a number or a sum, put at a place in a tile."""
        value = node.value
        if isinstance(value, ast.BinOp) and type(value.op).__name__ in OPERATORS:
            sides = [self.operand(one) for one in (value.left, value.right)]
            if any(side.tile is not None for side in sides):
                name = OPERATORS[type(value.op).__name__]
                self.binary(name, sides[0], sides[1], Wanted(value, dst))
                return self.lines
        if self.scope.is_integer(value) or _is_float(value):
            self.issue("nisa.memset", dst, {"value": ast.unparse(value)})
            return self.lines
        if self._is_call_of(value, "nl.matmul"):
            self._product(value, dst)  # type: ignore[arg-type]
            return self.lines
        source = self.operand(value)
        if source.tile is None and known is None:
            raise NotMechanicalError(*OPERATOR)
        self.issue("nisa.tensor_copy", dst, {"src": source.text})
        return self.lines

    # -- updates ---------------------------------------------------------------------------------

    def _update(self, node: ast.AugAssign) -> list[str] | None:
        """``tile += ...``, in place."""
        base = node.target.value if isinstance(node.target, ast.Subscript) else node.target
        is_product = isinstance(node.value, ast.Call) and (
            self.names.meant(node.value.func) in (MATMUL, "nl.matmul")
        )
        if is_product and isinstance(node.op, ast.Add):
            known = self.scope.tile(base)
            if known is None or not known.is_zero or known.buffer != "psum":
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
        self.binary(name, whole, self.operand(node.value), Wanted(node.value, whole.text))
        return self.lines

    def _product(self, call: ast.Call, dst: str) -> None:
        """A matrix product, accumulated in PSUM."""
        if self.names.meant(call.func) == MATMUL:
            if _keyword(call, "dtype") is not None:
                raise NotMechanicalError(*CAST)
            self.instruction(call, Wanted(call, dst))
            return
        given = self.given(call)
        turned = given.pop("transpose_x", None)
        if set(given) != {"x", "y"}:
            raise NotMechanicalError(*UNKNOWN_CALL)
        x, y = self.operand(given["x"]).text, self.operand(given["y"]).text
        if turned is None or ast.unparse(turned) != "True":
            x = f"{self.nl('copy')}({self.nl('transpose')}({x}))"
        self.issue(MATMUL, dst, {"stationary": x, "moving": y})

    def _store(self, call: ast.expr) -> list[str]:
        """``nl.store``: a DMA, which does not read PSUM."""
        assert isinstance(call, ast.Call)
        given = self.given(call)
        limits = self.limits(given.pop("mask", None))
        if set(given) != {"dst", "value"}:
            raise NotMechanicalError(*CAST)
        dst = self.operand(given["dst"], limits)
        source = self.in_sbuf(self.operand(given["value"], limits))
        self.issue("nisa.dma_copy", dst.text, {"src": source.text})
        return self.lines


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


def _is_of_tile(target: ast.Subscript) -> bool:
    """Whether an index is one that lists do not have: of several axes, or an ellipsis."""
    index = target.slice
    return isinstance(index, ast.Tuple) or (isinstance(index, ast.Constant) and index.value is ...)


def _is_mask(node: ast.expr) -> bool:
    """Whether an expression is a comparison or a conjunction of them."""
    conjunction = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd)
    return conjunction or isinstance(node, (ast.Compare, ast.BoolOp))


def _is_float(node: ast.expr) -> bool:
    """Whether an expression is a number with a point, of either sign."""
    if isinstance(node, ast.UnaryOp):
        return _is_float(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, float)
