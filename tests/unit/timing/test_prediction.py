import itertools
from dataclasses import replace

import numpy as np
import pytest

from difftest.simulator import TRN1, TRN2, launch, trace_from_json, trace_to_json
from difftest.simulator.trace import Engine, Trace
from difftest.timing import predict
from difftest.timing.advice import advise
from difftest.timing.compiler import Toolchain
from tests.every import every
from tests.unit.simulator.small_runs import in_turn, kernels_of_the_tree
from tests.unit.simulator.small_runs import trace_of as small_trace_of
from tests.unit.timing.programs import Builder, whole
from tests.unit.timing.shipped import prediction_of, shipped, trace_of

KERNELS = kernels_of_the_tree()


@every(
    "name, shapes, keywords, measured",
    [
        ("vector_add.vector_add_stream", [(256000,)] * 2, {"FREE_DIM": 1000}, 26.60),
        ("vector_add.vector_add_stream", [(256000,)] * 2, {"FREE_DIM": 2000}, 28.51),
        ("transpose.transpose_by_tiles", [(1024, 1024)], {}, 46.83),
    ],
)
def test_profiles_are_within_five_percent(name, shapes, keywords, measured):
    """Medians of six public profiles each (trn2, neuronx-cc 2.21, static descriptors)."""
    assert prediction_of(name, *shapes, **keywords).total_time == pytest.approx(
        measured, rel=0.05
    )


@every(
    "name, shapes, keywords, measured",
    [
        ("vector_add.vector_add_stream", [(25600,)] * 2, {"FREE_DIM": 200}, 15.0),
        ("transpose.transpose_by_tiles", [(1024, 1024)], {}, 86.0),
    ],
)
def test_benchmarks_are_within_fifteen_percent(name, shapes, keywords, measured):
    """Published nc_latencies (trn2), descriptors generated on the device."""
    prediction = prediction_of(name, *shapes, dge=True, **keywords)
    assert prediction.latency == pytest.approx(measured, rel=0.15)


def test_two_tiles_overlap_and_are_faster_than_one():
    times = [
        prediction_of(
            "vector_add.vector_add_stream", (256000,), (256000,), FREE_DIM=n
        ).total_time
        for n in (1000, 2000)
    ]
    assert times[0] < times[1]


def test_larger_tiles_are_faster_until_there_is_one():
    """Measured: 37,318 us for 25600 elements one at a time, 15 us in one tile of 200."""
    tiled = [
        prediction_of(
            "vector_add.vector_add_tiled", (1536,), (1536,), dge=True, ROW_CHUNK=n
        )
        for n in (1, 128)
    ]
    streamed = [
        prediction_of(
            "vector_add.vector_add_stream", (1536,), (1536,), dge=True, FREE_DIM=n
        )
        for n in (2, 12)
    ]
    latencies = [one.latency for one in (*tiled, *streamed)]
    assert latencies == sorted(latencies, reverse=True)
    # The measured kernel took 1.457 us for the 3 DMAs of an element.
    assert tiled[0].middle == pytest.approx(1.457 * 1536, rel=0.02)


def test_percentiles_span_the_throttles_phase():
    prediction = prediction_of("transpose.transpose_by_tiles", (1024, 1024), dge=True)
    points = [prediction.get_latency_percentile(p) for p in (0, 25, 50, 75, 100)]
    assert points == sorted(points)
    assert points[2] == prediction.latency
    made = replace(prediction, low=1.0, middle=3.0, high=7.0)
    points = [made.get_latency_percentile(p) for p in (0, 25, 50, 75, 100)]
    assert points == pytest.approx([9.4, 10.4, 11.4, 13.4, 15.4])  # 8.4 us are fixed
    with pytest.raises(ValueError, match="a percentile is from 0 to 100, got 101"):
        prediction.get_latency_percentile(101)


def test_a_kernel_without_matmuls_has_no_span():
    prediction = prediction_of(
        "vector_add.vector_add_stream", (25600,), (25600,), FREE_DIM=200
    )
    assert prediction.low == prediction.middle == prediction.high


