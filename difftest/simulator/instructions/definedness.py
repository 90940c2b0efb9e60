"""Undefined elements on their way through instructions: never written, or masked out.

Kernels compute on whole tiles and use only a part, so reading such elements is harmless if their
results are not used. The record's own meaning shows which results depend on them
(:mod:`difftest.simulator.instructions.taint`).

- *Never written*: using such an element is an error. Uses are a DMA to an array of the host, a
  returned tensor, an index and a register. An instruction also raises if all of its results depend
  on such elements, or if no element of an operand was written. A tensor with masked-out elements
  accepts no unwritten ones.
- *Masked out*: the element holds poison here, and arbitrary data on a device. Its results
  propagate, also through a search or a select that hides NaN, and for integers, which lack NaN.
  They are recorded when they reach HBM, or are used as an index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.core import Core
from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import Array, is_float
from difftest.simulator.elements import unwritten_error
from difftest.simulator.errors import OutOfBoundsError
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.anomalies import origin_of, record_anomaly
from difftest.simulator.instructions.irregular_masks import operand_mask
from difftest.simulator.instructions.record import (
    DST,
    CheckedCall,
    InstructionUse,
    MaskedValues,
)
from difftest.simulator.instructions.taint import (
    MASKED_BITS,
    REGISTERS,
    TAINT_DTYPE,
    UNWRITTEN_BITS,
    TaintedArray,
    taint_bit,
    taint_bits,
)
from difftest.simulator.lifted import broadcast_mask, over
from difftest.simulator.memory import (
    FROM_MASKED,
    FROM_UNWRITTEN,
    MASKED_OUT,
    UNWRITTEN,
    poison_array,
)
from difftest.simulator.strictness import report_undefined
from difftest.simulator.tile import Tile
from difftest.simulator.trace import AnomalyKind, Origin

_KINDS = (MASKED_BITS, UNWRITTEN_BITS)
"""The marks of each kind of undefined elements."""
_MARKS_SUFFIX = " marks"
"""The suffix of an engine's name for its registers' marks."""
_NO_VALUE = np.float32(0)
"""The value of elements that are only moved: their places alone matter."""


class UndefinedOperands:
    """The undefined elements that an instruction reads, and the results that depend on them."""

    def __init__(self, core: Core, call: CheckedCall, issued: InstructionUse) -> None:
        self.core = core
        self.call = call
        self.issued = issued
        self.where = issued.where
        self.accesses = (*issued.operands, issued.dst)
        """By place: the operands, then ``dst``."""
        self.never: dict[int, Array] = {}
        """By place: the unwritten elements, in the tile shape."""
        self.left: dict[int, Array] = {}
        """By place: the masked-out elements, in the tile shape."""
        self.named = 0
        self.decided = 0
        self.planes: list[Any] = []
        """The marks of each destination's new elements."""
        self.origins: dict[int, Origin | None] = dict.fromkeys(_KINDS)
        self._find_undefined()

    def _find_undefined(self) -> None:
        """Find the undefined elements of the operands, and of ``dst`` if the call reads it."""
        dst = self.issued.dst
        operands = self.issued.operands
        for access in (dst, *operands):
            if isinstance(access, IndirectTile):
                resolve(access, self.call, self.where)
        for place, operand in enumerate(operands):
            if isinstance(operand, (Tile, IndirectTile)):
                self._find_in_operand(place, operand)
        if self.call.reads_dst and isinstance(dst, Tile):
            masked = dst._unwritten(FROM_MASKED, FROM_MASKED)
            self._add_masked(len(operands), masked, dst)

    def _find_in_operand(self, place: int, operand: Tile | IndirectTile) -> None:
        if isinstance(operand, IndirectTile):
            tiles = (operand._base, *operand._index_tiles)
            self._add_masked(place, undefined_places(operand), *tiles)
        if operand._storage.validity is None:
            return
        operand._check_bounds()
        never = self._kept(place, operand._unwritten(UNWRITTEN))
        if never is not None:
            self.never[place] = self._in_tile_shape(place, never)
        self._add_masked(place, operand._unwritten(FROM_MASKED, MASKED_OUT), operand)

    def _in_tile_shape(self, place: int, mask: Array) -> Array:
        access = self.accesses[place]
        if isinstance(access, Tile) and not access._in_hbm:
            return mask.reshape(access._tile_shape())
        return mask

    def _kept(self, place: int, missing: Array | None) -> Array | None:
        """Return the missing elements that a non-box mask keeps; None for none."""
        inner = self.issued.inner
        access = self.accesses[place]
        if missing is None or inner is None or not isinstance(access, Tile):
            return missing
        role = (*self.call.instruction.operands, DST)[place]
        kept = missing & operand_mask(role, access._tile_shape(), inner).reshape(
            missing.shape
        )
        if kept.any():
            return kept
        return None

    def _add_masked(
        self, place: int, left: Array | None, *tiles: Tile | IndirectTile
    ) -> None:
        left = self._kept(place, left)
        if left is not None and left.any():
            left = self._in_tile_shape(place, left)
            self.left[place] = left | self.left.get(place, False)
            origin = self.origins[MASKED_BITS] or origin_of(self.call, *tiles)
            self.origins[MASKED_BITS] = origin

    def _marked(self, place: int, values: Any) -> Any:
        """Return an operand's values with marks on its undefined elements."""
        if not isinstance(values, np.ndarray):
            return values
        plane = np.zeros(values.shape, TAINT_DTYPE)
        for masks, kind in ((self.never, UNWRITTEN_BITS), (self.left, MASKED_BITS)):
            if place in masks:
                plane |= np.where(
                    masks[place].reshape(values.shape), taint_bit(place, kind), 0
                )
        return TaintedArray(self, values, plane)

    # -- the instruction computes ------------------------------------------------------------------

    def results(self, compute: Callable[..., Any]) -> Any:
        """Return the results of the meaning for the operands' values.

        An unwritten element has the value of a written one. So it decides nothing, and is never out
        of an operator's range.

        Raises
        ------
        UnwrittenError : no element of an operand was written, or all unmasked results depend on
            unwritten elements, or the instruction does not propagate marks.
        """
        values = self._all_values()
        while self._reads_undefined():
            if self._are_written():
                computed = self._marked_results(compute, values)
                if computed is not None:
                    if len(computed) > 1:
                        return computed
                    return computed[0]
            values = self._all_values()  # unwritten elements count as written now
        return compute(self.call, *values)

    def _all_values(self) -> list[Any]:
        """Return the operands' values, in which all elements seem written."""
        values = list(map(self._values, range(len(self.issued.operands))))
        if not self.call.instruction.carries:
            self.never = {}
        return values

    def _reads_undefined(self) -> bool:
        origins = self.call.reduces and self.core.registers.origins
        return bool(self.never or self.left or origins)

    def _marked_results(
        self, compute: Callable[..., Any], values: list[Any]
    ) -> tuple[Any, ...] | None:
        """Return the results for marked values, and keep the results' marks.

        None if unwritten elements may not propagate, and count as written from now on. The
        registers and the observer's anomalies are then as before.
        """
        registers = self.core.registers
        before = {name: held.copy() for name, held in registers.accumulators.items()}
        observer = self.core.followers.observer
        anomalies = [] if observer is None else observer.anomalies
        noted = len(anomalies)
        done = False
        try:
            self._mark_registers()
            results = self._run_marked(compute, values)
            done = self._may_propagate()
        finally:
            if not done:
                registers.accumulators = before
        if not done:
            del anomalies[noted:]
            return None
        self._unmark_registers()
        return results

    def _run_marked(
        self, compute: Callable[..., Any], values: list[Any]
    ) -> tuple[Any, ...]:
        marked = list(map(self._marked, range(len(values)), values))
        try:
            outcome = compute(self.call, *marked)
        except OutOfBoundsError:
            if not self.named & UNWRITTEN_BITS:
                raise
            outcome = None  # unwritten indices are the fault
        results = outcome if type(outcome) is tuple else (outcome,)
        apart = list(map(_split_marks, results))
        self.planes = [plane for _, plane in apart]
        return tuple([plain for plain, _ in apart])

    def _values(self, place: int) -> Any:
        operand = self.accesses[place]
        if not isinstance(operand, Tile):
            return operand
        carries = self.call.instruction.carries
        held = operand._engine_values(unwritten=carries or place not in self.never)
        if place in self.never:
            missing = self.never[place]
            held = np.where(
                missing, held.reshape(-1)[np.argmin(missing.reshape(-1))], held
            )
        return held

    def predict(self) -> None:
        """Foresee the undefined results of an instruction that reads its operands by itself.

        Raises
        ------
        UnwrittenError : as :meth:`results`, or if an unwritten element goes to an array of the
        host.
        """
        if not self.call.instruction.carries:
            self.never = {}
        summands = self._undefined_summands()
        self._are_written()
        self._mark_moves()
        if not self._may_propagate():
            self._mark_moves()
        own = len(self.issued.operands)
        for kind, missing in summands.items():
            marks = np.where(
                missing.reshape(self.call.result.shape), taint_bit(own, kind), 0
            )
            self.planes = [self.planes[0] | marks]
        if UNWRITTEN_BITS in summands:
            origin = self.origins[UNWRITTEN_BITS] or self.issued.dst._origin("")
            self.origins[UNWRITTEN_BITS] = origin

    def _undefined_summands(self) -> dict[int, Array]:
        """Return the undefined elements of ``dst`` that the call adds to, by kind."""
        dst = self.issued.dst
        summands = {}
        masked = self.left.get(len(self.issued.operands))
        if masked is not None and masked.any():
            summands[MASKED_BITS] = masked
        never = dst._unwritten(FROM_UNWRITTEN) if self.call.reads_dst else None
        if never is None:
            return summands
        if self.call.options.get("accumulate", True) is None:
            # it adds only where a matmul wrote
            is_added = dst._storage.products is not None and dst._in_product()
            never = never & is_added
        if never.any():
            summands[UNWRITTEN_BITS] = never
        return summands

    def _mark_moves(self) -> None:
        """Set the marks of the new elements of ``dst``."""
        call = self.call
        shape = self.call.result.shape
        self.planes = [np.zeros(shape, TAINT_DTYPE)]
        if self.never or self.left:
            operands = [
                self._marked(place, np.broadcast_to(_NO_VALUE, operand.shape))
                if isinstance(operand, Descriptor)
                else None
                for place, operand in enumerate(call.operands.values())
            ]
            self.planes = [over(shape, call.instruction.moves(call, *operands).taint)]

    # -- unwritten elements ------------------------------------------------------------------------

    def _are_written(self) -> bool:
        """Return whether each operand has a written element; if not, report the error.

        If the report does not raise, the operand counts as written.
        """
        if self.where is None or self.issued.inner is not None:
            for place, missing in self.never.items():
                if self._whole(place, missing):
                    self._report_unwritten(place)
                    return False
        return True

    def _whole(self, place: int, missing: Array) -> bool:
        return bool((missing == self._kept(place, np.ones_like(missing))).all())

    def _report_unwritten(self, place: int) -> None:
        """Report an unwritten operand; if the report does not raise, count it as written."""
        report_undefined(unwritten_error(self.accesses[place], self.never[place]))
        for other in self.never:
            self.accesses[other]._storage.poison()
        self.never = {}
        self.named = 0

    def _may_propagate(self) -> bool:
        """Return whether unwritten elements may propagate; if not, report the error.

        If the report does not raise, the elements count as written.
        """
        for place, missing in self.never.items():
            if not self._may_propagate_from(place, missing):
                self._report_unwritten(place)
                return False
        return True

    def _may_propagate_from(self, place: int, missing: Array) -> bool:
        """Return whether an operand's unwritten elements may propagate; keep their origin."""
        bit = taint_bit(place, UNWRITTEN_BITS)
        if bit & self.named:
            return False
        whole = self._whole(place, missing)
        lost = (over(self.call.result.shape, self.planes[0]) & bit) != 0
        if self.where is not None:
            lost = lost[broadcast_mask(self.where, lost.shape)]
            if not lost.any():
                return not (whole and self.issued.inner is not None)
        if whole or lost.all() or (lost.any() and self._is_final()):
            return False
        origin = self.origins[UNWRITTEN_BITS]
        event = f"read by {self.call.name}"
        self.origins[UNWRITTEN_BITS] = origin or self.accesses[place]._origin(event)
        return True

    def _is_final(self) -> bool:
        """Return whether ``dst`` takes no unwritten elements.

        Such a ``dst`` is an array of the host, or a tensor with masked-out elements.
        """
        storage = self.issued.dst._storage
        is_argument = storage.in_hbm and storage.allocation.location is None
        return is_argument or storage.masked

    # -- the engine's registers --------------------------------------------------------------------

    def _mark_registers(self) -> None:
        """Attach the registers' known marks to them."""
        if not self.call.reduces:
            return
        held: dict[str, Any] = self.core.registers.accumulators
        for engine in [name for name in held if not name.endswith(_MARKS_SUFFIX)]:
            plane = held.pop(engine + _MARKS_SUFFIX, None)
            if plane is None:
                plane = np.zeros(held[engine].shape, TAINT_DTYPE)
            held[engine] = TaintedArray(self, held[engine], plane)

    def _unmark_registers(self) -> None:
        """Store the registers' marks and origins apart from their values."""
        registers = self.core.registers
        for engine, held in list(registers.accumulators.items()):
            if not isinstance(held, TaintedArray):
                continue
            registers.accumulators[engine] = held.values
            plane = np.zeros(held.shape, TAINT_DTYPE)
            for kind in _KINDS:
                chosen = (held.taint & kind) != 0
                key = (engine, kind)
                origin = registers.origins.pop(key, None) or self.origins[kind]
                if chosen.any() and origin is not None:
                    registers.origins[key] = origin
                    plane |= np.where(chosen, taint_bit(REGISTERS, kind), 0)
            if plane.any():
                registers.accumulators[engine + _MARKS_SUFFIX] = plane

    # -- after the results are written -------------------------------------------------------------

    def commit(self, where: Array | None) -> None:
        """Note the undefined elements of the results; ``where`` limits those of ``dst``."""
        dst = self.issued.dst
        self._record_indices()
        if isinstance(dst, IndirectTile):
            self._settle_scatter(dst, where)
            return
        if self.decided:
            self.planes[0] = self.planes[0] | self.decided
        masks = {MASKED_BITS: where, UNWRITTEN_BITS: self.where}
        tiles = (dst, *self.issued.others)
        for at, (tile, plane) in enumerate(zip(tiles, self.planes, strict=False)):
            present = 0 if tile is None else taint_bits(plane)
            for kind in _KINDS:
                if not present & kind:
                    continue
                elements = over(tile.shape, (plane & kind) != 0)
                mask = masks[kind]
                if mask is not None and at == 0:
                    elements = elements & broadcast_mask(mask, tile.shape)
                self._note(tile, elements, kind, first=at == 0)

    def _record_indices(self) -> None:
        """Record masked-out elements that were used as indices."""
        for place, mask in self.left.items():
            if self.named & taint_bit(place, MASKED_BITS):
                role = self.call.instruction.operands[place].name
                self._record(AnomalyKind.UNDEFINED_INDEX, mask, role=role)

    def _record(
        self,
        what: AnomalyKind,
        chosen: Array,
        values: Array | None = None,
        *,
        role: str = "dst",
        origin: Origin | None = None,
    ) -> None:
        origin = origin or self.origins[MASKED_BITS]
        record_anomaly(self.core, what, role, chosen, values, origin)

    def _note(self, dst: Tile, elements: Array, kind: int, *, first: bool) -> None:
        """Note the undefined elements of a destination.

        Masked-out elements are recorded if they go to HBM.
        """
        if not elements.any():
            return
        held = None
        if self.call.reduces:
            key = (self.call.engine.value, kind)
            held = self.core.registers.origins.get(key)
        own = self.origins[kind]
        origin = own or held if first else held or own
        if origin is None:
            return
        if kind == UNWRITTEN_BITS:
            dst._forget_written(elements, origin)
            return
        if dst._in_hbm:
            self._record_stored(dst, elements, origin)
        dst._doubt(elements, origin)

    def _record_stored(self, dst: Tile, elements: Array, origin: Origin) -> None:
        """Record masked-out elements in HBM, by preference those that do not look undefined.

        No comparison would detect the latter.
        """
        values = dst._values(unwritten=True)
        shown = np.isnan(values)
        if not is_float(dst.dtype):
            shown = values == poison_array((), dst.dtype)
        hidden = elements & ~shown
        what = AnomalyKind.UNDEFINED_STORED
        if hidden.any():
            self._record(what, hidden, values, origin=origin)
        else:
            self._record(what, elements, origin=origin)

    def _settle_scatter(self, dst: IndirectTile, where: Array | None) -> None:
        masks = []
        moved = self.left.get(0)
        if moved is not None:
            moved = moved.reshape(dst.shape)
            masks.append(moved)
            if dst._in_hbm:
                kept = True if where is None else where.reshape(dst.shape)
                self._record(AnomalyKind.UNDEFINED_STORED, moved & kept)
        origin = self.origins[UNWRITTEN_BITS]
        if origin is not None:
            lost = (self.planes[0] & UNWRITTEN_BITS) != 0
            dst._forget_written(lost.reshape(dst.shape), origin)
        places = undefined_places(dst)
        if places is not None:
            masks.append(places)
        if not masks:
            return
        origin = self.origins[MASKED_BITS] or origin_of(self.call, *dst._index_tiles)
        if origin is not None:
            dst._doubt(np.logical_or.reduce(masks), origin)


