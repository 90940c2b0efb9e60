"""``nisa.tensor_tensor``, ``nisa.tensor_scalar`` and kin: element by element, and scans."""

from __future__ import annotations

from typing import Any

from difftest.simulator.frontend.arguments import as_engine, engine, no_extras
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.operators import one_rank
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.instructions import elementwise as instructions
from difftest.simulator.instructions import scan
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.tile import Tile


def tensor_tensor(
    data1: Any,
    data2: Any,
    op: object,
    *,
    dtype: object = None,
    mask: object = None,
    engine: engine = engine.unknown,
    **kwargs: object,
) -> Tensor:
    """``data1 <op> data2``; the same partitions, free dimensions broadcast."""
    if kwargs:
        no_extras("nisa.tensor_tensor", kwargs)
    if isinstance(data1, Tile) and isinstance(data2, Tile):
        data1, data2 = one_rank(data1, data2)
    result: Tensor = issue(
        instructions.tensor_tensor,
        (data1, data2),
        (alu_op(op, "tensor_tensor"),),
        dtype=dtype,
        engine=as_engine(engine, "tensor_tensor"),
        mask=mask,
    )
    return result


def tensor_scalar(
    data: Any,
    op0: object,
    operand0: Any,
    reverse0: bool = False,
    op1: object = None,
    operand1: Any = None,
    reverse1: bool = False,
    *,
    dtype: object = None,
    mask: object = None,
    engine: engine = engine.unknown,
    **kwargs: object,
) -> Tensor:
    """``(data <op0> operand0) <op1> operand1``, operands numbers or [P, 1] vectors."""
    if kwargs:
        no_extras("nisa.tensor_scalar", kwargs)
    second = None if op1 is None else alu_op(op1, "tensor_scalar")
    result: Tensor = issue(
        instructions.tensor_scalar,
        (data, operand0, operand1),
        (alu_op(op0, "tensor_scalar"), bool(reverse0), second, bool(reverse1)),
        dtype=dtype,
        engine=as_engine(engine, "tensor_scalar"),
        mask=mask,
    )
    return result


def scalar_tensor_tensor(
    *,
    data: Any,
    op0: object,
    operand0: Any,
    op1: object,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    dtype: object = None,
    mask: object = None,
    **kwargs: object,
) -> Tensor:
    """``(data <op0> operand0) <op1> operand1``, operand1 of the data's shape."""
    no_extras("nisa.scalar_tensor_tensor", kwargs)
    ops = (alu_op(op0, "scalar_tensor_tensor"), alu_op(op1, "scalar_tensor_tensor"))
    result: Tensor = issue(
        instructions.scalar_tensor_tensor,
        (data, operand0, operand1),
        (ops[0], bool(reverse0), ops[1], bool(reverse1)),
        dtype=dtype,
        mask=mask,
    )
    return result


def tensor_tensor_scan(
    data0: Any,
    data1: Any,
    initial: Any,
    op0: object,
    op1: object,
    reverse0: bool = False,
    reverse1: bool = False,
    *,
    dtype: object = None,
    mask: object = None,
    **kwargs: object,
) -> Tensor:
    """``r[i] = (data0[i] <op0> r[i-1]) <op1> data1[i]`` along the free axis."""
    no_extras("nisa.tensor_tensor_scan", kwargs)
    ops = (alu_op(op0, "tensor_tensor_scan"), alu_op(op1, "tensor_tensor_scan"))
    result: Tensor = issue(
        scan.tensor_tensor_scan,
        (data0, data1, initial),
        (*ops, bool(reverse0), bool(reverse1)),
        dtype=dtype,
        mask=mask,
    )
    return result


def reciprocal(data: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Tensor:
    """``1 / data`` on the Vector Engine."""
    no_extras("nisa.reciprocal", kwargs)
    result: Tensor = issue(instructions.reciprocal, (data,), dtype=dtype, mask=mask)
    return result
