from itertools import pairwise

import numpy as np
import pytest

from difftest.simulator import launch
from difftest.simulator.machine import TRN1 as OLDER
from difftest.simulator.machine import TRN2 as MACHINE
from difftest.simulator.trace import (
    Allocation,
    Engine,
    Event,
    EventKind,
    Purpose,
    Region,
    Space,
)
from difftest.timing import predict
from difftest.timing.dma import contiguous_run, software_transfer, transfer
from difftest.timing.parameters import TRN2
from difftest.timing.units import SoftwareGenerator
from tests.every import every
from tests.purposes import purpose_of
from tests.unit.timing import gathers
from tests.unit.timing.programs import Builder, whole


def sbuf(*shape, dtype="float32"):
    return Allocation(0, Space.SBUF, shape, np.dtype(dtype), 0, None)


def hbm(*shape, dtype="float32"):
    return Allocation(1, Space.SHARED_HBM, shape, np.dtype(dtype), 0, None)


def moved(target, source):
    event = Event(
        0, EventKind("dma_copy", Engine.DMA, purpose=Purpose.COPY), (target,), (source,)
    )
    return transfer(event, TRN2)


def test_a_tile_of_whole_rows():
    found = moved(
        whole(sbuf(128, 1000)), Region(hbm(128, 2000), 0, (128, 1000), (2000, 1))
    )
    assert (found.row_bytes, found.rows, found.partitions) == (4000, 128, 128)
    assert found.busy == tuple((engine, 8) for engine in range(16))
    assert found.bytes == 512_000
    assert found.reads_hbm
    assert not found.writes_hbm


def test_rows_of_an_image_are_one_run_if_they_follow_each_other():
    image = hbm(1, 128, 224, 224)
    rows = Region(image, 0, (128, 4, 224), (224 * 224, 224, 1))
    part = Region(image, 0, (128, 4, 222), (224 * 224, 224, 1))
    assert contiguous_run(rows, whole(sbuf(128, 4, 224))) == 4 * 224
    assert contiguous_run(rows, whole(sbuf(128, 896))) == 896
    assert contiguous_run(part, whole(sbuf(128, 4, 222))) == 222


def test_a_vector_over_the_partitions_is_rows_of_one_element():
    found = moved(whole(sbuf(128, 1)), Region(hbm(25600), 0, (128,), (1,)))
    assert (found.row_bytes, found.rows) == (4, 128)


def test_a_row_does_not_leave_its_partition():
    """[128, 8] lies contiguous in the tile's own elements, and in HBM: still 128 rows."""
    found = moved(whole(sbuf(128, 8)), whole(hbm(128, 8)))
    assert (found.row_bytes, found.rows) == (32, 128)


@every(
    "first, last, engines",
    [(0, 1, [0]), (0, 8, [0]), (4, 12, [0, 1]), (64, 128, range(8, 16))],
)
def test_few_partitions_use_few_engines(first, last, engines):
    tile = sbuf(128, 4)
    part = Region(tile, first * 4, (last - first, 4), (4, 1))
    found = moved(part, whole(hbm(last - first, 4)))
    assert [engine for engine, _ in found.busy] == list(engines)
    assert sum(rows for _, rows in found.busy) == last - first


def test_hbm_to_hbm_uses_all_engines():
    found = moved(whole(hbm(64, 100)), Region(hbm(64, 200), 0, (64, 100), (200, 1)))
    assert (found.row_bytes, found.rows) == (400, 64)
    assert found.busy == tuple((engine, 4) for engine in range(16))


def test_a_store_writes_hbm():
    build = Builder()
    build.store(build.load((128, 4)))
    load, store = (one.transfer for one in build.program().instructions)
    assert (load.reads_hbm, load.writes_hbm) == (True, False)
    assert (store.reads_hbm, store.writes_hbm) == (False, True)


@every(
    "shape, dtype, mode, kind",
    [
        ((16, 128), "float16", "unknown", "transpose"),
        ((16, 384), "float16", "hwdge", "transpose"),
        ((16, 128), "float16", "none", "none"),
        ((128, 128), "float16", "unknown", "turned"),
        ((16, 100), "float16", "unknown", "turned"),
        ((16, 128), "float32", "unknown", "turned"),
        ((128, 64), "float16", "swdge", "swdge"),
    ],
)
def test_transposes_with_descriptors_of_the_hardware(shape, dtype, mode, kind):
    target = sbuf(*reversed(shape), dtype=dtype)
    source = hbm(*shape, dtype=dtype)
    how = {"options": {"dge_mode": mode}, "purpose": Purpose.TRANSPOSE}
    kind_of_event = EventKind("dma_transpose", Engine.DMA, **how)
    event = Event(0, kind_of_event, (whole(target),), (whole(source),))
    assert transfer(event, TRN2).kind == kind


