"""Iterations of ``affine_range``: planted dependences are found, independent ones pass."""

import numpy as np

from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.analysis.detectors.kernels import (
    detected_in,
    findings_in,
    found_in,
    normal,
    output,
)

COLUMNS = 128


def part(i):
    return nl.ds(i * COLUMNS, COLUMNS)


def test_a_read_of_another_iterations_write_names_both_lines_loop_and_element():
    def kernel(a):
        out = output(a)
        last = nl.zeros((128, COLUMNS), dtype=a.dtype)
        for i in nl.affine_range(4):
            tile = nl.load(a[:, part(i)])
            nl.store(out[:, part(i)], nl.subtract(tile, last))
            last[...] = nl.copy(tile)
        return out

    (finding,) = findings_in(kernel, [normal(128, 512)])
    first = kernel.__code__.co_firstlineno
    assert (finding.id, finding.severity.value) == ("affine-carried", "error")
    assert finding.happened == (
        f"iteration 1 of the affine_range at line {first + 3} reads element [0, 0] of "
        f"tensor 2 [128, 128] float32 in sbuf, which iteration 0 wrote"
    )
    assert [line.line - first for line in finding.locations] == [5, 6, 3]


def test_a_value_that_python_carries_from_one_iteration_to_the_next():
    def kernel(a):
        out = output(a)
        total = nl.load(a[:, part(0)])
        for i in nl.affine_range(4):
            total = nl.add(nl.multiply(total, 0.5), nl.load(a[:, part(i)]))
            nl.store(out[:, part(i)], total)
        return out

    assert ("affine-carried", "error") in found_in(kernel, [normal(128, 512)])


def test_a_write_over_an_element_that_another_iteration_read():
    def kernel(a):
        out = output(a)
        kept = nl.load(a)
        for i in nl.affine_range(3):
            shifted = nl.copy(kept[:, part(i + 1)])
            kept[:, part(i)] = nl.multiply(shifted, 2.0)
        nl.store(out, kept)
        return out

    (finding,) = findings_in(kernel, [normal(128, 512)])
    assert finding.id == "affine-carried"
    assert "writes element [0, 128] of" in finding.happened
    assert finding.happened.endswith("which iteration 0 read")


