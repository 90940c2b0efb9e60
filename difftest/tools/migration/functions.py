"""Rewrite classic calls that return a tile as an allocation and an instruction with ``dst``.

These include ``nl`` functions and operators between tiles. Both broadcast in the classic dialect.
"""

from __future__ import annotations

import ast
import inspect
from typing import NamedTuple

from difftest.simulator.frontend.nki import isa
from difftest.tools.migration.calls import (
    BINARY,
    BITWISE,
    ELEMENTWISE,
    INSTRUCTIONS,
    LIKE,
    NUMPY_OPS,
    PRODUCT,
    REDUCED,
    REDUCTIONS,
    SCALED,
    UNARY,
    VECTORS,
    CallInfo,
    positional,
)
from difftest.tools.migration.indices import EVERYTHING, ONE, MaskBox, Term
from difftest.tools.migration.operands import (
    NewOperand,
    OperandWriter,
    expression,
    written,
)
from difftest.tools.migration.rules import (
    BROADCAST,
    MASK,
    SHAPE,
    TILE_OR_NUMBER,
    UNKNOWN_CALL,
    NotMechanicalError,
)
from difftest.tools.migration.scope import KnownTile, Shape, axes_of, reduced
from difftest.tools.syntax import has_expansion, keywords_of

_LITERALS = (ast.Constant, ast.Tuple, ast.List)
OF_RESULT = ("shape", "dtype", "mask")
"""Arguments that describe the result and are not operands of the instruction."""


class ResultTarget(NamedTuple):
    """The destination, dtype and mask of a call's result.

    Attributes
    ----------
    source : the classic expression.
    dst : the destination. None to allocate a new tile.
    wish : the preferred name of the new tile.
    dtype : the requested dtype. None for the instruction's default.
    limits : the elements that the mask selects.
    """

    source: ast.expr
    dst: str | None = None
    wish: str | None = None
    dtype: str | None = None
    limits: MaskBox = EVERYTHING

    @property
    def is_value(self) -> bool:
        """Return whether a call of an ``nl`` function suffices: neither destination nor mask."""
        return self.dst is None and not self.is_masked

    @property
    def is_masked(self) -> bool:
        return self.limits is not EVERYTHING


