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
from difftest.simulator.dtypes import BOOL, Array, is_float
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
from difftest.simulator.memory import FROM_MASKED, FROM_UNWRITTEN, poison_array
from difftest.simulator.memory import MASKED_OUT as LEFT_OUT
from difftest.simulator.memory import UNWRITTEN as NOT_WRITTEN
from difftest.simulator.strictness import report_undefined
from difftest.simulator.tile import Tile
from difftest.simulator.trace import AnomalyKind, Origin

UNWRITTEN = "unwritten"
UNDEFINED = "undefined"
"""Kinds of undefined elements, as the reduction registers' origins name them."""
KINDS = {UNDEFINED: MASKED_BITS, UNWRITTEN: UNWRITTEN_BITS}
"""The marks of each kind."""
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
        dst = issued.dst
        operands = issued.operands
        self.accesses = (*operands, dst)
        """By place: the operands, then ``dst``."""
        self.never: dict[int, Array] = {}
        """By place: the unwritten elements, in the tile shape."""
        self.left: dict[int, Array] = {}
        """By place: the masked-out elements, in the tile shape."""
        self.named = self.decided = 0
        self.planes: list[Any] = []
        """The marks of each destination's new elements."""
        self.origins: dict[str, Origin | None] = {UNDEFINED: None, UNWRITTEN: None}
        for access in (dst, *operands):
            if isinstance(access, IndirectTile):
                resolve(access, call, self.where)
        for place, operand in enumerate(operands):
            if isinstance(operand, IndirectTile):
                index_tiles = operand._index_tiles
                self._add_masked(
                    place, undefined_places(operand), operand._base, *index_tiles
                )
            if (
                isinstance(operand, (Tile, IndirectTile))
                and operand._storage.validity is not None
            ):
                operand._check_bounds()
                never = self._kept(place, operand._unwritten(NOT_WRITTEN))
                if never is not None:
                    self.never[place] = never
                self._add_masked(
                    place, operand._unwritten(FROM_MASKED, LEFT_OUT), operand
                )
        if call.reads_dst and isinstance(dst, Tile):
            self._add_masked(
                len(operands), dst._unwritten(FROM_MASKED, FROM_MASKED), dst
            )
        for masks in (self.never, self.left):
            for place, mask in masks.items():
                access = self.accesses[place]
                if isinstance(access, Tile) and not access._in_hbm:
                    masks[place] = mask.reshape(access._tile_shape())

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
        return kept if kept.any() else None

    def _add_masked(
        self, place: int, left: Array | None, *tiles: Tile | IndirectTile
    ) -> None:
        left = self._kept(place, left)
        if left is not None and left.any():
            self.left[place] = left | self.left.get(place, False)
            self.origins[UNDEFINED] = self.origins[UNDEFINED] or origin_of(
                self.call, *tiles
            )

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
        values = list(map(self._values, range(len(self.issued.operands))))
        if not self.call.instruction.carries:
            self.never = {}
        registers = self.core.registers
        observer = self.core.followers.observer
        if not (self.never or self.left or (registers.origins and self.call.reduces)):
            return compute(self.call, *values)
        if not self._are_written():
            return self.results(compute)
        before = {name: held.copy() for name, held in registers.accumulators.items()}
        sights = observer and len(observer.anomalies)
        done = False
        try:
            self._mark_registers()
            try:
                outcome = compute(
                    self.call, *map(self._marked, range(len(values)), values)
                )
            except (
                OutOfBoundsError
            ):  # unwritten elements are the fault if they are indices
                if not self.named & UNWRITTEN_BITS:
                    raise
                outcome = None
            apart = list(
                map(_split_marks, outcome if type(outcome) is tuple else (outcome,))
            )
            self.planes = [plane for _, plane in apart]
            done = self._may_propagate()
        finally:
            if not done:
                registers.accumulators = before
        if not done:
            if observer is not None:
                del observer.anomalies[sights:]
            return self.results(compute)
        self._unmark_registers()
        results = tuple([plain for plain, _ in apart])
        return results if type(outcome) is tuple else results[0]

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
        call = self.call
        dst = self.issued.dst
        if not call.instruction.carries:
            self.never = {}
        old = dst._unwritten(FROM_UNWRITTEN) if call.reads_dst else None
        if old is not None and call.options.get("accumulate", True) is None:
            # it adds only where a matmul wrote
            old = old & (False if dst._storage.products is None else dst._in_product())
        self._are_written()
        self._mark_moves()
        if not self._may_propagate():
            self._mark_moves()
        own = len(self.issued.operands)
        for kind, missing in ((MASKED_BITS, self.left.get(own)), (UNWRITTEN_BITS, old)):
            if missing is not None and missing.any():
                marks = np.where(
                    missing.reshape(call.result.shape), taint_bit(own, kind), 0
                )
                self.planes = [self.planes[0] | marks]
                if kind == UNWRITTEN_BITS:
                    self.origins[UNWRITTEN] = self.origins[UNWRITTEN] or dst._origin("")

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
        if not self.never:
            return True
        dst = self.issued.dst
        plane = over(self.call.result.shape, self.planes[0])
        is_argument = dst._in_hbm and dst._storage.allocation.location is None
        is_kept = is_argument or dst._storage.masked
        chosen = None if self.where is None else broadcast_mask(self.where, plane.shape)
        for place, missing in self.never.items():
            bit = taint_bit(place, UNWRITTEN_BITS)
            whole = self._whole(place, missing)
            lost = (plane & bit) != 0
            if chosen is not None and not bit & self.named:
                lost = lost[chosen]
                if not lost.any() and not (whole and self.issued.inner is not None):
                    continue
            if bit & self.named or lost.all() or whole or (is_kept and lost.any()):
                self._report_unwritten(place)
                return False
            origin = self.origins[UNWRITTEN]
            self.origins[UNWRITTEN] = origin or self.accesses[place]._origin(
                f"read by {self.call.name}"
            )
        return True

    # -- the engine's registers --------------------------------------------------------------------

    def _mark_registers(self) -> None:
        """Attach the registers' known marks to them."""
        if not self.call.reduces:
            return
        held: dict[str, Any] = self.core.registers.accumulators
        for engine in [name for name in held if not name.endswith(_MARKS_SUFFIX)]:
            plane = held.pop(engine + _MARKS_SUFFIX, None)
            plane = (
                np.zeros(held[engine].shape, TAINT_DTYPE) if plane is None else plane
            )
            held[engine] = TaintedArray(self, held[engine], plane)

    def _unmark_registers(self) -> None:
        """Store the registers' marks and origins apart from their values."""
        registers = self.core.registers
        for engine, held in list(registers.accumulators.items()):
            if not isinstance(held, TaintedArray):
                continue
            registers.accumulators[engine] = held.values
            plane = np.zeros(held.shape, TAINT_DTYPE)
            for kind, marks in KINDS.items():
                chosen = (held.taint & marks) != 0
                name = f"{engine} {kind}"
                origin = registers.origins.pop(name, None) or self.origins[kind]
                if chosen.any() and origin is not None:
                    registers.origins[name] = origin
                    plane |= np.where(chosen, taint_bit(REGISTERS, marks), 0)
            if plane.any():
                registers.accumulators[engine + _MARKS_SUFFIX] = plane

    # -- after the results are written -------------------------------------------------------------

    def commit(self, where: Array | None) -> None:
        """Note the undefined elements of the results; ``where`` limits those of ``dst``."""
        core = self.core
        call = self.call
        dst = self.issued.dst
        for place, mask in self.left.items():
            if self.named & taint_bit(place, MASKED_BITS):
                role = call.instruction.operands[place].name
                record_anomaly(
                    core,
                    AnomalyKind.UNDEFINED_INDEX,
                    role,
                    mask,
                    None,
                    self.origins[UNDEFINED],
                )
        if isinstance(dst, IndirectTile):
            self._settle_scatter(dst, where)
            return
        for at, (tile, plane) in enumerate(
            zip((dst, *self.issued.others), self.planes, strict=False)
        ):
            there = 0 if tile is None else taint_bits(plane)
            for kind, marks in KINDS.items():
                if not at and marks & self.decided:
                    elements = np.ones(tile.shape, BOOL)
                elif there & marks:
                    elements = over(tile.shape, (plane & marks) != 0)
                else:
                    continue
                if at:
                    chosen = None
                elif kind == UNWRITTEN:
                    chosen = self.where
                else:
                    chosen = where
                if chosen is not None:
                    elements = elements & broadcast_mask(chosen, tile.shape)
                self._note(tile, elements, kind, first=not at)

    def _note(self, dst: Tile, elements: Array, kind: str, *, first: bool) -> None:
        """Note the undefined elements of a destination.

        Masked-out elements are recorded if they go to HBM. Elements that do not look undefined come
        first, because no comparison would detect them.
        """
        if not elements.any():
            return
        held = self.core.registers.origins.get(f"{self.call.engine.value} {kind}")
        held = held if self.call.reduces else None
        own = self.origins[kind]
        origin = own or held if first else held or own
        if origin is None:
            return
        if kind == UNWRITTEN:
            dst._forget_written(elements, origin)
            return
        if dst._in_hbm:
            values = dst._values(unwritten=True)
            if is_float(dst.dtype):
                shown = np.isnan(values)
            else:
                shown = values == poison_array((), dst.dtype)
            hidden = elements & ~shown
            chosen, numbers = (hidden, values) if hidden.any() else (elements, None)
            record_anomaly(
                self.core, AnomalyKind.UNDEFINED_STORED, "dst", chosen, numbers, origin
            )
        dst._doubt(elements, origin)

    def _settle_scatter(self, dst: IndirectTile, where: Array | None) -> None:
        kept = None if where is None else where.reshape(dst.shape)
        moved = self.left.get(0)
        if moved is not None:
            moved = moved.reshape(dst.shape)
            if dst._in_hbm:
                brought = moved if kept is None else moved & kept
                record_anomaly(
                    self.core,
                    AnomalyKind.UNDEFINED_STORED,
                    "dst",
                    brought,
                    None,
                    self.origins[UNDEFINED],
                )
        lost = (self.planes[0] & UNWRITTEN_BITS) != 0
        nobody = self.origins[UNWRITTEN]
        if nobody is not None:
            dst._forget_written(lost.reshape(dst.shape), nobody)
        places = undefined_places(dst)
        if places is None:
            unsure = moved
        elif moved is None:
            unsure = places
        else:
            unsure = moved | places
        if unsure is None:
            return
        origin = self.origins[UNDEFINED] or origin_of(self.call, *dst._index_tiles)
        if origin is not None:
            dst._doubt(unsure, origin)


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
    places: Array | None = None
    for tile in access._index_tiles:
        missing = tile._unwritten(FROM_MASKED, LEFT_OUT)
        if missing is not None:
            try:
                spread = np.broadcast_to(
                    missing if missing.size > 1 else True, access.shape
                )
            except (
                ValueError
            ):  # an offset that is added to an index expression of another rank
                spread = np.full(access.shape, True)
            places = spread if places is None else places | spread
    return places


def resolve(access: IndirectTile, call: CheckedCall, where: Array | None) -> None:
    """Resolve an access; the error says so if its index was never written.

    Raises
    ------
    OutOfBoundsError : an index is out of bounds, and such indices are not skipped.
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
        gaps = (tile._storage.validity for tile in access._index_tiles)
        origin = next(
            (gap.origin for gap in gaps if gap is not None and gap.origin), None
        )
        raise OutOfBoundsError(
            "an index that nothing wrote is whatever lay in the memory",
            happened="an index that nothing wrote left its tensor",
            received=error.received + (f"; it comes from {origin}" if origin else ""),
            limit=error.limit,
            remedy="mask the access as the load of the indices was masked, or fill them first",
            location=error.location,
        ) from None
