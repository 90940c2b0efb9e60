"""The gate, which issues all instructions: check, read, compute, round, write and record.

The rules of the record are checked for the operands and for every destination. They depend on a
signature: buffers, dtypes, shapes, options. A signature that passed is kept with its
:class:`~difftest.simulator.instructions.record.CheckedCall`, and is not checked again. Checks that
depend on the data (bounds, written elements, values) run each time.

The kept calls also serve later launches of the same machine and dialect, because shrinking launches
hundreds of small kernels. So a call holds no tensor, and its errors name the tensors of each issue.
"""

from __future__ import annotations

import functools
import operator
from itertools import compress
from typing import Any

import numpy as np

from difftest.simulator.core import Core, current
from difftest.simulator.descriptor import RUNNING
from difftest.simulator.dtypes import NARROW, Array, DType, round_to, to_bits
from difftest.simulator.errors import NkiError, ShapeError
from difftest.simulator.index import Index
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import irregular_masks
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.anomalies import anomaly_checks, counts, overflowed
from difftest.simulator.instructions.checks import check_call
from difftest.simulator.instructions.definedness import UndefinedOperands
from difftest.simulator.instructions.record import (
    CheckedCall,
    DependenceClass,
    Instruction,
    InstructionUse,
    MaskedValues,
    moved,
)
from difftest.simulator.lifted import broadcast_mask
from difftest.simulator.machine import Machine
from difftest.simulator.memory import DEFINED
from difftest.simulator.misuses import WRITE_TO_CONSTANT, WRITE_TO_PARAMETER
from difftest.simulator.pattern import with_free_axes
from difftest.simulator.recording import InstructionAccesses, Part
from difftest.simulator.tile import Tile

_KEPT = 4096
"""The largest number of kept calls for each machine and dialect; then all of them are dropped."""
_CALLS: dict[tuple[Machine, str], dict[Any, CheckedCall]] = {}
"""Calls by machine and dialect, then by signature."""
_PLAIN = frozenset((float, int, type(None)))
"""The types of most operands other than tiles."""
_tuple = tuple.__new__  # a NamedTuple's own __new__ takes twice the time
_DISTINCT = (str, AluOp, type(None))
"""Types of options that equal no other option."""


def issue(
    instruction: Instruction,
    operands: tuple[Any, ...],
    options: tuple[Any, ...] = (),
    dst: Any = None,
    dtype: DType | None = None,
    **how: Any,
) -> Any:
    """Run an instruction and return its first destination.

    The parameters are those of :class:`InstructionUse`.

    Raises
    ------
    NkiError : a rule of the record is broken; nothing is written.
    """
    core: Core = RUNNING.get(None) or current()
    tape = core.tape
    if tape is None or tape.busy:
        return run_instruction(
            core, InstructionUse(instruction, operands, options, dst, dtype, **how)
        )
    how.update(dst=dst, dtype=dtype)
    return tape.noted("issue", _run_issued, core, instruction, operands, options, **how)


def _run_issued(core: Core, *args: Any, **how: Any) -> Any:
    return run_instruction(core, InstructionUse(*args, **how))


def run_instruction(core: Core, issued: InstructionUse) -> Any:
    """Run a requested use of an instruction, and set its ``dst``."""
    followers = core.followers
    for ask in followers.asked:
        ask(issued)
    if issued.instruction.resolves is not None and issued.options[0] is not False:
        issued.instruction.resolves(core, issued)
    call = checked_call(core, issued)
    if issued.dst is None:
        issued.dst = new_tile(core, call)
    for tell in followers.before:
        tell(call, issued)
    observer = followers.observer
    if observer is not None:
        observer.alarm = False
        for watch in call.cache.watches:
            watch(core, call, issued)
    if call.instruction.in_place:
        in_part = _run_in_place(core, call, issued)
    else:
        in_part = _run_on_values(core, call, issued)
    for tell in core.followers.after:
        tell(call, issued)
    _record_accesses(core, call, issued, in_part)
    return issued.dst