class InstructionWriter(OperandWriter):
    """A writer of instruction calls."""

    def instruction(self, call: ast.Call, wanted: ResultTarget) -> str:
        """Write a call as an instruction and return the name of its destination."""
        meant = self.names.called(call)
        calling = INSTRUCTIONS[meant]
        name = calling.name or meant
        arguments = self.given(call)
        wanted = self.asked(wanted, arguments)
        if wanted.is_masked and calling.shape not in (LIKE, REDUCED):
            raise NotMechanicalError(MASK)
        if calling.first not in arguments:
            raise NotMechanicalError(UNKNOWN_CALL)
        operands = self._operands(name, arguments, wanted.limits)
        target = wanted.dst
        if target is None:
            target = self.fresh(wanted.wish, call, meant.split(".")[1])
            shape = arguments.get("shape")
            self._allocate_result(target, calling, operands, shape, wanted)
        texts = {role: operand.text for role, operand in operands.items()}
        return self.issued(name, texts, target, wanted)

    def _allocate_result(
        self,
        target: str,
        calling: CallInfo,
        operands: dict[str, NewOperand],
        shape: ast.expr | None,
        wanted: ResultTarget,
    ) -> None:
        """Write the allocation of an instruction's result. Operands that are calls get names."""
        buffer = self._buffer(calling, operands)
        self._name_calls(operands)
        if wanted.is_masked and operands[calling.first].shape is None:
            raise NotMechanicalError(MASK)
        sizes = ast.unparse(shape) if shape else self._shape(calling, operands)
        dtype = wanted.dtype or self._dtype(calling, operands)
        self.allocate(target, sizes, dtype, buffer)

    def _name_calls(self, operands: dict[str, NewOperand]) -> None:
        """Name the operands that are calls, because an allocation also reads their shapes."""
        for role, operand in operands.items():
            if role not in NUMPY_OPS and isinstance(expression(operand.text), ast.Call):
                source = self.named(operand.text, role)
                tile = self.scope.tile(expression(source))
                operands[role] = NewOperand(source, tile)

    def _dtype(self, calling: CallInfo, operands: dict[str, NewOperand]) -> str:
        """Return the default dtype of a result."""
        if calling.dtype:
            return self.nl(calling.dtype[3:])
        return self.dtype_of(operands[calling.first])

    def asked(
        self, wanted: ResultTarget, arguments: dict[str, ast.expr]
    ) -> ResultTarget:
        """Return ``wanted`` with the mask and the dtype of a call's arguments."""
        limits = self.limits(arguments.get("mask"))
        return wanted._replace(limits=limits, dtype=self.dtype(arguments.get("dtype")))

    def issued(
        self, name: str, operands: dict[str, str], target: str, wanted: ResultTarget
    ) -> str:
        """Write an instruction to a destination, or to the masked part of a new tile."""
        dst = wanted.dst or self.masked(target, wanted.limits)
        self.issue(name, dst, operands)
        return target

    def given(self, call: ast.Call) -> dict[str, ast.expr]:
        """Return the arguments of a call by parameter name."""
        parameters = positional(self.names.called(call))
        if len(call.args) > len(parameters) or has_expansion(call):
            raise NotMechanicalError(UNKNOWN_CALL)
        return dict(zip(parameters, call.args, strict=False)) | keywords_of(call)

    def _operands(
        self, name: str, arguments: dict[str, ast.expr], limits: MaskBox
    ) -> dict[str, NewOperand]:
        """Return the arguments in the current dialect, each sliced by the mask."""
        function = name.split(".")[1]
        taken = inspect.signature(getattr(isa, function)).parameters
        operands: dict[str, NewOperand] = {}
        for role, node in arguments.items():
            if role in OF_RESULT:
                continue
            if role not in taken:
                rule = f"{function} does not take {role}"
                raise NotMechanicalError((rule, "see `difftest api`"))
            if role in NUMPY_OPS:
                operands[role] = NewOperand(self.operator_name(node))
            elif role in VECTORS:
                op = arguments.get(f"op{role[-1]}")
                operands[role] = self._vector(node, op, limits)
            elif isinstance(node, _LITERALS) or self.names.meant(node):
                operands[role] = NewOperand(ast.unparse(node))  # no tensor
            else:
                operands[role] = self.operand(node, limits)
        return operands

    def _vector(
        self, node: ast.expr, op: ast.expr | None, limits: MaskBox
    ) -> NewOperand:
        """Return the operand for a number or a column. Arithmetic operators take it in float32."""
        is_part = isinstance(node, ast.Subscript)
        if not is_part and self.scope.tile(self.value(node)) is None:
            return self.operand(node)
        operand = self.operand(node, limits)
        name = "" if op is None else self.operator_name(op)
        if operand.tile is None or any(word in name for word in BITWISE):
            return operand
        return self.column(operand)

    def _buffer(self, calling: CallInfo, operands: dict[str, NewOperand]) -> str:
        """Return a result's buffer: the Tensor Engine writes to PSUM, the Vector Engine to SBUF."""
        if "engine" not in operands or calling.buffer == "sbuf":
            return calling.buffer
        engine = operands["engine"].text.rpartition(".")[2].removesuffix("_engine")
        if engine not in ("vector", "tensor"):
            raise NotMechanicalError(SHAPE)
        return "sbuf" if engine == "vector" else "psum"

    def _shape(self, calling: CallInfo, operands: dict[str, NewOperand]) -> str:
        first = operands[calling.first]
        if calling.shape == LIKE:
            return self.shape_of(first)
        if calling.shape == REDUCED:
            keeps = "keepdims" in operands and operands["keepdims"].text == "True"
            return self.reduced_shape(first, expression(operands["axis"].text), keeps)
        sizes: list[str] = []
        for role, dim in calling.sizes:
            sizes.append(self.size_of(operands[role], dim) if role else str(dim))
        if calling.shape == PRODUCT:
            moving = operands["moving"]
            if moving.shape is None:
                sizes.append(f"*{moving.text}.shape[1:]")
            else:
                sizes += map(Term.text, moving.shape[1:])
        return f"({', '.join(sizes)})"

    def reduced_shape(self, data: NewOperand, axis: ast.expr, keeps: bool) -> str:
        """Return the shape of a reduction along the last axes, as an expression."""
        shape = reduced(data.shape, axis, keeps)
        if shape is not None:
            return written(shape)
        axes = axes_of(axis)
        if axes is None or keeps or min(axes) < 1:
            raise NotMechanicalError(SHAPE)
        if min(axes) == 1:
            return f"({data.text}.shape[0], 1)"
        return f"{data.text}.shape[:{min(axes)}]"


