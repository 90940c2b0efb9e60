"""Undefined elements on their way through instructions: never written, or left out by a mask.

Kernels compute on whole tiles of which they fill and use a part, so reading such elements is no
harm as long as nobody uses what follows from them. What does, the record says
(:mod:`difftest.simulator.instructions.carrying`).

- *Never written*: whoever uses it raises. A DMA that writes to an array of the host's, a kernel
  that returns it, an index, a register; and so does an instruction of whose result nothing is left,
  or that reads a tile of which nothing was written. Into a tensor of which a mask left elements out
  nothing is carried.
- *Left out by a mask*: it holds poison here, and on a device whatever lay there. An arithmetic
  result depends on it if one of its terms does. Of everything else it is told by computing the
  instruction again with other poison: what comes out differently depends on it, also through a
  search or a select that shows no NaN, and for integers, which have none. What goes to HBM, or is
  an index, is seen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.core import Core
from difftest.simulator.dtypes import BOOL, Array, is_float
from difftest.simulator.elements import unwritten_error
from difftest.simulator.errors import OutOfBoundsError
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.carrying import (
    REDUCE_INIT,
    by_reach,
    by_row,
    over_rows,
    partitions_of,
    spread,
)
from difftest.simulator.instructions.observing import changed, first_of, origin_of, see
from difftest.simulator.instructions.record import DST, Call, Issue
from difftest.simulator.instructions.unboxed import kept_of
from difftest.simulator.memory import LEFT, LOST, NEVER, UNSURE, poison
from difftest.simulator.strictness import doubt
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Origin, Seen

INDICES = {"local_gather": "index", "gather_flattened": "indices", "nc_n_gather": "indices"}
"""Instructions that read an operand of indices, and its name."""
_LOGIC = tuple(op for name, op in ALU_OPS.items() if name.startswith("logical"))
UNWRITTEN, UNDEFINED = "unwritten", "undefined"
"""What is not defined, as the reduction registers have accounts of it, in the order of those."""


class Follows(NamedTuple):
    """The undefined part of an instruction's results."""

    elements: Array
    """Of the first destination, in the result's shape."""
    partitions: Array
    """Those of which an operand misses something: of registers and further destinations."""
    origin: Origin


