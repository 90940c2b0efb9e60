"""Each finding on a kernel that needs it, and on a kernel that has followed the advice."""

import numpy as np
import pytest

from difftest.analysis.finding import Severity
from difftest.simulator import TRN2, launch
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.classic import compiler as ncc
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as nki_isa
from difftest.simulator.frontend.nki import language as newer
from difftest.simulator.trace import Engine
from difftest.timing import predict
from difftest.timing.advice import advise
from difftest.timing.advice.savings import (
    Advice,
    RemovedWork,
    Units,
    event_numbers,
    ranked,
)
from difftest.timing.schedule import reschedule_without
from tests.every import every
from tests.unit.timing.advised import X, advice, loaded, stored, timeline_of
from tests.unit.timing.shipped import shipped


def test_loads_of_unread_columns_are_advised_against():
    def part(x, width):
        tile = loaded(x[:, 0:width])
        return stored(nisa.tensor_copy(tile[:, 0:64]))

    found = advice(part, X, width=4096)["unused-data"]
    assert found.count == 1
    assert found.lost > 0
    assert "98.4% of the 2.0 MiB that 1 DMAs load is never read" in found.happened
    assert found.location.text == "nisa.dma_copy(dst=tile, src=source)"
    assert "unused-data" not in advice(part, X, width=64)


def test_a_tile_loaded_in_each_iteration_is_advised_against():
    def sums(x, hoisted):
        total = nl.zeros((128, 512), x.dtype, buffer=nl.sbuf)
        tile = loaded(x[:, 0:512])
        for _ in range(8):
            if not hoisted:
                tile = loaded(x[:, 0:512])
            total[...] = nisa.tensor_tensor(total, tile, nl.add)
        return stored(total)

    assert "loaded-again" not in advice(sums, X, hoisted=False)  # the compiler does it
    sums = ncc.skip_middle_end_transformations(sums)
    found = advice(sums, X, hoisted=False)["loaded-again"]
    assert "256.0 KiB of x are loaded 9.0 times" in found.happened
    assert found.count == 9
    assert "loaded-again" not in advice(sums, X, hoisted=True)


def test_overlapping_loads_count_by_the_byte():
    def windows(x):
        total = nl.zeros((128, 512), x.dtype, buffer=nl.sbuf)
        for first in range(0, 2048, 256):
            total[...] = nisa.tensor_tensor(
                total, loaded(x[:, first : first + 512]), nl.add
            )
        return stored(total)

    assert "are loaded 1.8 times" in advice(windows, X)["loaded-again"].happened


@every("turns, times", [(1, None), (8, "8.0 times (32.0 KiB in 8 DMAs)")])
def test_a_row_that_one_dma_broadcasts_is_loaded_once(turns, times):
    @jit
    def scaled(x, gamma):
        out = newer.ndarray(x.shape, x.dtype, buffer=newer.shared_hbm)
        tile = newer.ndarray(x.shape, x.dtype, buffer=newer.sbuf)
        nki_isa.dma_copy(dst=tile, src=x)
        for _ in range(turns):
            rows = newer.ndarray((128, 1024), x.dtype, buffer=newer.sbuf)
            nki_isa.dma_copy(dst=rows, src=gamma.ap([[0, 128], [1, 1024]]))
            nki_isa.tensor_tensor(dst=tile, data1=tile, data2=rows, op=newer.multiply)
        nki_isa.dma_copy(dst=out, src=tile)
        return out

    found = advice(scaled, X[:, :1024], X[:1, :1024]).get("loaded-again")
    assert (found.happened if found else "").endswith(times or "")
    assert (found is None) == (times is None)


def test_many_small_dmas_are_advised_against():
    def columns(x, width):
        total = nl.zeros((128, width), x.dtype, buffer=nl.sbuf)
        for first in range(0, 4096, width):
            total[...] = nisa.tensor_tensor(
                total, loaded(x[:, first : first + width]), nl.add
            )
        return stored(total)

    found = advice(columns, X, width=32)["small-dmas"]
    assert found.count == 128
    assert (
        "128 DMAs move 16,384 bytes each, 128 a partition, in rows of 128"
        in found.happened
    )
    assert found.lost > 0
    assert "small-dmas" not in advice(columns, X, width=1024)


