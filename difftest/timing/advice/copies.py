"""Advice on copies: copies that change nothing, and copies of single elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from difftest.simulator.trace import Engine, Purpose, Space
from difftest.timing.advice.savings import (
    Advice,
    RemovedWork,
    Units,
    advice_on,
    spans_by_line,
)
from difftest.timing.program import LoweredInstruction
from difftest.timing.schedule import Schedule, Span

FEW = 4
"""The most elements per partition of an instruction that is all overhead."""
NARROW = 8
"""An instruction on at most this part of the partitions, one of ``NARROW``, is narrow."""
MANY = 16
"""The least number of instructions of one line for a finding."""


def redundant_copies(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on copies inside SBUF whose readers could read the original.

    The readers run on engines that take slices, casts and broadcasts of SBUF themselves. A copy
    that a DMA stores, or that is written to again, is not counted.
    """
    readers = _readers(schedule.program.instructions)
    instructions = schedule.program.instructions
    writers = Counter(
        region.allocation.id for step in instructions for region in step.event.writes
    )
    copies = [span for span in schedule.spans if _is_redundant(span, readers, writers)]
    for spans in spans_by_line(copies).values():
        yield advice_on(
            spans,
            "redundant-copies",
            units.without(RemovedWork(spans)),
            happened=f"{len(spans):,} copies inside SBUF {_made(spans)}, and their readers "
            "could take the originals",
            rule="instructions take strided and broadcast operands, and cast on their own",
            remedy="give the reader a slice of the tile itself",
        )


def _made(spans: list[Span]) -> str:
    event = spans[0].instruction.event
    source = event.reads[0]
    target = event.writes[0]
    if source.dtype != target.dtype:
        return f"cast {source.dtype} to {target.dtype}"
    if any(stride == 0 and size > 1 for size, stride in source.free_axes):
        return "repeat a column"
    return "change nothing"


def _readers(
    instructions: list[LoweredInstruction],
) -> dict[int, list[LoweredInstruction]]:
    """Return the readers of each tensor in SBUF."""
    readers: dict[int, list[LoweredInstruction]] = {}
    for step in instructions:
        for region in step.event.reads:
            if region.allocation.space is Space.SBUF:
                readers.setdefault(region.allocation.id, []).append(step)
    return readers


def _is_redundant(
    span: Span, readers: dict[int, list[LoweredInstruction]], writers: Counter[int]
) -> bool:
    """Return whether a copy within SBUF is only read by engines, which could read its source."""
    step = span.instruction
    if not step.is_copy:
        return False
    source = step.event.reads[0].allocation
    target = step.event.writes[0].allocation
    if source.space is not Space.SBUF or target.space is not Space.SBUF:
        return False
    if writers[target.id] != 1:
        return False
    uses = readers.get(target.id, [])
    return bool(uses) and all(use.transfer is None for use in uses)


