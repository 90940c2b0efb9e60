"""Programs of a grid and cores of a logical NeuronCore: planted races, and ordered accesses."""

import numpy as np
import pytest

from difftest.simulator import UnwrittenError, launch
from difftest.simulator.entry.install import embedded
from tests.every import every
from tests.unit.analysis.detectors.kernels import (
    detected_in,
    findings_in,
    found_in,
    normal,
)

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl

HALF = 64


def both(kernel):
    return nki.jit(kernel)[2]


def shared(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def part(program):
    return slice(program * HALF, (program + 1) * HALF)


def copy_part(out, x, program):
    """One program's half of the columns, through SBUF."""
    tile = nl.ndarray((128, HALF), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[:, part(program)])
    nisa.dma_copy(dst=out[:, part(program)], src=tile)


def zero(out):
    tile = nl.ndarray(out.shape, dtype=out.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0.0)
    nisa.dma_copy(dst=out, src=tile)


def disjoint(x):
    out = shared(x)
    copy_part(out, x, nl.program_id(0))
    return out


def both_zero_all(x):
    out = shared(x)
    zero(out)
    copy_part(out, x, nl.program_id(0))
    return out


def both_zero_all_behind_a_barrier(x):
    out = shared(x)
    if nl.program_id(0) == 0:
        zero(out)
    nisa.core_barrier(data=out, cores=(0, 1))
    copy_part(out, x, nl.program_id(0))
    return out


def ignores_its_id(x):
    out = shared(x)
    copy_part(out, x, 0)
    copy_part(out, x, 1)
    return out


def has_nothing_to_divide(x):
    if nl.program_id(0) > 1:
        return shared(x)
    return ignores_its_id(x)


def all_of_the_work(value):
    """Each program writes all of the scratch and reads it back, plus ``value``."""

    def kernel(x):
        out = shared(x)
        scratch = shared(x)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(value()))
        nisa.dma_copy(dst=scratch, src=tile)
        copy_part(out, scratch, 0)
        copy_part(out, scratch, 1)
        return out

    return kernel


def both_add(zeroed):
    """Each program adds its half of x to one output; who ``zeroed`` it first, behind a barrier."""

    def kernel(x):
        out = nl.ndarray((128, HALF), dtype=x.dtype, buffer=nl.shared_hbm)
        mine = nl.program_id(0)
        if zeroed in (mine, "both"):
            zero(out)
        if zeroed != "both":
            nisa.core_barrier(data=out, cores=(0, 1))
        nisa.dma_compute(
            dst=out, srcs=[out, x[:, part(mine)]], scales=[1.0, 1.0], reduce_op=nl.add
        )
        return out

    return kernel


def one_adds(x):
    out = nl.ndarray((128, HALF), dtype=x.dtype, buffer=nl.shared_hbm)
    if nl.program_id(0) == 0:
        zero(out)
    nisa.core_barrier(data=out, cores=(0, 1))
    if nl.program_id(0) == 1:
        nisa.dma_compute(
            dst=out, srcs=[out, x[:, part(1)]], scales=[1.0, 1.0], reduce_op=nl.add
        )
    return out


def scratch_used_twice(distance):
    """Both programs do all of the work, by way of scratch that they fill twice."""

    def kernel(x):
        out = shared(x)
        scratch = nl.ndarray(
            (128, HALF + distance), dtype=x.dtype, buffer=nl.shared_hbm
        )
        for half in range(2):
            at = slice(half * distance, half * distance + HALF)
            tile = nl.ndarray((128, HALF), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[:, part(half)])
            nisa.dma_copy(dst=scratch[:, at], src=tile)
            nisa.dma_copy(dst=out[:, part(half)], src=scratch[:, at])
        return out

    return kernel


def copied_onto_itself(x):
    """As AWS's elementwise addition of dynamic shapes ends, on both cores (nki-library 2.29)."""
    out = ignores_its_id(x)
    nisa.dma_copy(dst=out, src=out)
    return out


