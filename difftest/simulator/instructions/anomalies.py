"""Anomalies: conspicuous values in an instruction, recorded in the trace.

NaN and infinities are found at no cost. The processor sets a flag when an operation produces one,
and NumPy checks the flags anyway. The values are searched only after an alarm
(:meth:`Observer.ring`). Two cases are checked by their largest value: matrix products, whose flags
may be set in other threads, and casts to narrow floats, which set none. The other checks cost
nothing where the dtypes exclude an anomaly.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from difftest.simulator.core import Core, current, is_running
from difftest.simulator.descriptor import RUNNING
from difftest.simulator.dtypes import (
    FLOAT8_E4M3FN,
    FLOAT32,
    WIDE_INTEGERS,
    Array,
    is_float,
)
from difftest.simulator.follower import NOBODY, Follower, Followers
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.record import (
    CheckedCall,
    InstructionUse,
    MaskedValues,
)
from difftest.simulator.lifted import step
from difftest.simulator.memory import FROM_MASKED, MASKED_OUT, POISON_INTEGER
from difftest.simulator.strictness import muted
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Anomaly, AnomalyKind, Origin

EXACT_INTEGER = 2**24
"""The limit up to which float32 holds all integers."""
LARGEST_INTEGER = 2.0**32
"""No integer dtype holds more."""
LARGEST_E4M3 = 240.0
"""The largest float8_e4m3 of NeuronCore-v2 and v3, which lack float8_e4m3fn's codes 256 to 448."""
_ORDERINGS = ("greater", "greater_equal", "less", "less_equal")
"""Comparisons that are false for NaN. An equality of a number with itself is a test for NaN."""

Watch = Callable[[Core, CheckedCall, InstructionUse], None]
"""A function that looks at the operands of an instruction before it runs."""


class Observer(Follower):
    """The follower that looks for anomalies in a recorded launch.

    Attributes
    ----------
    anomalies : the anomalies of the instruction that is being issued.
    made : the kinds, NaN and infinity, that instructions have produced so far.
    alarm : whether arithmetic produced either since the instruction began.
    """

    name = "observer"

    def __init__(self) -> None:
        self.anomalies: list[Anomaly] = []
        self.made: set[AnomalyKind] = set()
        self.alarm = False

    def ring(self, kind: str, flag: int) -> None:
        """Note NumPy's report of a NaN or an infinity."""
        self.alarm = True

    def beside(self, core: Core) -> Observer:
        return Observer()

    def look(self, call: CheckedCall, issued: InstructionUse, results: Any) -> None:
        """Look for new NaN and infinities in results, and for rounded integers."""
        if self.alarm and issued.inner is None:
            self.alarm = False
            if call.instruction.in_place:
                _find_new_in_place(current(), issued)
            else:
                _find_new(current(), issued, results)
        if (
            call.cache.counts
            and issued.undefined is None
            and (self.anomalies or is_rounded(results))
        ):
            look_for_rounding(current(), call, issued, results)

    def note(self, what: AnomalyKind) -> None:
        """Note that an instruction produced such values: from now on stores are checked."""
        if not self.made:
            self.after = self._check_store
            core = current()
            core.followers = Followers(*core.followers.all)
        self.made.add(what)

    def _check_store(self, call: CheckedCall, issued: InstructionUse) -> None:
        """Record NaN and infinities from instructions that go to HBM."""
        dst = issued.dst
        if not (dst._in_hbm and is_float(dst.dtype)):
            return
        tile = dst._base if isinstance(dst, IndirectTile) else dst
        values = tile._values(unwritten=True)
        if AnomalyKind.NAN_MADE in self.made:
            record_anomaly(current(), AnomalyKind.NAN_STORED, "dst", np.isnan(values))
        if AnomalyKind.INFINITY_MADE in self.made:
            record_anomaly(
                current(), AnomalyKind.INFINITY_STORED, "dst", np.isinf(values)
            )


def anomaly_checks(call: CheckedCall) -> tuple[Watch, ...]:
    """Return the checks for each use of a call, by its name and dtypes."""
    watches: list[Watch] = []
    if call.instruction.orders:
        watches.append(_search)
    if any(
        getattr(option, "name", None) in _ORDERINGS for option in call.options.values()
    ):
        watches.append(_compare)
    tiles = call.tiles.values()
    if call.machine.nc_version < 4 and FLOAT8_E4M3FN in {tile.dtype for tile in tiles}:
        watches.append(_float8)
    if any(
        getattr(tile, "indirect", "") for tile in (*tiles, *call.destinations.values())
    ):
        watches.append(_indices)
    return tuple(watches)


