"""The inferred decisions of the compiler, and their effect on predictions."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from difftest.simulator import TRN1, TRN2, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.trace import Engine, Iteration, Loop, LoopKind, Region
from difftest.timing import predict, prediction, scheduler
from difftest.timing.compiler import (
    FASTEST,
    LIKELY,
    QUESTIONS,
    SLOWEST,
    Answer,
    Compiler,
    DescriptorSource,
    RepeatRule,
    answer_words,
)
from difftest.timing.dma import DmaEngines
from difftest.timing.program import recompile
from difftest.timing.schedule import Schedule, planned_order
from tests.every import every
from tests.kernels.budget import NIGHTLY
from tests.unit.timing import blocks, convolutions
from tests.unit.timing.programs import Builder, whole


def predicted(kernel, shapes, dtype="float16", compiler=LIKELY, *, dge=False):
    trace = launch(kernel, [np.ones(shape, dtype) for shape in shapes]).trace
    return predict(trace, TRN2, dge=dge, compiler=compiler)


BLOCKS = [(16 * 128, 512), (4, 128, 512)]
FEWER = [(8 * 128, 512), (4, 128, 512)]
MORE = [(64 * 128, 512), (4, 128, 512)]


def test_a_serial_chain_at_the_head_of_each_block():
    """Each block waits for its own transposes; published kernels take about twice as long so."""
    each = blocks.turned_in_each_block
    first = blocks.turned_first
    ratio = predicted(each, BLOCKS).middle / predicted(first, BLOCKS).middle
    assert 1.4 < ratio < 2.2
    free = predicted(each, BLOCKS, compiler=FASTEST).middle
    assert free < 0.7 * predicted(each, BLOCKS).middle


def test_transposes_of_other_blocks_go_before_products_that_wait_for_hbm():
    """Published kernels of that kind take the time of the order of readiness."""
    free, each, slow = (
        predicted(
            blocks.turned_through_hbm,
            MORE,
            compiler=LIKELY._replace(expected=part),
            dge=True,
        ).middle
        for part in (None, LIKELY.expected, SLOWEST.expected)
    )
    assert each < 1.5 * free
    assert slow > 1.2 * each


@every("columns, machine", [(16, TRN2), (256, TRN2), (2, TRN2), (16, TRN1)])
def test_the_interval_reaches_from_one_way_to_a_descriptor_to_the_other(
    columns, machine
):
    """Rows apart of 64 bytes and of 1 KiB; nothing is open of elements, and on trn1."""
    build = Builder()
    build.trace.dialect = "nki"
    for _ in range(40):
        tile = build.tensor((128, columns))
        part = whole(build.hbm((128, 2 * columns)))._replace(shape=(128, columns))
        build.emit("dma_copy", Engine.DMA, [whole(tile)], [part])
    found = predict(build.trace, machine)
    other = found.recompiled(
        LIKELY._replace(
            descriptors=Answer.SLOWEST if columns == 256 else Answer.FASTEST
        )
    )
    far = max(other / found.middle, found.middle / other)
    is_open = machine is TRN2 and columns > 2
    assert (far > 1.4) is is_open
    assert found.compiled.low <= other <= found.compiled.high


def test_a_compiler_that_expects_nothing_of_dmas_is_seen(monkeypatch):
    """Planted: the order that keeps transposes behind what waits for HBM."""
    each = predicted(blocks.turned_through_hbm, BLOCKS).middle
    monkeypatch.setattr(DmaEngines, "alone", lambda self, transfer, generated: 0.0)
    assert predicted(blocks.turned_through_hbm, BLOCKS).middle > 1.5 * each


def chain(copied):
    """A product of a tile that is copied from another's, and three that wait for nothing."""
    build = Builder()
    tiles = [build.load((128, 128), "float16") for _ in range(2)]
    first, *others = (build.psum((128, columns)) for columns in (copied, 64, 64, 64))
    build.matmul(first, tiles[0], build.load((128, copied), "float16"))
    taken = build.tensor((128, copied), dtype="float16")
    build.emit("tensor_copy", Engine.VECTOR, [whole(taken)], [whole(first)])
    build.matmul(build.psum((128, copied)), tiles[1], taken)
    moving = build.load((128, 64), "float16")
    for other in others:
        build.matmul(other, tiles[1], moving)
    return build.program()


