"""Reductions, scans and statistics, along free axes and across partitions."""

from __future__ import annotations

from tests.fuzz.elementwise import (
    COMPARISONS,
    LOGICAL,
    note_zeros,
    registers,
)
from tests.fuzz.exactness import LOOSE, ROUGH, Quality, total
from tests.fuzz.operands import FLOATS, INTEGERS, elements, number, operand, vector
from tests.fuzz.scene import Operand, Scene, Shape
from tests.fuzz.sinks import finish

ORDERED = ("max", "min")
INTEGER_REDUCTIONS = ("bitwise_and", "bitwise_or", "bitwise_xor")
REDUCTIONS = ("add", "max", "min", "subtract", "maximum", "minimum", *LOGICAL, *INTEGER_REDUCTIONS)


def _reduced(shape: Shape, axes: tuple[int, ...], *, keepdims: bool) -> Shape:
    if keepdims:
        return tuple(1 if k in axes else size for k, size in enumerate(shape))
    kept = tuple(size for k, size in enumerate(shape) if k not in axes)
    return kept if len(kept) > 1 else (*kept, 1)


def _summable(scene: Scene, op: str) -> Operand:
    """A tile to reduce with ``op``: for sums one that is exact in any order."""
    note_zeros(scene, op)
    if op in INTEGER_REDUCTIONS:
        return operand(scene, dtypes=INTEGERS)
    return operand(scene, exact=op in ("add", "subtract", "sum", "mean", "logical_xor"))


def _quality(op: str, data: Operand) -> Quality:
    if op in ("add", "subtract", "sum"):
        return total(data.quality, elements(data.shape))
    return Quality(1) if op in LOGICAL else data.quality


def _order_matters(op: str, data: Operand) -> bool:
    """Whether the sum of so many values no longer is exact in any order."""
    summed = total(data.quality, elements(data.shape))
    return op in ("add", "subtract", "sum", "mean") and not summed.exact


def tensor_reduce(scene: Scene) -> Operand | None:
    choices = scene.choices
    op = choices.pick(REDUCTIONS)
    data = _summable(scene, op)
    if _order_matters(op, data):
        return None
    ndim = len(data.shape)
    first = choices.integer(1, ndim - 1)
    axes = tuple(range(first, ndim))
    if choices.chance(25):  # a note: a device reduced other axes too
        axes = tuple(sorted({choices.integer(1, ndim - 1) for _ in range(choices.integer(1, 2))}))
    if scene.spoil():
        axes = (choices.integer(0, ndim),)
    keepdims = choices.chance(40)
    shape = _reduced(data.shape, axes, keepdims=keepdims)
    bitvec = op in INTEGER_REDUCTIONS
    extra, dtype, masked = "", data.dtype, False
    if not bitvec:
        extra, dtype, masked = finish(scene, shape, data.dtype, over=data.shape)
    if choices.chance(20) and (not bitvec or scene.spoil()):
        extra += ", negate=True"
    words = axes[0] if len(axes) == 1 else list(axes)
    text = f"nisa.tensor_reduce(nl.{op}, {data.text}, axis={words}, keepdims={keepdims}{extra})"
    return Operand(
        text, shape, dtype, quality=_quality(op, data), masked=masked, opcode="nisa.tensor_reduce"
    )


def language_reduction(scene: Scene) -> Operand | None:
    """``nl.sum``, ``nl.max``, ``nl.min``; ``nl.mean`` and ``nl.var`` are only close."""
    choices = scene.choices
    op = choices.pick(("sum", "max", "min", "mean", "var", "softmax"))
    data = _summable(scene, op)
    if _order_matters(op, data):
        return None
    ndim = len(data.shape)
    axes = tuple(sorted({choices.integer(1, ndim - 1) for _ in range(choices.integer(1, 2))}))
    keepdims = op in ("sum", "max", "min", "mean") and choices.chance(40)
    shape = data.shape if op == "softmax" else _reduced(data.shape, axes, keepdims=keepdims)
    loose = op in ("mean", "var", "softmax")
    if loose:
        data = operand(scene, data.shape, dtypes=FLOATS[:3], exact=True)
        note_zeros(scene, "max")
    extra, dtype, masked = finish(
        scene, shape, data.dtype, masks=not loose, loose=loose, over=data.shape
    )
    words = axes[0] if len(axes) == 1 else list(axes)
    if keepdims:
        extra += ", keepdims=True"
    quality = LOOSE if loose else _quality(op, data)
    return Operand(
        f"nl.{op}({data.text}, axis={words}{extra})",
        shape,
        dtype,
        quality=quality,
        masked=masked,
        opcode=f"nl.{op}",
    )