def swap(barrier):
    """Each program reads the half that the other one wrote into scratch that both see."""

    def kernel(x):
        out = shared(x)
        scratch = shared(x)
        other = shared(x)
        mine = nl.program_id(0)
        copy_part(scratch, x, mine)
        copy_part(other, x, mine)
        if barrier is not None:
            nisa.core_barrier(
                data={"scratch": scratch, "other": other}[barrier], cores=(0, 1)
            )
        copy_part(out, scratch, 1 - mine)
        return out

    return kernel


def exchanged(rounds, boxes, *, waits=True):
    """Each round, each program stores what it has, and adds what the other one has stored.

    With two boxes in turn a barrier a round is enough, if what is stored next ``waits`` for what
    was read: it has to be read before the other program can come to the barrier after.
    """

    def kernel(x):
        out = shared(x)
        box = [
            nl.ndarray((2, 128, HALF), dtype=x.dtype, buffer=nl.shared_hbm)
            for _ in range(boxes)
        ]
        mine = nl.program_id(0)
        own, total = [
            nl.ndarray((128, HALF), dtype=x.dtype, buffer=nl.sbuf) for _ in "ab"
        ]
        nisa.dma_copy(dst=own, src=x[:, part(mine)])
        nisa.tensor_copy(dst=total, src=own)
        for turn in range(rounds):
            place = box[turn % len(box)]
            nisa.dma_copy(dst=place[mine], src=total if waits else own)
            nisa.core_barrier(data=place, cores=(0, 1))
            theirs = nl.ndarray((128, HALF), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=theirs, src=place[1 - mine])
            nisa.tensor_tensor(dst=total, data1=total, data2=theirs, op=nl.add)
        nisa.dma_copy(dst=out[:, part(mine)], src=total)
        return out

    return kernel


def written_at(late, value=lambda mine: mine, dtype=lambda mine: None):
    """Both programs write all of the output, the ``late`` one after three steps more."""

    def kernel(x):
        out = shared(x)
        mine = nl.program_id(0)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        held = nl.ndarray(x.shape, dtype=dtype(mine) or x.dtype, buffer=nl.sbuf)
        for _ in range(4 if mine == late else 1):
            nisa.tensor_scalar(
                dst=held, data=tile, op0=nl.add, operand0=float(value(mine))
            )
        nisa.dma_copy(dst=out, src=held)
        return out

    return kernel


def read_back_at(late, value=lambda mine: mine):
    """Both programs write one scratch and read it back; the ``late`` one after three round trips
    by way of the output, while which it has turns: who reads at once gets its own."""

    def kernel(x):
        scratch = shared(x)
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        mine = nl.program_id(0)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(value(mine)))
        for _ in range(3 if mine == late else 0):
            nisa.dma_copy(dst=out[mine], src=tile)
            nisa.dma_copy(dst=tile, src=out[mine])
        nisa.dma_copy(dst=scratch, src=tile)
        nisa.dma_copy(dst=out[mine], src=scratch)
        return out

    return kernel


def beside_random_bits(kernel):
    """A kernel as above, and each program also stores its own random bits."""

    def random(x):
        bits = nl.ndarray((2, 128, 4), dtype=nl.uint32, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 4), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.rng(dst=tile)
        nisa.dma_copy(dst=bits[nl.program_id(0)], src=tile)
        return kernel(x), bits

    return random