def test_a_sum_is_made_whole_before_a_later_one_begins():
    """Traces have the products of a sum side by side. A first product of a later sum stood in the
    middle of an earlier one: what it read came late, and a small convolution took 15 % longer."""
    shapes = [(128, 34, 18), (9, 128, 128)]
    each = predicted(convolutions.copied_image, shapes)
    (order,) = each.schedule.order
    sums = [each.program.instructions[index].tensors[0] for index in order]
    places = {
        total: [at for at, other in enumerate(sums) if other == total] for total in sums
    }
    assert len(places) == 32
    assert not any(
        places[earlier][0] < places[later][0] < places[earlier][-1]
        for earlier, later in combinations(sorted(places), 2)
    )
    free = predicted(
        convolutions.copied_image, shapes, compiler=LIKELY._replace(expected=None)
    )
    assert each.middle < 1.02 * free.middle


@pytest.mark.parametrize(("copied", "place"), [(64, 2), (512, 4)])
def test_instructions_that_wait_for_a_copy_let_others_run_first(copied, place):
    """Three of 27 ns that wait for no copy; a copy of 64 elements takes 67 ns, of 512 533."""
    program = chain(copied)
    (order,) = planned_order(program, dge=False)
    second = [one.index for one in program.instructions if one.matmul][1]
    assert order.index(second) == place
    assert planned_order(replace(program, compiler=FASTEST), dge=False) is None


def test_products_that_wait_for_nothing_keep_their_time():
    shapes = [(128, 20, 130), (9, 128, 128)]
    compilers = [
        one._replace(descriptors=Answer.LIKELY) for one in (FASTEST, LIKELY, SLOWEST)
    ]
    times = [
        predicted(convolutions.tile_in_each_turn, shapes, "float32", compiler).middle
        for compiler in compilers
    ]
    assert times == pytest.approx([times[1]] * 3, rel=0.03)


@pytest.mark.parametrize(
    ("kernel", "dge"),
    [
        (convolutions.one_tile, False),
        (convolutions.one_tile, True),
        (convolutions.copied_operands, False),
    ],
)
def test_the_bounds_lie_around_the_prediction(kernel, dge):
    shapes = [(128, 20, 130), (9, 128, 128)]
    low, likely, high = (
        predicted(kernel, shapes, compiler=compiler, dge=dge).middle
        for compiler in (FASTEST, LIKELY, SLOWEST)
    )
    assert low <= likely * 1.02
    assert likely <= high * 1.02
    assert low < 0.9 * high


def test_loads_into_one_tile_are_triggered_together_or_each():
    """Three rows of the image, each by a load: with descriptors from the device they are the limit.

    The compiler may merge them into one.
    """
    shapes = [(128, 34, 130), (9, 128, 128)]
    each = predicted(convolutions.tile_in_each_turn, shapes, dge=True)
    compiler = LIKELY._replace(merged_loads=True)
    merged = predicted(
        convolutions.tile_in_each_turn, shapes, dge=True, compiler=compiler
    )
    loads = [
        one for one in merged.program.instructions if one.transfer and not one.is_store
    ]
    # of rows, and of the weights' taps
    assert sum(one.continues for one in loads) == 32 * 2 + 8
    assert merged.middle < 0.75 * each.middle
    triggered = [one.busy for one in merged.schedule.spans if one.instruction.continues]
    assert set(triggered) == {0.0}


def ring(x):
    """Two slices of one tensor, filled in turn and read before the next is filled."""
    out = nl.ndarray((8, 128, 2048), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 2, 2048), dtype=x.dtype, buffer=nl.sbuf)
    for turn in range(8):
        nisa.dma_copy(dst=tile[:, turn % 2], src=x[turn])
        nisa.dma_copy(dst=out[turn], src=tile[:, turn % 2])
    return out


def test_slices_of_one_tensor_serialise_in_todays_dialect():
    trace = launch(ring, [np.ones((8, 128, 2048), np.float32)]).trace
    assert trace.dialect == "nki"
    compilers = (LIKELY._replace(by_tensor=False), LIKELY)
    apart, together = (
        predict(trace, TRN2, dge=False, compiler=one).middle for one in compilers
    )
    assert together > 1.3 * apart
    trace.dialect = "classic"
    classic = [
        predict(trace, TRN2, dge=False, compiler=one).middle for one in compilers
    ]
    assert classic[0] == classic[1]