def test_copies_of_single_elements_are_advised_against():
    def copies(x, step):
        tile = loaded(x[:, 0:256])
        target = nl.ndarray((128, 256), x.dtype, buffer=nl.sbuf)
        for first in range(0, 256, step):
            target[:, first : first + step] = nisa.tensor_copy(
                tile[:, first : first + step]
            )
        return stored(target)

    found = advice(copies, X, step=1)["element-by-element"]
    assert found.count == 256
    assert "256 x tensor_copy" in found.happened
    assert "element-by-element" not in advice(copies, X, step=256)


def test_a_copy_that_changes_nothing_is_advised_against():
    def doubled(x, copy):
        tile = loaded(x[:, 0:512])
        return stored(
            nisa.tensor_scalar(nisa.tensor_copy(tile) if copy else tile, nl.add, 1.0)
        )

    found = advice(doubled, X, copy=True)["redundant-copies"]
    assert "1 copies inside SBUF change nothing" in found.happened
    assert "redundant-copies" not in advice(doubled, X, copy=False)


def test_copies_that_a_dma_stores_are_not_redundant():
    def packed(x):
        tile = loaded(x)
        return stored(nisa.tensor_copy(tile[:, 0:2048]))

    assert "redundant-copies" not in advice(packed, X)


def matmuls(x, columns, pieces, in_psum=True, strided=False):
    weights = loaded(x[:, 0:256])
    weights = weights.reshape((128, 128, 2))[:, :, 0] if strided else weights[:, 0:128]
    moving = loaded(x[:, 0:columns])
    outs = []
    for _ in range(pieces):
        total = nl.zeros(
            (128, columns), nl.float32, buffer=nl.psum if in_psum else nl.sbuf
        )
        for _ in range(4):
            product = nisa.nc_matmul(weights, moving)
            if in_psum:
                total += product
            else:
                total[...] = nisa.tensor_tensor(total, product, nl.add)
        outs.append(stored(nisa.tensor_copy(total)))
    return outs[0]


def test_matmuls_of_few_columns_are_advised_against():
    found = advice(matmuls, X, columns=14, pieces=8)["empty-psum-tiles"]
    assert found.count == 32
    assert "fill 14 of 512 columns of a PSUM bank (3%)" in found.happened
    assert found.work > 0
    assert "empty-psum-tiles" not in advice(matmuls, X, columns=512, pieces=8)


def test_sums_of_products_outside_psum_are_advised_against():
    found = advice(matmuls, X, columns=512, pieces=2, in_psum=False)[
        "sums-outside-psum"
    ]
    assert found.count == 8
    assert "sums-outside-psum" not in advice(matmuls, X, columns=512, pieces=2)


def summed(x, how):
    """Four products added up in SBUF, as in kernels that do not use PSUM's adding."""
    weights = loaded(x[:, 0:128])
    moving = loaded(x[:, 0:512])
    total = None
    if how in ("in place", "a residual"):
        total = loaded(x[:, 512:1024])
    if how == "to zeros":
        total = nl.zeros((128, 512), nl.float32, buffer=nl.sbuf)
    for _ in range(1 if how == "a residual" else 4):
        product = nisa.nc_matmul(weights, moving)
        if how == "copied first":
            product = nisa.tensor_copy(product)
        if how == "in place":
            total[...] = nisa.tensor_tensor(total, product, nl.add)
        elif total is None:
            total = nisa.tensor_copy(product)
        else:
            total = nisa.tensor_tensor(total, product, nl.add)
    return stored(total)


@every("how", ["a new tile each time", "copied first", "in place", "to zeros"])
def test_sums_outside_psum_in_other_words(how):
    assert "sums-outside-psum" in advice(summed, X, how=how)


def test_an_addition_to_one_product_is_no_sum_of_products():
    """A residual or a bias: PSUM cannot add it for nothing."""
    assert "sums-outside-psum" not in advice(summed, X, how="a residual")


def test_a_tree_of_sums_of_products():
    """Products that are copied out of PSUM, and added two by two."""

    def tree(x, turns):
        weights = loaded(x[:, 0:128])
        moving = loaded(x[:, 0:512])
        parts = [nisa.tensor_copy(nisa.nc_matmul(weights, moving)) for _ in range(8)]
        while turns and len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [nisa.tensor_tensor(one, other, nl.add) for one, other in pairs]
        return stored(parts[0])

    found = advice(tree, X, turns=True)["sums-outside-psum"]
    assert "7 products are added up in SBUF" in found.happened
    assert "sums-outside-psum" not in advice(tree, X, turns=False)


