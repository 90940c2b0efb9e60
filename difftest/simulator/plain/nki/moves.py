"""Today's dialect in plain mode: tensors made, filled, copied and moved."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import as_dtype, is_float
from difftest.simulator.errors import DtypeError, KernelError, ShapeError, not_modelled
from difftest.simulator.frontend.arguments import engine as engines
from difftest.simulator.frontend.arguments import reduce_cmd as classic_commands
from difftest.simulator.frontend.nki.constants import oob_mode, space_of
from difftest.simulator.plain import rules
from difftest.simulator.plain.copies import cast, constant, loaded_shape, lost_on_the_way
from difftest.simulator.plain.indices import Shape, Slice, integers
from difftest.simulator.plain.meanings import means, meant
from difftest.simulator.plain.nki.running import TODAYS
from difftest.simulator.plain.nki.tensors import PlainNkiTensor, refuse
from difftest.simulator.plain.rounding import is_number
from difftest.simulator.plain.running import current
from difftest.simulator.plain.tensors import OUTSIDE, PlainTensor
from difftest.simulator.strictness import note
from difftest.simulator.trace import Space

ANY = rules.view(*rules.HBM, *rules.ON_CHIP)
DMA = rules.view(*rules.DMA)
_PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def into(dst: PlainTensor, made: PlainTensor) -> None:
    """The elements of a result to a destination of as many, one after the other."""
    fits = dst.shape[:1] == made.shape[:1] and dst.size == made.size
    rules.require(fits, "dst has the result's partitions and elements in each", dst, made)
    gone = made.holes(np.ones(made.shape, np.bool_))
    dst.write(made.read(~gone).reshape(dst.shape))
    dst.forget(gone.reshape(dst.shape))


def tile(value: Any, name: str, where: str) -> PlainNkiTensor:
    """A role: a tensor on chip."""
    checked: PlainNkiTensor = rules.view(*rules.ON_CHIP)(value, name, where)
    return checked


def _shape(shape: Any, name: str, where: str) -> Shape:
    sizes = integers(shape, "a shape")
    if not sizes or min(sizes) < 1:
        refuse("a shape has positive sizes", shape)
    return sizes


def _space(value: Any, name: str, where: str) -> Space:
    return space_of(value, where)


NEW = {"shape": _shape, "dtype": rules.needed_dtype, "buffer": _space}


@means(f"{TODAYS}nl.ndarray", **NEW)
def ndarray(shape: Shape, dtype: Any, buffer: Space, name: str, address: Any) -> PlainTensor:
    """A new tensor of which nothing is written."""
    if address is not None:
        raise not_modelled("addresses in plain mode", f"{address!r}")
    return current().allocate(shape, dtype, buffer, name=name)


@means(f"{TODAYS}nl.full", fill_value=rules.number, **NEW)
def full(shape: Shape, fill_value: Any, dtype: Any, buffer: Space, name: str) -> PlainTensor:
    """A new tensor of one number."""
    tensor = ndarray(shape, dtype, buffer, name, None)
    tensor.put(np.full(shape, constant(fill_value, dtype)))
    return tensor


@means(f"{TODAYS}nl.zeros", **NEW)
def zeros(shape: Shape, dtype: Any, buffer: Space, name: str) -> PlainTensor:
    """A new tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


@means(f"{TODAYS}nl.ones", **NEW)
def ones(shape: Shape, dtype: Any, buffer: Space, name: str) -> PlainTensor:
    """A new tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


@means(f"{TODAYS}nl.ds")
def ds(start: Any, size: Any) -> Slice:
    """``size`` elements from ``start``, which may be none."""
    return Slice(start, size, least=0)


@means(f"{TODAYS}nl.program_id")
def program_id(axis: Any) -> int:
    """The number of this program: one program runs in plain mode."""
    return int(meant("nl.program_id", axis=axis)) if current().grid else 0


@means(f"{TODAYS}nl.num_programs")
def num_programs(axes: Any) -> int:
    """The number of programs of the launch."""
    return int(meant("nl.num_programs", axes=axes)) if current().grid else 1


@means(f"{TODAYS}nl.affine_range", f"{TODAYS}nl.sequential_range", f"{TODAYS}nl.static_range")
def loop(start: Any, stop: Any, step: Any) -> range:
    """Python's range."""
    given = (0, start, step) if stop is None else (start, stop, step)
    return range(*integers(given, "a loop's bounds"))