def record_anomaly(
    core: Core,
    what: AnomalyKind,
    role: str,
    chosen: Array,
    values: Array | None = None,
    origin: Origin | None = None,
) -> None:
    """Record the elements of an operand that ``chosen`` marks, if there are any."""
    observer = core.followers.observer
    count = 0 if observer is None else int(np.count_nonzero(chosen))
    if not count:
        return
    first = tuple(
        int(place) for place in np.unravel_index(int(chosen.argmax()), chosen.shape)
    )
    value = None if values is None else float(values[first])
    observer.anomalies.append(
        Anomaly(what, role, count, chosen.size, first, value, origin)
    )


# -- NaN and infinities ----------------------------------------------------------------------------


def _values_read(issued: InstructionUse) -> list[Array]:
    """Return the values of the operands that are tiles."""
    return [
        tile._engine_values(unwritten=True)
        for tile in issued.operands
        if isinstance(tile, Tile)
    ]


def _find_new(core: Core, issued: InstructionUse, results: Any) -> None:
    """Look, after an alarm, for NaN and infinities in the results but not in the operands."""
    values = _plain_outputs(results)[0]
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        read = [held for held in _values_read(issued) if held.dtype.kind == "f"]
        _record_new(core, values, read)


def _find_new_in_place(core: Core, issued: InstructionUse) -> None:
    """Look, after an alarm, for NaN and infinities in ``dst``, if all operands are finite."""
    dst = issued.dst
    if not isinstance(dst, Tile) or not is_float(dst.dtype):
        return
    if all(np.isfinite(held).all() for held in _values_read(issued)):
        _record_new(core, dst._values(unwritten=True), [])


def overflowed(values: Array, rounded: Array) -> None:
    """Record infinities that result from rounding finite values to a narrow float."""
    core = current()
    mask = np.isinf(rounded) & np.isfinite(values)
    if core.followers.observer is not None and mask.any():
        record_anomaly(
            core,
            AnomalyKind.INFINITY_MADE,
            "dst",
            mask,
            np.broadcast_to(values, mask.shape),
        )
        core.followers.observer.note(AnomalyKind.INFINITY_MADE)


def _record_new(core: Core, values: Array, read: list[Array]) -> None:
    """Record the NaN and infinities of ``values`` that the operands do not explain."""
    for what, test in (
        (AnomalyKind.NAN_MADE, np.isnan),
        (AnomalyKind.INFINITY_MADE, np.isinf),
    ):
        mask = test(values)
        if not mask.any():
            continue
        for operand in read:
            causes = (
                test(operand) if what is AnomalyKind.NAN_MADE else ~np.isfinite(operand)
            )
            if not causes.any():
                continue
            if causes.shape != mask.shape:
                break  # the shapes do not show which operand element a result depends on
            mask = mask & ~causes
        else:
            if mask.any():
                record_anomaly(core, what, "dst", mask)
                core.followers.observer.note(what)


def _search(core: Core, call: CheckedCall, issued: InstructionUse) -> None:
    """Record NaN among the values that a search orders."""
    for name, tile in _tiles(call, issued.operands):
        if is_float(tile.dtype):
            record_anomaly(
                core,
                AnomalyKind.NAN_SEARCHED,
                name,
                np.isnan(tile._engine_values(unwritten=True)),
            )


def _compare(core: Core, call: CheckedCall, issued: InstructionUse) -> None:
    """Record NaN among compared values: it does not show in the result."""
    kinds = core.followers.observer.made
    for name, tile in (
        _tiles(call, issued.operands) if AnomalyKind.NAN_MADE in kinds else ()
    ):
        if is_float(tile.dtype):
            record_anomaly(
                core,
                AnomalyKind.NAN_COMPARED,
                name,
                np.isnan(tile._engine_values(unwritten=True)),
            )