def _read_in_part(call: CheckedCall, issued: InstructionUse) -> list[Part]:
    """Return the operands that a mask restricts to the elements of the instruction."""
    assert issued.where is not None
    chosen = issued.where if issued.inner is None else issued.inner
    reach = call.instruction.reach(call)
    if call.instruction.walk is not None or reach not in (
        DependenceClass.ELEMENT,
        DependenceClass.AXES,
    ):
        return []
    tiles = [operand for operand in issued.operands if isinstance(operand, Tile)]
    return [(tile, chosen) for tile in tiles if tile.size == chosen.size]


def _undefined_operands(
    core: Core, call: CheckedCall, issued: InstructionUse
) -> UndefinedOperands | None:
    """Return the undefined elements of a call's operands; None if it may have none."""
    cache = call.cache
    if cache.is_indirect or (call.reduces and core.registers.origins):
        return UndefinedOperands(core, call, issued)
    for tile in compress(issued.operands, cache.are_tiles):
        if tile._storage.validity is not None:
            return UndefinedOperands(core, call, issued)
    if call.reads_dst and issued.dst._storage.validity is not None:
        return UndefinedOperands(core, call, issued)
    return None


def _run_in_place(core: Core, call: CheckedCall, issued: InstructionUse) -> list[Part]:
    """Run an instruction that reads its operands and writes ``dst`` by itself.

    Returns the operands that are touched in part.
    """
    in_part = [] if issued.where is None else _read_in_part(call, issued)
    undefined = issued.undefined = _undefined_operands(core, call, issued)
    if undefined is not None:
        undefined.predict()
    written = call.instruction.meaning(
        call, issued.dst, *issued.operands, where=issued.where
    )
    if written is not None:
        issued.where = written
    observer = core.followers.observer
    if observer is not None and observer.alarm:
        observer.look(call, issued, None)
    if undefined is not None:
        undefined.commit(issued.where)
    return in_part


def _run_on_values(core: Core, call: CheckedCall, issued: InstructionUse) -> list[Part]:
    """Compute an instruction's results from its operands' values, and write them.

    Returns the operands and further destinations that are touched in part.
    """
    in_part = [] if issued.where is None else _read_in_part(call, issued)
    undefined = issued.undefined = _undefined_operands(core, call, issued)
    compute = call.instruction.meaning
    if issued.inner is not None:
        compute = functools.partial(irregular_masks.meaning_by_dependence, issued.inner)
    if undefined is not None:
        results = undefined.results(compute)
    else:
        results = compute(
            call,
            *[
                op._engine_values() if isinstance(op, Tile) else op
                for op in issued.operands
            ],
        )
    observer = core.followers.observer
    if observer is not None and (observer.alarm or call.cache.counts):
        observer.look(call, issued, results)
    _write_results(call, issued, results, in_part)
    if undefined is not None:
        undefined.commit(issued.where)
    return in_part


def _write_results(
    call: CheckedCall, issued: InstructionUse, results: Any, in_part: list[Part]
) -> None:
    """Write results to the destinations, and set ``where`` to the written elements of ``dst``.

    Further destinations that are written in part are appended to ``in_part``.
    """
    if type(results) is np.ndarray:
        write(
            issued.dst,
            results,
            issued.where,
            kept=call.cache.keeps and issued.undefined is None,
        )
        return
    further: list[tuple[Tile, Any]] = []
    if type(results) is tuple:
        results, *rest = results
        further = _further_writes(issued, rest)
    if type(results) is MaskedValues:
        chosen = results.chosen
        issued.where = chosen if issued.where is None else chosen & issued.where
        results = results.values
    write(issued.dst, results, issued.where)
    # after dst, because its values may still be views of an operand among these
    for tile, value in further:
        if type(value) is MaskedValues:
            in_part.append((tile, value.chosen))
            write(tile, value.values, value.chosen)
        else:
            write(tile, value)


