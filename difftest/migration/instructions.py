"""Classic calls that return a tile, as an allocation and an instruction that writes to it."""

from __future__ import annotations

import ast
import inspect
from typing import NamedTuple

from difftest.migration.calls import (
    BITWISE,
    INSTRUCTIONS,
    LIKE,
    NUMPY_OPS,
    PRODUCT,
    REDUCED,
    VECTORS,
    Calling,
    positional,
)
from difftest.migration.indices import EVERYTHING, MaskBox
from difftest.migration.operands import NewOperand, OperandWriter, expression, written
from difftest.migration.rules import MASK, SHAPE, UNKNOWN_CALL, NotMechanicalError
from difftest.migration.scope import axes_of, reduced
from difftest.simulator.frontend.nki import isa

OF_RESULT = ("shape", "dtype", "mask")
"""Arguments that say what a result is, and not what an instruction does."""


class Wanted(NamedTuple):
    """What is to become of a result.

    Attributes
    ----------
    source : the classic expression.
    dst : the destination, if there is one.
    wish : else the name of a new tile, if it can have that.
    dtype : that is asked for.
    limits : what a mask leaves.
    """

    source: ast.expr
    dst: str | None = None
    wish: str | None = None
    dtype: str | None = None
    limits: MaskBox = EVERYTHING

    @property
    def is_value(self) -> bool:
        """Whether a call of today's function says it all."""
        return self.dst is None and self.limits is EVERYTHING


class InstructionWriter(OperandWriter):
    """Calls of instructions."""

    def instruction(self, call: ast.Call, wanted: Wanted) -> str:
        """Write a call as an instruction; the name of what it writes."""
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
            self._allocated(target, calling, operands, arguments.get("shape"), wanted)
        return self.issued(name, {key: side.text for key, side in operands.items()}, target, wanted)

    def asked(self, wanted: Wanted, arguments: dict[str, ast.expr]) -> Wanted:
        """With the mask and the dtype of a call's arguments."""
        limits = self.limits(arguments.get("mask"))
        return wanted._replace(limits=limits, dtype=self.dtype(arguments.get("dtype")))

    def issued(self, name: str, operands: dict[str, str], target: str, wanted: Wanted) -> str:
        """Write an instruction to a destination, or to what a mask leaves of a new tile."""
        self.issue(name, wanted.dst or self.masked(target, wanted.limits), operands)
        return target

    def given(self, call: ast.Call) -> dict[str, ast.expr]:
        """The arguments of a call by name."""
        parameters = positional(self.names.meant(call.func) or "")
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        starred = starred or any(keyword.arg is None for keyword in call.keywords)
        if len(call.args) > len(parameters) or starred:
            raise NotMechanicalError(*UNKNOWN_CALL)
        arguments = dict(zip(parameters, call.args, strict=False))
        return arguments | {str(keyword.arg): keyword.value for keyword in call.keywords}

    def _operands(
        self, name: str, arguments: dict[str, ast.expr], limits: MaskBox
    ) -> dict[str, NewOperand]:
        """The arguments in today's words, each on what the mask leaves."""
        function = name.split(".")[1]
        taken = inspect.signature(getattr(isa, function)).parameters
        operands: dict[str, NewOperand] = {}
        for role, node in arguments.items():
            if role in OF_RESULT:
                continue
            if role not in taken:
                raise NotMechanicalError(
                    f"today's {function} has no {role}", "`difftest api` lists what it has"
                )
            if role in NUMPY_OPS:
                operands[role] = NewOperand(self.operator_name(node))
            elif role in VECTORS:
                operands[role] = self._vector(node, arguments.get(f"op{role[-1]}"), limits)
            elif self._is_setting(node):
                operands[role] = NewOperand(ast.unparse(node))
            else:
                operands[role] = self.operand(node, limits)
        return operands

    def _is_setting(self, node: ast.expr) -> bool:
        """Whether an argument is no tensor: a number, axes, a name of NKI's modules."""
        return isinstance(node, (ast.Constant, ast.Tuple, ast.List)) or bool(self.names.meant(node))

    def _vector(self, node: ast.expr, op: ast.expr | None, limits: MaskBox) -> NewOperand:
        """A number or a column, which arithmetic operators take in float32."""
        if self.scope.tile(self.value(node)) is None and not isinstance(node, ast.Subscript):
            return self.operand(node)
        operand = self.operand(node, limits)
        on_bits = op is not None and any(word in self.operator_name(op) for word in BITWISE)
        return operand if operand.tile is None or on_bits else self.column(operand)

    def _allocated(
        self,
        name: str,
        calling: Calling,
        operands: dict[str, NewOperand],
        shape: ast.expr | None,
        wanted: Wanted,
    ) -> None:
        """The allocation of a result."""
        buffer = self._buffer(calling, operands)
        for role, operand in operands.items():
            if isinstance(expression(operand.text), ast.Call) and role not in NUMPY_OPS:
                source = self.named(operand.text, role)
                operands[role] = NewOperand(source, self.scope.tile(expression(source)))
        if wanted.limits is not EVERYTHING and operands[calling.first].shape is None:
            raise NotMechanicalError(*MASK)
        sizes = ast.unparse(shape) if shape else self._shape(calling, operands)
        own = self.nl(calling.dtype[3:]) if calling.dtype else None
        dtype = wanted.dtype or own or self.dtype_of(operands[calling.first])
        self.allocate(name, sizes, dtype, buffer)

    def _buffer(self, calling: Calling, operands: dict[str, NewOperand]) -> str:
        """Where a result lies: the Tensor Engine writes to PSUM, the Vector Engine to SBUF."""
        if "engine" not in operands or calling.buffer == "sbuf":
            return calling.buffer
        engine = operands["engine"].text.rpartition(".")[2].removesuffix("_engine")
        if engine not in ("vector", "tensor"):
            raise NotMechanicalError(*SHAPE)
        return "sbuf" if engine == "vector" else "psum"

    def _shape(self, calling: Calling, operands: dict[str, NewOperand]) -> str:
        first = operands[calling.first]
        if calling.shape == LIKE:
            return self.shape_of(first)
        if calling.shape == REDUCED:
            keeps = "keepdims" in operands and operands["keepdims"].text == "True"
            return self.reduced_shape(first, expression(operands["axis"].text), keeps)
        sizes = [
            self.size_of(operands[role], dim) if role else str(dim) for role, dim in calling.sizes
        ]
        if calling.shape == PRODUCT:
            moving = operands["moving"]
            if moving.shape is None:
                sizes.append(f"*{moving.text}.shape[1:]")
            else:
                sizes += [size.text() for size in moving.shape[1:]]
        return f"({', '.join(sizes)})"

    def reduced_shape(self, data: NewOperand, axis: ast.expr, keeps: bool) -> str:
        """The shape of a reduction along the last axes."""
        shape = reduced(data.shape, axis, keeps)
        if shape is not None:
            return written(shape)
        axes = axes_of(axis)
        if axes is None or keeps or min(axes) < 1:
            raise NotMechanicalError(*SHAPE)
        if min(axes) == 1:
            return f"({data.text}.shape[0], 1)"
        return f"{data.text}.shape[:{min(axes)}]"