class Gapped:
    """An instruction that reads elements that are not defined, and what follows of its results."""

    def __init__(self, core: Core, call: Call, issued: Issue) -> None:
        self.core, self.call = core, call
        self.issued = issued
        self.dst, self.operands, self.where = issued.dst, issued.operands, issued.where
        dst, operands, where = self.dst, self.operands, self.where
        self.never: dict[int, Array] = {}
        """By the operand's place which of its elements nothing wrote, in its tile shape."""
        self.left: dict[int, Array] = {}
        """The same of what masks left out; ``dst`` is the last."""
        self.origin: Origin | None = None
        """Of those that masks left out."""
        self.follows: dict[str, Follows] = {}
        """The results that count as never written, and those that depend on what masks left out."""
        for access in (dst, *operands):
            if isinstance(access, IndirectTile):
                resolve(access, call, where)
        for place, operand in enumerate(operands):
            if isinstance(operand, IndirectTile):
                index_tiles = operand._index_tiles
                self._leave_out(place, undefined_places(operand), operand._base, *index_tiles)
            if isinstance(operand, (Tile, IndirectTile)) and operand._storage.gaps is not None:
                operand._check_bounds()
                never = self._kept(place, operand._unwritten(NEVER))
                if never is not None:
                    self.never[place] = never
                self._leave_out(place, operand._unwritten(UNSURE, LEFT), operand)
        if call.reads_dst and isinstance(dst, Tile):
            self._leave_out(len(operands), dst._unwritten(UNSURE, UNSURE), dst)
        self.registers = {
            name: held.copy() for name, held in core.registers.accumulators.items() if self.left
        }
        for place, left in self.left.items():
            if self._name(place) == INDICES.get(call.name):
                see(core, Seen.UNDEFINED_INDEX, self._name(place), left, None, self.origin)
        for masks in (self.never, self.left):
            for place, mask in masks.items():
                operand = (*operands, dst)[place]
                if isinstance(operand, Tile) and not operand._in_hbm:
                    masks[place] = mask.reshape(operand._tile_shape())

    def _kept(self, place: int, missing: Array | None) -> Array | None:
        """The elements of an operand that a mask which is no box leaves; None for none."""
        inner, operand = self.issued.inner, (*self.operands, self.dst)[place]
        if missing is None or inner is None or not isinstance(operand, Tile):
            return missing
        role = (*self.call.instruction.operands, DST)[place]
        kept = missing & kept_of(role, operand._tile_shape(), inner).reshape(missing.shape)
        return kept if kept.any() else None

    def _leave_out(self, place: int, left: Array | None, *tiles: Tile | IndirectTile) -> None:
        left = self._kept(place, left)
        if left is not None and left.any():
            self.left[place] = left | self.left.get(place, False)
            self.origin = self.origin or origin_of(self.call, *tiles)

    # -- before the instruction computes -----------------------------------------------------------

    def values(self) -> list[Any]:
        """The operands' values.

        What was never written has the value of an element that was: it decides nothing, and cannot
        be out of an operator's range. A row of which something was not written is another row,
        where whole rows are looked at.

        Raises
        ------
        UnwrittenError : nothing of an operand was written, or of what a mask leaves of the result
            nothing follows from what was; or the call is none that carries the mark on.
        """
        carries = self.call.instruction.carries
        values: list[Any] = []
        for place, operand in enumerate(self.operands):
            if not isinstance(operand, Tile):
                values.append(operand)
                continue
            held = operand._engine_values(unwritten=place not in self.never or carries is not None)
            if place in self.never:
                missing = self.never[place]
                some = held.reshape(-1)[np.argmin(missing.reshape(-1))]
                held = np.where(missing, some, held)
            values.append(held)
        if carries is None or not self.never:
            return values
        self._carry(values)
        lost, inner = self.follows.get(UNWRITTEN), self.issued.inner
        if lost is not None and carries is by_row:
            if inner is None:
                return [_without_rows(value, lost.partitions) for value in values]
            self.issued.inner = inner & ~over_rows(inner.shape, lost.partitions)
        return values

    def foresee(self) -> None:
        """Foresee the undefined results of an instruction that reads its operands by itself.

        Raises
        ------
        UnwrittenError : as :meth:`values`; or it goes to an array of the host's.
        """
        call, dst = self.call, self.dst
        if self.left and isinstance(dst, Tile):
            self._follow(UNDEFINED, self._by_rule(self.left), self.origin)
        if call.instruction.carries is None:
            return
        if self.never:
            self._carry(list(self.operands))
        old = dst._unwritten(LOST) if call.reads_dst else None
        if old is not None and call.options.get("accumulate", True) is None:
            products = dst._storage.products  # it adds where a matmul wrote alone
            old = old & (False if products is None else dst._gather(products))
        if old is not None and old.any():
            old = old.reshape(call.result.shape)
            lost = self.follows.get(UNWRITTEN)
            if lost is None:
                self._follow(UNWRITTEN, old, dst._origin(""))
            else:
                self.follows[UNWRITTEN] = lost._replace(elements=lost.elements | old)

    def _carry(self, values: list[Any]) -> None:
        """Note the results that follow from elements never written, unless those are let pass."""
        call, dst, where = self.call, self.dst, self.where
        carries = call.instruction.carries
        assert carries is not None
        elements: Array | None = None
        origin: Origin | None = None
        is_argument = dst._in_hbm and dst._storage.allocation.location is None
        given = is_argument or dst._storage.masked
        for place, missing in self.never.items():
            name = call.instruction.operands[place].name
            whole = (missing == self._kept(place, np.ones_like(missing))).all()
            kept = None
            if name != INDICES.get(call.name):
                kept = carries(call, missing, name, values)
            chosen = None
            if kept is not None and where is not None:
                chosen = spread(where, kept.shape)
                kept = kept & chosen
                if not kept.any() and not (whole and self.issued.inner is not None):
                    continue
            nothing_left = kept is None or (kept if chosen is None else kept[chosen]).all()
            if kept is None or nothing_left or whole or (given and kept.any()):
                doubt(unwritten_error(self.operands[place], missing))
                self._go_on(values)
                return
            elements = kept if elements is None else elements | kept
            origin = origin or self.operands[place]._origin(f"read by {call.name}")
        self._follow(UNWRITTEN, elements, origin)

    def _go_on(self, values: list[Any]) -> None:
        """Compute with what looks unwritten, where that is no error."""
        for place in self.never:
            self.operands[place]._storage.poison()
            if isinstance(values[place], np.ndarray):
                values[place] = self.operands[place]._engine_values(unwritten=True)

    # -- when its results are there ----------------------------------------------------------------

    def look(self, results: Any) -> None:
        """Note the results that were computed from elements that masks left out."""
        if first_of(results) is None or not self.left:
            return
        call, left = self.call, self.left
        carries, options = call.instruction.carries, call.options.values()
        decides = any(getattr(op, "bitvec", False) or op in _LOGIC for op in options)
        boxed = self.issued.inner is None
        if not boxed:
            left = {place: mask for place, mask in left.items() if place < len(self.operands)}
        by_values = decides or carries in (None, by_row) or len(self.operands) in left
        by_values = by_values and boxed and call.name not in INDICES
        elements = None if by_values else self._by_rule(left)
        if elements is None:
            read = (*self.operands, self.dst) if call.reads_dst else self.operands
            elements = changed(self.core, call, read, left, self.registers, results)
        self._follow(UNDEFINED, elements, self.origin)

    def _follow(self, kind: str, elements: Array | None, origin: Origin | None) -> None:
        """Note what of the first destination follows, and which partitions of registers."""
        if elements is None or origin is None:
            return
        rows = partitions_of(elements)
        for place, mask in (self.never if kind == UNWRITTEN else self.left).items():
            if self._name(place) == REDUCE_INIT:
                rows |= partitions_of(mask)
        self.follows[kind] = Follows(elements, rows, origin)

    def _name(self, place: int) -> str:
        roles = self.call.instruction.operands
        return roles[place].name if place < len(roles) else "dst"

    def _by_rule(self, left: dict[int, Array]) -> Array | None:
        """The results that follow from elements by their places, by the record's rule or reach.

        None where the rule says that it depends on the values.
        """
        call = self.call
        index, carries = INDICES.get(call.name), call.instruction.carries
        values: list[Any] = []
        for place, one in enumerate(() if call.instruction.in_place else self.operands):
            held = one._engine_values(unwritten=True) if isinstance(one, Tile) else one
            if place in left and self._name(place) == index:
                held = np.where(left[place], 0, held)
            values.append(held)
        unsure = np.zeros(call.result.shape, BOOL)
        for place, mask in left.items():
            if place == len(self.operands):
                unsure |= mask.reshape(unsure.shape)
                continue
            name = self._name(place)
            if call.name == "local_gather" and name == index:
                mask = _of_cores(call, mask)
            rule = by_reach if carries is None or name == index else carries
            carried = rule(call, mask, name, values)
            if carried is None and index is None and not call.instruction.in_place:
                return None
            unsure |= False if carried is None else carried
        return unsure

    def settle(self, where: Array | None) -> None:
        """Note of ``dst``, just written where ``where`` says, what is not defined of it."""
        dst = self.dst
        if isinstance(dst, IndirectTile):
            self._settle_scatter(dst, where)
            return
        for kind, chosen in ((UNDEFINED, where), (UNWRITTEN, self.where)):
            follows = self.follows.get(kind)
            if follows is not None:
                elements = spread(follows.elements, dst.shape)
                if chosen is not None:
                    elements = elements & spread(chosen, dst.shape)
                _note(self.core, dst, elements, follows.origin, kind)

    def _settle_scatter(self, dst: IndirectTile, where: Array | None) -> None:
        kept = None if where is None else where.reshape(dst.shape)
        moved = self.left.get(0)
        if moved is not None:
            moved = moved.reshape(dst.shape)
            if dst._in_hbm:
                brought = moved if kept is None else moved & kept
                see(self.core, Seen.UNDEFINED_STORED, "dst", brought, None, self.origin)
        lost = self.follows.get(UNWRITTEN)
        if lost is not None:
            dst._forget_written(lost.elements.reshape(dst.shape), lost.origin)
        places = undefined_places(dst)
        unsure = moved if places is None else places if moved is None else moved | places
        if unsure is None:
            return
        origin = self.origin or origin_of(self.call, *dst._index_tiles)
        if origin is not None:
            dst._doubt(unsure, origin)


