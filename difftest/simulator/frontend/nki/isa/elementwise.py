"""``nki.isa``: element by element, on the Vector, Scalar and GpSimd Engines."""

from __future__ import annotations

from typing import Any

from difftest.simulator.dtypes import FLOAT32, is_float, name_of
from difftest.simulator.errors import DtypeError, KernelError
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.constants import engine_of
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.frontend.nki.operands import operator_of, same_elements
from difftest.simulator.instructions import elementwise, scan
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

UNKNOWN = constants.engine.unknown
_MLIR_NAMES = {"int32": "i32", "uint32": "ui32", "int16": "i16", "uint16": "ui16", "int8": "i8"}


@public
def tensor_tensor(
    dst: Any, data1: Any, data2: Any, op: Any, engine: Any = UNKNOWN, name: str | None = None
) -> NkiInstruction:
    """``dst = data1 <op> data2``."""
    same_elements("tensor_tensor", data1=data1, data2=data2)
    chosen, operator = engine_of(engine, "tensor_tensor"), operator_of(op, "tensor_tensor")
    in_psum = any(isinstance(t, Tile) and t.space is Space.PSUM for t in (dst, data1, data2))
    if in_psum and chosen is Engine.UNKNOWN and Engine.VECTOR in operator.engines:
        chosen = Engine.VECTOR  # the GpSimd Engine, exact for integers, cannot access PSUM
    return issue(elementwise.tensor_tensor, dst, (data1, data2), (operator,), engine=chosen)


def scalar_operand(
    op: AluOp, operand: Any, where: str, name: str, *, any_dtype: bool = False
) -> Any:
    """An operand of ``tensor_scalar`` and kin: 0 beside a unary operator, float32 in a tile.

    Raises
    ------
    KernelError : it is missing. DtypeError : an arithmetic operator's tile is not float32, which
        AWS's compiler refuses (its simulator does not), unless ``any_dtype``.
    """
    if operand is None:
        if op.unary:
            return 0
        raise KernelError(
            f"{where} takes {name} beside op={op.name}",
            happened=f"{where} got no {name} for op={op.name}",
            received=f"{name}=None",
        )
    narrow = isinstance(operand, Tile) and not op.bitvec and operand.dtype != FLOAT32
    if narrow and not any_dtype:
        spelled = _MLIR_NAMES.get(str(operand.dtype), str(operand.dtype))
        raise DtypeError(
            f"'nisa.{where}_arith' op '{name}' must be float32, got '{spelled}'",
            happened=f"{where}({op.name}) got {name} of {name_of(operand.dtype)}",
            received=f"{name} = {operand!r} with op={op.name}",
            limit="float32",
            remedy="copy it into a float32 tile first (nisa.tensor_copy)",
        )
    return operand


@public
def tensor_scalar(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    engine: Any = UNKNOWN,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = (data <op0> operand0) <op1> operand1``, operands numbers or [P, 1] tiles."""
    first = operator_of(op0, "tensor_scalar")
    second = None if op1 is None else operator_of(op1, "tensor_scalar")
    if second is None and operand1 is not None:
        raise KernelError(
            "tensor_scalar takes op1 and operand1 together",
            happened="tensor_scalar got operand1 without op1",
            received=f"operand1={operand1!r}",
        )
    chosen = engine_of(engine, "tensor_scalar")
    if chosen is Engine.GPSIMD and (first.name, second) != ("rsqrt", None):
        raise KernelError(
            "tensor_scalar runs on the GpSimd Engine for rsqrt only",
            happened=f"tensor_scalar was to run {first.name} on the GpSimd Engine",
            received=f"engine=nisa.engine.gpsimd with op0={first.name}",
            remedy="leave engine out",
        )
    operands = (
        data,
        scalar_operand(first, operand0, "tensor_scalar", "operand0"),
        None if second is None else scalar_operand(second, operand1, "tensor_scalar", "operand1"),
    )
    return issue(
        elementwise.tensor_scalar,
        dst,
        operands,
        (first, bool(reverse0), second, bool(reverse1)),
        engine=chosen,
    )


@public
def scalar_tensor_tensor(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = (data <op0> operand0) <op1> operand1``, operand1 of as many elements as data."""
    same_elements("scalar_tensor_tensor", data=data, operand1=operand1)
    first, second = (operator_of(op, "scalar_tensor_tensor") for op in (op0, op1))
    for op in (first, second):
        if op.bitvec:
            raise KernelError(
                "scalar_tensor_tensor takes arithmetic operators",
                happened=f"scalar_tensor_tensor got the bitvec operator {op.name}",
                received=f"op={op.name}",
            )
    # Its stub takes any dtype, and kernels of aws-neuron/nki-library give it bfloat16.
    operand0 = scalar_operand(first, operand0, "scalar_tensor_tensor", "operand0", any_dtype=True)
    options = (first, bool(reverse0), second, bool(reverse1))
    return issue(elementwise.scalar_tensor_tensor, dst, (data, operand0, operand1), options)


@public
def reciprocal(dst: Any, data: Any, name: str | None = None) -> NkiInstruction:
    """``dst = 1 / data`` on the Vector Engine."""
    return issue(elementwise.reciprocal, dst, (data,))


@public
def tensor_tensor_scan(
    dst: Any,
    data0: Any,
    data1: Any,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """``r[i] = (data0[i] <op0> r[i-1]) <op1> data1[i]`` along the free axis."""
    ops = (operator_of(op0, "tensor_tensor_scan"), operator_of(op1, "tensor_tensor_scan"))
    options = (*ops, bool(reverse0), bool(reverse1))
    return issue(scan.tensor_tensor_scan, dst, (data0, data1, initial), options)


@public
def dropout(dst: Any, data: Any, prob: Any, name: str | None = None) -> NkiInstruction:
    """``dst = data`` with elements replaced by 0 at the given probability."""
    if isinstance(dst, Tile) and isinstance(data, Tile) and dst.dtype != data.dtype:
        raise DtypeError(
            "dropout's dst has the dtype of its data",
            happened=f"dropout got {name_of(data.dtype)} for a dst of {name_of(dst.dtype)}",
            received=f"dst {dst!r}, data {data!r}",
        )
    wide = isinstance(prob, Tile) and isinstance(data, Tile) and not is_float(data.dtype)
    if wide and prob.dtype != FLOAT32:
        raise DtypeError(
            "dropout of integers takes prob in float32",
            happened=f"dropout of integers got prob in {name_of(prob.dtype)}",
            received=f"prob = {prob!r}",
        )
    return issue(scan.dropout, dst, (data, prob))


@public
def bn_stats(dst: Any, data: Any, name: str | None = None) -> NkiInstruction:
    """Count, mean and variance * count of even, then odd, elements: six in each partition."""
    return issue(scan.bn_stats, dst, (data,))


@public
def bn_aggr(dst: Any, data: Any, name: str | None = None) -> NkiInstruction:
    """Mean and variance from bn_stats' tuples: two in each partition."""
    return issue(scan.bn_aggr, dst, (data,))