X = normal(128, 2 * HALF)
IGNORED = "program-id-ignored", "warning"


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (disjoint, []),
        (both_zero_all, [("program-race", "error")]),
        (both_zero_all_behind_a_barrier, []),
        (ignores_its_id, [("program-id-ignored", "warning")]),
        (has_nothing_to_divide, [("program-written-twice", "note")]),
        (copied_onto_itself, [IGNORED]),
        (all_of_the_work(lambda: 1), [("program-id-ignored", "warning")]),
        (all_of_the_work(lambda: nl.program_id(0)), [("program-race", "error")]),
        (both_add(0), [("program-race", "error"), ("program-written-twice", "note")]),
        (both_add("both"), [("program-race", "error")]),
        (one_adds, []),
        (scratch_used_twice(0), [("program-race", "error")]),
        (scratch_used_twice(HALF), [("program-id-ignored", "warning")]),
        (exchanged(4, 2), []),
        (exchanged(2, 2, waits=False), []),
        (exchanged(3, 2, waits=False), [("program-other-barrier", "warning")]),
        (exchanged(2, 1), [("program-race", "error")]),
        (written_at(0), [("program-race", "error")]),
        (written_at(1), [("program-race", "error")]),
        (written_at(0, lambda mine: 1), [("program-written-twice", "note")]),
        (
            written_at(0, lambda mine: 0, lambda mine: nl.bfloat16 if mine else None),
            [("program-race", "error")],
        ),
        (read_back_at(0), [("program-race", "error")]),
        (read_back_at(1), [("program-race", "error")]),
        (read_back_at(0, lambda mine: 1), [("program-written-twice", "note")]),
        (beside_random_bits(written_at(1)), [("program-race", "error")]),
        (beside_random_bits(disjoint), []),
        (swap("scratch"), []),
        (swap("other"), [("program-other-barrier", "warning")]),
        (swap(None), [("program-race", "error")]),
    ],
    ids=[
        "disjoint",
        "both-zero-all",
        "zeroed-behind-a-barrier",
        "ignores-its-id",
        "has-nothing-to-divide",
        "copied-onto-itself",
        "all-of-the-work",
        "all-of-the-work-with-values-of-its-own",
        "both-add",
        "both-zero-and-add",
        "one-adds",
        "scratch-used-twice",
        "two-scratches",
        "two-boxes-in-turn",
        "two-rounds",
        "no-dependence-on-what-was-read",
        "one-box",
        "first-writes-late",
        "second-writes-late",
        "equal-values-late",
        "one-in-bfloat16",
        "first-reads-back-late",
        "second-reads-back-late",
        "equal-values-read-back",
        "race-beside-random-bits",
        "random-bits-alone",
        "scratch-behind-a-barrier",
        "barrier-on-another-tensor",
        "scratch-without-a-barrier",
    ],
)
def test_cores_of_a_logical_core(kernel, found):
    assert list(dict.fromkeys(found_in(both(kernel), [X]))) == found


def test_a_kernel_that_does_all_of_the_work_twice_is_reported_once():
    """However many tensors and lines it writes: nki-library's tests of collectives have four."""
    assert found_in(both(all_of_the_work(lambda: 1)), [X]) == [IGNORED]
    assert found_in(both(copied_onto_itself), [X]) == [IGNORED]


@pytest.mark.parametrize(
    ("kernel", "doubted"),
    [
        (ignores_its_id, False),
        (copied_onto_itself, True),
        (all_of_the_work(lambda: 1), True),
        (has_nothing_to_divide, True),
    ],
    ids=["writes-alone", "read-too", "read-back", "asks-for-its-number"],
)
def test_programs_that_only_write_the_same_need_no_run_in_another_order(
    kernel, doubted
):
    assert bool(detected_in(both(kernel), [X]).inconclusive) is doubted


def test_a_comment_suppresses_a_finding_that_other_orders_settled():
    def kernel(x):
        out = shared(x)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.dma_copy(dst=out, src=tile)  # difftest: allow[program-id-ignored]
        return out

    assert found_in(both(kernel), [X]) == []


def test_a_comment_on_another_id_suppresses_nothing():
    def kernel(x):
        out = shared(x)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=float(nl.program_id(0)))
        nisa.dma_copy(dst=out, src=tile)  # difftest: allow[program-id-ignored]
        return out

    assert found_in(both(kernel), [X]) == [("program-race", "error")]


def test_a_race_names_programs_lines_and_element():
    (finding,) = findings_in(both(swap(None)), [X])
    assert "reads element [0, " in finding.happened
    assert "in shared_hbm, which program " in finding.happened
    assert len(finding.locations) == 2