def single_elements(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on instructions that a loop issues for a few elements at a time."""
    small = [span for span in schedule.spans if _handles_few_elements(span, units)]
    for spans in spans_by_line(small).values():
        targets = {span.instruction.event.writes[0].allocation.id for span in spans}
        if len(spans) < MANY or len(spans) < 2 * len(targets):
            continue
        kept = len(targets) / len(spans)
        savings = units.without(RemovedWork(spans, 1.0 - kept))
        opcode = spans[0].instruction.opcode
        yield advice_on(
            spans,
            "element-by-element",
            savings,
            happened=f"{len(spans):,} x {opcode} handle {FEW} elements a partition or fewer, into "
            f"{len(targets):,} tiles",
            rule="every instruction costs the same overhead, however few elements it has",
            remedy="replace the loop by one instruction on a slice, strided if need be",
        )


def _handles_few_elements(span: Span, units: Units) -> bool:
    """Return whether an instruction other than a DMA or a product is all overhead."""
    step = span.instruction
    if step.transfer is not None or step.matmul is not None:
        return False
    if not step.event.writes:  # a load of a register writes no tensor
        return False
    return 0 < units.elements(span) <= FEW


def few_partitions(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on instructions whose elements lie in few of the partitions.

    An instruction takes as long for one partition as for all, so that the same elements over all
    partitions take a share of the time.
    """
    all_partitions = schedule.program.machine.partitions
    timed = [
        span
        for span in schedule.spans
        if span.instruction.times and span.instruction.event.writes
    ]
    narrow = [
        span
        for span in timed
        if units.elements(span) > FEW and _partitions(span) * NARROW <= all_partitions
    ]
    for spans in spans_by_line(narrow).values():
        removed = RemovedWork()
        for span in spans:
            spread = span.instruction.times[span.engine].cycles
            spread *= 1.0 - _partitions(span) / all_partitions
            removed.add(span, min(1.0, spread / span.busy))
        count = max(map(_partitions, spans))
        opcode = spans[0].instruction.opcode
        yield advice_on(
            spans,
            "few-partitions",
            units.without(removed),
            happened=f"{len(spans):,} x {opcode} use {count} of {all_partitions} partitions",
            rule="an instruction takes as long for one partition as for all of them",
            remedy="lay the elements out over all partitions: split the free axis, and put a part "
            "into each partition",
        )


def _partitions(span: Span) -> int:
    """Return the most partitions of an operand."""
    event = span.instruction.event
    return max(region.partitions for region in event.writes + event.reads)


def added_in_sbuf(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on products that other engines add up, where PSUM adds at no cost."""
    products = _SumsOfProducts(schedule.program.instructions)
    adders = [
        span for span in schedule.spans if span.instruction.index in products.sums
    ]
    for spans in spans_by_line(adders).values():
        totals = {
            products.first_tile(span.instruction.event.writes[0].allocation.id)
            for span in spans
        }
        if len(spans) < 2 * len(totals):
            continue
        savings = units.without(RemovedWork(spans, 1.0 - len(totals) / len(spans)))
        yield advice_on(
            spans,
            "sums-outside-psum",
            savings,
            happened=f"{len(spans):,} products are added up in SBUF, one instruction each",
            rule="matmuls that write to one PSUM tile in a row add up there, at no cost",
            remedy="accumulate in PSUM: total += nc_matmul(...) into nl.zeros(..., "
            "buffer=nl.psum) in one loop costs no instruction",
        )


class _SumsOfProducts:
    """The additions of products, and of sums of them, in program order.

    A product may have been copied out of PSUM before. A sum may have its own tile and be added to
    another sum.

    Attributes
    ----------
    sums : the numbers of the instructions that add.
    """

    def __init__(self, instructions: list[LoweredInstruction]) -> None:
        self.sums: set[int] = set()
        self._products: set[int] = set()
        self._zeros: set[int] = set()
        self._chains: dict[int, int] = {}
        """Tile of a sum -> the first tile of the sum."""
        self._joined: dict[int, int] = {}
        """First tile of a sum -> the first tile of the sum that contains it."""
        for step in instructions:
            if step.event.writes:
                self._add_step(step)

    def first_tile(self, tile: int) -> int:
        """Return the first tile of the largest sum that contains a tile."""
        return self._first(self._chains[tile])

    def _add_step(self, step: LoweredInstruction) -> None:
        event = step.event
        target = event.writes[0].allocation
        adds = event.purpose is Purpose.COMBINE and event.attributes.op == "add"
        if self._makes_product(step):
            self._products.add(target.id)
        elif event.clears:
            self._zeros.add(target.id)
        elif adds and target.space is Space.SBUF:
            self._take_addition(step, target.id)

    def _makes_product(self, step: LoweredInstruction) -> bool:
        """Return whether an instruction multiplies, or copies a product."""
        if step.matmul is not None and step.matmul.is_simple:
            return True
        reads = step.event.reads
        if not reads or reads[0].allocation.id not in self._products:
            return False
        return step.is_copy or step.event.purpose is Purpose.FUNCTION

    def _take_addition(self, step: LoweredInstruction, target: int) -> None:
        """Take an addition, if it adds a product or two sums."""
        sources = [region.allocation.id for region in step.event.reads]
        others = [number for number in sources if number not in self._products]
        chains = [self._chains[number] for number in others if number in self._chains]
        firsts = [self._first(chain) for chain in chains]
        adds_products = len(others) < len(sources) or len(firsts) == len(sources)
        continues = firsts or target in others or self._zeros.issuperset(others)
        if adds_products and continues:
            first = firsts[0] if firsts else target
            self.sums.add(step.index)
            self._chains[target] = first
            self._joined.update(
                {chain: first for chain in firsts[1:] if chain != first}
            )

    def _first(self, chain: int) -> int:
        """Return the first tile of the sum that contains a sum."""
        while self._joined.get(chain, chain) != chain:
            chain = self._joined[chain]
        return chain


_MOVABLE = (Purpose.COPY, Purpose.SCALE)
"""The work that the Vector and the Scalar Engine both do."""
BUSY = 0.8
"""The least share of the kernel's time that makes an engine the busy one."""
SPARE = 0.4
"""The most share of the kernel's time that leaves an engine room for the other one's work."""


def _may_move(span: Span, engine: Engine) -> bool:
    """Return whether an instruction of an engine could run on the other one of the two."""
    return span.engine is engine and span.instruction.event.purpose in _MOVABLE


def busy_copies(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on the busiest engine if another could take a part of its work."""
    end = schedule.end
    pairs = ((Engine.VECTOR, Engine.SCALAR), (Engine.SCALAR, Engine.VECTOR))
    for engine, other in pairs:
        busy = units.longest_busy(engine.value)
        spare = units.longest_busy(other.value)
        is_uneven = busy >= BUSY * end and spare <= SPARE * end
        if not is_uneven or busy < max(units.busy.values()):
            continue
        movable = [span for span in schedule.spans if _may_move(span, engine)]
        if not movable:
            continue
        work = max(RemovedWork(movable).times.values())
        yield advice_on(
            movable,
            "uneven-engines",
            units.without(RemovedWork(movable, min(1.0, (busy - spare) / 2 / work))),
            happened=f"the {engine.value} engine is busy {busy / end:.0%} of the time, the "
            f"{other.value} engine {spare / end:.0%}",
            rule="the Vector and the Scalar Engine run side by side, and both copy",
            remedy=f"give a part of these to the {other.value} engine: nisa.tensor_copy(..., "
            f"engine=nisa.{other.value}_engine)",
        )