def _note(core: Core, dst: Tile, elements: Array, origin: Origin, kind: str) -> None:
    """Note what of a destination is not defined.

    What a mask left out is seen if it goes to HBM; first what does not look like it, which no
    comparison would tell.
    """
    if kind == UNWRITTEN:
        dst._forget_written(elements, origin)
    elif elements.any():
        if dst._in_hbm:
            values = dst._values(unwritten=True)
            shown = np.isnan(values) if is_float(dst.dtype) else values == poison((), dst.dtype)
            hidden = elements & ~shown
            chosen, numbers = (hidden, values) if hidden.any() else (elements, None)
            see(core, Seen.UNDEFINED_STORED, "dst", chosen, numbers, origin)
        dst._doubt(elements, origin)


def check_returned(tile: Tile) -> None:
    """Raise if something of what a kernel returns follows from what nothing wrote.

    Raises
    ------
    UnwrittenError : it does; the line is that of the last instruction that stored such elements.
    """
    lost = tile._unwritten(LOST)
    if lost is not None:
        doubt(unwritten_error(tile, lost, returned=True))


def _without_rows(value: Any, lost: Array) -> Any:
    """Values of which the rows that are lost are the first one that is not."""
    if not isinstance(value, np.ndarray) or len(value) != len(lost) or lost.all():
        return value
    result = value.copy()
    result[lost] = value[np.argmin(lost)]
    return result


