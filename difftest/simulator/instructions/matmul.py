"""Tensor Engine: nc_matmul and nc_transpose (and the Vector Engine's small transpose)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from difftest.simulator.core import Core
from difftest.simulator.descriptor import RUNNING, Descriptor
from difftest.simulator.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    TFLOAT32,
    Array,
    dtype_name,
)
from difftest.simulator.errors import (
    DtypeError,
    KernelError,
    LimitError,
    ShapeError,
    call_error,
    kernel_location,
    warn_of_hazard,
)
from difftest.simulator.instructions.anomalies import (
    EXACT_INTEGER,
    look_at_counts,
    may_count,
)
from difftest.simulator.instructions.checks import wrong_buffer
from difftest.simulator.instructions.gate import write
from difftest.simulator.instructions.products import product
from difftest.simulator.instructions.record import (
    PSUM_ONLY,
    SBUF_ONLY,
    CheckedCall,
    InstructionUse,
    IterationSpace,
    Result,
    Role,
    Rule,
    choose_engine,
    instruction,
    moved,
)
from difftest.simulator.instructions.values import as_float, rows
from difftest.simulator.memory import UNTOUCHED, Shape
from difftest.simulator.misuses import SUM_WITHOUT_START
from difftest.simulator.strictness import report_undefined
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Purpose, Space

FLOAT8 = (FLOAT8_E4M3, FLOAT8_E4M3FN, FLOAT8_E5M2)
MATMUL_DTYPES = (*FLOAT8, BFLOAT16, FLOAT16, TFLOAT32, FLOAT32)


# -- nc_matmul -------------------------------------------------------------------------------------


def one_contraction(call: CheckedCall) -> None:
    """Require the contraction dimension as the partitions of both operands."""
    stationary = call["stationary"]
    moving = call["moving"]
    if stationary.partitions != moving.partitions:
        raise ShapeError(
            f"{call.name} contracts over the partitions of both operands",
            happened=f"{call.name} got {stationary.partitions} and {moving.partitions} partitions",
            received=f"stationary {list(stationary.shape)}, moving {list(moving.shape)}: "
            f"{stationary.partitions} and {moving.partitions} partitions",
            remedy="give both operands the contraction dimension as their first",
        )


def _pairs(call: CheckedCall) -> int:
    """Return the rows of the contraction a partition: 2 in the mode double_row."""
    if call["perf_mode"] == "double_row":
        return 2
    return 1


def _float8(call: CheckedCall) -> None:
    """Require NeuronCore-v4 for OCP's float8_e4m3fn, and no mix with float8_e4m3 (v2.32.0)."""
    dtypes = (call["stationary"].dtype, call["moving"].dtype)
    if FLOAT8_E4M3FN not in dtypes:
        return
    shown = f"stationary {dtype_name(dtypes[0])}, moving {dtype_name(dtypes[1])}"
    if call.machine.nc_version < 4:
        raise call.refused(
            "takes float8_e4m3fn on NeuronCore-v4 and later",
            f"got float8_e4m3fn on {call.machine.name}",
            shown,
            error=DtypeError,
            remedy="use float8_e4m3, whose largest value is 240",
        )
    if FLOAT8_E4M3 in dtypes:
        raise call.refused(
            "does not mix float8_e4m3 with float8_e4m3fn",
            "got float8_e4m3 with float8_e4m3fn",
            shown,
            error=DtypeError,
        )


def _double_row(call: CheckedCall) -> None:
    """Require operands for the mode double_row (AWS ``nki.isa.nc_matmul`` at tag v2.32.0)."""
    if call["perf_mode"] != "double_row":
        return
    wrong = _fault_of_double_row(call)
    if wrong is None:
        return
    size = call["tile_size"]
    received = f"stationary {call['stationary']!r}, moving {call['moving']!r} on "
    received += call.machine.name
    if size:
        received += f", tile_size={size}"
    raise KernelError(
        f"nc_matmul's perf_mode double_row: {wrong}",
        happened="nc_matmul got perf_mode double_row with operands that it does not take",
        received=received,
        remedy="give both operands the shape [K, 2, n], in float8_e4m3 or float8_e5m2",
    )


