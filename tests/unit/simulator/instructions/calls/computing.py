"""Draw legal calls of the instructions that compute element by element, and products."""

from __future__ import annotations

import numpy as np

from difftest.simulator import TRN2, TRN3, Engine, Space
from difftest.simulator.dtypes import (
    FLOAT8_E4M3,
    FLOAT8_E4M3FN,
    FLOAT32,
    FLOATS,
    is_float,
    is_integer,
)
from difftest.simulator.instructions.activation import BIAS_DTYPES
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.matmul import MATMUL_DTYPES
from difftest.simulator.instructions.registers import Accumulate
from tests.unit.simulator.instructions.calls.drawn import (
    CLASSIC_COMMANDS,
    Drawing,
    DrawnCall,
    Operand,
    all_integers,
    draws,
)

WIDE = (np.dtype(np.int32), np.dtype(np.uint32))
COMPARING = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
ARITHMETIC = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "mod",
    "fmod",
    *COMPARING,
    *LOGICAL,
)
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
EXACT_FUNCTIONS = ("copy", "square", "relu", "abs", "sign")
CURVED_FUNCTIONS = (
    "exp",
    "tanh",
    "sigmoid",
    "gelu",
    "silu",
    "softplus",
    "erf",
    "sqrt",
    "log",
)


def operator(d: Drawing, *tiles, arithmetic=ARITHMETIC):
    """An operator for these operands; bitvec ones take integers only."""
    return ALU_OPS[d.pick(arithmetic + (BITWISE if all_integers(*tiles) else ()))]


@draws("tensor_tensor")
def tensor_tensor(d: Drawing) -> DrawnCall:
    shape = d.shape()
    spaces = d.not_both_in_psum("data1", "data2")
    broadcast = tuple(
        1 if k and d.pick(range(4)) == 0 else n for k, n in enumerate(shape)
    )
    data1 = d.tile("data1", shape, space=spaces["data1"])
    data2 = d.tile("data2", broadcast, space=spaces["data2"])
    dst = d.dst(shape)
    op = operator(d, data1, data2, dst)
    tiles = (data1, data2, dst)
    engine = d.engine(*tiles)
    if all(one.dtype in WIDE for one in tiles):
        in_psum = any(one.space is Space.PSUM for one in tiles)
        # exact on GpSimd alone, which needs SBUF
        engine = Engine.VECTOR if in_psum else engine
    return DrawnCall(
        d.record, {"data1": data1, "data2": data2}, (op,), {"dst": dst}, engine
    )


@draws("tensor_scalar")
def tensor_scalar(d: Drawing) -> DrawnCall:
    shape = d.shape()
    data = d.tile("data", shape)
    dst = d.dst(shape)
    first = d.vector("operand0", shape[0])
    two = "operand1" in d.forced or d.flag()
    second = d.vector("operand1", shape[0]) if two else None
    tiles = (data, dst, first, second)
    ops = [operator(d, *tiles)]
    if two:
        same = BITWISE if ops[0].bitvec else ARITHMETIC
        ops.append(ALU_OPS[d.pick(same)])
    if ops[0].bitvec:  # numbers that are patterns of every integer dtype
        first, second = (
            max(x, 0) if isinstance(x, int | float) else x for x in (first, second)
        )
    names = [op.name for op in ops]
    engines = [Engine.VECTOR]
    if names in (["multiply", "add"], ["multiply"], ["add"]):
        engines.append(Engine.SCALAR)
    engine = d.engine(*tiles, among=engines)
    reverse = (d.flag(), two and d.flag())
    op0 = ops[0]
    op1 = ops[1] if two else None
    return DrawnCall(
        d.record,
        {"data": data, "operand0": first, "operand1": second},
        (op0, reverse[0], op1, reverse[1]),
        {"dst": dst},
        engine,
    )


@draws("scalar_tensor_tensor")
def scalar_tensor_tensor(d: Drawing) -> DrawnCall:
    shape = d.shape()
    spaces = d.not_both_in_psum("data", "operand1")
    data = d.tile("data", shape, space=spaces["data"])
    operand1 = d.tile("operand1", shape, space=spaces["operand1"])
    operand0 = d.vector("operand0", shape[0], low=0)
    dst = d.dst(shape)
    op0 = operator(d, data, operand1, operand0, dst)
    op1 = ALU_OPS[d.pick(BITWISE if op0.bitvec else ARITHMETIC)]
    reverse = (d.flag(), d.flag())
    return DrawnCall(
        d.record,
        {"data": data, "operand0": operand0, "operand1": operand1},
        (op0, reverse[0], op1, reverse[1]),
        {"dst": dst},
    )


@draws("reciprocal")
def reciprocal(d: Drawing) -> DrawnCall:
    shape = d.shape()
    return DrawnCall(
        d.record, {"data": d.tile("data", shape)}, (), {"dst": d.dst(shape)}
    )