def _split_marks(result: Any) -> tuple[Any, Any]:
    """Return plain results and their marks."""
    if isinstance(result, TaintedArray):
        return result.values, result.taint
    if type(result) is not MaskedValues:
        return result, np.zeros((), TAINT_DTYPE)
    values, plane = _split_marks(result.values)
    chosen, chosen_plane = _split_marks(result.chosen)
    return MaskedValues(values, chosen), np.where(chosen, plane, 0) | chosen_plane


# -- unwritten indices -----------------------------------------------------------------------------


def undefined_places(access: IndirectTile) -> Array | None:
    """Return the elements of an access whose index depends on masked-out elements."""
    planes = []
    for tile in access._index_tiles:
        missing = tile._unwritten(FROM_MASKED, MASKED_OUT)
        if missing is None:
            continue
        try:
            plane = np.broadcast_to(missing if missing.size > 1 else True, access.shape)
        except ValueError:
            # an offset that is added to an index expression of another rank
            plane = np.full(access.shape, True)
        planes.append(plane)
    return np.logical_or.reduce(planes) if planes else None


def resolve(access: IndirectTile, call: CheckedCall, where: Array | None) -> None:
    """Resolve an access; the error says so if its index was never written.

    Raises
    ------
    OutOfBoundsError : an index is out of bounds, and such indices are not skipped.
    """
    if call.instruction.walk is not None:
        where = None
    try:
        access._resolve(skip=call.options.get("oob_mode") == "skip", where=where)
    except OutOfBoundsError as error:
        unwritten = undefined_places(access)
        if unwritten is None:
            raise
        kept = None if where is None else where.reshape(access.shape)
        outside = ~access._locate(kept)[1] & unwritten
        if kept is not None:
            outside &= kept
        if not outside.any():
            raise
        raise _unwritten_index(access, error) from None


def _unwritten_index(access: IndirectTile, error: OutOfBoundsError) -> OutOfBoundsError:
    """Return the error for an index out of bounds that was never written."""
    received = error.received
    for tile in access._index_tiles:
        gaps = tile._storage.validity
        if gaps is not None and gaps.origin:
            received += f"; it comes from {gaps.origin}"
            break
    return OutOfBoundsError(
        "an unwritten index has an arbitrary value on a device",
        happened="an index that was never written is out of bounds",
        received=received,
        limit=error.limit,
        remedy="mask the access as the load of the indices was masked, or fill them first",
        location=error.location,
    )