class FunctionWriter(InstructionWriter):
    """A writer of calls that compute a tile."""

    def computed(
        self, call: ast.Call, dst: str | None = None, wish: str | None = None
    ) -> str:
        """Rewrite a computing call and return the expression of its result."""
        name = self.names.called(call)
        wanted = ResultTarget(call, dst, wish)
        if name == "nisa.tensor_tensor":
            return self._two_tiles(call, wanted)
        if name in INSTRUCTIONS:
            return self.instruction(call, wanted)
        return self._function(call, wanted)

    def computes(self, call: ast.expr) -> bool:
        """Return whether an expression is a call that :meth:`computed` may rewrite."""
        name = self.names.called(call)
        return name in INSTRUCTIONS or name in ELEMENTWISE or name in REDUCTIONS

    def _function(self, call: ast.Call, wanted: ResultTarget) -> str:
        """Rewrite a call of an ``nl`` function."""
        name = self.names.called(call)
        nodes = self.given(call)
        wanted = self.asked(wanted, nodes)
        for role in ("mask", "dtype"):
            nodes.pop(role, None)
        if name in REDUCTIONS:
            return self._reduction(name, nodes, wanted)
        roles = ["x", "y"] if name in BINARY else ["x"]
        if sorted(nodes) != roles:
            raise NotMechanicalError(UNKNOWN_CALL)
        operand, *others = [self.operand(nodes[role], wanted.limits) for role in roles]
        if others:
            return self.binary(name[3:], operand, others[0], wanted)
        if wanted.is_value:
            return self._called(name[3:], wanted, operand)
        if name not in UNARY:
            raise NotMechanicalError(SHAPE)
        operands = {"op": self.nl(name[3:]), "data": operand.text}
        return self._like("nisa.activation", operands, operand, wanted, name[3:])

    def _called(self, name: str, wanted: ResultTarget, *operands: NewOperand) -> str:
        """Return the call of an ``nl`` function of the current dialect."""
        texts = [operand.text for operand in operands]
        if wanted.dtype:
            texts.append(f"dtype={wanted.dtype}")
        return f"{self.nl(name)}({', '.join(texts)})"

    def _two_tiles(self, call: ast.Call, wanted: ResultTarget) -> str:
        """Rewrite ``nisa.tensor_tensor``. With a column it becomes ``tensor_scalar``.

        ``tensor_tensor`` of the current dialect does not broadcast a column.
        """
        arguments = self.given(call)
        has_operands = {"data1", "data2", "op"} <= arguments.keys()
        if not has_operands or {"mask", "engine"} & arguments.keys():
            return self.instruction(call, wanted)
        is_column = self._is_column(arguments["data1"])
        name = self.operator_name(arguments["op"]).rpartition(".")[2]
        if is_column == self._is_column(arguments["data2"]) or name not in SCALED:
            return self.instruction(call, wanted)
        left = self.operand(arguments["data1"])
        right = self.operand(arguments["data2"])
        wanted = self.asked(wanted, arguments)
        tile, column = (right, left) if is_column else (left, right)
        return self._scaled(name, tile, column, tile is right, wanted)

    def _is_column(self, node: ast.expr) -> bool:
        """Return whether a named tile surely has one element in each partition."""
        is_named = isinstance(node, (ast.Name, ast.Subscript))
        return is_named and self.operand(node).is_scalar

    def _like(
        self,
        name: str,
        operands: dict[str, str],
        like: NewOperand,
        wanted: ResultTarget,
        wish: str,
    ) -> str:
        """Write an instruction whose result has the shape of an operand."""
        if wanted.dst is not None:
            return self.issued(name, operands, wanted.dst, wanted)
        if wanted.is_masked and like.shape is None:
            raise NotMechanicalError(MASK)
        target = self.fresh(wanted.wish, wanted.source, wish)
        self.allocate(target, self.shape_of(like), wanted.dtype or self.dtype_of(like))
        return self.issued(name, operands, target, wanted)

    def _reduction(
        self, name: str, arguments: dict[str, ast.expr], wanted: ResultTarget
    ) -> str:
        """Rewrite ``nl.sum(x, axis=...)`` and other reductions, with the reduced axes last."""
        if not {"x", "axis"} <= arguments.keys():
            raise NotMechanicalError(UNKNOWN_CALL)
        data = self.operand(arguments.pop("x"), wanted.limits)
        data, words = self._with_axes_last(data, arguments.pop("axis"))
        others = {
            role: ast.unparse(self.value(value)) for role, value in arguments.items()
        }
        if wanted.is_value:
            if wanted.dtype:
                others["dtype"] = wanted.dtype
            end = "".join(f", {role}={text}" for role, text in others.items())
            return f"{self.nl(name[3:])}({data.text}, axis={words}{end})"
        operator = REDUCTIONS[name]
        if operator is None:
            raise NotMechanicalError(MASK)
        target = wanted.dst
        if target is None:
            keeps = others.get("keepdims") == "True"
            shape = self.reduced_shape(data, expression(words), keeps)
            target = self.fresh(wanted.wish, wanted.source, name[3:])
            self.allocate(target, shape, wanted.dtype or self.dtype_of(data))
        operands = {"op": self.nl(operator), "data": data.text, "axis": words}
        return self.issued("nisa.tensor_reduce", operands | others, target, wanted)

    def binary(
        self, name: str, left: NewOperand, right: NewOperand, wanted: ResultTarget
    ) -> str:
        """Rewrite ``left <op> right`` for at least one tile, and broadcast the smaller operand."""
        wanted = self._widened(left, right, wanted)
        if left.tile is None or right.tile is None:
            return self._with_number(name, left, right, wanted)
        shape = _joined(left.shape, right.shape)
        if shape is not None:
            column, tile = (left, right) if left.shape != shape else (right, left)
            if name in SCALED and _is_column_of(column, tile):
                return self._scaled(name, tile, column, tile is right, wanted)
            left = self._spread(left, shape, wanted)
            right = self._spread(right, shape, wanted)
        if wanted.is_value:
            return self._called(name, wanted, left, right)
        operands = {"data1": left.text, "data2": right.text, "op": self.nl(name)}
        return self._like("nisa.tensor_tensor", operands, left, wanted, name)

    def _widened(
        self, left: NewOperand, right: NewOperand, wanted: ResultTarget
    ) -> ResultTarget:
        """Return ``wanted`` in float32 if the second operand is, and the first is narrower."""
        float32 = self.nl("float32")
        if left.tile is None or wanted.dtype:
            return wanted
        is_narrower = right.dtype == float32 != left.dtype
        return wanted._replace(dtype=float32) if is_narrower else wanted

    def _with_number(
        self, name: str, left: NewOperand, right: NewOperand, wanted: ResultTarget
    ) -> str:
        """Rewrite an operation on a tile and an operand that is not known to be a tile.

        In the classic dialect a non-integer number makes the result float32.
        """
        tile, number = (right, left) if left.tile is None else (left, right)
        float32 = self.nl("float32")
        is_open = wanted.dtype is None and wanted.dst is None and tile.dtype != float32
        if is_open and not self.scope.is_integer(expression(number.text)):
            wanted = wanted._replace(dtype=float32)
        if wanted.is_value:
            return self._called(name, wanted, left, right)
        if not isinstance(expression(number.text), ast.Constant):
            raise NotMechanicalError(TILE_OR_NUMBER)
        return self._scaled(name, tile, number, tile is right, wanted)

    def _scaled(
        self,
        name: str,
        tile: NewOperand,
        other: NewOperand,
        is_reversed: bool,
        wanted: ResultTarget,
    ) -> str:
        """Write ``tensor_scalar`` on a tile and a column or a number."""
        if other.is_scalar:
            other = NewOperand(other.text.partition(".expand_dim(")[0], other.tile)
        if other.tile is not None:
            other = self.column(other)
        operands = {"data": tile.text, "op0": self.nl(name), "operand0": other.text}
        if is_reversed and name in ("subtract", "divide"):
            operands["reverse0"] = "True"
        return self._like("nisa.tensor_scalar", operands, tile, wanted, name)

    def _spread(
        self, side: NewOperand, shape: Shape, wanted: ResultTarget
    ) -> NewOperand:
        """Broadcast an operand to the shape of the result."""
        if side.shape == shape:
            return side
        if wanted.is_masked:
            raise NotMechanicalError(BROADCAST)
        text = f"{self.nl('broadcast_to')}({side.text}, {written(shape)})"
        return NewOperand(text, KnownTile(shape, side.dtype, "sbuf"))

    def _with_axes_last(
        self, data: NewOperand, axis: ast.expr
    ) -> tuple[NewOperand, str]:
        """Return a view whose reduced axes are last, and the axes, as reductions now require."""
        axes = axes_of(axis)
        if axes is None:
            return data, ast.unparse(self.value(axis))
        shape = data.shape
        if shape is not None:
            reduced = sorted(dim % len(shape) for dim in axes)
            others = [dim for dim in range(len(shape)) if dim not in reduced]
            axes = list(range(len(others), len(shape)))
            if reduced != axes:
                order = others + reduced
                text = f"{data.text}.permute(({', '.join(map(str, order))}))"
                sizes = tuple(shape[dim] for dim in order)
                source = data.tile or KnownTile()
                data = NewOperand(text, KnownTile(sizes, source.dtype, source.buffer))
        if len(axes) == 1:
            return data, str(axes[0])
        return data, f"({', '.join(map(str, axes))})"


def _joined(left: Shape | None, right: Shape | None) -> Shape | None:
    """Return the shape that two shapes broadcast to, or None if neither needs broadcasting."""
    if left is None or right is None:
        return None
    if len(left) != len(right):
        raise NotMechanicalError(BROADCAST)
    pairs = list(zip(left, right, strict=True))
    if not any((size == ONE) != (other == ONE) for size, other in pairs):
        return None
    return tuple(other if size == ONE else size for size, other in pairs)


def _is_column_of(column: NewOperand, tile: NewOperand) -> bool:
    """Return whether an operand is one column of another operand's partitions."""
    if column.shape is None or tile.shape is None or not column.is_scalar:
        return False
    return column.shape != tile.shape and column.shape[:1] == tile.shape[:1]