@pytest.mark.parametrize(
    ("rows", "found"),
    [([0, 1], []), ([1, 1], [("program-order", "error"), ("program-race", "error")])],
    ids=["apart", "equal"],
)
def test_rows_that_both_programs_gather_change_and_scatter(rows, found):
    """In turn one addition is lost, one after the other none."""

    def kernel(table, rows):
        at = nl.ndarray((1, 1), dtype=rows.dtype, buffer=nl.sbuf)
        tile = nl.ndarray((1, 8), dtype=table.dtype, buffer=nl.sbuf)
        mine = nl.program_id(0)
        nisa.dma_copy(dst=at, src=rows[mine : mine + 1])
        place = table.ap([[8, 1], [1, 8]], offset=0, vector_offset=at, indirect_dim=0)
        nisa.dma_copy(dst=tile, src=place)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=place, src=tile)
        return table

    got = found_in(both(kernel), [normal(4, 8), np.int32(rows).reshape(2, 1)])
    assert [one for one in got if one[1] == "error"] == found


def test_a_read_before_the_other_core_has_written_is_a_missing_barrier():
    def kernel(x):
        scratch = shared(x)
        out = shared(x)
        mine = nl.program_id(0)
        if mine == 1:
            copy_part(scratch, x, mine)
        else:
            copy_part(out, scratch, 1)
        return out

    with pytest.raises(UnwrittenError) as raised:
        launch(both(kernel), [X])
    assert (
        raised.value.happened
        == "a program read elements that no program had written yet"
    )
    assert "nisa.core_barrier on this tensor" in raised.value.remedy
    kept_to_itself = nki.jit(lambda x: copy_part(shared(x), shared(x), 0))
    with pytest.raises(UnwrittenError, match="elements that were never written"):
        launch(kept_to_itself, [X])


def test_sendrecv_orders_what_each_core_sends():
    def kernel(x):
        out = shared(x)
        mine = nl.program_id(0)
        tile = nl.ndarray((128, HALF), dtype=x.dtype, buffer=nl.sbuf)
        got = nl.ndarray((128, HALF), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, part(mine)])
        nisa.sendrecv(
            src=tile, dst=got, send_to_rank=1 - mine, recv_from_rank=1 - mine, pipe_id=0
        )
        nisa.dma_copy(dst=out[:, part(1 - mine)], src=got)
        return out

    assert found_in(both(kernel), [X]) == []


@every("apart, doubted", [(True, False), (False, True)])
def test_cores_that_scatter_to_columns_of_their_own_are_apart(apart, doubted):
    """As nki-library's moe_cte does, to output[:, core, :]."""

    def kernel(x, rows):
        out = nl.ndarray((16, 2, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        mine = nl.program_id(0)
        at = nl.ndarray((4, 1), dtype=rows.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=at, src=rows)
        tile = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        first = 8 * mine if apart else mine
        dst = out.ap([[16, 4], [1, 8]], offset=first, vector_offset=at, indirect_dim=0)
        nisa.dma_copy(dst=dst, src=tile)
        return out

    arrays = [normal(4, 8), np.int32([[3], [1], [4], [9]])]
    assert bool(detected_in(both(kernel), arrays).inconclusive) is doubted


def trips(loop, count):
    def kernel(x):
        out = shared(x)
        mine = nl.program_id(0)
        for _ in loop(count(mine)):
            copy_part(out, x, mine)
        return out

    return kernel


DIFFERENT = "program-trip-counts"


@pytest.mark.parametrize(
    ("loop", "count", "found"),
    [
        (nl.dynamic_range, lambda mine: 2, []),
        (nl.dynamic_range, lambda mine: 1 + mine, [(DIFFERENT, "error")]),
        (nl.sequential_range, lambda mine: 1 + mine, [(DIFFERENT, "note")]),
        (nl.sequential_range, lambda mine: 2, []),
        (range, lambda mine: 1 + mine, []),
    ],
    ids=["equal", "different", "different-unrolled", "equal-unrolled", "of-python"],
)
@pytest.mark.filterwarnings("ignore::difftest.simulator.frontend.levels.LevelWarning")
def test_trip_counts_that_differ_between_programs_are_found(loop, count, found):
    assert found_in(both(trips(loop, count)), [X]) == found