def test_transposes_do_not_wait_for_the_generator():
    """100 loads of 128 x 128, transposed on the way: one each 0.24 us, not one each 0.59 us."""

    def predicted(opcode, dtype):
        build = Builder()
        for _ in range(100):
            tile = build.tensor((128, 128), dtype=dtype)
            source = build.hbm((128, 128), dtype)
            build.emit(
                opcode, Engine.DMA, [whole(tile)], [whole(source)], dge_mode="unknown"
            )
        return predict(build.trace, MACHINE, dge=True).middle

    assert predicted("dma_copy", "float32") == pytest.approx(100 * 0.588 + 2.3, abs=1)
    assert predicted("dma_transpose", "float32") == pytest.approx(
        100 * 0.242 + 2.3, abs=1
    )
    assert predicted("dma_transpose", "float16") == pytest.approx(
        100 * 0.2 + 2.3, abs=1
    )


@every("dge, each", [(True, 0.588 + 0.242), (False, 0.242 + 0.218)])
def test_transposes_and_generated_dmas_take_turns(dge, each):
    """4096 x 4096 by load_transpose2d was reported at 0.81 us a tile, load and store together."""
    build = Builder()
    for _ in range(100):
        tile = build.tensor((128, 128))
        source = build.hbm((128, 128))
        build.emit(
            "dma_transpose",
            Engine.DMA,
            [whole(tile)],
            [whole(source)],
            dge_mode="unknown",
        )
        build.store(tile)
    assert predict(build.trace, MACHINE, dge=dge).middle == pytest.approx(
        100 * each + 3, rel=0.05
    )


def indirect(opcode, target, source, indices):
    """A DMA with runtime indices; ``indices`` is first or last among its operands."""
    index = whole(sbuf(indices, 1, dtype="int32"))._replace(role="index")
    reads = (source, index) if opcode != "dma_copy" else (index, source)
    kind = EventKind(opcode, Engine.DMA, purpose=purpose_of(opcode))
    return transfer(Event(0, kind, (target,), reads), TRN2)


def test_gathers_and_scatters_move_a_row_for_each_index():
    """Repeated rows, which read less of the source, do not change the time."""
    tile = whole(sbuf(128, 512))
    table = Region(hbm(1024, 512), 0, (40 * 512,), (1,), whole=False)
    for found in (
        indirect("dma_gather", tile, table, 128),
        indirect("dma_scatter", table, tile, 128),
    ):
        assert (found.row_bytes, found.rows, found.kind) == (2048, 128, "index")
        assert found.busy == tuple((engine, 8) for engine in range(16))


def test_a_load_from_a_place_that_an_operand_names_moves_the_tile_and_not_the_number():
    tile = whole(sbuf(128, 512))
    source = whole(hbm(128, 512))
    found = indirect("dma_copy", tile, source, 1)
    assert (found.row_bytes, found.rows, found.reads_hbm) == (2048, 128, True)
    assert (software_transfer(found).row_bytes, software_transfer(found).rows) == (
        4096,
        64,
    )
    assert found.kind == "register"


def copies(count, how, machine=MACHINE):
    """Loads of 32 KiB: from places that nothing names, a register, a loop, an element of SBUF."""
    build = Builder()
    options = (
        {"register of src": how}
        if how in ("register 0", "loop 0")
        else {"dge_mode": how}
    )
    for _ in range(count):
        target = build.tensor((128, 64))
        source = build.hbm((128, 64))
        index = whole(build.tensor((1, 1), dtype="int32"))._replace(role="index")
        reads = [index, whole(source)] if how == "index" else [whole(source)]
        build.emit("dma_copy", Engine.DMA, [whole(target)], reads, **options)
    return predict(build.trace, machine, dge=True).middle


@every(
    "how, machine, each",
    [("unknown", MACHINE, 0.588), ("loop 0", MACHINE, 0.588), ("swdge", MACHINE, 0.58)]
    + [(how, machine, each) for how in ("register 0", "index")
       for machine, each in ((MACHINE, 1.23), (OLDER, 1.0))],
)  # fmt: skip
def test_a_place_in_a_register_takes_a_load_and_a_dispatch(how, machine, each):
    """Traced: 1.23 us start to start, for any data; 0.58 with static places."""
    assert copies(48, how, machine) - copies(8, how, machine) == pytest.approx(
        40 * each, rel=0.02
    )