def _further_writes(
    issued: InstructionUse, results: list[Any]
) -> list[tuple[Tile, Any]]:
    """Return the destinations after ``dst`` with their results; all of them are writable."""
    further = []
    for tile, result in zip(issued.others, results, strict=True):
        if tile is not None:
            check_destination(tile)
            further.append((tile, result))
    return further


def _record_accesses(
    core: Core, call: CheckedCall, issued: InstructionUse, in_part: list[Part]
) -> None:
    """Record the reads and writes of an instruction."""
    numbers: tuple[Any, ...] = ()
    cache = call.cache
    if cache.numbers is not None and core.followers.touched:
        numbers = cache.numbers(issued.operands)
    if not cache.is_simple or issued.indices:
        _record_by_role(core, call, issued, in_part, numbers)
        return
    dst = issued.dst
    if issued.sources is None:
        reads = list(compress(issued.operands, cache.are_tiles))
    else:
        reads = list(issued.sources.values())
    if call.reads_dst:
        reads.append(dst)
    if issued.where is not None:
        in_part.append((dst, issued.where))
    values = (cache.kind, (dst,), reads, cache.roles, numbers, in_part, issued.moved)
    core.count(_tuple(InstructionAccesses, values))


def _record_by_role(
    core: Core,
    call: CheckedCall,
    issued: InstructionUse,
    in_part: list[Part],
    numbers: tuple[Any, ...],
) -> None:
    """Record the accesses of an instruction with indices, or with several destinations."""
    dst = issued.dst
    kind = call.cache.kind
    for index in issued.indices:
        if not isinstance(index, Tile):
            kind = kind.following(*index)
    if issued.where is not None and not isinstance(dst, IndirectTile):
        in_part.append((dst, issued.where))
    tells = core.followers.touched
    written = _written_by_role(call, issued)
    accesses = written + _read_by_role(call, issued)
    reached: dict[Any, Tile] = {}
    for access in (dst, *issued.operands):
        if isinstance(access, IndirectTile):
            tile = reached[id(access)] = access._reach
            in_part.append((tile, access._numbers() if tells else None))
    touched = [reached.get(id(access), access) for access, _ in accesses]
    roles = [role for _, role in accesses]
    writes = touched[: len(written)]
    reads = touched[len(written) :]
    core.count(
        InstructionAccesses(kind, writes, reads, roles, numbers, in_part, issued.moved)
    )


def _written_by_role(
    call: CheckedCall, issued: InstructionUse
) -> list[tuple[Any, str]]:
    """Return the destinations of an instruction with their roles."""
    written = [(issued.dst, "dst")]
    roles = call.instruction.destinations[1:]
    for role, other in zip(roles, issued.others, strict=False):
        if other is not None:
            written.append((other, role.name))
    return written


def _read_by_role(call: CheckedCall, issued: InstructionUse) -> list[tuple[Any, str]]:
    """Return the tiles that an instruction reads, index tiles included, with their roles."""
    read: list[tuple[Any, str]] = [
        (index, "index") for index in issued.indices if isinstance(index, Tile)
    ]
    for role, operand in zip(call.instruction.operands, issued.operands, strict=True):
        if isinstance(operand, (Tile, IndirectTile)):
            read.append((operand, role.name))
            read += _indices(operand)
    if call.reads_dst:
        read.append((issued.dst, "dst"))
    return read + _indices(issued.dst)


def _indices(access: Any) -> list[tuple[Tile, str]]:
    """Return the index tiles of an access."""
    tiles = access._index_tiles if isinstance(access, IndirectTile) else ()
    return [(tile, "index") for tile in tiles]


def kept_calls(machine: Machine, dialect: str) -> dict[Any, CheckedCall]:
    """Return the kept calls of this machine and dialect, for :attr:`Core.calls`."""
    return _CALLS.setdefault((machine, dialect), {})


