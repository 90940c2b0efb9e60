from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from difftest.analysis import dependences
from difftest.simulator.machine import TRN2
from difftest.simulator.trace import Engine, Region, Space
from difftest.timing import predict, scheduler
from difftest.timing import program as program_module
from difftest.timing.compiler import LIKELY, Toolchain
from difftest.timing.parameters import SAME_ENGINE
from difftest.timing.renaming import Renaming, refills
from difftest.timing.schedule import schedule
from tests.every import every
from tests.unit.timing.programs import Builder, whole

LOAD = 950 + 8 * (9 + 4000 / 28.1) + 410 + 790
"""A load of 128 x 1000 float32 alone, from trigger to semaphore: see test_dma."""


def addition():
    build = Builder()
    build.store(build.add(build.load((128, 1000)), build.load((128, 1000))))
    return build


def added():
    return addition().program()


def test_load_add_store_by_hand():
    """Two loads, an addition, a store, static descriptors.

    The loads are triggered 85 ns apart. The DMA engines are at the second one's rows when they
    have done the first one's, 1210.8 ns later, so that it is done at LOAD + 1210.8. The vector
    engine begins 23 ns after that (DMA's hop to it), takes 1000 / 0.96 + 157 ns, and 35 ns later
    gpsimd triggers the store: 950 + 1210.8 + 410 ns. Then it waits for its semaphore, 70 ns.
    """
    rows = 8 * (9 + 4000 / 28.1)
    timeline = schedule(added(), dge=False)
    first, second, total, store = timeline.spans
    assert (first.start, second.start) == (0.0, 85.0)
    assert first.end == pytest.approx(LOAD)
    assert second.end == pytest.approx(LOAD + rows)
    assert total.start == pytest.approx(second.end + 23)
    assert total.end == pytest.approx(total.start + 1000 / 0.96 + 157)
    assert store.start == pytest.approx(total.end + 35)
    assert store.end == pytest.approx(store.start + 950 + rows + 410)
    assert timeline.end == pytest.approx(store.end + 70)
    assert [s.engine for s in timeline.spans] == [
        Engine.SYNC, Engine.SYNC, Engine.VECTOR, Engine.GPSIMD,
    ]  # fmt: skip


def test_descriptors_from_the_device_come_one_after_the_other():
    """486 + 127 x 0.8 = 587.6 ns each, and a DMA starts when its own are there."""
    first, second, _, store = schedule(added(), dge=True).spans
    assert second.start - first.start == pytest.approx(587.6)
    assert first.end == pytest.approx(587.6 + 757 + 1211.7 + 320 + 367.9 + 410, abs=0.2)
    assert store.end - store.start == pytest.approx(587.6 + 757 + 1211.7 + 410, abs=0.2)


def test_a_kernel_may_ask_for_static_descriptors():
    build = Builder()
    for mode in ("none", "unknown"):
        tile = build.tensor((128, 8))
        source = build.hbm((128, 8))
        build.emit(
            "dma_copy", Engine.DMA, [whole(tile)], [whole(source)], dge_mode=mode
        )
    static, generated = schedule(build.program(), dge=True).spans
    assert (static.engine, static.busy) == (Engine.SYNC, 85.0)
    assert (generated.engine, generated.busy) == (Engine.DMA, pytest.approx(587.6))


def test_the_seventeenth_dma_waits_for_the_first_ones_semaphore():
    build = Builder()
    for _ in range(17):
        build.load((128, 1000))
    spans = schedule(build.program(), dge=False).spans
    assert spans[15].start == pytest.approx(15 * 85)
    assert spans[16].start == pytest.approx(spans[0].end + 17)


def test_dependent_additions_wait_for_each_other():
    build = Builder()
    tile = build.load((128, 100))
    build.add(build.add(tile, tile), tile)
    _, first, second = schedule(build.program(), dge=False).spans
    assert second.start == pytest.approx(first.end + SAME_ENGINE)


def test_independent_additions_follow_at_the_interval():
    build = Builder()
    tile = build.load((128, 100))
    build.add(tile, tile)
    build.add(tile, tile)
    _, first, second = schedule(build.program(), dge=False).spans
    assert second.start - first.start == pytest.approx(100 / 0.96 + 67)


def test_products_accumulate_without_waiting():
    build = Builder()
    weights = build.load((128, 128), "float16")
    moving = build.load((128, 512), "float16")
    total = build.psum((128, 512))
    build.emit("memset", Engine.VECTOR, [whole(total)], value=0.0)
    for _ in range(3):
        build.matmul(total, weights, moving, accumulate=True)
    program = build.program()
    assert all(step.opcode != "memset" for step in program.instructions)
    *_, first, second, third = schedule(program, dge=False).spans
    assert second.start - first.start == pytest.approx(47)  # its weights, at once
    assert third.start - second.start == pytest.approx(512 / 1.2)  # a cold matmul