def test_the_interval_reaches_from_the_fastest_compiler_to_the_slowest():
    shapes = [(128, 34, 130), (9, 128, 128)]
    found = predicted(convolutions.tile_in_each_turn, shapes, dge=True)
    fastest = predicted(
        convolutions.tile_in_each_turn, shapes, dge=True, compiler=FASTEST
    )
    assert found.compiled.low == pytest.approx(fastest.middle)
    assert found.compiled.high >= found.middle
    assert found.latency_interval.low <= fastest.latency
    assert found.caution.startswith("the largest unknown is ")
    # A request for one compiler excludes the others.
    assert fastest.compiled == (fastest.middle, fastest.middle)


@st.composite
def traces(draw):
    """Tiles of two halves in either dialect: loaded, copied, filled again, multiplied, stored."""
    build = Builder()
    build.trace.dialect = draw(st.sampled_from(["classic", "nki"]))
    source = build.hbm((128, 256), "float16")
    tiles = [build.load((128, 256), "float16")]
    for number in range(draw(st.integers(1, 24))):
        tile = draw(st.sampled_from(tiles))
        half = draw(st.sampled_from([0, 128]))
        turn = (Iteration(Loop(0, LoopKind.AFFINE, None), number, number),)
        part = Region(tile, half, (128, 128), (256, 1))
        match draw(st.sampled_from(["load", "copy", "fill", "multiply", "store"])):
            case "load":
                tiles.append(build.tensor((128, 256), dtype="float16"))
                build.dma(tiles[-1], source)
            case "copy":
                tiles.append(build.tensor((128, 256), dtype="float16"))
                build.emit(
                    "tensor_copy", Engine.VECTOR, [whole(tiles[-1])], [whole(tile)]
                )
            case "fill":
                build.emit(
                    "dma_copy", Engine.DMA, [part], [part._replace(allocation=source)]
                )
            case "multiply":
                total = build.psum((128, 128))
                build.emit("nc_matmul", Engine.TENSOR, [whole(total)], [part, part])
                build.emit("tensor_copy", Engine.UNKNOWN, [part], [whole(total)])
            case _:
                build.store(tile)
        build.trace.events[-1].loops = turn
    return build.trace


def shortened(trace, dge):
    """The program of another compiler, from a new lowering or from the existing program."""
    found = predict(trace, TRN2, dge=dge)
    others = [
        Compiler(*values) for values in product(*zip(LIKELY, FASTEST, strict=True))
    ]
    for one in dict.fromkeys([FASTEST, SLOWEST, *others[:: 5 if NIGHTLY else 13]]):
        yield found.recompiled(one), predict(trace, TRN2, dge=dge, compiler=one).middle


