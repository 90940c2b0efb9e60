import pytest
from hypothesis import given
from hypothesis import strategies as st

from difftest.timing.dma import DmaEngines, SharedHbm, Transfer
from difftest.timing.interval import ELEMENTS
from difftest.timing.parameters import TRN1, TRN2, TRN3
from tests.every import every

ALL = tuple((engine, 8) for engine in range(16))


def tile(row_bytes, *, writes_hbm=False, busy=ALL, transposes=False):
    rows = sum(count for _, count in busy)
    return Transfer(row_bytes, rows, rows, busy, not writes_hbm, writes_hbm, transposes)


def row_time(engines, one):
    """The time of static descriptors."""
    return engines.costs(one, generated=False)[1]


def test_a_single_load_takes_its_packets_and_latencies():
    """Eight rows of 4000 bytes on each engine: 8 x (9 + 4000 / 28.1) ns = 1210.8 ns; before them
    the lead of 950, after them the tail of 410 and the read latency of 790."""
    begin, end, done = DmaEngines(TRN2).run(100.0, tile(4000))
    assert begin == pytest.approx(1050.0)
    assert end == pytest.approx(2260.8, abs=0.05)
    assert done == pytest.approx(2260.8 + 1200.0, abs=0.05)


def test_a_store_alone_has_no_read_latency():
    """Measured: 1.36 us + bytes of an engine / 26.5 bytes a ns, 2.574 us for this one."""
    _, _, done = DmaEngines(TRN2).run(0.0, tile(4000, writes_hbm=True))
    assert done == pytest.approx(950 + 1210.8 + 410, abs=0.05)


def test_long_rows_are_no_faster_than_measured_ones():
    """Measured: 8000 bytes at 26.5 a ns, as 4000; a store of 128 such rows takes 3.78 us."""
    engines = DmaEngines(TRN2)
    assert 8000 / row_time(engines, tile(8000)) == pytest.approx(26.5)
    assert 60_000 / row_time(engines, tile(60_000)) == pytest.approx(26.5)
    assert engines.run(0.0, tile(8000, writes_hbm=True))[2] == pytest.approx(
        3780, rel=0.005
    )
    older = DmaEngines(TRN1)
    for size in (8192, 65536):
        assert 16 * size / row_time(older, tile(size)) == pytest.approx(262.5, rel=0.02)


def test_queued_dmas_follow_each_other_without_the_lead():
    engines = DmaEngines(TRN2)
    ends = [engines.run(85.0 * number, tile(4000))[1] for number in range(4)]
    assert [later - ends[0] for later in ends] == pytest.approx(
        [0, 1210.8, 2421.5, 3632.3], abs=0.1
    )


def test_the_next_dma_waits_for_the_minimum():
    """A small one alone is over at once (TRACE: 128 rows of 14 bytes stored in 1.39 us)."""
    engines = DmaEngines(TRN2)
    begin, _, done = engines.run(0.0, tile(14, writes_hbm=True))
    assert done == pytest.approx(1390, rel=0.04)
    assert engines.run(0.0, tile(14, writes_hbm=True))[0] - begin == 200.0


def test_other_engines_are_free_beside_a_small_dma():
    engines = DmaEngines(TRN2)
    engines.run(0.0, tile(32_000, busy=((0, 8),)))
    begin, _, _ = engines.run(0.0, tile(4, busy=((1, 1),)))
    assert begin == 950.0


def test_writing_single_elements_to_hbm_is_slow():
    engines = DmaEngines(TRN2)
    assert row_time(engines, tile(4, writes_hbm=True)) == 100.0
    assert row_time(engines, tile(4)) < 10.0
    assert row_time(engines, tile(14, writes_hbm=True)) < 10.0


def test_a_dma_transpose_reaches_nine_tenths():
    engines = DmaEngines(TRN2)
    assert row_time(engines, tile(512, transposes=True)) * 0.9 == pytest.approx(
        engines.costs(tile(512), False)[1]
    )


@given(st.integers(1, 60_000), st.integers(1, 60_000), st.booleans())
def test_more_bytes_are_never_faster(one, other, store):
    fewer, more = sorted((max(one, 9), max(other, 9)))
    times = [
        DmaEngines(TRN2).run(0.0, tile(n, writes_hbm=store))[2] for n in (fewer, more)
    ]
    assert times[0] <= times[1]


@every(
    "row_bytes, rows, store, traced",
    [
        (2048, 16, False, 1140),  # 128 rows of 256 bytes in HBM, 768 of them
        (4096, 32, False, 1490),  # 128 of 1 KiB, 128 of them
        (4096, 128, False, 2736),  # 16 of them
        (16, 16, False, 1995),  # 128 of 2 bytes, 32 of them
        (16, 16, True, 820),  # the same stored, 16 of them
    ],
)
def test_a_dma_with_software_descriptors_takes_its_time_in_the_traces(
    row_bytes, rows, store, traced
):
    """Medians from start to last semaphore packet (current traces of trn2); 0.34 us later, and a
    hop, a waiting instruction begins."""
    busy = tuple((engine, rows // 16) for engine in range(16))
    one = Transfer(row_bytes, rows, 128, busy, not store, store, False)
    assert DmaEngines(TRN2).run(0.0, one, generated=True)[2] == pytest.approx(
        traced + 340, rel=0.08
    )


@every(
    "row_bytes, store, traced",
    [
        (4, False, 2501),
        (256, False, 1870),
        (512, False, 1850),
        (4096, False, 3340),
        (4096, True, 2700),
    ],
)
def test_a_dma_with_hardware_descriptors_takes_its_time_in_the_traces(
    row_bytes, store, traced
):
    """The same medians, from the start of the instruction that makes the descriptors."""
    made = TRN2.generation.value + 127 * TRN2.generation_per_partition.value
    _, _, done = DmaEngines(TRN2).run(
        made, tile(row_bytes, writes_hbm=store), generated=True
    )
    assert done == pytest.approx(traced + 340, rel=0.06)


@every("size, traced", [(256, 14), (512, 24), (2048, 81), (4096, 155)])
def test_packets_take_their_time_in_the_traces(size, traced):
    assert DmaEngines(TRN2).costs(tile(size), True)[1] == pytest.approx(
        traced, rel=0.04
    )


def test_a_packet_of_some_bytes_takes_more_than_itself():
    """8.65 ns each, and 14.8 with the gaps between them: loads in such rows were too fast."""
    low, high = ELEMENTS
    taken = DmaEngines(TRN2).costs(tile(4), True)[1]
    assert 8.65 < taken < 14.8
    assert taken * low <= 8.65
    assert taken * high >= 14.8


def test_an_engine_is_slower_where_both_cores_run():
    """17.4 bytes a ns on two cores, 19.2 on one (current traces); trn3 lacks a figure."""
    alone, both = (
        DmaEngines(TRN2, hbm).costs(tile(2048), True)[1]
        for hbm in (None, SharedHbm(1.0))
    )
    assert alone / both == pytest.approx(17.4 / 19.2, rel=0.01)
    assert TRN3.shared_engines.value == 1
    ends = [DmaEngines(TRN2, SharedHbm(r)).run(0.0, tile(2048))[2] for r in (1.0, 1e6)]
    assert ends[0] > 10 * ends[1]  # reads use HBM's rate too
