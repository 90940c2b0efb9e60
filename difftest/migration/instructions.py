"""Classic calls that return a tile, as an allocation and an instruction that writes to it."""

from __future__ import annotations

import ast
import inspect

from difftest.migration.calls import (
    BITWISE,
    INSTRUCTIONS,
    LIKE,
    NUMPY_OPS,
    PRODUCT,
    REDUCED,
    VECTORS,
    Calling,
)
from difftest.migration.masks import EVERYTHING, MaskBox
from difftest.migration.operands import NewOperand, OperandWriter, written
from difftest.migration.rules import MASK, SHAPE, UNKNOWN_CALL, NotMechanicalError
from difftest.migration.scope import axes_of, reduced
from difftest.migration.writer import expression
from difftest.simulator.frontend.nki import isa

OF_RESULT = ("shape", "dtype", "mask")
"""Arguments that say what a result is, and not what an instruction does."""


class InstructionWriter(OperandWriter):
    """Calls of instructions."""

    def instruction(self, call: ast.Call, dst: str | None, wish: str | None = None) -> str:
        """Write a call as an instruction; the name of what it writes.

        Parameters
        ----------
        dst : the destination, if there is one.
        wish : the name of a new tile, if it can have that.
        """
        meant = self.names.meant(call.func) or ""
        calling = INSTRUCTIONS[meant]
        name = calling.name or meant
        given = self.given(call, calling.parameters)
        limits = self.limits(given.get("mask"))
        dtype = self.dtype(given.get("dtype"))
        if limits is not EVERYTHING and calling.shape not in (LIKE, REDUCED):
            raise NotMechanicalError(*MASK)
        if calling.first not in given:
            raise NotMechanicalError(*UNKNOWN_CALL)
        operands = self._operands(name, given, limits)
        target = dst
        if target is None:
            target = self.fresh(wish, call, meant.split(".")[1])
            self._allocated(target, calling, operands, given.get("shape"), dtype, limits)
        where = target if dst else self.masked(target, limits)
        self.issue(name, where, {role: one.text for role, one in operands.items()})
        return target

    def given(self, call: ast.Call, parameters: tuple[str, ...]) -> dict[str, ast.expr]:
        """The arguments of a call by name.

        Raises
        ------
        NotMechanicalError : one has no name.
        """
        has_stars = any(isinstance(one, ast.Starred) for one in call.args)
        if len(call.args) > len(parameters) or has_stars:
            raise NotMechanicalError(*UNKNOWN_CALL)
        given = dict(zip(parameters, call.args, strict=False))
        for keyword in call.keywords:
            if keyword.arg is None:
                raise NotMechanicalError(*UNKNOWN_CALL)
            given[keyword.arg] = keyword.value
        return given

    def _operands(
        self, name: str, given: dict[str, ast.expr], limits: MaskBox
    ) -> dict[str, NewOperand]:
        """The arguments in today's words, each on what the mask leaves."""
        function = name.split(".")[1]
        taken = inspect.signature(getattr(isa, function)).parameters
        operands: dict[str, NewOperand] = {}
        for role, node in given.items():
            if role in OF_RESULT:
                continue
            if role not in taken:
                raise NotMechanicalError(
                    f"today's {function} has no {role}", "`difftest api` lists what it has"
                )
            if role in NUMPY_OPS:
                operands[role] = NewOperand(self.operator_name(node))
            elif role in VECTORS:
                operands[role] = self._vector(node, given.get(f"op{role[-1]}"), limits)
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
        on_bits = op is not None and any(one in self.operator_name(op) for one in BITWISE)
        return operand if operand.tile is None or on_bits else self.column(operand)

    def _allocated(
        self,
        name: str,
        calling: Calling,
        operands: dict[str, NewOperand],
        shape: ast.expr | None,
        dtype: str | None,
        limits: MaskBox,
    ) -> None:
        """The allocation of a result."""
        buffer = self._buffer(calling, operands)
        for role, one in operands.items():
            if isinstance(expression(one.text), ast.Call) and role not in NUMPY_OPS:
                source = self.named(one.text, role)
                operands[role] = NewOperand(source, self.scope.tile(expression(source)))
        if limits is not EVERYTHING and operands[calling.first].shape is None:
            raise NotMechanicalError(*MASK)
        sizes = ast.unparse(shape) if shape else self._shape(calling, operands)
        if dtype is None:
            dtype = self._dtype(calling, operands)
        self.allocate(name, sizes, dtype, buffer)

    def _buffer(self, calling: Calling, operands: dict[str, NewOperand]) -> str:
        """Where a result lies: the Tensor Engine writes to PSUM, the Vector Engine to SBUF.

        Raises
        ------
        NotMechanicalError : which of them runs it is not to be seen.
        """
        if "engine" not in operands or calling.buffer == "sbuf":
            return calling.buffer
        engine = operands["engine"].text.rpartition(".")[2].removesuffix("_engine")
        if engine not in ("vector", "tensor"):
            raise NotMechanicalError(*SHAPE)
        return "sbuf" if engine == "vector" else "psum"

    def _dtype(self, calling: Calling, operands: dict[str, NewOperand]) -> str:
        if calling.dtype.startswith("nl."):
            return self.nl(calling.dtype[3:])
        return self.dtype_of(operands[calling.first])

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
        """The shape of a reduction along the last axes.

        Raises
        ------
        NotMechanicalError : it is not to be seen.
        """
        shape = reduced(data.shape, axis, keeps)
        if shape is not None:
            return written(shape)
        axes = axes_of(axis)
        if axes is None or keeps or min(axes) < 1:
            raise NotMechanicalError(*SHAPE)
        if min(axes) == 1:
            return f"({data.text}.shape[0], 1)"
        return f"{data.text}.shape[:{min(axes)}]"
