"""Draw legal calls of the copies, constants, DMAs, searches and gathers."""

from __future__ import annotations

import numpy as np

from difftest.simulator import Engine
from difftest.simulator.instructions.alu import ALU_OPS
from tests.unit.simulator.instructions.calls.drawn import (
    Drawing,
    DrawnCall,
    Operand,
    draws,
    index_tile,
)
from tests.unit.simulator.instructions.calls.tensors import Affine

BOOL = np.dtype(np.bool_)
AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
COPYING = (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)


@draws("tensor_copy")
def tensor_copy(d: Drawing) -> DrawnCall:
    shape = d.shape()
    src = d.tile("src", shape)
    dst = d.dst(shape)
    return DrawnCall(
        d.record, {"src": src}, (), {"dst": dst}, d.engine(src, dst, among=COPYING)
    )


def moved_part(role: str, rows: int, width: int) -> str:
    """Columns of a role from the offset in a tile on."""
    columns = f"{{offset}}[0, 0] + nl.arange({width})[None, :]"
    return f"{{{role}}}[nl.arange({rows})[:, None], {columns}]"


@draws("tensor_copy_dynamic_src")
def tensor_copy_dynamic_src(d: Drawing) -> DrawnCall:
    shape = (d.shape()[0], d.integer(4, 7))
    width = d.integer(1, 3)
    part = moved_part("src", shape[0], width)
    src = d.tile("src", shape)
    dst = d.dst((shape[0], width))
    indirect = Operand(src.values, src.dtype, src.space, at=part)
    return DrawnCall(
        d.record,
        {"src": indirect},
        (),
        {"dst": dst},
        d.engine(src, dst, among=COPYING),
        beside={"offset": index_tile([[d.integer(0, shape[1] - width)]])},
    )


@draws("tensor_copy_dynamic_dst")
def tensor_copy_dynamic_dst(d: Drawing) -> DrawnCall:
    shape = (d.shape()[0], d.integer(4, 7))
    width = d.integer(1, 3)
    part = moved_part("dst", shape[0], width)
    src = d.tile("src", (shape[0], width))
    dst = d.tile("dst", shape)
    return DrawnCall(
        d.record,
        {"src": src},
        (),
        {"dst": Operand(dst.values, dst.dtype, dst.space, at=part)},
        d.engine(src, dst, among=COPYING),
        beside={"offset": index_tile([[d.integer(0, shape[1] - width)]])},
    )


@draws("memset")
def memset(d: Drawing) -> DrawnCall:
    shape = d.shape()
    dst = None
    dst = d.dst(shape)
    value = d.pick((0, 1)) if dst.dtype == BOOL else d.pick((0, 1, 3.0, -2, 2.5))
    value = abs(value) if dst.dtype.kind == "u" else value
    return DrawnCall(d.record, {"value": value}, (shape,), {"dst": dst}, d.engine(dst))


@draws("iota")
def iota(d: Drawing) -> DrawnCall:
    shape = d.shape(ranks=(2,))
    step = d.integer(0, 2)
    start = d.integer(0, 3)
    return DrawnCall(
        d.record, {"expr": Affine(shape, start, step, 1)}, (), {"dst": d.dst(shape)}
    )


@draws("rand")
def rand(d: Drawing) -> DrawnCall:
    shape = d.shape()
    return DrawnCall(d.record, {}, (shape,), {"dst": d.dst(shape)})


# -- DMA -------------------------------------------------------------------------------------------


@draws("dma_copy")
def dma_copy(d: Drawing) -> DrawnCall:
    shape = d.shape()
    rmw = ALU_OPS["add"] if d.flag() else None
    dge = d.pick(("none", "swdge", "hwdge", "unknown"))

    dst = d.tile("dst", shape, written=rmw is not None)
    return DrawnCall(
        d.record, {"src": d.tile("src", shape)}, (rmw, None, dge), {"dst": dst}
    )


def rows_at(d: Drawing, role, count, columns, rows=9):
    """A table whose rows a tile of indices names, and the tile."""
    table = d.tile(role, (rows, columns))
    places = [d.integer(0, rows - 1) for _ in range(count)]
    part = f"{{{role}}}[{{places}}, nl.arange({columns})[None, :]]"
    indirect = Operand(table.values, table.dtype, table.space, at=part)
    return indirect, index_tile(
        np.reshape(places, (count, 1)), d.pick(("int32", "uint32"))
    )


@draws("dma_gather")
def dma_gather(d: Drawing) -> DrawnCall:
    count = d.integer(2, 5)
    columns = d.integer(1, 4)
    src, places = rows_at(d, "src", count, columns)
    skip = d.flag()

    dst = d.tile("dst", (count, columns))
    options = (None, "skip" if skip else "error", "unknown")
    return DrawnCall(
        d.record, {"src": src}, options, {"dst": dst}, beside={"places": places}
    )