def partition_reduce(scene: Scene) -> Operand | None:
    choices = scene.choices
    op = choices.pick(("add", "max", "bitwise_or", "bitwise_and"))
    note_zeros(scene, op)
    dtypes = INTEGERS if op.startswith("bitwise") and not choices.chance(15) else None
    data = operand(scene, dtypes=dtypes, spaces=("sbuf",), exact=op == "add")
    if _order_matters(op, data):
        return None
    shape = (1, *data.shape[1:])
    extra, dtype, masked = finish(scene, shape, data.dtype, over=data.shape)
    quality = ROUGH if op.startswith("bitwise") else _quality(op, data)
    return Operand(
        f"nisa.tensor_partition_reduce(nl.{op}, {data.text}{extra})",
        shape,
        dtype,
        quality=quality,
        masked=masked,
        opcode="nisa.tensor_partition_reduce",
    )


def tensor_scalar_reduce(scene: Scene) -> Operand | None:
    choices = scene.choices
    data = operand(scene, exact=True)
    op0 = choices.pick(("add", "subtract", "maximum", "minimum", *COMPARISONS, "logical_and"))
    if choices.chance(8):
        op0 = choices.pick(("abs", "logical_not", "invert", "reciprocal"))
    text, quality = number(scene)
    if choices.chance(30):
        column = vector(scene, data.shape[0])
        text, quality = column.text, column.quality
    note_zeros(scene, "max")
    result = total(Quality(1) if op0 in COMPARISONS else data.quality, 2)
    if quality.magnitude is None:
        return None
    result = Quality(
        max(result.magnitude or 0, quality.magnitude) + 1, max(result.fraction, quality.fraction)
    )
    if not total(result, elements(data.shape)).exact:
        return None
    reduce_op = choices.pick(("add", "subtract", "max", "min"))
    into = registers(scene, data, result)
    extra, dtype, masked = finish(scene, data.shape, data.dtype)
    text = (
        f"nisa.tensor_scalar_reduce(data={data.text}, op0=nl.{op0}, operand0={text}, "
        f"reduce_op=nl.{reduce_op}, reduce_res={into}{extra})"
    )
    return Operand(
        text,
        data.shape,
        dtype,
        quality=result,
        masked=masked,
        opcode="nisa.tensor_scalar_reduce",
    )


def scan(scene: Scene) -> Operand:
    choices = scene.choices
    data0 = operand(scene)
    spaces = ("sbuf",) if data0.space == "psum" else ("sbuf", "psum")
    shape = data0.shape
    if choices.chance(15):  # the same elements in other dimensions
        shape = (shape[0], elements(shape[1:])) if len(shape) > 2 else (shape[0], 1, shape[1])
    data1 = operand(scene, shape, spaces=spaces)
    first, second = (
        choices.pick(("multiply", "add", "maximum")),
        choices.pick(("add", "maximum", "subtract", "minimum")),
    )
    note_zeros(scene, "max")
    start = vector(scene, data0.shape[0]).text if choices.chance(50) else number(scene)[0]
    extra, dtype, masked = finish(scene, data0.shape, data0.dtype)
    if dtype == data0.dtype and not extra.startswith(", dtype"):
        dtype = "float32"
        extra = ", dtype=nl.float32" + extra
    for flag in ("reverse0", "reverse1"):
        if choices.chance(20):
            extra += f", {flag}=True"
    text = (
        f"nisa.tensor_tensor_scan({data0.text}, {data1.text}, {start}, "
        f"op0=nl.{first}, op1=nl.{second}{extra})"
    )
    return Operand(
        text, data0.shape, dtype, quality=ROUGH, masked=masked, opcode="nisa.tensor_tensor_scan"
    )


def statistics(scene: Scene) -> Operand:
    """``bn_stats`` and ``bn_aggr``: means, and so only close."""
    data = operand(scene, exact=True, dtypes=FLOATS[:2])
    extra, dtype, masked = finish(scene, (data.shape[0], 6), "float32", loose=True, over=data.shape)
    if "dtype=" not in extra:
        extra, dtype = f", dtype=nl.float32{extra}", "float32"
    stats = f"nisa.bn_stats({data.text}{extra})"
    if masked or scene.choices.chance(50):
        return Operand(
            stats, (data.shape[0], 6), dtype, quality=LOOSE, masked=masked, opcode="nisa.bn_stats"
        )
    return Operand(
        f"nisa.bn_aggr({stats})", (data.shape[0], 2), dtype, quality=LOOSE, opcode="nisa.bn_aggr"
    )