def _fault_of_double_row(call: CheckedCall) -> str | None:
    """Return the rule of double_row that a call breaks; None if it keeps all of them."""
    sides = call["stationary"], call["moving"]
    size = call["tile_size"]
    if call.machine.nc_version < 3:
        return "it needs NeuronCore-v3"
    if any(side.dtype not in FLOAT8 for side in sides):
        return "both operands are of float8"
    if any(side.shape[1:2] != (2,) for side in sides):
        return "the first free dimension of both operands is 2"
    if size and size[1] < call.machine.gemm_stationary_fmax:
        return "it does not go with column tiling"
    return None


def _free_sizes(call: CheckedCall) -> None:
    """Limit the operands' free sizes to the array's and PSUM's (AWS: nki.isa.nc_matmul).

    The limits are 128 and 512. On NeuronCore-v4 a product may fill all banks (v2.32.0).
    """
    machine = call.machine
    most = machine.gemm_moving_fmax
    source = "nl.tile_size.gemm_moving_fmax"
    if machine.nc_version >= 4:
        itemsize = call.wanted_dtype(FLOAT32).itemsize
        most = machine.psum_partition_bytes // itemsize
        source = "all banks of PSUM"
    for name, limit, why in (
        (
            "stationary",
            machine.gemm_stationary_fmax,
            "nl.tile_size.gemm_stationary_fmax",
        ),
        ("moving", most, source),
    ):
        if call[name].free_size // _pairs(call) <= limit:
            continue
        error = functools.partial(_too_wide, call, name, limit, why)
        if name == "stationary":
            raise error()
        call.remark(error, report_undefined)  # AWS's simulator computes it


def _too_wide(call: CheckedCall, name: str, limit: int, why: str) -> LimitError:
    """Return the error for an operand with more elements a partition than the array takes."""
    tile: Descriptor = call[name]
    size = tile.free_size // _pairs(call)
    return LimitError(
        f"the free size of nc_matmul's {name} operand is at most {limit}",
        happened=f"nc_matmul's {name} operand has {size} elements a partition",
        received=f"{name} {list(tile.shape)}: {size} elements a partition",
        limit=f"{limit} ({why})",
        remedy=f"loop over tiles of {limit}",
    )


def pe_tile_rule(
    fault_of: Callable[[CheckedCall, Shape, Shape], str | None],
) -> Rule:
    """Return the rule for a tile of the PE array (``tile_position`` and ``tile_size``).

    ``fault_of`` returns the rule that a tile of this position and size breaks, or None.
    """

    @functools.wraps(fault_of)
    def rule(call: CheckedCall) -> None:
        position = call["tile_position"]
        size = call["tile_size"]
        if not position and not size:
            return
        wrong: str | None = "both are set, each (row, column)"
        if len(position) == len(size) == 2:
            wrong = fault_of(call, position, size)
        if wrong is not None:
            raise KernelError(
                f"{call.name}'s PE tiling: {wrong}",
                happened=f"{call.name} got the PE tile {position} of the size {size}",
                received=f"tile_position={position}, tile_size={size}, "
                f"stationary {list(call['stationary'].shape)}",
            )

    return rule


@pe_tile_rule
def _pe_tile(call: CheckedCall, position: Shape, size: Shape) -> str | None:
    """Require the documented rules of PE tiling."""
    machine = call.machine
    stationary: Descriptor = call["stationary"]
    columns = stationary.free_size // _pairs(call)
    step = machine.pe_tile_step
    if any(int(value) % step for value in position + size):
        return f"values are multiples of {step}"
    if size[0] < stationary.partitions or size[1] < columns:
        return "tile_size is at least the stationary tile's size"
    if size[0] == size[1] == step and machine.nc_version == 2:
        return f"({step}, {step}) tiles need NeuronCore-v3"
    if any(p + s > machine.partitions for p, s in zip(position, size, strict=True)):
        return "the PE tile is inside the PE array"
    return None


