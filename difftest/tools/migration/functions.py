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
from difftest.tools.migration.indices import EVERYTHING, ONE, MaskBox
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
        return self.dst is None and self.limits is EVERYTHING


class InstructionWriter(OperandWriter):
    """A writer of instruction calls."""

    def instruction(self, call: ast.Call, wanted: ResultTarget) -> str:
        """Write a call as an instruction and return the name of its destination."""
        meant = self.names.meant(call.func) or ""
        calling = INSTRUCTIONS[meant]
        name = calling.name or meant
        arguments = self.given(call)
        wanted = self.asked(wanted, arguments)
        if wanted.limits is not EVERYTHING and calling.shape not in (LIKE, REDUCED):
            raise NotMechanicalError(*MASK)
        if calling.first not in arguments:
            raise NotMechanicalError(*UNKNOWN_CALL)
        operands = self._operands(name, arguments, wanted.limits)
        target = wanted.dst or self.fresh(wanted.wish, call, meant.split(".")[1])
        if wanted.dst is None:
            buffer = self._buffer(calling, operands)
            for role, operand in operands.items():
                if (
                    isinstance(expression(operand.text), ast.Call)
                    and role not in NUMPY_OPS
                ):
                    source = self.named(operand.text, role)
                    operands[role] = NewOperand(
                        source, self.scope.tile(expression(source))
                    )
            first = operands[calling.first]
            shape = arguments.get("shape")
            if wanted.limits is not EVERYTHING and first.shape is None:
                raise NotMechanicalError(*MASK)
            sizes = ast.unparse(shape) if shape else self._shape(calling, operands)
            own = self.nl(calling.dtype[3:]) if calling.dtype else None
            self.allocate(
                target, sizes, wanted.dtype or own or self.dtype_of(first), buffer
            )
        return self.issued(
            name, {key: side.text for key, side in operands.items()}, target, wanted
        )

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
        self.issue(name, wanted.dst or self.masked(target, wanted.limits), operands)
        return target

    def given(self, call: ast.Call) -> dict[str, ast.expr]:
        """Return the arguments of a call by parameter name."""
        parameters = positional(self.names.meant(call.func) or "")
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        starred = starred or any(keyword.arg is None for keyword in call.keywords)
        if len(call.args) > len(parameters) or starred:
            raise NotMechanicalError(*UNKNOWN_CALL)
        arguments = dict(zip(parameters, call.args, strict=False))
        return arguments | {
            str(keyword.arg): keyword.value for keyword in call.keywords
        }

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
                raise NotMechanicalError(
                    f"{function} does not take {role}", "see `difftest api`"
                )
            if role in NUMPY_OPS:
                operands[role] = NewOperand(self.operator_name(node))
            elif role in VECTORS:
                operands[role] = self._vector(
                    node, arguments.get(f"op{role[-1]}"), limits
                )
            elif isinstance(
                node, (ast.Constant, ast.Tuple, ast.List)
            ) or self.names.meant(node):
                operands[role] = NewOperand(ast.unparse(node))  # no tensor
            else:
                operands[role] = self.operand(node, limits)
        return operands

    def _vector(
        self, node: ast.expr, op: ast.expr | None, limits: MaskBox
    ) -> NewOperand:
        """Return the operand for a number or a column. Arithmetic operators take it in float32."""
        if self.scope.tile(self.value(node)) is None and not isinstance(
            node, ast.Subscript
        ):
            return self.operand(node)
        operand = self.operand(node, limits)
        on_bits = op is not None and any(
            word in self.operator_name(op) for word in BITWISE
        )
        return operand if operand.tile is None or on_bits else self.column(operand)

    def _buffer(self, calling: CallInfo, operands: dict[str, NewOperand]) -> str:
        """Return a result's buffer: the Tensor Engine writes to PSUM, the Vector Engine to SBUF."""
        if "engine" not in operands or calling.buffer == "sbuf":
            return calling.buffer
        engine = operands["engine"].text.rpartition(".")[2].removesuffix("_engine")
        if engine not in ("vector", "tensor"):
            raise NotMechanicalError(*SHAPE)
        return "sbuf" if engine == "vector" else "psum"

    def _shape(self, calling: CallInfo, operands: dict[str, NewOperand]) -> str:
        first = operands[calling.first]
        if calling.shape == LIKE:
            return self.shape_of(first)
        if calling.shape == REDUCED:
            keeps = "keepdims" in operands and operands["keepdims"].text == "True"
            return self.reduced_shape(first, expression(operands["axis"].text), keeps)
        sizes = [
            self.size_of(operands[role], dim) if role else str(dim)
            for role, dim in calling.sizes
        ]
        if calling.shape == PRODUCT:
            moving = operands["moving"]
            if moving.shape is None:
                sizes.append(f"*{moving.text}.shape[1:]")
            else:
                sizes += [size.text() for size in moving.shape[1:]]
        return f"({', '.join(sizes)})"

    def reduced_shape(self, data: NewOperand, axis: ast.expr, keeps: bool) -> str:
        """Return the shape of a reduction along the last axes, as an expression."""
        shape = reduced(data.shape, axis, keeps)
        if shape is not None:
            return written(shape)
        axes = axes_of(axis)
        if axes is None or keeps or min(axes) < 1:
            raise NotMechanicalError(*SHAPE)
        if min(axes) == 1:
            return f"({data.text}.shape[0], 1)"
        return f"{data.text}.shape[:{min(axes)}]"