def checked_call(core: Core, issued: InstructionUse) -> CheckedCall:
    """Return the checked call for these operands, from the kept calls if possible."""
    core.issued = issued
    dst = issued.dst
    if dst is None:
        written = None
    elif isinstance(dst, Tile):
        written = dst._signature()
    else:
        written = _signature(dst)
    key: tuple[Any, ...] = (
        issued.instruction,
        issued.options,
        issued.dtype,
        issued.engine,
        issued.said,
        issued.left_of is None or issued.left_of.dst is not None,
        written,
        *[
            operand._signature() if isinstance(operand, Tile) else _signature(operand)
            for operand in issued.operands
        ],
    )
    if issued.others:
        key += tuple(map(_signature, issued.others))
    call: CheckedCall | None = core.calls.get(key)
    if call is None or (
        call.cache.is_ambiguous
        and not all(map(operator.is_, call.options.values(), issued.options))
    ):
        call = _check_use(core, issued, key)
    for judge, error in call.remarks:
        judge(error())
    return call


def _check_use(core: Core, issued: InstructionUse, key: tuple[Any, ...]) -> CheckedCall:
    """Return the kept call of a key if it has the same options; otherwise check and keep it."""
    calls = core.calls
    call: CheckedCall | None = calls.get(key)
    if call is not None and not _has_other_options(call, issued):
        return call
    if len(calls) >= _KEPT:
        calls.clear()
    call = calls[key] = _check(core, issued)
    return call


def _check(core: Core, issued: InstructionUse) -> CheckedCall:
    """Check a call; only its shapes, if a call that differs in shapes alone passed before."""
    named = (issued.left_of or issued).dst is not None
    tiles = [
        (tile._space, tile.dtype) if isinstance(tile, Tile) else _signature(tile)
        for tile in (issued.dst, *issued.operands, *issued.others)
    ]
    options = issued.instruction, issued.options, issued.said
    key = "alike", *options, issued.dtype, issued.engine, named, *tiles
    alike: CheckedCall | None = core.calls.get(key)
    if alike is not None and not _has_other_options(alike, issued):
        return check_call(core, issued, alike)
    call = core.calls[key] = check_call(core, issued)
    cache = call.cache
    cache.watches = anomaly_checks(call)
    cache.counts = counts(call)
    dtypes = {call.result.dtype, *(tile.dtype for tile in call.tiles.values())}
    cache.keeps = (
        call.instruction.moves is moved and len(dtypes) == 1 and dtypes <= NARROW
    )
    cache.is_ambiguous = not all(
        isinstance(option, _DISTINCT) for option in issued.options
    )
    return call


def _has_other_options(call: CheckedCall, issued: InstructionUse) -> bool:
    """Return whether equal options are not the same."""
    if not call.cache.is_ambiguous:
        return False
    if all(map(operator.is_, call.options.values(), issued.options)):
        return False
    pairs = zip(call.options.values(), issued.options, strict=False)
    return any(
        repr(option) != repr(other) for option, other in pairs if option is not other
    )


def _signature(operand: Any) -> Any:
    """Return the part of an operand that rules may read: a number's type, an index's shape."""
    kind = type(operand)
    if kind in _PLAIN:
        return kind
    if isinstance(operand, (Tile, IndirectTile)):
        return operand._signature()
    if isinstance(operand, Index):
        return operand.shape
    return kind


def new_tile(core: Core, call: CheckedCall) -> Any:
    """Return a new tile for the result of a call."""
    result = call.result
    return core.tile._whole(core.hold(result.shape, result.dtype, result.space))


def check_destination(dst: Tile) -> None:
    """Raise unless ``dst`` is writable: inside its tensor, and not a parameter.

    The old values of an argument are kept here, or the kernel gets its own copy of it.
    """
    if dst._axes is not None:
        dst._check_bounds()
    storage = dst._storage
    if not storage.mutable:
        raise immutable(dst)
    if storage.lent:
        storage.prepare_write(dst._pattern, dst.dtype)