def _pe_tile_of_today(call: CheckedCall) -> None:
    """Require tiles of the PE array as v2.32.0 describes them.

    The stub contradicts itself on columns: its text has column tiles, its parameters have none.
    They change no value, and are accepted.
    """
    position = call["tile_position"]
    size = call["tile_size"]
    if len(position) != len(size) or not size:
        return
    sizes = call.machine.pe_tile_sizes
    if any(
        extent not in sizes or at % extent
        for at, extent in zip(position, size, strict=True)
    ):
        raise KernelError(
            "a tile of the PE array starts at a multiple of its size",
            happened=f"nc_matmul got the PE tile {position} of the size {size}",
            received=f"tile_position={position}, tile_size={size} on {call.machine.name}",
            limit=f"sizes of {', '.join(map(str, sizes))}",
        )


def one_bank(call: CheckedCall) -> None:
    """Require a matmul's destination in one PSUM bank, before NeuronCore-v4."""
    dst = call.destinations.get("dst")
    machine = call.machine
    if dst is None or dst.span is None or machine.nc_version >= 4:
        return
    first, last = dst.span
    if first // machine.psum_bank_bytes == last // machine.psum_bank_bytes:
        return
    moving = call.operands.get("moving")
    if moving is None or moving.free_size // _pairs(call) <= machine.gemm_moving_fmax:
        raise _crosses_banks(call)
    # it follows from the wide operand
    call.remark(functools.partial(_crosses_banks, call), report_undefined)


def _crosses_banks(call: CheckedCall) -> LimitError:
    """Return the error for a destination in two PSUM banks or more."""
    dst = call.destinations["dst"]
    machine = call.machine
    assert dst.span is not None
    first, last = dst.span
    return LimitError(
        "a matmul accumulates inside one PSUM bank",
        happened="a matmul's destination crosses PSUM banks",
        received=f"{dst!r}: bytes {first} to {last} of the partition",
        limit=f"banks of {machine.psum_bank_bytes} bytes "
        f"({machine.psum_fmax} float32, nl.tile_size.psum_fmax)",
        remedy=f"use PSUM tiles of at most {machine.psum_fmax} float32 a partition",
    )