def test_a_memset_that_nothing_accumulates_on_stays():
    build = Builder()
    total = build.psum((128, 512))
    build.emit("memset", Engine.VECTOR, [whole(total)], value=0.0)
    build.store(build.add(total, total))
    assert any(step.opcode == "memset" for step in build.program().instructions)


def test_a_memset_before_a_sum_stays_in_todays_dialect():
    """A decoded trace has 160 of them, one before each sum."""
    build = Builder()
    build.trace.dialect = "nki"
    total = build.psum((1, 128))
    build.emit("memset", Engine.VECTOR, [whole(total)], value=0.0)
    weights = build.load((128, 1), "float16")
    moving = build.load((128, 128), "float16")
    build.matmul(total, weights, moving, accumulate=True)
    assert any(step.opcode == "memset" for step in build.program().instructions)


def test_a_transpose_loads_an_identity_first():
    build = Builder()
    tile = build.load((128, 128))
    turned = build.psum((128, 128))
    build.emit("nc_transpose", Engine.TENSOR, [whole(turned)], [whole(tile)])
    identity, load, transpose = build.program().instructions
    assert identity.implied
    assert set(transpose.data) == {identity.index, load.index}


def functions(*names):
    """A kernel that does one after the other to a tile."""
    build = Builder()
    tile = build.load((128, 10))
    for name in names:
        build.emit("activation", Engine.SCALAR, [whole(build.tensor((128, 10)))], [whole(tile)],
                   op=name)  # fmt: skip
    return build


def test_a_function_table_is_loaded_before_its_first_function():
    timeline = schedule(functions("exp", "exp", "tanh").program(), dge=False)
    _, first, second, third = timeline.spans
    assert timeline.timeline.table_loads == 2
    assert first.start > 1283.3  # the first table came before the operands
    assert third.start - second.start == pytest.approx(10 / 1.2 + 200 + 1283.3)


@every(
    "names, loads",
    [
        # traced: one load, copies before the first function
        (
            ["copy", "exp", "copy", "exp"],
            1,
        ),
        (["square", "rsqrt", "square", "rsqrt"], 1),
        (["exp", "rsqrt"] * 4, 8),  # traced: 8 in four blocks of a decoder's attention
    ],
)
def test_a_function_of_another_table_loads_it_again(names, loads):
    program = functions(*names).program()
    assert schedule(program, dge=False).timeline.table_loads == loads


def test_a_compiler_with_one_table_for_all_functions_loads_it_once():
    compiler = LIKELY._replace(one_table=True)
    prediction = predict(functions("exp", "rsqrt", "exp").trace, TRN2, dge=False)
    saved = prediction.middle - prediction.recompiled(compiler)
    assert saved == pytest.approx(2 * 1.2833, abs=0.01)
    alike = predict(functions("exp", "exp").trace, TRN2, dge=False)
    assert alike.recompiled(compiler) == alike.middle


def test_copies_without_an_engine_are_shared_if_many_wait():
    build = Builder()
    tile = build.load((128, 444), "float16")
    for _ in range(100):
        target = build.tensor((128, 444), dtype="float16")
        build.emit("tensor_copy", Engine.UNKNOWN, [whole(target)], [whole(tile)])
    engines = [s.engine for s in schedule(build.program(), dge=False).spans[1:]]
    assert 0.40 <= engines.count(Engine.SCALAR) / 100 <= 0.50  # 44 % in device traces


def test_stores_wait_until_no_load_can_be_triggered():
    build = Builder()
    for _ in range(8):
        build.store(build.load((128, 1000)))
    spans = schedule(build.program(), dge=False).spans
    loads = [s.start for s in spans if not s.instruction.is_store]
    assert min(s.start for s in spans if s.instruction.is_store) > max(loads)


# Whatever the program

ENGINES = (Engine.VECTOR, Engine.SCALAR, Engine.UNKNOWN)


@st.composite
def builders(draw):
    """A program of loads, copies, additions, matmuls and stores on tiles made before."""
    build = Builder()
    tiles = [build.load((128, draw(st.sampled_from([1, 64, 512, 8192]))))]
    for _ in range(draw(st.integers(0, 14))):
        kind = draw(
            st.sampled_from(["load", "copy", "add", "matmul", "store", "rewrite"])
        )
        tile = draw(st.sampled_from(tiles))
        if kind == "load":
            tiles.append(build.load((128, draw(st.sampled_from([1, 64, 512, 8192])))))
        elif kind == "copy":
            target = build.tensor(tile.shape)
            engine = draw(st.sampled_from(ENGINES))
            build.emit("tensor_copy", engine, [whole(target)], [whole(tile)])
            tiles.append(target)
        elif kind == "add":
            tiles.append(build.add(tile, tile))
        elif kind == "matmul":
            weights = build.load((128, 128))
            total = build.psum((128, 128))
            build.matmul(total, weights, weights)
            tiles.append(build.add(total, weights))
        elif kind == "store":
            build.store(tile)
        else:
            build.dma(tile, build.hbm(tile.shape))
    return build