def test_long_bursts_of_software_descriptors_slow_down():
    """Traced: 0.735 us each on average of 318 without a pause; none in bursts of 20."""
    assert copies(350, "swdge") - copies(50, "swdge") == pytest.approx(
        300 * 0.735, rel=0.01
    )
    assert copies(350, "unknown") - copies(50, "unknown") == pytest.approx(
        300 * 0.588, rel=0.01
    )
    generator = SoftwareGenerator(TRN2)
    starts = [generator.take(2000.0 * number, 557.0, 850.0)[1] for number in range(60)]
    assert starts == [2000.0 * number + 850.0 for number in range(60)]


def test_gpsimd_runs_sixteen_dmas_ahead_of_their_descriptors():
    """Traced: at most 16 are dispatched and have not started; then the engine waits."""
    generator = SoftwareGenerator(TRN2)
    now = 0.0
    times = []
    for _ in range(400):
        busy, start = generator.take(now, 557.0, 850.0)
        now += busy
        times.append((now, start))
    ahead = [sum(start > now for _, start in times[: number + 1])
             for number, (now, _) in enumerate(times)]  # fmt: skip
    assert max(ahead) == 16
    assert {round(b[0] - a[0]) for a, b in pairwise(times[:50])} == {557}
    assert {round(b[0] - a[0]) for a, b in pairwise(times[300:])} == {735}


def test_software_joins_rows_that_follow_each_other():
    """Traced: 128 x 256 bytes are 16 packets of 2048, 128 x 1 KiB 32 of 4096, 128 x 2 16 of 16."""
    for size, rows, joined in (
        (256, 16, 2048),
        (1024, 32, 4096),
        (2, 16, 16),
        (4096, 128, 4096),
    ):
        count = size // 2
        tile = whole(sbuf(128, count, dtype="float16"))
        source = whole(hbm(128, count, dtype="float16"))
        apart = Region(hbm(128, size, dtype="float16"), 0, (128, count), (size, 1))
        found = software_transfer(indirect("dma_copy", tile, source, 1))
        assert (found.row_bytes, found.rows) == (joined, rows)
        assert sum(each for _, each in found.busy) == rows
        assert software_transfer(indirect("dma_copy", tile, apart, 1)).rows == 128
        assert (moved(tile, source).rows, moved(tile, source).kind) == (128, "run")
        kind = "elements" if size <= 8 else "short rows" if size < 512 else "rows"
        assert moved(tile, apart).kind == kind


def test_software_joins_rows_of_a_run_within_rows_apart():
    """Four rows of 256 bytes follow each other in HBM, then comes a gap."""
    tile = whole(sbuf(128, 128, dtype="float16"))
    table = hbm(32, 1024, dtype="float16")
    source = Region(table, 0, (32, 4, 128), (1024, 128, 1))
    found = software_transfer(moved(tile._replace(shape=(128, 128)), source))
    assert (found.row_bytes, found.rows) == (1024, 32)


def test_a_kernel_may_ask_for_the_hardwares_generator():
    kind = EventKind("dma_copy", Engine.DMA, options={"dge_mode": "hwdge"})
    event = Event(0, kind, (whole(sbuf(128, 64)),), (whole(hbm(128, 64)),))
    assert transfer(event, TRN2).kind == "hwdge"


@every("machine, each", [(MACHINE, 1.02), (OLDER, 1.42)])
def test_descriptors_that_gpsimd_makes_take_its_time(machine, each):
    """Published: 128 rows of 2 KiB on trn2 at 256 GB/s, on trn1 1.42 us."""
    build = Builder()
    for _ in range(100):
        tile = build.tensor((128, 512))
        table = build.hbm((1024, 512))
        index = whole(build.tensor((128, 1), dtype="int32"))._replace(role="index")
        build.emit("dma_gather", Engine.DMA, [whole(tile)], [whole(table), index])
    for dge in (False, True):
        found = predict(build.trace, machine, dge=dge)
        assert found.middle == pytest.approx(100 * each + 2.5, rel=0.03)
        assert {span.engine for span in found.schedule.spans} == {Engine.GPSIMD}


@every("columns, traced", [(128, 1.251), (512, 1.244)])
def test_weights_of_experts_are_gathered_as_fast_as_traced(columns, traced):
    """The mean of 768 of 32 KiB; the median of 144 of 128 KiB and more, which also wait."""
    x = np.ones((128, 1), np.float16)
    W = np.ones((8, 128, columns), np.float16)
    places = np.arange(96, dtype=np.int32)[None] % 8
    found = predict(
        launch(gathers.experts, [x, W, places]).trace, MACHINE, dge=False
    ).schedule
    starts = [one.start / 1e3 for one in found.spans if one.engine is Engine.GPSIMD]
    loads = starts[: len(places[0])]
    assert (loads[-1] - loads[0]) / (len(loads) - 1) == pytest.approx(traced, rel=0.03)