def _product(call: CheckedCall) -> Result:
    """Return [M, ...N], float32, in PSUM for ``stationary`` [K, M] and ``moving`` [K, ...N]."""
    stationary = call["stationary"]
    moving = call["moving"]
    pairs = _pairs(call)
    shape = (stationary.free_size // pairs, *(moving.shape[pairs:] or (1,)))
    return Result(shape, call.wanted_dtype(FLOAT32), Space.PSUM)


def _iterations(call: CheckedCall) -> IterationSpace:
    """Return a mask's axes: the contraction, the result's partitions and its free axes.

    With two rows a partition (double_row), these rows are an axis of their own, after the first.
    """
    stationary = call["stationary"]
    moving = call["moving"]
    pairs = _pairs(call)
    columns = stationary.free_size // pairs
    shape = stationary.shape[:pairs] + (columns,) + moving.shape[pairs:]
    rows = tuple(range(pairs))
    free = tuple(range(pairs + 1, len(shape)))
    axes = {
        "stationary": (*rows, pairs),
        "moving": rows + free,
        "dst": (pairs, *free),
    }
    return IterationSpace(shape, shape, axes)


def multiplied(call: CheckedCall, left: Array, right: Array) -> Array:
    """Return ``left.T @ right`` over the partitions, and over both rows of each in double_row."""
    depth = len(left) * (2 if call.options.get("perf_mode") == "double_row" else 1)
    product: Array = np.matmul(left.reshape(depth, -1).T, right.reshape(depth, -1))
    return product


def product_of(left: Array, right: Array, out: Array | None = None) -> Any:
    """Return ``left.T @ right`` in float32; no element depends on its place.

    For subnormal numbers a processor takes a hundred times as long. So they are scaled up by powers
    of two, which change no digit of other numbers.
    """
    core = RUNNING.get(None)
    if core is not None and core.subnormals.tensors:
        core.subnormals.look()
    if core is not None and core.subnormals.found:
        peaks = [float(np.abs(side).max(initial=0.0)) for side in (left, right)]
        if peaks[0] * peaks[1] * len(left) < 2.0**78 and max(peaks) < 2.0**103:
            left, right = (side * np.float32(2.0**24) for side in (left, right))
            return np.multiply(product(left, right), np.float32(2.0**-48), out=out)
    return product(left, right, out)


# ``accumulate=None`` overwrites where no matmul has written since the tensor was made, or since
# another instruction wrote there, and adds elsewhere. True and False choose directly (stub of
# ``nisa.nc_matmul``, v2.32.0, "Accumulation mode"). Adding where no matmul wrote is undefined.


class AccumulationWarning(UserWarning):
    """A matmul adds to another instruction's result, which is undefined on trn1 and trn2."""


def accumulation_mode(core: Core, issued: InstructionUse) -> None:
    """Decide whether a matmul adds to ``dst``: None if it adds to some elements only."""
    accumulate = issued.options[0]
    dst = issued.dst
    if accumulate is None:
        issued.said = (("inferred", True),)
        started = _products(dst)
        if started.all():
            adds = True
        elif started.any():
            adds = None
        else:
            adds = False
    elif isinstance(accumulate, (bool, np.bool_)):
        adds = bool(accumulate)
        if adds and core.trace.dialect == "nki":
            _check_start(core, dst)
    else:
        raise call_error(
            "nc_matmul",
            "takes accumulate as True, False or None",
            f"got accumulate={accumulate!r:.40}",
            f"accumulate={accumulate!r:.60}",
        )
    issued.options = (adds, *issued.options[1:])


def _products(dst: Any) -> Any:
    """Return where a matmul was the last to write; never for elements named by indices."""
    products = dst._storage.products if isinstance(dst, Tile) else None
    if products is None or (dst._strided and dst._pattern is dst._storage.whole):
        if products is None:
            return np.False_
        return products
    return dst._in_product()


def _check_start(core: Core, dst: Any) -> None:
    """Report an addition to elements not written by a matmul."""
    if not isinstance(dst, Tile) or _products(dst).all():
        return
    if dst._fresh() is not None:
        raise SUM_WITHOUT_START(f"{dst!r}, of which elements were never written")
    if core.machine.nc_version < 4:
        warn_of_hazard(
            AccumulationWarning(
                f"nc_matmul adds to {dst!r}, which another instruction wrote: that is undefined "
                f"on NeuronCore-v2 and v3 ({kernel_location()}). Use accumulate=False for the "
                "first matmul, or leave accumulate out."
            )
        )


multiplying = functools.partial(
    instruction,
    Engine.TENSOR,
    facts=lambda call: {} if call["accumulate"] is False else {"accumulate": True},
    resolves=accumulation_mode,
    reads_dst=lambda call: call["accumulate"] is not False,
    in_place=True,
    purpose=Purpose.PRODUCT,
)
"""The record of a product, whose meaning writes or adds it to ``dst`` (``accumulate``)."""


@multiplying(
    operands=(
        Role("stationary", by_offsets=True, buffers=SBUF_ONLY, dtypes=MATMUL_DTYPES),
        Role("moving", by_offsets=True, buffers=SBUF_ONLY, dtypes=MATMUL_DTYPES),
    ),
    options=("accumulate", "tile_position", "tile_size", "perf_mode"),
    destinations=(Role("dst", buffers=PSUM_ONLY),),
    limits=(
        "partitions",
        "psum_partition_bytes",
        "psum_bank_bytes",
        "gemm_stationary_fmax",
        "gemm_moving_fmax",
        "pe_tile_step",
        "pe_tile_sizes",
    ),
    rules=(one_contraction, _float8, _double_row, _free_sizes, _pe_tile, one_bank),
    only={"nki": (_pe_tile_of_today,)},
    result=_product,
    walk=_iterations,
    moves=multiplied,
)
def nc_matmul(
    call: CheckedCall, dst: Tile, stationary: Tile, moving: Tile, *, where: Array | None
) -> None:
    """``dst = stationary.T @ moving`` (``dst +=`` if it accumulates), in float32, in one bank.

    With ``accumulate`` None it adds where a matmul was the last to write, and overwrites elsewhere.
    In the mode double_row each partition has two rows of the contraction.
    """
    left = stationary._engine_values(unwritten=True)
    right = moving._engine_values(unwritten=True)
    depth = len(left) * (2 if call.options["perf_mode"] == "double_row" else 1)
    storage = dst._storage
    is_new = storage.validity is UNTOUCHED and dst.dtype == storage.dtype == FLOAT32
    is_new = is_new and dst._strided and dst._pattern is storage.whole
    # A new tensor has nothing to add to, and no mask: a mask would have noted its elements.
    product = storage.data if is_new else np.empty(call.result.shape, dtype=np.float32)
    columns = product.reshape(len(product), -1)
    sides = left.reshape(depth, -1), right.reshape(depth, -1)
    product_of(*sides, columns)
    if where is None and may_count(product):
        _look_at_product(call, dst, product, sides)
    put_product(call, dst, product, where)


def _look_at_product(
    call: CheckedCall, dst: Tile, product: Array, sides: tuple[Array, Array]
) -> None:
    """Note integers that float32 rounds in the product, or in its sum with ``dst``."""
    adds = call.options["accumulate"]
    held = (
        np.zeros(dst.shape)
        if adds is False
        else dst._values(unwritten=True).astype(np.float64)
    )
    if adds is None:
        held = np.where(dst._in_product(), held, 0.0)
    product = product.reshape(dst.shape)
    sizes = np.abs(product).max() + np.abs(held).max()
    if not sizes > EXACT_INTEGER or not all(
        (side == np.rint(side)).all() for side in sides
    ):
        return
    left, right = (side.astype(np.float64) for side in sides)
    exact = (left.T @ right).reshape(dst.shape)
    look_at_counts(product + held.astype(np.float32), exact + held)


def put_product(
    call: CheckedCall, dst: Tile, product: Array, where: Array | None
) -> None:
    """Store a product in its destination, or add it, as ``accumulate`` selects."""
    adds = call.options["accumulate"]
    storage = dst._storage
    if product is storage.data:
        storage.mark_whole()
    else:
        put: Callable[[Tile, Array, Array | None], None]
        if adds is None:
            put = accumulate_partly
        elif adds:
            put = accumulate
        else:
            put = write
        put(dst, product, where)
    if call.dialect != "nki":
        return
    if storage.products is None:
        storage.products = np.zeros(storage.size, BOOL)
    if dst._strided and dst._pattern is storage.whole:
        storage.products[...] = True
    else:
        dst._mark_product(True)


def accumulate_partly(dst: Tile, product: Array, where: Array | None = None) -> None:
    """Add a product where a matmul was the last to write, and overwrite elsewhere."""
    started = dst._in_product()
    product = product.reshape(dst.shape)
    held = dst._values(unwritten=True)  # only a matmul's elements are used
    write(dst, np.where(started, held + product, product), where)


def accumulate(dst: Tile, product: Array, where: Array | None = None) -> None:
    """Add a product to a PSUM tile, in float32."""
    held = dst._values(unwritten=True)
    if held.dtype != FLOAT32:
        held = as_float(held)
    if product.shape != held.shape:
        product = product.reshape(held.shape)
    in_place = where is None and dst.dtype == FLOAT32 and dst._strided
    if in_place and (dst._pattern is dst._storage.whole or not dst._pattern.repeats()):
        np.add(held, product, out=held)
    else:
        write(dst, held + product, where)


def _add(call: CheckedCall, dst: Tile, product: Tile, *, where: Array | None) -> None:
    """Add a product; the first product of a group overwrites unwritten elements."""
    product._storage.allocation.absorbed += 1
    values = product._engine_values(unwritten=True)
    fresh = dst._fresh()
    if fresh is None and where is None and may_count(values):
        held = dst._values(unwritten=True).reshape(values.shape).astype(np.float32)
        look_at_counts(held + values, held.astype(np.float64) + values)
    if fresh is None:
        accumulate(dst, values, where)
        return
    values = values.reshape(dst.shape)
    if call["accumulate"]:
        values = values + np.where(
            fresh, np.float32(0), as_float(dst._values(unwritten=True))
        )
    if where is not None:
        dst._storage.leave_out()
    write(dst, values, where)


added_product = replace(
    nc_matmul,
    operands=(Role("product", buffers=PSUM_ONLY),),
    rules=(one_bank,),
    only={},
    result=lambda call: Result(
        call["product"].shape, call.wanted_dtype(FLOAT32), Space.PSUM
    ),
    resolves=None,
    walk=None,
    moves=moved,
    meaning=_add,
)
"""nc_matmul with ``accumulate`` for an existing product: ``psum += product``."""


# -- nc_transpose ----------------------------------------------------------------------------------


def _transpose_engine(call: CheckedCall, wanted: Engine) -> Engine:
    """Choose the Tensor Engine from SBUF to PSUM, else the Vector Engine, unless one is named."""
    dst = call.destinations.get("dst")
    by_vector = call["data"].space is Space.PSUM or (
        dst and dst.space is not Space.PSUM
    )
    if wanted is Engine.UNKNOWN and by_vector:
        wanted = Engine.VECTOR
    return choose_engine(call, wanted)


def _transposable(call: CheckedCall) -> None:
    """Limit sizes to each engine's transpose (AWS: nki.isa.nc_transpose)."""
    machine = call.machine
    engine = call.engine
    data = call["data"]
    if engine is Engine.TENSOR and data.space is not Space.SBUF:
        raise wrong_buffer(data, "data", "nc_transpose on the Tensor Engine", SBUF_ONLY)
    limit = (
        machine.partitions if engine is Engine.TENSOR else machine.vector_transpose_max
    )
    largest = max(data.free_size, data.partitions)
    if largest <= limit:
        return

    def too_large() -> LimitError:
        return LimitError(
            f"a transpose on the {engine.value} engine takes at most {limit} x {limit} elements",
            happened=f"{call.name} got {data.partitions} x {data.free_size} elements",
            received=f"data {list(data.shape)}: {data.partitions} partitions, "
            f"{data.free_size} elements each",
            limit=f"{limit} partitions, {limit} elements each",
            remedy="transpose tile by tile",
        )

    if call.into_existing or largest > machine.partitions:
        raise too_large()
    call.remark(too_large)  # a device ran a 128 x 128 transpose on the Vector Engine


def _tensor_engine_writes_psum(call: CheckedCall) -> None:
    dst = call.destinations.get("dst")
    if call.engine is Engine.TENSOR and dst is not None and dst.space is not Space.PSUM:
        raise wrong_buffer(dst, "dst", "nc_transpose on the Tensor Engine", PSUM_ONLY)


def _transposed(call: CheckedCall) -> Result:
    """Return [F, P] for data [P, ...F]: the free axes collapse into one."""
    data: Descriptor = call["data"]
    space = Space.PSUM if call.engine is Engine.TENSOR else Space.SBUF
    return Result(
        (data.free_size, data.partitions), call.wanted_dtype(data.dtype), space
    )


def _data_iterations(call: CheckedCall) -> IterationSpace:
    """Return the data as a mask's range, with collapsed free axes."""
    data: Descriptor = call["data"]
    return IterationSpace(
        data.shape, (data.partitions, data.free_size), {"data": (0, 1), "dst": (1, 0)}
    )


@instruction(
    Engine.TENSOR,
    Engine.VECTOR,
    operands=(Role("data"),),
    limits=("partitions", "vector_transpose_max"),
    rules=(_transposable, _tensor_engine_writes_psum),
    engine=_transpose_engine,
    result=_transposed,
    walk=_data_iterations,
    moves=moved,
    purpose=Purpose.TRANSPOSE,
)
def nc_transpose(call: CheckedCall, data: Array) -> Any:
    """``dst = data.T`` between the partition axis and the collapsed free axes."""
    return rows(data).T.copy()