@means(f"{TODAYS}nisa.memset", dst=tile, value=rules.number)
def memset(dst: PlainTensor, value: Any, engine: Any) -> None:
    """Every element becomes a number of dst's own kind."""
    if isinstance(value, float) and not (is_float(dst.dtype) or value.is_integer()):
        refuse("memset takes a value of dst's own kind", value, DtypeError)
    dst.put(np.full(dst.shape, constant(value, dst.dtype)))


@means(f"{TODAYS}assignment")
def assign(target: Any, value: Any) -> None:
    """``target[...] = value``: a number or a copy on chip, by DMA where a side lies in HBM."""
    if is_number(value):
        whole = tile(target, "target", "assignment")
        whole.put(np.full(whole.shape, constant(value, whole.dtype)))
        return
    target, value = (ANY(one, "a side", "assignment") for one in (target, value))
    if not (target.in_hbm or value.in_hbm):
        tensor_copy(target, value, engines.unknown)
        return
    error = KernelError(
        "HBM is read and written by DMA",
        happened="an assignment had a side in HBM",
        received=f"{target} = {value}",
    )
    for side in (target, value):
        DMA(side, "a side", "assignment")
    note(error)
    meant(
        f"{TODAYS}nisa.dma_copy",
        dst=target,
        src=value,
        priority=None,
        oob_mode=oob_mode.error,
        dge_mode=None,
        engine=None,
    )


@means(f"{TODAYS}nisa.tensor_copy", dst=tile, src=tile)
def tensor_copy(dst: PlainTensor, src: PlainTensor, engine: Any) -> None:
    """``dst = src``: of one dtype bit by bit, but on the Scalar Engine; else through float32."""
    on_gpsimd = getattr(engine, "name", "") == "gpsimd"
    for side in (dst, src):
        rules.require(not (on_gpsimd and side.space is Space.PSUM), "GpSimd reaches SBUF", side)
    made = meant(
        "nisa.tensor_copy", src=src, dtype=dst.dtype, mask=None, engine=classic_engine(engine)
    )
    into(dst, made)


def classic_engine(value: Any) -> Any:
    """The member of the classic dialect's enumeration with the same name."""
    return engines[value.name]


def classic_command(command: Any, where: str) -> Any:
    """The classic dialect's command of the same name."""
    if command.name == "load_reduce":
        raise not_modelled(f"{where} with load_reduce in plain mode", f"{command}")
    return getattr(classic_commands, command.name)


def rows_of(value: Any) -> Any:
    """A tile as partitions and one free axis; anything else as it is."""
    return value.rows() if isinstance(value, PlainTensor) else value


# -- DMA ------------------------------------------------------------------------------------------


@means(f"{TODAYS}nisa.dma_copy", dst=DMA, src=DMA)
def dma_copy(
    dst: PlainTensor, src: PlainTensor, priority: Any, oob_mode: Any, dge_mode: Any, engine: Any
) -> None:
    """``dst = src`` in row-major order; what an offset puts outside is an error or is skipped."""
    rules.require(dst.size == src.size, "dma_copy moves as many elements as both have", dst, src)
    source = src.at(src.positions.reshape(dst.shape), None)
    inside = (dst.positions != OUTSIDE) & (source.positions != OUTSIDE)
    if oob_mode.name != "skip":
        dst.check_bounds()
        source.check_bounds()
    gone = lost_on_the_way(dst, source, inside)
    dst.write(cast(source, dst.dtype, inside & ~gone), inside)
    dst.forget(gone)