def test_transposes_by_a_product_with_an_identity_of_the_kernels_own():
    def turned(x, same):
        identity = loaded(x[:, 0:128])
        outs = []
        for turn in range(6):
            tile = loaded(
                x[:, 128:256] if same else x[:, 128 * turn : 128 * turn + 128]
            )
            outs.append(stored(nisa.tensor_copy(nisa.nc_matmul(tile, identity))))
        return outs[0]

    found = advice(turned, X, same=True)["transposed-again"]
    assert (
        "6 transposes or products with the same tile of 1 different tiles"
        in found.happened
    )
    assert "transposed-again" not in advice(turned, X, same=False)


def test_strided_weights_are_advised_against_if_matmuls_are_short():
    found = advice(matmuls, X, columns=128, pieces=4, strided=True)["strided-weights"]
    assert found.count == 16
    assert found.lost > 0
    assert "strided-weights" not in advice(matmuls, X, columns=128, pieces=4)
    # Long matmuls hide the loads of their weights.
    assert "strided-weights" not in advice(
        matmuls, X, columns=512, pieces=4, strided=True
    )


def test_a_tile_transposed_in_each_iteration_is_advised_against():
    def turned(x, hoisted):
        tile = loaded(x[:, 0:128])
        outs = []
        kept = nisa.tensor_copy(nisa.nc_transpose(tile))
        for _ in range(6):
            if not hoisted:
                kept = nisa.tensor_copy(nisa.nc_transpose(tile))
            outs.append(stored(kept))
        return outs[0]

    found = advice(turned, X, hoisted=False)["transposed-again"]
    assert "6 transposes of 1 different tiles" in found.happened
    assert "transposed-again" not in advice(turned, X, hoisted=True)


def test_reloaded_data_are_known_again():
    def turned(x):
        outs = [
            stored(nisa.tensor_copy(nisa.nc_transpose(loaded(x[:, 0:128]))))
            for _ in range(6)
        ]
        return outs[0]

    assert (
        "6 transposes of 1 different tiles"
        in advice(turned, X)["transposed-again"].happened
    )


def turned_slices(x, same):
    """Slices of a tile that each turn fills again, copied and then transposed."""
    outs = []
    tile = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf)
    for turn in range(6):
        first = 0 if same else 512 * turn
        nisa.dma_copy(dst=tile, src=x[:, first : first + 512])
        part = nisa.tensor_copy(tile[:, 128:256])
        outs.append(stored(nisa.tensor_copy(nisa.nc_transpose(part))))
    return outs[0]


def test_a_copied_slice_of_a_reloaded_tile_is_known_again():
    found = advice(turned_slices, X, same=True)["transposed-again"]
    assert "6 transposes of 1 different tiles" in found.happened
    # One tile and one slice, with other data each time.
    assert "transposed-again" not in advice(turned_slices, X, same=False)


def test_loads_and_stores_have_their_own_remedy_for_small_dmas():
    def pieces(x, stores):
        if stores:
            tile = loaded(x[:, 0:1024])
            outs = [stored(tile[:, 16 * n : 16 * n + 16]) for n in range(32)]
            return outs[0]
        tiles = [loaded(x[:, 16 * n : 16 * n + 16]) for n in range(32)]
        return stored(tiles[0])

    assert (
        "load a larger block with one DMA"
        in advice(pieces, X, stores=False)["small-dmas"].remedy
    )
    assert (
        "write its results into slices of one tile"
        in advice(pieces, X, stores=True)["small-dmas"].remedy
    )


def test_float32_operands_of_two_byte_data_are_advised_against():
    def product(x, dtype):
        weights = loaded(x[:, 0:128])
        moving = loaded(x[:, 0:512])
        weights = nisa.tensor_copy(weights, dtype=dtype)
        moving = nisa.tensor_copy(nisa.tensor_copy(moving, dtype=dtype))
        return stored(nisa.tensor_copy(nisa.nc_matmul(weights, moving)))

    half = X.astype(np.float16)
    assert (
        "four passes"
        in advice(product, half, dtype=nl.float32)["float32-operands"].happened
    )
    assert "float32-operands" not in advice(product, half, dtype=nl.float16)
    assert "float32-operands" not in advice(product, X, dtype=nl.float32)