def write(
    dst: Tile, values: Array, where: Array | None = None, *, kept: bool = False
) -> None:
    """Round an instruction's results once into ``dst``'s dtype and store them.

    ``values`` broadcast to ``dst``. ``where`` limits the write to a mask's true elements. ``kept``
    means that the values are of ``dst``'s dtype already.
    """
    storage = dst._storage
    check_destination(dst)
    rounded = values if kept else round_to(values, dst.dtype)
    if rounded is not values and dst.dtype in NARROW and np.isinf(rounded).any():
        overflowed(values, rounded)
    if storage.holds_bits:
        rounded = to_bits(rounded, dst.dtype)
    is_whole = where is None and dst._pattern is storage.whole
    if is_whole and rounded.base is None and storage.replace(rounded):
        return
    store(dst, rounded, where)


def store(dst: Tile, values: Array, where: Array | None = None) -> None:
    """Store ``values``, as memory holds them, in ``dst``, and mark them as written.

    Their shapes are equal, broadcast, or have the same elements in each partition.

    Raises
    ------
    ShapeError : the shapes do not fit; or ``dst`` names an element twice with different values, and
        may not do so.
    """
    storage = dst._storage
    pattern = dst._pattern
    view = storage.elements(pattern, dst.dtype)
    if values.shape != dst.shape:
        values = fit(values, dst)
    if where is None and pattern is storage.whole and dst.dtype is storage.dtype:
        view[...] = values
        storage.mark_whole()
        return
    if where is not None:
        where = broadcast_mask(where, dst.shape)
    repeated = dst._repeats()
    if repeated:
        values = values.copy()  # they may be views of the tensor that is written
    dst._give(view, values, where)
    if storage.products is not None:
        dst._mark_product(False, where)
    if storage.validity is not None:
        dst._mark(DEFINED, where)
    if repeated:
        _settle_repeated(dst, values, where)


def _settle_repeated(dst: Tile, values: Array, where: Array | None) -> None:
    """Reject elements with two different values, or mark them as never written."""
    view = dst._elements()
    elements = np.empty(view.shape, view.dtype)
    elements[...] = values
    bits = np.dtype(f"V{view.itemsize}")  # NaN is equal to itself
    lost = np.ascontiguousarray(view).view(bits) != elements.view(bits)
    if where is not None:
        lost &= where
    if not lost.any():
        return
    if not dst._may_collide:
        raise ShapeError(
            "a destination that names an element more than once gives it one value",
            happened="an element was given two values at once",
            received=f"{dst!r} with strides {dst.strides}, and values that differ",
            remedy="index each element once, or make the value repeat along the same axis",
        )
    dst._forget_written(lost, dst._origin("given two values"))


def fit(values: Array, dst: Tile) -> Array:
    """Return ``values`` in a shape that broadcasts to ``dst``'s, partition to partition."""
    shape = dst.shape
    if values.ndim == 0:
        return values
    want = shape if dst._in_hbm else dst._tile_shape()
    if values.size == dst.size and (dst._in_hbm or values.shape[0] == want[0]):
        return values.reshape(shape)
    have = with_free_axes(values.shape, len(want))
    if len(have) != len(want) or any(
        h not in (1, w) for h, w in zip(have, want, strict=True)
    ):
        raise ShapeError(
            "an instruction's result has its destination's shape, or repeats to fill it",
            happened=f"values of shape {list(values.shape)} were to fill {list(shape)}",
            received=f"values of shape {list(values.shape)} for {dst!r}",
        )
    return np.broadcast_to(values.reshape(have), want).reshape(shape)


def immutable(tile: Tile) -> NkiError:
    """Return the error for writing to a kernel's parameter, or to another constant."""
    wrong = WRITE_TO_CONSTANT if tile._in_place else WRITE_TO_PARAMETER
    return wrong(f"a write to {tile!r}")