def _tiles(call: CheckedCall, operands: tuple[Any, ...]) -> Iterator[tuple[str, Tile]]:
    """Yield the operands that are tiles, by role; for an indirect operand, its base."""
    for role, operand in zip(call.instruction.operands, operands, strict=True):
        tile = operand._base if isinstance(operand, IndirectTile) else operand
        if isinstance(tile, Tile):
            yield role.name, tile


# -- dtypes ----------------------------------------------------------------------------------------


def _float8(core: Core, call: CheckedCall, issued: InstructionUse) -> None:
    for name, tile in _tiles(call, issued.operands):
        if tile.dtype == FLOAT8_E4M3FN:
            values = tile._values(unwritten=True)
            record_anomaly(
                core,
                AnomalyKind.FLOAT8_CODE,
                name,
                np.abs(values) > LARGEST_E4M3,
                values,
            )


@step
def rounded_integers(values: Array) -> None:
    """Record 32-bit integers that float32 cannot hold, on their way into float32."""
    core = RUNNING.get(None)
    if core is None or core.followers.observer is None or not values.size:
        return
    # the size of the smallest int32 is negative, but float32 holds this number
    if np.maximum.reduce(np.abs(values), None) > EXACT_INTEGER:
        wide = values.astype(np.int64)
        lost = values.astype(np.float32).astype(np.int64) != wide
        lost &= values.view(np.int32) != POISON_INTEGER
        record_anomaly(core, AnomalyKind.INTEGER_ROUNDED, "", lost, wide)


def rounded_sum(total: Array, exact: Array) -> None:
    """Record integers whose float32 sum differs from the exact one."""
    if is_running() and total.size and np.abs(exact).max() > EXACT_INTEGER:
        record_anomaly(
            current(),
            AnomalyKind.INTEGER_ROUNDED,
            "dst",
            total.astype(np.float64) != exact,
            exact,
        )


def may_count(product: Array) -> bool:
    """Return whether a matrix product may be of integers, and an observer is active.

    The first element decides in most other cases.
    """
    if not product.size or not float(product.item(0)).is_integer() or not is_running():
        return False
    return current().followers.observer is not None


def look_at_counts(total: Array, exact: Array) -> None:
    """Record integers that a matrix product has summed in float32, which cannot hold them.

    Parameters
    ----------
    total : the sums in float32.
    exact : the sums in float64, for integer operands.
    """
    lost = (
        (np.abs(exact) > EXACT_INTEGER)
        & (np.abs(exact) <= LARGEST_INTEGER)
        & (total != exact)
    )
    record_anomaly(current(), AnomalyKind.INTEGER_ROUNDED, "dst", lost, exact)


def counts(call: CheckedCall) -> bool:
    """Return whether a call computes 32-bit integers from integers, possibly in float32."""
    written = (call.result.dtype, *(dst.dtype for dst in call.destinations.values()))
    read = [tile.dtype for tile in call.tiles.values()]
    wide = any(dtype in WIDE_INTEGERS for dtype in written)
    return (
        wide
        and bool(read)
        and not any(map(is_float, read))
        and not call.instruction.in_place
    )


def is_rounded(results: Any) -> bool:
    """Return whether numbers in float32 exceed the range of its exact integers."""
    if type(results) is np.ndarray:
        return _exceeds_exact_integers(results)
    return any(
        isinstance(value, np.ndarray) and _exceeds_exact_integers(value)
        for value in _plain_outputs(results)
    )


def _exceeds_exact_integers(values: Array) -> bool:
    """Return whether numbers in float32 exceed the range of its exact integers."""
    if values.dtype != FLOAT32 or not values.size:
        return False
    # NaN may hide others
    return not np.maximum.reduce(np.abs(values), None) < EXACT_INTEGER


def _plain_outputs(results: Any) -> list[Any]:
    """Return an instruction's results, by destination, without their masks."""
    outputs = results if type(results) is tuple else (results,)
    return [
        output.values if type(output) is MaskedValues else output for output in outputs
    ]


# -- indices ---------------------------------------------------------------------------------------


def origin_of(call: CheckedCall, *tiles: Tile | IndirectTile) -> Origin | None:
    """Return the origin of undefined elements in one of the tiles.

    For masked-out elements, this is their first reader.
    """
    for tile in tiles:
        gaps = tile._storage.validity
        if gaps is not None and gaps.origin is None and gaps.masked:
            gaps.origin = tile._origin(f"read by {call.name}")
        if gaps is not None and gaps.origin is not None:
            return gaps.origin
    return None