def test_a_tile_that_leaves_element_by_element():
    """Eight DMAs are few, but each has an element for a row: a transposing store."""

    def turned(x, on_chip):
        out = nl.ndarray((512, 128), x.dtype, buffer=nl.shared_hbm)
        tile = loaded(x[:, 0:512])
        if not on_chip:
            i, j = nl.mgrid[0:128, 0:512]
            nisa.dma_copy(dst=out[j, i], src=tile)
            return out
        for part in range(4):
            columns = slice(128 * part, 128 * part + 128)
            nisa.dma_copy(
                dst=out[columns],
                src=nisa.tensor_copy(nisa.nc_transpose(tile[:, columns])),
            )
        return out

    found = advice(turned, X, on_chip=False)["small-dmas"]
    assert (
        "1 DMAs move 262,144 bytes each, 2,048 a partition, in rows of 4"
        in found.happened
    )
    assert "turn the tile on chip (nc_transpose)" in found.remedy
    assert found.lost > 100
    assert "small-dmas" not in advice(turned, X, on_chip=True)


def test_the_evidence_is_the_instructions():
    def copies(x):
        tile = loaded(x[:, 0:64])
        target = nl.ndarray((128, 64), x.dtype, buffer=nl.sbuf)
        for first in range(64):
            target[:, first : first + 1] = nisa.tensor_copy(tile[:, first : first + 1])
        return stored(target)

    trace = launch(copies, [X]).trace
    advised = {one.id: one for one in advise(predict(trace, TRN2, dge=True).schedule)}
    found = advised["element-by-element"]
    assert found.evidence == tuple(e.number for e in trace if e.opcode == "tensor_copy")
    assert len(found.locations) == 1
    document = found.as_mapping()
    assert (document["id"], document["severity"]) == ("element-by-element", "warning")
    assert (document["count"], document["lost_us"]) == (64, found.lost)


def test_instructions_that_the_compiler_adds_are_no_evidence():
    def turned(x):
        return stored(nisa.tensor_copy(nisa.nc_transpose(loaded(x[:, 0:128]))))

    trace = launch(turned, [X]).trace
    spans = predict(trace, TRN2, dge=True).schedule.spans
    assert len(spans) == len(trace) + 1  # the identity's load
    assert event_numbers(spans) == tuple(event.number for event in trace)


def test_instructions_of_several_lines_begin_with_the_busiest():
    def scaled(x):
        tile = loaded(x[:, 0:2048])
        engine = nisa.scalar_engine
        nisa.tensor_copy(tile[:, 0:128], engine=engine)
        outs = [nisa.tensor_copy(tile, engine=engine) for _ in range(60)]
        return stored(outs[-1])

    found = advice(scaled, X)["uneven-engines"]
    texts = [line.text for line in found.locations]
    assert texts[0].startswith("outs = [")
    assert texts[1].startswith("nisa.tensor_copy(tile[:, 0:128]")


def finding(id, lost, work, **more):
    plain = {"severity": Severity.WARNING, "happened": "", "rule": "", "remedy": ""}
    return Advice(
        id=id, locations=(), count=1, lost=lost, work=work, **{**plain, **more}
    )


def test_the_most_time_lost_comes_first():
    """Notes last; advice without a gain is not shown, however much work it is."""
    order = [
        finding("most", 50.0, 50.0),
        finding("less", 20.0, 200.0),
        finding("little", 1.0, 30.0),
        finding("symptom", 70.0, 70.0, severity=Severity.NOTE),
    ]
    assert ranked([*order[::-1], finding("hidden", 0.9, 500.0)], 1.0) == order


def two_engines(x, copies):
    """Copies that change nothing, behind a chain of others that takes as long."""
    tile = loaded(x[:, 0:2048])
    sums = loaded(x[:, 2048:4096])
    for _ in range(20):
        sums = nisa.tensor_tensor(sums, sums, nl.add)
    for _ in range(copies):
        kept = nisa.tensor_copy(tile, engine=nisa.scalar_engine)
        tile = nisa.activation(nl.exp, kept)
    return stored(nisa.tensor_tensor(tile, sums, nl.add))


def test_a_gain_is_tried_where_it_can_be():
    """The copies are on the critical path, and the parallel chain takes nearly as long."""
    timeline = timeline_of(two_engines, X, copies=14)
    (found,) = (one for one in advise(timeline) if one.id == "redundant-copies")
    bound = (
        Units(timeline)
        .without(RemovedWork(timeline.spans[n] for n in found.spared))
        .lost
    )
    gained = (timeline.end - reschedule_without(timeline, found.spared).finish) / 1e3
    assert found.lost == pytest.approx(gained)
    assert 1 < found.lost < 0.9 * bound
    assert not any(
        one.id == "redundant-copies"
        for one in advise(timeline_of(two_engines, X, copies=2))
    )