@draws("dma_scatter")
def dma_scatter(d: Drawing) -> DrawnCall:
    count = d.integer(2, 5)
    columns = d.integer(1, 4)
    dst, places = rows_at(d, "dst", count, columns)
    rmw = ALU_OPS["add"] if d.flag() else None
    skip = rmw is None and d.flag()

    src = d.tile("src", (count, columns))
    options = (rmw, "skip" if skip else "error", "unknown")
    return DrawnCall(
        d.record, {"src": src}, options, {"dst": dst}, beside={"places": places}
    )


@draws("dma_transpose")
def dma_transpose(d: Drawing) -> DrawnCall:
    shape = d.shape()
    axes = AXES[len(shape)]
    named = d.flag()
    turned = tuple(shape[k] for k in axes)
    return DrawnCall(
        d.record,
        {"src": d.tile("src", shape)},
        (axes if named else None, "unknown", False),
        {"dst": d.dst(turned)},
    )


# -- searches and gathers --------------------------------------------------------------------------


@draws("max8")
def max8(d: Drawing) -> DrawnCall:
    shape = d.pick(((1, 8), (5, 13), (33, 2, 5)))
    return DrawnCall(
        d.record, {"src": d.tile("src", shape)}, (), {"dst": d.dst((shape[0], 8))}
    )


def data_and_values(d: Drawing):
    """Data, and for each partition 8 of its values, at places of their own."""
    shape = d.pick(((1, 8), (5, 13), (33, 2, 5)))
    dtypes = (d.dtype("data"), d.dtype("vals"))
    rng = np.random.default_rng(d.seed)
    values = rng.integers(0, 2 if BOOL in dtypes else 5, shape)
    lines = values.reshape(shape[0], -1)
    places = np.array([rng.permutation(lines.shape[1])[:8] for _ in lines])
    eight = np.take_along_axis(lines, places, axis=1)
    data = d.tile("data", shape, dtype=dtypes[0], values=values)
    return data, d.tile("vals", (shape[0], 8), dtype=dtypes[1], values=eight)


@draws("nc_find_index8")
def nc_find_index8(d: Drawing) -> DrawnCall:
    data, vals = data_and_values(d)
    return DrawnCall(
        d.record,
        {"data": data, "vals": vals},
        (False,),
        {"dst": d.dst(vals.values.shape)},
    )


@draws("nc_match_replace8")
def nc_match_replace8(d: Drawing) -> DrawnCall:
    data, vals = data_and_values(d)
    imm = float(d.integer(0, 3))
    return DrawnCall(
        d.record,
        {"data": data, "vals": vals, "imm": imm},
        (False,),
        {
            "dst": d.dst(data.values.shape),
            "dst_idx": d.other("dst_idx", vals.values.shape),
        },
    )


@draws("local_gather")
def local_gather(d: Drawing) -> DrawnCall:
    partitions = d.pick((16, 32, 128))
    columns = d.integer(4, 9)
    width = d.pick((1, 2, 4))
    each = d.integer(1, 3)
    count = d.pick((None, d.integer(1, 16 * each)))
    used = 16 * each if count is None else count
    wanted = d.forced.get("dst")
    dtype = wanted if isinstance(wanted, np.dtype) else d.dtype("src_buffer")
    index = d.tile("index", (partitions, each), low=0, high=columns - width)
    return DrawnCall(
        d.record,
        {
            "src_buffer": d.tile("src_buffer", (partitions, columns), dtype=dtype),
            "index": index,
        },
        (width, count),
        {"dst": d.tile("dst", (partitions, used, width), dtype=dtype, written=False)},
    )


@draws("gather_flattened")
def gather_flattened(d: Drawing) -> DrawnCall:
    shape = d.shape()
    size = int(np.prod(shape[1:]))
    places = (shape[0], d.integer(1, 6))
    return DrawnCall(
        d.record,
        {
            "indices": d.tile("indices", places, low=0, high=size - 1),
            "data": d.tile("data", shape),
        },
        (),
        {"dst": d.dst(places)},
    )


@draws("nc_stream_shuffle")
def nc_stream_shuffle(d: Drawing) -> DrawnCall:
    shape = d.shape()
    order = tuple(d.pick((255, *range(32))) for _ in range(32))
    wanted = [d.forced.get(role) for role in ("src", "dst")]
    dtype = next((one for one in wanted if isinstance(one, np.dtype)), None) or d.dtype(
        "src"
    )
    return DrawnCall(
        d.record,
        {"src": d.tile("src", shape, dtype=dtype)},
        (order,),
        {"dst": d.tile("dst", shape, dtype=dtype)},
    )


@draws("sequence_bounds")
def sequence_bounds(d: Drawing) -> DrawnCall:
    length = d.integer(1, 9)
    ids = [[d.integer(0, 2) for _ in range(length)]]
    return DrawnCall(
        d.record,
        {"segment_ids": d.tile("segment_ids", (1, length), values=ids)},
        (),
        {"dst": d.dst((1, 2, length))},
    )