def accumulate(loop):
    def kernel(a):
        out = nl.ndarray((128, COLUMNS), dtype=a.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((128, COLUMNS), dtype=a.dtype, buffer=nl.sbuf)
        for i in loop(4):
            total[...] += nl.load(a[:, part(i)])
        nl.store(out, total)
        return out

    return kernel


def running_sums(a):
    out = output(a)
    total = nl.zeros((128, COLUMNS), dtype=a.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        total[...] = nl.add(total, nl.load(a[:, part(i)]))
        nl.store(out[:, part(i)], total)
    return out


def test_a_reduction_that_is_used_on_the_way_depends_on_the_order():
    (finding,) = findings_in(running_sums, [normal(128, 512)])
    assert (finding.id, finding.severity.value) == ("affine-carried", "error")
    assert finding.happened.startswith("iteration 1 of the affine_range")
    assert finding.happened.endswith("which iteration 0 wrote")
    assert [where.text for where in finding.locations[:2]] == [
        "nl.store(out[:, part(i)], total)",
        "total[...] = nl.add(total, nl.load(a[:, part(i)]))",
    ]


def test_a_tile_that_each_iteration_fills_is_no_partial_sum():
    def kernel(a):
        out = output(a)
        both = nl.zeros((128, 2, COLUMNS), dtype=a.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            both[:, 1] = nl.load(a[:, part(i)])
            both[:, 0] = nl.add(both[:, 0], both[:, 1])
            nl.store(out[:, part(i)], both[:, 1])
        nl.store(out[:, part(0)], both[:, 0])
        return out

    assert ("affine-carried", "error") not in found_in(kernel, [normal(128, 512)])


@every("loop", [nl.sequential_range, nl.static_range, range])
def test_other_loops_claim_nothing(loop):
    assert found_in(accumulate(loop), [normal(128, 512)]) == []


@every("added, found", [(0, [("affine-carried", "error")]), (5, [])])
def test_a_running_sum_over_columns_is_no_reduction(added, found):
    """Each iteration adds the previous column to a column of its own."""

    def kernel(a):
        out = nl.ndarray((128, 10), dtype=a.dtype, buffer=nl.shared_hbm)
        sums = nl.zeros((128, 10), dtype=a.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            own = slice(i + 1, i + 2)
            sums[:, own] = nl.sum(nl.load(a[:, part(i)]), axis=1, keepdims=True)
            sums[:, own] = nl.add(sums[:, own], sums[:, i + added : i + added + 1])
        nl.store(out, sums)
        return out

    assert found_in(kernel, [normal(128, 512)]) == found


def test_matmuls_may_accumulate_in_psum():
    def kernel(a):
        out = nl.ndarray((128, COLUMNS), dtype=a.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((128, COLUMNS), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(4):
            tile = nl.load(a[:, part(i)])
            total += nisa.nc_matmul(tile, tile)
        nl.store(out, nl.copy(total))
        return out

    assert found_in(kernel, [normal(128, 512)]) == []


def test_a_partial_sum_read_from_psum_depends_on_earlier_iterations():
    def kernel(a):
        out = output(a)
        total = nl.zeros((128, COLUMNS), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(4):
            tile = nl.load(a[:, part(i)])
            total += nisa.nc_matmul(tile, tile)
            nl.store(out[:, part(i)], nl.copy(total))
        return out

    assert found_in(kernel, [normal(128, 512)]) == [("affine-carried", "error")]


def test_tiles_of_their_own_and_parts_by_the_loop_index_are_independent():
    def kernel(a):
        out = output(a)
        kept = nl.ndarray((4, nl.par_dim(128), COLUMNS), dtype=a.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            tile = nl.ndarray((128, COLUMNS), dtype=a.dtype, buffer=nl.sbuf)
            tile[...] = nl.load(a[:, part(i)])
            for half in nl.affine_range(2):
                kept[i, :, nl.ds(64 * half, 64)] = nl.exp(tile[:, nl.ds(64 * half, 64)])
        for i in nl.affine_range(4):
            nl.store(out[:, part(i)], kept[i])
        return out

    assert found_in(kernel, [normal(128, 512)]) == []


def test_strided_parts_that_meet_in_one_element_are_found():
    def kernel(a):
        out = nl.ndarray((128, 385), dtype=a.dtype, buffer=nl.shared_hbm)
        p, x = nl.mgrid[0:128, 0:128]
        for i in nl.affine_range(2):
            nl.store(out[p, (i + 2) * x + i], nl.load(a[:, part(i)]))
        return out

    (finding,) = findings_in(kernel, [normal(128, 256)])
    assert finding.id == "affine-written-twice"
    assert "element [0, 4] of" in finding.happened  # 2 * 2 and 3 * 1 + 1


@every(
    "last, found",
    [
        (False, ("affine-rewritten", "warning")),
        (True, ("affine-written-twice", "error")),
    ],
)
def test_a_tile_that_the_next_run_of_the_loop_overwrites_needs_no_order(last, found):
    """The tile is read again in the next run, but only what that has loaded itself."""

    def kernel(a):
        out = output(a)
        tile = nl.ndarray((128, COLUMNS), dtype=a.dtype, buffer=nl.sbuf)
        for _ in nl.sequential_range(2):
            for i in nl.affine_range(4):
                tile[:, :8] = nl.load(a[:, part(i)][:, :8])
                tile[:, 8:] = nl.load(a[:, part(i)][:, 8:])
                nl.store(out[:, part(i)], tile)
        if last:
            nl.store(out[:, part(0)][:, :4], tile[:, 4:8])
        return out

    assert found_in(kernel, [normal(128, 512)])[0] == found


def test_the_example_of_unexpected_output_dependencies():
    """As ``nki.errors.rst`` at v2.26.0 has it: one constant, written by all iterations."""

    def kernel(index):
        def body(a):
            out = nl.ndarray((4, 128, COLUMNS), dtype=a.dtype, buffer=nl.shared_hbm)
            held = nl.zeros(
                (4, nl.par_dim(128), COLUMNS), dtype=a.dtype, buffer=nl.sbuf
            )
            for i in nl.affine_range(4):
                held[index(i)] = 0
            for i in nl.affine_range(4):
                nl.store(out[i], held[i])
            return out

        return body

    assert found_in(kernel(lambda i: 0), [normal(1)]) == [
        ("affine-written-twice", "error")
    ]
    assert found_in(kernel(lambda i: i), [normal(1)]) == []


def test_runs_of_one_loop_that_follow_each_other_may_depend_on_each_other():
    """Python calls the loop twice: the second run reads the first one's data, in any order."""

    def kernel(a):
        out = output(a)
        held = nl.ndarray((2, nl.par_dim(128), COLUMNS), dtype=a.dtype, buffer=nl.sbuf)
        for run in range(2):
            for j in nl.affine_range(2):
                if run == 0:
                    held[j] = nl.load(a[:, part(j)])
                else:
                    nl.store(out[:, part(j)], held[1 - j])
        return out

    assert found_in(kernel, [normal(128, 256)]) == []


def test_a_psum_tile_that_each_iteration_overwrites_is_no_accumulation():
    def kernel(a):
        out = nl.ndarray((4, 128, COLUMNS), dtype=nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(a[:, part(0)])
        product = nl.ndarray((128, COLUMNS), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(4):
            product[...] = nisa.nc_matmul(tile, nl.load(a[:, part(i)]))
            nl.store(out[i], nl.copy(product))
        return out

    assert found_in(kernel, [normal(128, 512)]) == [("affine-rewritten", "warning")]


@every("first, found", [(24, 1), (32, 0)])
def test_parts_that_are_seen_as_another_dtype_count_in_bytes(first, found):
    """Sixteen numbers of 4 bytes, and from element ``first`` of 2 bytes on 8 more."""

    def kernel(a):
        out = nl.ndarray((128, 32), dtype=nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(a)
        held = nl.zeros((128, 32), dtype=nl.float32, buffer=nl.sbuf)
        halves = held.view(nl.bfloat16)
        for i in nl.affine_range(2):
            if i == 0:
                held[:, 0:16] = nl.copy(tile)
            else:
                halves[:, first : first + 8] = nl.copy(tile[:, 0:8], dtype=nl.bfloat16)
        nl.store(out, held)
        return out

    assert (
        found_in(kernel, [normal(128, 16)])
        == [("affine-written-twice", "error")] * found
    )


def scattered(rows):
    """Each iteration writes rows that a tile holds."""

    def kernel(a, places):
        out = output(a)
        for i in nl.affine_range(2):
            at = nl.load(places[i])
            column = nl.arange(COLUMNS)[None, :]
            nl.store(
                out[at[nl.arange(4)[:, None], 0], column],
                nl.load(a[nl.ds(4 * i, 4), :]),
            )
        return out

    return kernel, [normal(8, COLUMNS), np.array(rows, np.int32).reshape(2, 4, 1)]


def test_indices_that_do_not_meet_need_no_other_orders():
    kernel, arrays = scattered([0, 2, 4, 6, 1, 3, 5, 7])
    assert not detected_in(kernel, arrays).inconclusive
    assert found_in(kernel, arrays) == []


def test_indices_that_meet_are_found_by_other_orders():
    kernel, arrays = scattered([0, 2, 4, 6, 1, 3, 5, 6])
    assert found_in(kernel, arrays) == [("affine-order", "error")]


def test_the_loop_beside_the_guilty_one_is_not_named():
    """Both store rows that indices name to the same places; the second one's values are equal."""

    def kernel(a, places):
        outs = [output(a), output(a)]
        at = nl.load(places)
        for i in nl.affine_range(2):
            nl.store(
                outs[0][at, nl.arange(COLUMNS)[None, :]], nl.load(a[nl.ds(4 * i, 4), :])
            )
        for _ in nl.affine_range(2):
            nl.store(outs[1][at, nl.arange(COLUMNS)[None, :]], nl.load(a[0:4, :]))
        return tuple(outs)

    (finding,) = findings_in(
        kernel, [normal(8, COLUMNS), np.int32([[0], [2], [4], [6]])]
    )
    assert finding.id == "affine-order"
    assert finding.location.line == kernel.__code__.co_firstlineno + 4


def test_a_comment_on_the_line_silences_one_place():
    def kernel(a):
        out = nl.ndarray((128, COLUMNS), dtype=a.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((128, COLUMNS), dtype=a.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            total[...] += nl.load(a[:, part(i)])  # difftest: allow[affine-reduction]
        for i in nl.affine_range(4):
            total[...] += nl.load(a[:, part(i)])  # difftest: allow[affine-carried]
        nl.store(out, total)
        return out

    detected = detected_in(kernel, [normal(128, 512)])
    first = kernel.__code__.co_firstlineno
    assert [one.location.line - first for one in detected.suppressed] == [4]
    assert [one.location.line - first for one in detected.findings] == [6]


def todays(update):
    with embedded():
        import nki
        import nki.isa as nisa
        import nki.language as nl

    def kernel(a):
        out = nl.ndarray((128, 2), dtype=a.dtype, buffer=nl.shared_hbm)
        held = nl.ndarray((128, 2), dtype=a.dtype, buffer=nl.sbuf)
        tile = nl.ndarray((128, 2), dtype=a.dtype, buffer=nl.sbuf)
        nisa.memset(dst=held, value=0.0)
        for i in nl.affine_range(3):
            nisa.dma_copy(dst=tile, src=a[:, 2 * i : 2 * i + 2])
            nisa.tensor_tensor(dst=held, data1=tile, data2=held, op=getattr(nl, update))
        nisa.dma_copy(dst=out, src=held)
        return out

    return nki.jit(kernel)


@every("update, found", [("subtract", [("affine-carried", "note")]), ("add", [])])
def test_in_todays_dialect_the_loop_is_an_alias_of_range(update, found):
    assert found_in(todays(update), [normal(128, 6)]) == found