class FunctionWriter(InstructionWriter):
    """A writer of calls that compute a tile."""

    def computed(
        self, call: ast.Call, dst: str | None = None, wish: str | None = None
    ) -> str:
        """Rewrite a computing call and return the expression of its result."""
        name = self.names.meant(call.func) or ""
        wanted = ResultTarget(call, dst, wish)
        if name == "nisa.tensor_tensor":
            return self._two_tiles(call, wanted)
        return (self.instruction if name in INSTRUCTIONS else self._function)(
            call, wanted
        )

    def computes(self, call: ast.expr) -> bool:
        """Return whether an expression is a call that :meth:`computed` may rewrite."""
        name = self.names.meant(call.func) if isinstance(call, ast.Call) else None
        return name in INSTRUCTIONS or name in ELEMENTWISE or name in REDUCTIONS

    def _function(self, call: ast.Call, wanted: ResultTarget) -> str:
        """Rewrite a call of an ``nl`` function."""
        name = self.names.meant(call.func) or ""
        nodes = self.given(call)
        wanted = self.asked(wanted, nodes)
        nodes = {
            role: node for role, node in nodes.items() if role not in ("mask", "dtype")
        }
        roles: tuple[str, ...]
        if name in BINARY:
            roles = ("x", "y")
        elif name in REDUCTIONS:
            roles = ("x", "axis")
        else:
            roles = ("x",)
        if not set(roles) <= set(nodes):
            raise NotMechanicalError(*UNKNOWN_CALL)
        if name in BINARY and len(nodes) == 2:
            sides = [self.operand(nodes[role], wanted.limits) for role in roles]
            return self.binary(name[3:], sides[0], sides[1], wanted)
        operand = self.operand(nodes.pop("x"), wanted.limits)
        if name in REDUCTIONS:
            return self._reduction(name, operand, nodes, wanted)
        if nodes:
            raise NotMechanicalError(*UNKNOWN_CALL)
        if wanted.is_value:
            return self._called(name[3:], wanted, operand)
        if name not in UNARY:
            raise NotMechanicalError(*SHAPE)
        operands = {"op": self.nl(name[3:]), "data": operand.text}
        return self._like("nisa.activation", operands, operand, wanted, name[3:])

    def _called(self, name: str, wanted: ResultTarget, *operands: NewOperand) -> str:
        """Return the call of an ``nl`` function of the current dialect."""
        end = [f"dtype={wanted.dtype}"] if wanted.dtype else []
        return f"{self.nl(name)}({', '.join([*(operand.text for operand in operands), *end])})"

    def _two_tiles(self, call: ast.Call, wanted: ResultTarget) -> str:
        """Rewrite ``nisa.tensor_tensor``. With a column it becomes ``tensor_scalar``.

        ``tensor_tensor`` of the current dialect does not broadcast a column.
        """
        arguments = self.given(call)
        if {"mask", "engine"} & set(arguments) or not {"data1", "data2", "op"} <= set(
            arguments
        ):
            return self.instruction(call, wanted)
        sides = (arguments[role] for role in ("data1", "data2"))
        named = (ast.Name, ast.Subscript)
        marked = [
            isinstance(side, named) and self.operand(side).is_scalar for side in sides
        ]
        name = self.operator_name(arguments["op"]).rpartition(".")[2]
        if marked[0] == marked[1] or name not in SCALED:
            return self.instruction(call, wanted)
        left, right = (self.operand(arguments[role]) for role in ("data1", "data2"))
        wanted = self.asked(wanted, arguments)
        tile, column = (right, left) if marked[0] else (left, right)
        return self._scaled(name, tile, column, tile is right, wanted)

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
        if wanted.limits is not EVERYTHING and like.shape is None:
            raise NotMechanicalError(*MASK)
        target = self.fresh(wanted.wish, wanted.source, wish)
        self.allocate(target, self.shape_of(like), wanted.dtype or self.dtype_of(like))
        return self.issued(name, operands, target, wanted)

    def _reduction(
        self,
        name: str,
        data: NewOperand,
        arguments: dict[str, ast.expr],
        wanted: ResultTarget,
    ) -> str:
        """Rewrite ``nl.sum(x, axis=...)`` and other reductions, with the reduced axes last."""
        axis = arguments.pop("axis")
        axes = axes_of(axis)
        if axes is not None and data.shape is not None:
            data, axes = _with_axes_last(
                data, [number % len(data.shape) for number in axes]
            )
        words = ast.unparse(self.value(axis))
        if axes is not None:
            words = str(axes[0]) if len(axes) == 1 else f"({', '.join(map(str, axes))})"
        others = {
            role: ast.unparse(self.value(value)) for role, value in arguments.items()
        }
        if wanted.is_value:
            others |= {"dtype": wanted.dtype} if wanted.dtype else {}
            end = "".join(f", {role}={text}" for role, text in others.items())
            return f"{self.nl(name[3:])}({data.text}, axis={words}{end})"
        operator = REDUCTIONS[name]
        if operator is None:
            raise NotMechanicalError(*MASK)
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
        float32 = self.nl("float32")
        dtypes = [
            None if side.tile is None else side.tile.dtype for side in (left, right)
        ]
        if not wanted.dtype and left.tile and dtypes[1] == float32 != dtypes[0]:
            wanted = wanted._replace(dtype=float32)  # the first operand may be narrower
        if left.tile is None or right.tile is None:
            return self._with_number(name, left, right, wanted)
        shape = _joined(left.shape, right.shape)
        if shape is not None:
            column, tile = (left, right) if left.shape != shape else (right, left)
            fits = tile.shape == shape and column.shape != shape and column.is_scalar
            if fits and name in SCALED and (column.shape or ())[:1] == shape[:1]:
                return self._scaled(name, tile, column, tile is right, wanted)
            left, right = (self._spread(side, shape, wanted) for side in (left, right))
        if wanted.is_value:
            return self._called(name, wanted, left, right)
        operands = {"data1": left.text, "data2": right.text, "op": self.nl(name)}
        return self._like("nisa.tensor_tensor", operands, left, wanted, name)

    def _with_number(
        self, name: str, left: NewOperand, right: NewOperand, wanted: ResultTarget
    ) -> str:
        """Rewrite an operation on a tile and an operand that is not known to be a tile.

        In the classic dialect a non-integer number makes the result float32.
        """
        tile, number = (right, left) if left.tile is None else (left, right)
        float32 = self.nl("float32")
        dtype = tile.tile and tile.tile.dtype
        if wanted.dtype is None and dtype != float32 and wanted.dst is None:
            is_integer = self.scope.is_integer(expression(number.text))
            wanted = wanted._replace(dtype=None if is_integer else float32)
        if wanted.is_value:
            return self._called(name, wanted, left, right)
        if not isinstance(expression(number.text), ast.Constant):
            raise NotMechanicalError(*TILE_OR_NUMBER)
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
        if other.is_scalar and other.tile is not None:
            other = NewOperand(other.text.partition(".expand_dim(")[0], other.tile)
        other = other if other.tile is None else self.column(other)
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
        if wanted.limits is not EVERYTHING:
            raise NotMechanicalError(*BROADCAST)
        text = f"{self.nl('broadcast_to')}({side.text}, {written(shape)})"
        dtype = None if side.tile is None else side.tile.dtype
        return NewOperand(text, KnownTile(shape, dtype, "sbuf"))


def _joined(left: Shape | None, right: Shape | None) -> Shape | None:
    """Return the shape that two shapes broadcast to, or None if neither needs broadcasting."""
    if left is None or right is None:
        return None
    if len(left) != len(right):
        raise NotMechanicalError(*BROADCAST)
    pairs = list(zip(left, right, strict=True))
    if not any((size == ONE) != (other == ONE) for size, other in pairs):
        return None
    return tuple(other if size == ONE else size for size, other in pairs)


def _with_axes_last(data: NewOperand, axes: list[int]) -> tuple[NewOperand, list[int]]:
    """Return a view whose reduced axes are last, as reductions of the current dialect require."""
    shape = data.shape or ()
    others = [n for n in range(len(shape)) if n not in axes]
    first = len(others)
    if sorted(axes) == list(range(first, len(shape))):
        return data, sorted(axes)
    order = [*others, *sorted(axes)]
    text = f"{data.text}.permute(({', '.join(map(str, order))}))"
    source = data.tile or KnownTile()
    tile = KnownTile(tuple(shape[n] for n in order), source.dtype, source.buffer)
    return NewOperand(text, tile), list(range(first, len(shape)))
