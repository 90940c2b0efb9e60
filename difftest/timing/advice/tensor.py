"""Advice on the Tensor Engine: weights, transposes, PSUM tiles, unnecessary float32."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from difftest.analysis.footprint import Footprint, footprint
from difftest.simulator.trace import Engine, Purpose, Region, Space
from difftest.timing.advice.savings import (
    Advice,
    RemovedWork,
    Units,
    advice_on,
    spans_by_line,
)
from difftest.timing.cost_table import elements
from difftest.timing.parameters import TimingParameters
from difftest.timing.program import LoweredInstruction
from difftest.timing.schedule import Schedule, Span

EMPTY = 0.5
"""A PSUM tile with less than this part of a bank is mostly empty."""
SPARED_PASSES = 0.75
"""The part of a float32 matmul's passes that two-byte operands save: three of four."""
TENSOR = Engine.TENSOR.value


def transposed_again(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on transposes of data that were transposed before, and the copies around them.

    A product with an identity of the kernel counts as a transpose. Any product of the same two
    operands is also unnecessary the second time.
    """
    transposes = [span for span in schedule.spans if _may_transpose(span.instruction)]
    if not transposes:
        return
    tiles = _origins_of_operands(schedule.program.instructions)
    helpers = _copies_around(schedule)
    for spans in spans_by_line(transposes).values():
        called = "transposes or products with the same tile"
        if all(span.instruction.event.purpose is Purpose.TRANSPOSE for span in spans):
            called = "transposes"
        repeated = _repeated(spans, tiles)
        different = len(spans) - len(repeated)
        if len(repeated) < different:
            continue
        removed = RemovedWork()
        for span in repeated:
            removed.add(span)
            for helper in helpers.get(span.instruction.index, ()):
                removed.add(helper)
        yield advice_on(
            spans,
            "transposed-again",
            units.without(removed),
            happened=f"{len(spans):,} {called} of {different:,} different tiles",
            rule="a transpose and a matmul take the Tensor Engine equally long",
            remedy="transpose each tile once, before the loops that use it, and keep the result "
            "in SBUF",
        )


def _repeated(spans: Sequence[Span], tiles: Mapping[int, Hashable]) -> list[Span]:
    """Return the transposes of operands that an earlier one has transposed."""
    seen: set[Hashable] = set()
    repeated: list[Span] = []
    for span in spans:
        origin = tiles[span.instruction.index]
        if origin in seen:
            repeated.append(span)
        seen.add(origin)
    return repeated


def _origins_of_operands(
    instructions: Sequence[LoweredInstruction],
) -> dict[int, Hashable]:
    """Return the core and the origins of the operands of each transpose, by its number."""
    origins = Origins()
    tiles: dict[int, Hashable] = {}
    for step in instructions:
        if _may_transpose(step):
            tiles[step.index] = step.core, *map(origins.of, step.event.reads)
        origins.write(step)
    return tiles


def _may_transpose(step: LoweredInstruction) -> bool:
    """Return whether it transposes, or multiplies by no more columns than a transpose would."""
    if step.transfer is None and step.event.purpose is Purpose.TRANSPOSE:
        return True
    if (
        step.matmul is None
        or not step.matmul.is_simple
        or step.event.attributes.accumulate
    ):
        return False
    stationary, moving = step.event.reads[:2]
    return elements(moving) == moving.partitions == stationary.partitions


def _copies_around(schedule: Schedule) -> dict[int, list[Span]]:
    """Return transpose -> the copy of its operand, and the copy of its result to SBUF."""
    spans = schedule.spans
    copies: dict[int, list[Span]] = {}
    for span in spans:
        step = span.instruction
        for producer in step.data:
            if producer < 0:  # a join of very many instructions
                continue
            maker = spans[producer].instruction
            if step.is_copy and _may_transpose(maker):
                copies.setdefault(producer, []).append(span)
            elif _copies_from_sbuf(maker) and not step.is_copy and _may_transpose(step):
                copies.setdefault(step.index, []).append(spans[producer])
    return copies


def _copies_from_sbuf(step: LoweredInstruction) -> bool:
    return step.is_copy and step.event.reads[0].allocation.space is Space.SBUF


def strided_weights(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on matmuls that wait for weights with strided elements."""
    intervals = schedule.program.parameters.weights_interval
    clock = schedule.program.parameters.clocks[Engine.TENSOR].value
    strided = [
        span
        for span in schedule.spans
        if (work := span.instruction.matmul) and work.strided and work.is_simple
    ]
    for spans in spans_by_line(strided).values():
        removed = RemovedWork()
        for span in spans:
            work = span.instruction.matmul
            assert work is not None
            streaming = max(work.rows / clock, intervals[work.four_byte, False].value)
            wait = max(0.0, intervals[work.four_byte, True].value - streaming)
            removed.take(span, TENSOR, work.passes * wait)
        savings = units.without(removed)
        if not savings.work:
            continue
        yield advice_on(
            spans,
            "strided-weights",
            savings,
            happened=f"{len(spans):,} matmuls take longer to load their weights, whose elements "
            "lie apart, than to multiply",
            rule="weights whose elements lie apart take longer to load than adjacent ones",
            remedy="keep the stationary operand's elements adjacent: order the cache so that the "
            "output channels are its last axis",
        )


def empty_psum(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on matmuls with few columns, whose PSUM tiles could hold several of them."""
    program = schedule.program
    bank = program.machine.psum_fmax
    narrow = [
        span
        for span in schedule.spans
        if (work := span.instruction.matmul)
        and work.is_simple
        and elements(span.instruction.event.reads[1]) < EMPTY * bank
    ]
    for spans in spans_by_line(narrow).values():
        tiles = {span.instruction.event.writes[0].allocation.id for span in spans}
        if len(tiles) < 2:
            continue
        removed = RemovedWork()
        columns = 0
        for span in spans:
            columns += elements(span.instruction.event.reads[1])
            streaming = _streaming(span, program.parameters, bank)
            removed.take(span, TENSOR, max(0.0, span.busy - streaming))
        yield advice_on(
            spans,
            "empty-psum-tiles",
            units.without(removed),
            happened=f"{len(spans):,} matmuls fill {columns / len(spans):,.0f} of {bank} columns "
            f"of a PSUM bank ({columns / len(spans) / bank:.0%})",
            rule="a matmul has a fixed overhead, and a full PSUM bank spreads it furthest",
            remedy="multiply several rows at once: a moving operand may have more than one free "
            f"axis, {bank} elements together",
        )


def _streaming(span: Span, parameters: TimingParameters, bank: int) -> float:
    """Return the time of the matmul's columns within a matmul that fills its bank, ns."""
    work = span.instruction.matmul
    assert work is not None
    clock = parameters.clocks[Engine.TENSOR].value
    overhead = parameters.row_overhead
    if work.four_byte:
        overhead = parameters.row_overhead_fp32
    columns = elements(span.instruction.event.reads[1])
    return work.passes * (work.rows + overhead.value * columns / bank) / clock


def wide_operands(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on float32 matmuls of two-byte data: four passes instead of one."""
    narrow = _cast_to_float32(schedule.program.instructions)
    wide = [
        span
        for span in schedule.spans
        if (work := span.instruction.matmul)
        and work.four_byte
        and any(
            region.allocation.id in narrow
            for region in span.instruction.event.reads[:2]
        )
    ]
    for spans in spans_by_line(wide).values():
        yield advice_on(
            spans,
            "float32-operands",
            units.without(RemovedWork(spans, SPARED_PASSES)),
            happened=f"{len(spans):,} matmuls multiply data of two bytes after a cast to float32, "
            "in four passes",
            rule="the Tensor Engine multiplies float32 in four passes and two-byte dtypes in one",
            remedy="multiply in the input's dtype: PSUM accumulates in float32 all the same",
        )


def _cast_to_float32(instructions: list[LoweredInstruction]) -> set[int]:
    """Return the four-byte tensors computed from two-byte tensors, in one or several steps."""
    narrow: set[int] = set()
    for step in instructions:
        if step.matmul or not step.event.reads or not step.event.writes:
            continue
        source = step.event.reads[0].allocation
        target = step.event.writes[0].allocation
        if target.dtype.itemsize == 4 and (
            source.dtype.itemsize <= 2 or source.id in narrow
        ):
            narrow.add(target.id)
    return narrow


BACK = 64
"""The number of the last writers of a tile that are examined."""


class Origins:
    """The contents of each tile over time; instructions are passed in program order.

    Data are followed through loads and copies: equal data have equal origins.
    """

    def __init__(self) -> None:
        self._written: dict[int, list[tuple[Footprint, Region, Hashable]]] = {}
        """Tile -> for each write, its footprint, its region and the origin of its data."""

    def write(self, step: LoweredInstruction) -> None:
        """Record the writes of an instruction, after its operands were looked up."""
        event = step.event
        copies = step.event.purpose is Purpose.COPY
        for region in event.writes:
            if region.allocation.space.is_hbm:
                continue
            moves = copies and event.reads[0].elements == event.writes[0].elements
            entry = (
                footprint(region),
                region,
                self.of(event.reads[0]) if moves else step.index,
            )
            self._written.setdefault(region.allocation.id, []).append(entry)

    def of(self, region: Region) -> Hashable:
        """Return a region's origin: elements of an HBM tensor, or part of an instruction's result.

        The last earlier write decides, because a tile that is written again holds other data.
        """
        allocation = region.allocation
        part = (region.offset, region.shape, region.strides)
        writes = self._written.get(allocation.id, ())
        if allocation.space.is_hbm or not writes:
            return (allocation.id, part)
        mark = footprint(region)
        for written, target, origin in reversed(writes[-BACK:]):
            if written.covers(mark):
                inside = (region.offset - target.offset, region.shape, region.strides)
                return (origin, target.shape, target.strides, inside)
            if written.overlaps(mark):
                break
        return (allocation.id, len(writes), part)