def test_the_same_trace_gives_the_same_prediction():
    trace = trace_of("transpose.transpose_by_tiles", (256, 512))
    assert (
        predict(trace, TRN2, dge=True).latency == predict(trace, TRN2, dge=True).latency
    )


def test_an_empty_trace_is_refused():
    with pytest.raises(
        ValueError, match="the trace is empty: launch the kernel with record=True"
    ):
        predict(Trace(), TRN2, dge=True)


def additions(count, columns=2048, toolchain=Toolchain.CLASSIC_PROFILE):
    """A number of ``count`` moves, each 2.2 us; the result is one run of HBM, or rows apart."""
    build = Builder()
    tile = build.load((128, columns))
    for _ in range(count):
        tile = build.add(tile, tile)
    build.store(tile)
    return predict(build.trace, TRN2, dge=toolchain)


def test_long_profiles_end_later():
    """Half of the longer postamble's kernels and below it nothing; between them a line."""
    after = [
        found.total_time - found.middle - 12.75
        for found in map(additions, (2, 40, 41, 80))
    ]
    assert (after[0], after[-1]) == (pytest.approx(2.4), pytest.approx(11.0))
    assert 4 < after[1] < after[2] < after[1] + 0.5  # no step
    span = additions(40).total_time_interval
    assert span.low < additions(40).middle + 12.75 + 2.4 + 1
    assert span.high > additions(40).middle + 12.75 + 11 - 1


def test_a_profile_of_todays_may_end_later_if_software_stores():
    """Traced: 12 to 14 us after two whose stores came from software, 2.1 to 3.1 after three."""
    build = Builder()
    tile = build.load((128, 256))
    out = build.hbm((128, 512), name="out")
    build.emit(
        "dma_copy", Engine.DMA, [whole(out)._replace(shape=(128, 256))], [whole(tile)]
    )
    apart = predict(build.trace, TRN2, dge=Toolchain.TODAY)
    build.store(tile)
    run = predict(build.trace, TRN2, dge=Toolchain.TODAY)
    for found in (apart, run):
        assert found.total_time - found.middle == pytest.approx(12.75 + 2.4)
    longest = run.middle + 12.75 + 11.0
    assert run.total_time_interval.high > longest
    assert apart.total_time_interval.high < longest


def test_a_classic_profile_with_generated_descriptors_never_ends_later():
    """Traced with 2.23: 1.68 to 1.76 us after the last semaphore in eight of eight."""
    for count in (2, 40, 80):
        found = additions(count, toolchain=Toolchain.CLASSIC_BENCHMARK)
        assert found.total_time - found.middle == pytest.approx(13.6 + 1.7)


def test_trn1_is_slower_where_its_vector_engine_is():
    """NeuronCore-v2 takes two cycles an element for two inputs, and has slower DMA engines."""
    arrays = [np.ones(256000, np.float32)] * 2
    kernel = shipped("vector_add.vector_add_stream")
    keywords = {"FREE_DIM": 2000}
    times = [
        predict(
            launch(kernel, arrays, keywords, machine=m).trace, m, dge=False
        ).total_time
        for m in (TRN1, TRN2)
    ]
    assert times[0] > times[1]


@every("name, dge", zip(in_turn(KERNELS)[::2], itertools.cycle([False, True])))
def test_a_trace_that_was_read_back_predicts_the_same(name, dge):
    trace = small_trace_of(KERNELS[name])
    expected = predict(trace, TRN2, dge=dge)
    again = predict(trace_from_json(trace_to_json(trace)), TRN2, dge=dge)
    assert (again.low, again.middle, again.high) == (
        expected.low,
        expected.middle,
        expected.high,
    )
    spans = [
        [(s.start, s.end, s.engine) for s in p.schedule.spans]
        for p in (again, expected)
    ]
    assert spans[0] == spans[1]
    assert advise(again.schedule) == advise(expected.schedule)


def test_progress_is_reported_for_both_halves():
    """Costs and dependences, then the timeline: from nothing to all, never back."""
    build = Builder()
    told = []
    tile = build.load((128, 8))
    for _ in range(2500):
        build.store(tile)
    predict(
        build.trace,
        TRN2,
        dge=False,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(2000, 5002), (4501, 5002)]