def _of_cores(call: Call, index: Array) -> Array:
    """The partitions of the cores of which something is: each 16 share their indices."""
    lanes = call.machine.gpsimd_core_partitions
    return np.repeat(index.reshape(len(index) // lanes, -1).any(axis=1), lanes)


# -- indices that nothing wrote --------------------------------------------------------------------


def undefined_places(access: IndirectTile) -> Array | None:
    """Which elements of an access have an index that depends on what a mask left out."""
    places: Array | None = None
    for tile in access._index_tiles:
        missing = tile._unwritten(UNSURE, LEFT)
        if missing is not None:
            try:
                spread = np.broadcast_to(missing if missing.size > 1 else True, access.shape)
            except ValueError:  # an offset that is added to an index expression of another rank
                spread = np.full(access.shape, True)
            places = spread if places is None else places | spread
    return places


def resolve(access: IndirectTile, call: Call, where: Array | None) -> None:
    """As :meth:`IndirectTile._resolve`, whose error says so where nothing wrote the index.

    Raises
    ------
    OutOfBoundsError : an index is out of bounds, and those are not skipped.
    """
    where = where if call.instruction.walk is None else None
    try:
        access._resolve(skip=call.options.get("oob_mode") == "skip", where=where)
    except OutOfBoundsError as error:
        unwritten = undefined_places(access)
        if unwritten is None:
            raise
        kept = None if where is None else where.reshape(access.shape)
        outside = ~access._locate(kept)[1] & unwritten
        if not (outside if kept is None else outside & kept).any():
            raise
        gaps = (tile._storage.gaps for tile in access._index_tiles)
        origin = next((one.origin for one in gaps if one is not None and one.origin), None)
        raise OutOfBoundsError(
            "an index that nothing wrote is whatever lay in the memory",
            happened="an index that nothing wrote left its tensor",
            received=error.received + (f"; it comes from {origin}" if origin else ""),
            limit=error.limit,
            remedy="mask the access as the load of the indices was masked, or fill them first",
            location=error.location,
        ) from None


# -- the engines' registers, and further destinations ----------------------------------------------


def settle_further(core: Core, call: Call, issued: Issue, gapped: Gapped | None) -> None:
    """Let registers and further destinations lose what follows from what is not defined."""
    further = call.instruction.carries_further
    dst, others = issued.dst, issued.others
    targets = [tile for tile in others if tile is not None]
    for kind in (UNWRITTEN, UNDEFINED):
        follows = None if gapped is None else gapped.follows.get(kind)
        if further is not None and follows is not None:
            elements, origin = further(call, follows.elements), follows.origin
            for tile in targets:
                _note(core, tile, elements, origin, kind)
            continue
        rows, source = None if follows is None else follows.partitions, follows and follows.origin
        if "reduce_cmd" in call.options:
            account = f"{call.engine.value} {kind}"
            held = core.registers.origins.get(account)
            if held and not others and call.options["reduce_cmd"].name == "REDUCE":
                shape = dst._tile_shape()  # which goes on from the registers
                lost = over_rows(shape, core.registers.accumulators[account][: shape[0], 0])
                _note(core, dst, lost.reshape(dst.shape), held, kind)
            rows = _registers(core, call, rows, account)
            source = held or source
            if rows is not None and source is not None:
                core.registers.origins[account] = source
                if not core.registers.accumulators[account].any():
                    del core.registers.origins[account]
        if rows is None or source is None or not rows.any():
            continue
        for tile in targets:
            if len(rows) == tile._tile_shape()[0]:
                lost = over_rows(tile._tile_shape(), rows)
                _note(core, tile, lost.reshape(tile.shape), source, kind)


def _registers(core: Core, call: Call, lost: Array | None, account: str) -> Array | None:
    """Which partitions of an engine's registers are lost, by what an instruction just read.

    They lose what is reduced into them, until they are reset.

    Parameters
    ----------
    lost : the partitions of which it read what is not defined [P], None for none.
    """
    command = call.options["reduce_cmd"].name
    if command == "IDLE" and "reduce_res" not in call.destinations:
        return None
    held = core.registers.accumulators.get(account)
    if held is None:
        if lost is None or not lost.any():
            return None
        held = np.zeros((core.machine.partitions, 1), BOOL)
    rows = len(lost) if lost is not None else call.result.shape[0]
    if command not in ("REDUCE", "READ"):
        held = np.zeros_like(held)
    if lost is not None and command not in ("RESET", "READ"):
        held = held.copy()
        held[:rows, 0] |= lost
    core.registers.accumulators[account] = held
    shown: Array = held[:rows, 0]
    return shown