def apart(program, numbers):
    """The instructions among dependences, and the joined ones."""
    for number in numbers:
        if number >= 0:
            yield number
        else:
            yield from apart(program, program.joins[~number])


def violations(timeline):
    """Return, in words, early starts of instructions and overlaps on an engine."""
    found = []
    for span in timeline.spans:
        one = span.instruction
        for producer in apart(timeline.program, one.data):
            other = timeline.spans[producer]
            same = other.engine is span.engine and one.matmul is not None
            if span.start < (other.start if same else other.end):
                found.append(f"{one.index} reads before {producer} is done")
        for earlier in apart(timeline.program, one.order):
            other = timeline.spans[earlier]
            in_order = (
                other.engine is span.engine and other.instruction.transfer is None
            )
            if span.start < (other.start if in_order else other.end):
                found.append(f"{one.index} writes before {earlier} is done")
    for engine in Engine:
        mine = sorted(
            (s.start, s.start + s.busy, s.instruction.index)
            for s in timeline.spans
            if s.engine is engine
        )
        for (_, free, first), (start, _, second) in pairwise(mine):
            if start < free - 1e-6:
                found.append(f"{second} begins before {first} has left {engine.value}")
    return found


def tiles(trace):
    """Event -> the tiles that it reads and writes; a tensor that is filled again is another one."""
    renaming = Renaming(trace, refills(trace))
    found = {}
    for number, event in enumerate(trace.events):
        renaming.enter(number, event)
        found[number] = [
            {region.allocation.id for region in renaming.renamed(regions)}
            for regions in (event.reads, event.writes)
        ]
    return found


def conflicts(timeline, trace):
    """Return accesses to one whole tile that overlap in time although one access writes."""
    found = []
    touched = tiles(trace)
    spans = [span for span in timeline.spans if not span.instruction.implied]
    for position, later in enumerate(spans):
        read, written = touched[later.instruction.event.number]
        for earlier in spans[:position]:
            _, before = touched[earlier.instruction.event.number]
            if (read | written) & before and later.start < earlier.start:
                found.append((earlier.instruction.index, later.instruction.index))
    return found


@given(builders(), st.booleans(), st.sampled_from([1, dependences.MOST]))
@settings(max_examples=60)
def test_nothing_starts_too_early(build, dge, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dependences, "MOST", most)
        timeline = schedule(build.program(), dge=dge)
    assert violations(timeline) == []
    assert conflicts(timeline, build.trace) == []


def loaded_by_columns():
    """Two tiles that copies of another fill, column by column, and that are read whole twice."""
    build = Builder()
    for _ in range(2):
        source = build.load((128, 64))
        target = build.tensor((128, 64))
        for column in range(64):
            part = [
                Region(each, column, (128, 1), (64, 1)) for each in (target, source)
            ]
            engine = ENGINES[column % 2]
            build.emit("tensor_copy", engine, part[:1], part[1:])
        build.add(target, target)
        build.add(target, target)
    return build.program()


def test_a_join_is_over_when_all_of_it_is():
    timeline = schedule(loaded_by_columns(), dge=False)
    assert timeline.program.joins
    assert violations(timeline) == []


def test_a_join_that_is_not_waited_for_is_seen(monkeypatch):
    """Planted: an instruction that waits for many others hears of the first only."""
    monkeypatch.setattr(
        scheduler.Join, "take", lambda join, one: join.last.setdefault("", one)
    )
    assert violations(schedule(loaded_by_columns(), dge=False)) != []


def test_an_ignored_dependence_is_seen(monkeypatch):
    """Planted: no instruction waits for another. The check above must find it."""

    class Blind:
        joins = ()
        widened = False

        def __init__(self, *, by_tensor):
            pass

        def of(self, user, reads, writes):
            return set(), set()

    monkeypatch.setattr(program_module, "Dependences", Blind)
    build = addition()
    timeline = schedule(build.program(), dge=False)
    assert timeline.spans[2].start < timeline.spans[1].end  # the sum before its operand
    assert conflicts(timeline, build.trace) == [(1, 2)]


@given(builders(), st.booleans())
@settings(max_examples=30)
def test_the_same_program_gives_the_same_timeline(build, dge):
    one, other = (schedule(build.program(), dge=dge) for _ in range(2))
    assert [(s.engine, s.start, s.end) for s in one.spans] == [
        (s.engine, s.start, s.end) for s in other.spans
    ]
    assert one.end == other.end