@settings(max_examples=max(10, settings().max_examples // 5))
@given(traces(), st.booleans())
def test_another_compilers_time_matches_its_own_prediction(trace, dge):
    for quick, whole_way in shortened(trace, dge):
        assert quick == whole_way


def test_an_instruction_that_only_the_other_compiler_changes_has_its_own_cost():
    """The activation may read PSUM where the repeated copy into PSUM is omitted."""
    build = Builder()
    tile = build.load((128, 512))
    total = build.psum((128, 512))
    copy = build.tensor((128, 512))
    powers = build.tensor((128, 512))
    build.emit("tensor_copy", Engine.VECTOR, [whole(total)], [whole(tile)])
    build.emit("tensor_copy", Engine.VECTOR, [whole(copy)], [whole(total)])
    build.emit("activation", Engine.SCALAR, [whole(powers)], [whole(copy)], op="exp")
    build.emit("tensor_copy", Engine.VECTOR, [whole(total)], [whole(tile)])
    build.store(powers)
    build.trace.dialect = "classic"
    build.trace.middle_end = True
    keeps = LIKELY._replace(renames=False, repeated_copies=RepeatRule.KEPT)
    found = predict(build.trace, TRN2, compiler=keeps)
    assert found.program.as_traced
    assert found.recompiled(LIKELY) == predict(build.trace, TRN2).middle


@pytest.mark.parametrize(
    "kernel", [blocks.turned_in_each_block, convolutions.copied_operands]
)
def test_a_kernels_time_with_another_compiler_is_its_own(kernel):
    shapes = (
        FEWER
        if kernel is blocks.turned_in_each_block
        else [(128, 8, 34), (9, 128, 128)]
    )
    trace = launch(kernel, [np.ones(shape, "float16") for shape in shapes]).trace
    for quick, whole_way in shortened(trace, dge=True):
        assert quick == whole_way


def test_a_timeline_that_is_taken_for_another_is_seen(monkeypatch):
    """Planted: the likely compiler's timeline is used for any other compiler."""
    monkeypatch.setattr(Schedule, "stands_for", lambda self, other, order: True)
    trace = launch(
        blocks.turned_in_each_block, [np.ones(s, "float16") for s in FEWER]
    ).trace
    assert any(quick != whole_way for quick, whole_way in shortened(trace, dge=True))


def test_a_kernel_that_depends_on_no_compiler_has_no_warning():
    build = Builder()
    for _ in range(8):
        build.store(build.add(build.load((128, 2000)), build.load((128, 2000))))
    found = predict(build.trace, TRN2, dge=False)
    assert found.compiled == pytest.approx((found.middle, found.middle), rel=0.01)
    assert found.caution == ""


def test_a_very_long_program_gets_no_other_compilers(monkeypatch):
    monkeypatch.setattr(prediction, "MANY", 10)
    found = predicted(
        convolutions.tile_in_each_turn, [(128, 10, 130), (9, 128, 128)], dge=True
    )
    assert found.compiled == (found.middle, found.middle)
    assert "more than 10 instructions no other compiler is predicted" in found.caution


def test_a_wide_interval_names_one_question():
    """Transposes of weights are made once, or in each row."""
    trace = launch(
        convolutions.turned_weights,
        [np.ones(s, np.float32) for s in ((128, 10, 130), (9, 128, 128))],
    ).trace
    found = predict(trace, TRN1, dge=True)
    assert found.compiled.high > 1.5 * found.compiled.low
    kept = found.recompiled(LIKELY._replace(repeated_transposes=RepeatRule.KEPT))
    # a transpose is left out with the copy of its result
    assert found.caution.startswith(
        "the largest unknown is which repeated copies the compiler makes: "
        f"{found.middle:,.1f} us if those that a loop changes, {kept:,.1f} us if all"
    )


def test_the_part_of_a_kernel_asks_the_same_question(monkeypatch):
    """The beginning shows the question, and the whole kernel the times."""
    found = [
        predicted(
            convolutions.copied_operands, [(128, 34, 66), (9, 128, 128)], dge=True
        )
        for _ in range(2)
    ]
    whole_kernel = found[0].largest_unknown
    monkeypatch.setattr(prediction, "LEAST_PART", 100)
    assert found[1].largest_unknown == whole_kernel
    assert len(found[1].program.instructions) > 500


def test_the_caution_takes_no_longer_than_the_prediction(monkeypatch):
    """Counted in scheduled instructions: one other compiler of the whole, all of a part."""
    counts = []
    run = scheduler.Scheduler.run

    def counted(self):
        counts.append(len(self.instructions))
        return run(self)

    found = predicted(
        convolutions.copied_operands, [(128, 502, 34), (9, 128, 128)], dge=True
    )
    size = len(found.program.instructions)
    assert size > 10_000
    assert found.compiled
    monkeypatch.setattr(scheduler.Scheduler, "run", counted)
    assert found.caution
    assert sum(counts) <= 3 * size  # a prediction orders products, and schedules


def test_a_narrow_interval_names_no_question():
    assert predicted(blocks.turned_first, BLOCKS).largest_unknown is None


def test_each_guess_has_a_question_and_answers():
    assert tuple(QUESTIONS) == Compiler._fields
    ends = [
        (one, other)
        for one, other in zip(FASTEST, SLOWEST, strict=True)
        if one != other and not isinstance(one, Answer)
    ]
    assert all(answer_words(one) != answer_words(other) for one, other in ends)
    words = {source.words for source in DescriptorSource}
    assert len(words) == len(DescriptorSource)


def test_the_answers_name_the_sources_of_descriptors():
    build = Builder()
    build.trace.dialect = "nki"
    for _ in range(40):
        part = whole(build.hbm((128, 128)))._replace(shape=(128, 64))
        build.emit("dma_copy", Engine.DMA, [whole(build.tensor((128, 64)))], [part])
    said = predict(build.trace, TRN2).caution
    assert said.startswith("the largest unknown is who makes the DMA descriptors: ")
    assert "us if made by the hardware during the run, " in said
    assert "us if made by software during the run" in said


def test_compilers_of_equal_decisions_share_the_dependences():
    arrays = [np.ones(shape, "float16") for shape in FEWER]
    trace = launch(blocks.turned_in_each_block, arrays).trace
    program = predict(trace, TRN2).program
    other = recompile(program, trace, LIKELY._replace(expected=0.5))
    assert other.compiler.expected == 0.5
    assert other.dependence_graph is program.dependence_graph
