"""Draw legal calls of the current dialect's own instructions."""

from __future__ import annotations

import numpy as np

from difftest.simulator import TRN3, Engine
from difftest.simulator.instructions import activation, dma, effects, gather, mx
from difftest.simulator.instructions.alu import ALU_OPS, NKI_OPS
from difftest.simulator.instructions.registers import Accumulate
from tests.unit.simulator.instructions.calls.drawn import (
    Drawing,
    DrawnCall,
    Operand,
    draws,
)

TODAY = (activation, dma, gather, mx, effects)
"""The modules of their records, which no frontend need have loaded."""
LOADING = (Accumulate.RESET_REDUCE, Accumulate.REDUCE, Accumulate.LOAD_REDUCE)


def called(
    d: Drawing, operands, options, destinations, engine=Engine.UNKNOWN
) -> DrawnCall:
    """A call on trn3, which has all of them."""
    return DrawnCall(d.record, operands, options, destinations, engine, machine=TRN3)


def loading(d: Drawing, role: str, commands) -> Accumulate:
    """A command; the loading command, if the role that it loads needs a value."""
    return Accumulate.LOAD_REDUCE if role in d.forced else d.pick(commands)


@draws("exponential")
def exponential(d: Drawing) -> DrawnCall:
    shape = d.shape()
    into = d.other("reduce_res", (shape[0], 1))
    commands = LOADING if into is not None else (Accumulate.IDLE, *LOADING)
    command = loading(d, "reduce_init", commands)
    start = (
        d.vector("reduce_init", shape[0]) if command is Accumulate.LOAD_REDUCE else None
    )
    return called(
        d,
        {
            "src": d.tile("src", shape),
            "max_value": d.vector("max_value", shape[0]),
            "reduce_init": start,
        },
        (command,),
        {"dst": d.dst(shape), "reduce_res": into},
    )


@draws("tensor_scalar_cumulative")
def tensor_scalar_cumulative(d: Drawing) -> DrawnCall:
    shape = d.shape()
    command = loading(d, "imm1", LOADING)
    start = d.vector("imm1", shape[0]) if command is Accumulate.LOAD_REDUCE else None
    ops = (
        ALU_OPS[d.pick(("add", "multiply"))],
        ALU_OPS[d.pick(activation.CUMULATIVE_OPS)],
    )
    return called(
        d,
        {
            "src": d.tile("src", shape),
            "imm0": d.vector("imm0", shape[0]),
            "imm1": start,
        },
        (*ops, command),
        {"dst": d.dst(shape)},
    )


@draws("activate2")
def activate2(d: Drawing) -> DrawnCall:
    shape = d.shape()
    into = d.other("reduce_res", (shape[0], 1))
    commands = (Accumulate.RESET, Accumulate.REDUCE, Accumulate.RESET_REDUCE)
    command = d.pick(commands if into is not None else (Accumulate.IDLE, *commands))
    imm0, imm1 = (d.vector(name, shape[0]) for name in ("imm0", "imm1"))
    if isinstance(imm0, Operand) and isinstance(imm1, Operand):  # which have one dtype
        shared = (
            imm1.dtype if isinstance(d.forced.get("imm1"), np.dtype) else imm0.dtype
        )
        imm0, imm1 = (
            d.tile(name, (shape[0], 1), dtype=shared, space=one.space)
            for name, one in (("imm0", imm0), ("imm1", imm1))
        )
    op0, op1 = d.pick(
        (("multiply", "add"), ("multiply", "subtract"), ("add", None), (None, None))
    )
    options = (
        d.pick(("copy", "relu", "square", activation.PRELU)),
        op0 and ALU_OPS[op0],
        op1 and ALU_OPS[op1],
        op0 is not None and d.flag(),
        op1 is not None and d.flag(),
        NKI_OPS[d.pick(("add", "maximum", "minimum", "abs_max", "abs_min"))],
        command,
    )
    operands = {"data": d.tile("data", shape), "imm0": imm0, "imm1": imm1}
    operands["relu_param"] = d.vector("relu_param", shape[0])
    return called(d, operands, options, {"dst": d.dst(shape), "reduce_res": into})