@draws("activation")
def activation(d: Drawing) -> DrawnCall:
    shape = d.shape()
    curved = d.flag()
    name = d.pick(CURVED_FUNCTIONS if curved else EXACT_FUNCTIONS)
    data = d.tile("data", shape)
    dst = d.dst(shape)
    if curved:  # inside each function's valid range
        halves = (
            d.values(shape, FLOAT32, 1, 2) if is_float(data.dtype) else np.ones(shape)
        )
        data = d.tile("data", shape, space=data.space, dtype=data.dtype, values=halves)
    low = 1 if curved else -2
    scale = d.vector("scale", shape[0], low=low, high=2)
    bias = None
    wanted = d.forced.get("bias")
    if wanted is not None or d.flag():
        dtype = d.pick(BIAS_DTYPES) if not isinstance(wanted, np.dtype) else wanted
        bias = d.tile("bias", (shape[0], 1), dtype=dtype, low=max(low, 0), high=2)
    reduce_res = d.other("reduce_res", (shape[0], 1))
    command = Accumulate.IDLE
    if reduce_res is not None:
        command = d.pick([c for c in CLASSIC_COMMANDS if c is not Accumulate.IDLE])
    op = ALU_OPS["add"]

    return DrawnCall(
        d.record,
        {"data": data, "scale": scale, "bias": bias},
        (name, op, command),
        {"dst": dst, "reduce_res": reduce_res},
        close=curved,
        spells=bias is None or bias.dtype in BIAS_DTYPES,
    )


@draws("dropout")
def dropout(d: Drawing) -> DrawnCall:
    shape = d.shape()
    prob = d.forced.get("prob")
    wanted = d.forced.get("dst")
    floats = isinstance(wanted, np.dtype) or (
        isinstance(prob, np.dtype) and prob != FLOAT32
    )
    data = d.tile("data", shape, dtype=d.dtype("data", FLOATS if floats else None))
    dst = d.dst(shape, among=(data.dtype,) if is_integer(data.dtype) else None)
    prob = d.pick((0.0, 0.25, 1.0))
    if "prob" in d.forced or d.flag():
        dtype = d.dtype("prob", (FLOAT32,) if is_integer(data.dtype) else None)
        chances = np.abs(d.values((shape[0], 1), FLOAT32, 0, 1))
        prob = d.tile("prob", (shape[0], 1), dtype=dtype, values=chances)
    return DrawnCall(d.record, {"data": data, "prob": prob}, (), {"dst": dst})


@draws("nc_matmul")
def nc_matmul(d: Drawing) -> DrawnCall:
    depth = d.pick((1, 3, 32, 128))
    columns = d.pick((1, 4, 128))
    rows = d.pick((1, 5, 512))
    # for NeuronCore-v4 and the current dialect
    ocp = FLOAT8_E4M3FN in d.forced.values()
    dtypes = [
        one for one in MATMUL_DTYPES if one != (FLOAT8_E4M3 if ocp else FLOAT8_E4M3FN)
    ]
    stationary = d.tile(
        "stationary", (depth, columns), dtype=d.dtype("stationary", dtypes)
    )
    moving = d.tile("moving", (depth, rows), dtype=d.dtype("moving", dtypes))
    accumulate = d.flag()
    dst = d.tile("dst", (columns, rows), written=accumulate)
    tiled = (d.pick(((), (0, 0))), (128, 128))
    placement = tiled if tiled[0] else ((), ())

    return DrawnCall(
        d.record,
        {"stationary": stationary, "moving": moving},
        (accumulate, *placement, "none"),
        {"dst": dst},
        spells=not ocp,
        machine=TRN3 if ocp else TRN2,
    )


@draws("nc_transpose")
def nc_transpose(d: Drawing) -> DrawnCall:
    data_space = d.space("data")
    dst_space = d.space("dst")
    on_vector = data_space is Space.PSUM or dst_space is Space.SBUF or d.flag()
    shape = d.shape(partitions=(1, 7, 32) if on_vector else (1, 33, 128), ranks=(2, 3))
    size = int(np.prod(shape[1:]))
    engine = Engine.VECTOR if on_vector else d.pick((Engine.UNKNOWN, Engine.TENSOR))
    return DrawnCall(
        d.record,
        {"data": d.tile("data", shape, space=data_space)},
        (),
        {"dst": d.dst((size, shape[0]), space=dst_space)},
        engine,
    )


@draws("where")
def where(d: Drawing) -> DrawnCall:
    shape = d.shape()

    def side(role):
        if role not in d.forced and d.flag():
            return float(d.integer(0, 4))
        narrow = tuple(
            1 if k and d.pick(range(4)) == 0 else n for k, n in enumerate(shape)
        )
        return d.tile(role, narrow)

    x = side("x")
    y = side("y")
    tiles = [one for one in (x, y) if isinstance(one, Operand)]
    return DrawnCall(
        d.record,
        {"condition": d.tile("condition", shape, low=-1, high=1), "x": x, "y": y},
        (),
        {"dst": d.dst(shape, among=None if tiles else FLOATS)},
    )
