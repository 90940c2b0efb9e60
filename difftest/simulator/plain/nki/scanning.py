"""Today's dialect in plain mode: scans, statistics, and reductions into registers."""

from __future__ import annotations

from typing import Any

from difftest.simulator.errors import not_modelled
from difftest.simulator.frontend.nki import constants
from difftest.simulator.plain.meanings import means, meant
from difftest.simulator.plain.nki.computing import Named, activation, operand_of
from difftest.simulator.plain.nki.moves import into, rows_of, tile
from difftest.simulator.plain.nki.running import TODAYS
from difftest.simulator.plain.operators import math_operator
from difftest.simulator.plain.tensors import PlainTensor


@means(f"{TODAYS}nisa.tensor_tensor_scan", dst=tile, data0=tile, data1=tile)
def tensor_tensor_scan(
    dst: PlainTensor,
    data0: PlainTensor,
    data1: PlainTensor,
    initial: Any,
    reverse0: Any,
    reverse1: Any,
    **operators: Any,
) -> None:
    """``r[i] = (data0[i] <op0> r[i-1]) <op1> data1[i]`` over the free elements in order."""
    made = meant(
        "nisa.tensor_tensor_scan",
        data0=data0.rows(),
        data1=data1.rows(),
        initial=rows_of(initial),
        reverse0=bool(reverse0),
        reverse1=bool(reverse1),
        dtype=dst.dtype,
        mask=None,
        **operators,
    )
    into(dst, made)


@means(f"{TODAYS}nisa.bn_stats", dst=tile, data=tile)
def bn_stats(dst: PlainTensor, data: PlainTensor) -> None:
    """Count, mean and variance * count of the even elements, then of the odd ones."""
    into(dst, meant("nisa.bn_stats", data=data.rows(), mask=None, dtype=dst.dtype))


@means(f"{TODAYS}nisa.bn_aggr", dst=tile, data=tile)
def bn_aggr(dst: PlainTensor, data: PlainTensor) -> None:
    """Mean and variance from tuples of bn_stats."""
    into(dst, meant("nisa.bn_aggr", data=data.rows(), mask=None, dtype=dst.dtype))


@means(f"{TODAYS}nisa.activation_reduce", dst=tile, data=tile, reduce_res=tile)
def activation_reduce(dst: PlainTensor, **given: Any) -> None:
    """:func:`activation` that resets its registers, adds to them, and reads them."""
    activation(dst, **given, reduce_cmd=constants.reduce_cmd.reset_reduce)


@means(f"{TODAYS}nisa.tensor_scalar_reduce", dst=tile, data=tile, op0=math_operator)
def tensor_scalar_reduce(
    dst: PlainTensor,
    data: PlainTensor,
    op0: str,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any,
    reverse0: Any,
    reduce_cmd: Any,
    reduce_init: Any,
    reduce_res_negate: Any,
) -> None:
    """``dst = data <op0> operand0``, and its reduction along the free axes."""
    more = reverse0 or reduce_init is not None or reduce_res_negate or reduce_res is None
    if more or reduce_cmd.name != "reset_reduce" or reduce_op.nki_name == "subtract":
        raise not_modelled("a tensor_scalar_reduce of this kind in plain mode", f"{reduce_cmd}")
    made = meant(
        "nisa.tensor_scalar_reduce",
        data=data.rows(),
        op0=Named(op0),
        operand0=operand_of(op0, operand0),
        reduce_op=reduce_op,
        reduce_res=tile(reduce_res, "reduce_res", "tensor_scalar_reduce"),
        reverse0=None,
        dtype=dst.dtype,
        mask=None,
    )
    into(dst, made)