@means(f"{TODAYS}nisa.dma_transpose", dst=DMA, src=DMA)
def dma_transpose(
    dst: PlainTensor, src: PlainTensor, axes: Any, priority: Any, dge_mode: Any, oob_mode: Any
) -> None:
    """``dst = src`` with its dimensions in the documented order."""
    rules.require(src.ndim in _PERMUTATIONS, "dma_transpose takes 2 to 4 dimensions", src)
    order = _PERMUTATIONS[src.ndim]
    if axes is not None and integers(axes, "axes") != order:
        raise not_modelled("another permutation of dma_transpose", f"{axes!r}")
    turned = src.at(src.positions.transpose(order), None)
    current().check_partitions(turned.shape[0], "dma_transpose")
    same = dst.shape == turned.shape and dst.dtype == src.dtype and dst.space is Space.SBUF
    rules.require(same, "dma_transpose's dst in SBUF has the turned shape and src's dtype", dst)
    inside = turned.positions != OUTSIDE
    if oob_mode.name != "skip":
        turned.check_bounds()
    gone = lost_on_the_way(dst, turned, inside)
    dst.write(turned.read(inside & ~gone), inside)
    dst.forget(gone)


@means(f"{TODAYS}nl.load", src=rules.view(*rules.HBM))
def load(src: PlainTensor, dtype: Any) -> PlainTensor:
    """A new tile with the elements of a tensor in HBM."""
    wanted = src.dtype if dtype is None else as_dtype(dtype)
    src.check_bounds()
    made = current().allocate(loaded_shape(src.shape), wanted)
    _bring(made, src)
    return made


def _bring(dst: PlainTensor, src: PlainTensor) -> None:
    """The elements, one after the other; those that nothing wrote count so where they arrive."""
    source = src.at(src.positions.reshape(dst.shape), None)
    gone = lost_on_the_way(dst, source, np.ones(dst.shape, np.bool_))
    dst.write(cast(source, dst.dtype, ~gone))
    dst.forget(gone)


@means(f"{TODAYS}nl.store", dst=rules.view(*rules.HBM), value=rules.view(Space.SBUF))
def store(dst: PlainTensor, value: PlainTensor) -> PlainTensor:
    """A tile's elements to HBM."""
    rules.require(dst.size == value.size, "nl.store moves as many elements as both have", dst)
    dst.check_bounds()
    _bring(dst, value)
    return dst


@means(f"{TODAYS}nl.copy", x=tile)
def copy(x: PlainTensor, dtype: Any) -> PlainTensor:
    """A copy in SBUF; of one dtype bit by bit."""
    wanted = x.dtype if dtype is None else as_dtype(dtype)
    made = current().allocate(x.shape, wanted)
    _bring(made, x)
    return made


# -- integers -------------------------------------------------------------------------------------


def affine(dst: PlainTensor, pattern: Any, offset: Any, multiplier: Any) -> Any:
    """``offset + p * multiplier + sum(step * i)``, in the order of dst's elements."""
    pairs = [integers(pair, "a pattern's pair") for pair in pattern]
    total = len(dst.positions)
    numbers = np.arange(total) * integers(multiplier, "channel_multiplier")[0]
    numbers = numbers + integers(offset, "offset")[0]
    for step, count in pairs:
        numbers = numbers[..., None] + step * np.arange(count)
    if not 1 <= len(pairs) <= 4 or numbers.size != dst.size:
        raise ShapeError(
            "a pattern has up to four dimensions and dst's elements",
            happened="a pattern has another number of elements than dst",
            received=f"{pattern!r:.80}",
        )
    return numbers.reshape(dst.shape)


@means(f"{TODAYS}nisa.iota", dst=rules.view(Space.SBUF))
def iota(dst: PlainTensor, pattern: Any, offset: Any, channel_multiplier: Any) -> None:
    """Integers of 32 bits, cast to dst's dtype."""
    numbers = affine(dst, pattern, offset, channel_multiplier)
    limits = np.iinfo(np.int32)
    fits = numbers.min() >= limits.min and numbers.max() <= limits.max
    rules.require(fits, "iota computes in 32-bit integers", pattern, error=KernelError)
    dst.put(numbers if not is_float(dst.dtype) else numbers.astype(np.float32))