def _indices(core: Core, call: CheckedCall, issued: InstructionUse) -> None:
    """Record indices, in the unmasked rows, that depend on masked-out elements."""
    where = issued.where
    accesses = (issued.dst, *issued.operands)
    indirect = [access for access in accesses if isinstance(access, IndirectTile)]
    for tile in itertools.chain.from_iterable(
        access._index_tiles for access in indirect
    ):
        missing = tile._unwritten(FROM_MASKED, MASKED_OUT)
        if missing is None:
            continue
        if where is not None:
            if where.shape[:1] != missing.shape[:1]:
                continue
            rows = where.reshape(len(where), -1).any(axis=1)
            missing = missing & rows.reshape(-1, *(1,) * (missing.ndim - 1))
        record_anomaly(
            core,
            AnomalyKind.UNDEFINED_INDEX,
            "index",
            missing,
            None,
            origin_of(call, tile),
        )


def record_lost_update(
    core: Core, dst: IndirectTile, held: Array, moved: Array
) -> None:
    """Record values that a scatter overwrote because its indices name one place twice.

    Parameters
    ----------
    held, moved : the final values, and the values that the scatter wrote, of its elements.
    """
    if core.followers.observer is None:
        return
    bits = np.dtype(f"V{held.itemsize}")  # NaN is equal to itself
    values = np.ascontiguousarray(np.broadcast_to(moved, held.shape)).astype(
        held.dtype, copy=False
    )
    lost = np.ascontiguousarray(held).view(bits) != values.view(bits)
    numbers = dst._numbers() if lost.any() else None
    if numbers is not None:
        first = np.unravel_index(
            numbers[lost.argmax()], dst._base._storage.allocation.shape
        )
        place = tuple(int(index) for index in first)
        count = int(np.count_nonzero(lost))
        core.followers.observer.anomalies.append(
            Anomaly(AnomalyKind.PLACE_TWICE, "dst", count, lost.size, place)
        )


# -- computed again in float64, without a trace ----------------------------------------------------


def _results_in_float64(core: Core, call: CheckedCall, issued: InstructionUse) -> Any:
    """Return the results of the meaning for the same operands in float64, without a trace."""
    values = [
        tile._engine_values(unwritten=True).astype(np.float64)
        if isinstance(tile, Tile)
        else tile
        for tile in (*issued.operands, *([issued.dst] if call.reads_dst else []))
    ]
    with _without_trace(core):
        registers = core.registers
        registers.accumulators = {
            name: held.copy() for name, held in registers.accumulators.items()
        }
        return call.instruction.meaning(call, *values)


def look_for_rounding(
    core: Core, call: CheckedCall, issued: InstructionUse, results: Any
) -> None:
    """Record the integers that an instruction computed in float32, which cannot hold them.

    The meaning, applied to the same numbers in float64, gives the exact integers. An operand that
    was rounded without an effect on a result is harmless: for example, large integers are clipped.
    """
    if call.cache.kind.options.get("reduce_cmd") == "reduce":
        return  # the registers have changed already
    exactly = _results_in_float64(core, call, issued)
    anomalies = core.followers.observer.anomalies
    harmless = [
        anomaly for anomaly in anomalies if anomaly.what is AnomalyKind.INTEGER_ROUNDED
    ]
    both = _plain_outputs(results), _plain_outputs(exactly)
    for role, result, exact in zip(call.instruction.destinations, *both, strict=False):
        if not isinstance(result, np.ndarray) or result.dtype != np.float32:
            continue
        if (np.rint(result) != np.rint(exact)).any():
            harmless = []
        whole = (
            np.isfinite(result)
            & (exact == np.rint(exact))
            & (np.abs(exact) <= LARGEST_INTEGER)
        )
        lost = whole & (exact != result)
        record_anomaly(core, AnomalyKind.INTEGER_ROUNDED, role.name, lost, exact)
    for anomaly in harmless:
        anomalies.remove(anomaly)


@contextlib.contextmanager
def _without_trace(core: Core) -> Iterator[None]:
    """Run a block without a trace: restore registers and followers afterwards."""
    registers = core.registers.accumulators
    followers = core.followers
    core.followers = NOBODY
    try:
        with muted():
            yield
    finally:
        core.registers.accumulators = registers
        core.followers = followers