@given(builders(), st.booleans())
@settings(max_examples=30)
def test_no_faster_than_its_busiest_engine_and_its_longest_chain(build, dge):
    timeline = schedule(build.program(), dge=dge)
    for engine in Engine:
        assert timeline.end >= sum(
            s.busy for s in timeline.spans if s.engine is engine
        ) - max((s.busy for s in timeline.spans if s.engine is engine), default=0.0)
    chain = [0.0] * len(timeline.spans)
    for span in timeline.spans:
        before = max((chain[i] for i in span.instruction.data), default=0.0)
        own = span.end - span.start if span.instruction.matmul is None else 0.0
        chain[span.instruction.index] = before + own
    assert timeline.end >= max(chain) - 1e-6


@given(builders(), st.booleans())
@settings(max_examples=30)
def test_an_instruction_on_all_results_comes_last_and_changes_nothing_before(
    build, dge
):
    """One on a single result may shorten the whole: it takes the engine's turn from another, and
    the instruction that waited for its place comes first. So may one in a full memory."""
    assume(
        sum(one.partition_bytes for one in build.trace.allocations)
        < TRN2.sbuf_usable_bytes
    )
    made = {
        e.writes[0].allocation.id: e.writes[0].allocation for e in build.trace.events
    }
    assume(
        len(made) == len(build.trace.events)
    )  # a tile that is filled again is renamed
    before = schedule(build.program(), dge=dge)
    on_chip = [whole(one) for one in made.values() if one.space is Space.SBUF]
    total = build.tensor((128, 4))
    build.emit("tensor_tensor", Engine.VECTOR, [whole(total)], on_chip, op="add")
    after = schedule(build.program(), dge=dge)
    assert [(s.start, s.end) for s in after.spans[:-1]] == [
        (s.start, s.end) for s in before.spans
    ]
    last = {s.instruction.event.writes[0].allocation.id: s.end for s in before.spans}
    assert after.spans[-1].start > max(last[region.allocation.id] for region in on_chip)


@given(st.integers(3, 8), st.integers(0, 4000), st.booleans())
@settings(max_examples=30)
def test_more_data_is_never_faster(width, more, dge):
    """From 12 bytes a row on: writing 2 to 8 bytes to HBM is slower than 14 (measured)."""
    ends = []
    for columns in (width, width + more):
        build = Builder()
        build.store(build.add(build.load((128, columns)), build.load((128, columns))))
        ends.append(schedule(build.program(), dge=dge).end)
    assert ends[0] <= ends[1]


def test_progress_is_reported_every_2000_instructions():
    told = []
    build = Builder()
    tile = build.load((128, 1))
    for _ in range(4100):
        build.add(tile, tile)
    schedule(
        build.program(),
        dge=False,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(2000, 4101), (4000, 4101)]


def chains(dialect, rows=4, turns=20):
    """Independent chains of tiny instructions of the Vector Engine, in turn."""
    build = Builder()
    build.trace.dialect = dialect
    tiles = [build.tensor((1, 4)) for _ in range(rows)]
    for _ in range(turns):
        for row, tile in enumerate(tiles):
            for opcode in ("tensor_reduce", "reciprocal", "tensor_tensor"):
                target = build.tensor((1, 4))
                build.emit(opcode, Engine.VECTOR, [whole(target)], [whole(tile)])
                tile = target
            tiles[row] = tile
    return build.trace


def test_the_current_dialect_keeps_the_order_of_the_text_within_an_engine():
    """Published chains of such instructions: 0.9 to 0.98 of the device's time are predicted with
    the text's order, 0.54 to 0.72 if whatever is ready goes first."""
    trace = chains("nki")
    found = predict(trace, TRN2)
    starts = found.schedule.timeline.start
    assert starts == sorted(starts)
    free = predict(trace, TRN2, compiler=LIKELY._replace(expected=None))
    assert 0.45 < free.middle / found.middle < 0.72
    assert found.compiled.low == free.middle
    assert predict(
        chains("classic"), TRN2, dge=Toolchain.TODAY
    ).middle == pytest.approx(free.middle)


def test_an_engine_does_not_wait_for_dmas_that_come_later_in_the_text():
    """What a load or another engine makes late lets others go first."""
    build = Builder()
    build.trace.dialect = "nki"
    late = build.load((128, 2048))
    early = build.tensor((128, 64))
    for tile in (late, early):
        build.emit(
            "tensor_reduce",
            Engine.VECTOR,
            [whole(build.tensor((128, 1)))],
            [whole(tile)],
        )
    first, second = predict(build.trace, TRN2).schedule.timeline.start[-2:]
    assert second < first