@draws("nc_n_gather")
def nc_n_gather(d: Drawing) -> DrawnCall:
    shape = d.shape()
    count = d.integer(1, 6)
    dtype = d.dtype("dst") if "dst" in d.forced else d.dtype("data")
    elements = int(np.prod(shape[1:]))
    places = np.random.default_rng(d.seed).integers(0, elements, (shape[0], count))
    return called(
        d,
        {
            "data": d.tile("data", shape, dtype=dtype),
            "indices": d.tile("indices", (shape[0], count), values=places),
        },
        (),
        {"dst": d.tile("dst", (shape[0], count), dtype=dtype, written=False)},
    )


@draws("nonzero_with_count")
def nonzero_with_count(d: Drawing) -> DrawnCall:
    partitions = d.pick((1, 16, 33, 128))
    size = d.integer(1, 8)
    dst = d.tile("dst", (partitions, size + 1))
    options = (d.integer(0, 9), -1)
    return called(d, {"src": d.tile("src", (partitions, size))}, options, {"dst": dst})


@draws("topk")
def topk_(d: Drawing) -> DrawnCall:
    partitions = d.pick((16, 32, 128))
    size = d.integer(3, 8)
    k = d.pick((16, 32))
    operands = {"src": d.tile("src", (partitions, size))}
    into = {name: d.tile(name, (partitions, k)) for name in ("dst", "idx_dst")}
    return called(d, operands, (d.integer(33, 16 * size),), into)


@draws("dma_compute")
def dma_compute_(d: Drawing) -> DrawnCall:
    shape = d.shape()
    roles = [role.name for role in d.record.operands]
    forced = [number + 1 for number, name in enumerate(roles) if name in d.forced]
    count = max([d.integer(1, 4), *forced])
    srcs = {
        name: d.tile(name, shape) if k < count else None for k, name in enumerate(roles)
    }
    scales = d.pick((None, (1.0,) * count))
    return called(d, srcs, (ALU_OPS["add"], scales), {"dst": d.dst(shape)})


@draws("quantize_mx")
def quantize_mx(d: Drawing) -> DrawnCall:
    partitions = d.pick((32, 64, 128))
    count = d.integer(1, 3)
    dst = d.tile("dst", (partitions, count), written=False)
    scale = d.tile("dst_scale", scales_of(partitions, count))
    src = d.tile("src", (partitions, 4 * count))
    return called(d, {"src": src}, (), {"dst": dst, "dst_scale": scale})


def scales_of(partitions: int, count: int) -> tuple[int, int]:
    """The shape of the scales of so many partitions."""
    return (mx.SCALE_ROWS if partitions == mx.QUADRANT else partitions, count)


@draws("nc_matmul_mx")
def nc_matmul_mx(d: Drawing) -> DrawnCall:
    partitions = d.pick((32, 64, 128))
    rows = d.pick((2, 4))
    columns = d.integer(1, 5)
    operands = {
        "stationary": d.tile("stationary", (partitions, rows)),
        "moving": d.tile("moving", (partitions, columns)),
        "stationary_scale": d.tile("stationary_scale", scales_of(partitions, rows)),
        "moving_scale": d.tile("moving_scale", scales_of(partitions, columns)),
    }
    return called(d, operands, (False, (), ()), {"dst": d.dst((rows, columns))})


@draws("rng")
def rng(d: Drawing) -> DrawnCall:
    dst = d.dst(d.shape())
    return called(d, {}, (), {"dst": dst}, d.engine(dst))


@draws("rand2")
def rand2(d: Drawing) -> DrawnCall:
    shape = d.shape()
    bounds = {
        "min": d.vector("min", shape[0], low=-4, high=-1),
        "max": d.vector("max", shape[0], low=1, high=4),
    }
    return called(d, bounds, (), {"dst": d.dst(shape)})