def test_without_anything_spared_the_timeline_is_the_same():
    timeline = timeline_of(two_engines, X, copies=4)
    assert reschedule_without(timeline, {}).end == timeline.timeline.end
    all_gone = dict.fromkeys(range(len(timeline.program.instructions)), 1.0)
    assert reschedule_without(timeline, all_gone).finish < 0.1 * timeline.end


def test_a_kernel_that_streams_gets_no_advice():
    kernel = shipped("vector_add.vector_add_stream")
    vector = np.ones(256_000, np.float32)
    found = advice(kernel, vector, vector, FREE_DIM=1000)
    assert set(found) <= {"waiting"}


@pytest.fixture
def rungs():
    return shipped("conv2d_ladder.LADDER")


@every(
    "rung, first",
    [
        ("conv2d_halo_tiles", "transposed-again"),
        ("conv2d_broadcast_bias", None),
    ],
)
def test_rungs_of_the_ladder(rungs, rung, first):
    """Small images: at the documents' size it takes minutes (docs/reference/advice.md)."""
    kernel = next(one for one in rungs if one.__name__ == rung)
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal(s, np.float32)
        for s in ((1, 128, 18, 16), (128, 128, 3, 3), 128)
    ]
    trace = launch(kernel, arrays).trace
    found = [one.id for one in advise(predict(trace, TRN2, dge=True).schedule)]
    assert found[:1] == ([first] if first else [])


def test_a_kernel_on_one_partition():
    """The same elements on all partitions: a measured gain of 14 times."""

    def scaled(x, partitions):
        tile = loaded(x.reshape((partitions, x.shape[0] * x.shape[1] // partitions)))
        for _ in range(10):
            tile = nisa.tensor_scalar(tile, nl.multiply, 2.0)
        return stored(tile)

    x = np.ones((128, 64), np.float32)
    found = advice(scaled, x, partitions=1)["few-partitions"]
    assert "10 x tensor_scalar use 1 of 128 partitions" in found.happened
    assert "over all partitions" in found.remedy
    narrow, whole = (timeline_of(scaled, x, partitions=n) for n in (1, 128))
    first = advise(narrow)[0]
    assert first.id == "few-partitions"
    computing = [
        sum(s.busy for s in one.spans if s.engine is Engine.VECTOR) / 1e3
        for one in (narrow, whole)
    ]
    assert first.lost == pytest.approx(computing[0] - computing[1], rel=0.1)
    assert "few-partitions" not in advice(scaled, x, partitions=128)


def test_a_tensor_that_is_stored_and_loaded_again_is_found():
    def twice(x, through):
        tile = nisa.tensor_scalar(loaded(x), nl.multiply, 2.0)
        if through:
            between = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)
            nisa.dma_copy(dst=between, src=tile)
            tile = loaded(between)
        return stored(nisa.tensor_scalar(tile, nl.multiply, 2.0))

    found = advice(twice, X, through=True)["through-hbm"]
    assert "2.0 MiB of a tensor are stored to HBM and loaded again, in 2 DMAs" in (
        found.happened
    )
    first = advise(timeline_of(twice, X, through=True))[0]
    assert first.id == "through-hbm"
    saved = [timeline_of(twice, X, through=one).end for one in (True, False)]
    assert first.lost == pytest.approx((saved[0] - saved[1]) / 1e3, rel=0.2)
    assert "through-hbm" not in advice(twice, X, through=False)


def test_a_gain_below_two_per_cent_is_no_finding():
    found = advise(timeline_of(two_engines, X, copies=14))
    least = 0.02 * timeline_of(two_engines, X, copies=14).end / 1e3
    assert all(one.lost >= max(1.0, least) for one in found)


def test_a_load_of_a_register_is_no_finding():
    """A load of a register reads a tensor and writes none, and is issued for each element."""

    @jit
    def kernel(x):
        places = newer.ndarray((1, 256), newer.int32)
        nki_isa.memset(places, 1)
        register = nki_isa.register_alloc(0)
        for k in range(256):
            nki_isa.register_load(register, places[:, k : k + 1])
        nki_isa.register_store(places[:, 0:1], register)
        out = newer.ndarray((1, 256), newer.int32, buffer=newer.shared_hbm)
        nki_isa.dma_copy(out, places)
        return out

    assert "element-by-element" not in advice(kernel, X)
