"""``nki.isa``: element by element, on the Vector, Scalar and GpSimd Engines."""

from __future__ import annotations

from difftest.simulator.frontend.nki.calls import call
from difftest.simulator.frontend.nki.constants import UNKNOWN
from difftest.simulator.frontend.nki.operands import beside
from difftest.simulator.instructions import elementwise, scan


@call(elementwise.tensor_tensor)
def tensor_tensor(dst, data1, data2, op, engine=UNKNOWN, name=None):
    """``dst = data1 <op> data2``."""


@call(elementwise.tensor_scalar, prepare=beside(op0="operand0", op1="operand1"))
def tensor_scalar(
    dst,
    data,
    op0,
    operand0,
    reverse0=False,
    op1=None,
    operand1=None,
    reverse1=False,
    engine=UNKNOWN,
    name=None,
):
    """``dst = (data <op0> operand0) <op1> operand1``, operands numbers or [P, 1] tiles."""


@call(elementwise.scalar_tensor_tensor, prepare=beside(op0="operand0"))
def scalar_tensor_tensor(
    dst, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, name=None
):
    """``dst = (data <op0> operand0) <op1> operand1``, operand1 of as many elements as data."""


@call(elementwise.reciprocal)
def reciprocal(dst, data, name=None):
    """``dst = 1 / data`` on the Vector Engine."""


@call(scan.tensor_tensor_scan)
def tensor_tensor_scan(
    dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False, name=None
):
    """``r[i] = (data0[i] <op0> r[i-1]) <op1> data1[i]`` along the free axis."""


@call(scan.dropout)
def dropout(dst, data, prob, name=None):
    """``dst = data`` with elements replaced by 0 at the given probability."""


@call(scan.bn_stats)
def bn_stats(dst, data, name=None):
    """Count, mean and variance * count of even, then odd, elements: six in each partition."""


@call(scan.bn_aggr)
def bn_aggr(dst, data, name=None):
    """Mean and variance from bn_stats' tuples: two in each partition."""
