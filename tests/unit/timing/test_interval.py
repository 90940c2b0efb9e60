import math

import numpy as np
import pytest

from difftest.simulator import TRN2, launch
from difftest.simulator.trace import Engine, Region
from difftest.timing import predict
from difftest.timing.interval import (
    GENERATED,
    SCALE,
    WIDE,
    ErrorBudget,
    ErrorSource,
    Estimate,
)
from difftest.timing.interval import (
    width as relative_width,
)
from tests.unit.timing.estimates import estimate
from tests.unit.timing.gathers import experts
from tests.unit.timing.programs import Builder, whole
from tests.unit.timing.shipped import prediction_of


def chained(opcode, engine, count=200):
    """A kernel that takes as long as a chain of one instruction on 512 columns."""
    build = Builder()
    tile = build.load((128, 512))
    for _ in range(count):
        result = build.tensor((128, 512))
        build.emit(opcode, engine, [whole(result)], [whole(tile)])
        tile = result
    build.store(tile)
    return predict(build.trace, TRN2, dge=True)


def width(prediction):
    low, high = prediction.latency_interval
    return math.log(high / low)


def test_an_interval_is_around_its_prediction_and_grows_with_the_scale():
    one = estimate(100.0)
    assert one.interval(0.0) == (100.0, 100.0)
    assert one.interval(1.0) == pytest.approx((90.0, 120.0))
    low, high = one.interval()
    assert low < 90
    assert high > 120


def test_one_figure_errs_together_and_two_apart():
    def ends(figures):
        logs = (50 * math.log(2), 50 * math.log(2))
        ground = ErrorBudget(
            dict.fromkeys(figures, 50.0),
            dict.fromkeys(figures, logs),
            busiest=0.0,
            streaming=0.0,
        )
        return Estimate(ground, 50.0 * len(figures), 0.0, 0.0, 0.0).interval(1.0)

    one = ErrorSource("measured", "DMAs")
    other = ErrorSource("measured", "products")
    assert ends([one]).high == pytest.approx(100.0)
    assert ends([one, other]).high == pytest.approx(100 * 2 ** math.sqrt(0.5))


def test_the_confidence_of_a_range_is_not_scaled():
    """A bet of nine to one on a figure stays one, however wrong the model is."""
    figure = ErrorSource("assumed", "rand")
    ground = ErrorBudget({figure: 50.0}, {figure: (50 * math.log(2),) * 2}, 0.0, 0.0)
    one = Estimate(ground, 50.0, 0.0, 0.0, 0.0)
    assert one.interval(0.0) == one.interval(10.0) == pytest.approx((25.0, 100.0))


def test_fixed_figures_are_not_scaled():
    low, high = estimate(10.0, 1.0, 1.0, fixed=10.0, unsure=3.0).interval(10.0)
    assert (low, high) == pytest.approx((20 * math.exp(-0.15), 20 * math.exp(0.15)))


def test_assumed_costs_make_a_wider_interval_than_measured_ones():
    measured = chained("tensor_reduce", Engine.VECTOR)
    documented = chained("bn_stats", Engine.VECTOR)
    assumed = chained("rand", Engine.GPSIMD)
    assert width(measured) < width(documented) < width(assumed)


def test_contention_may_slow_a_chain_of_activation_functions():
    """Others use SBUF's ports: so the time may be longer, and hardly shorter, than that alone."""
    alone, chain = (
        chained(*one, count=50)
        for one in (("tensor_reduce", Engine.VECTOR), ("activation", Engine.SCALAR))
    )
    above, known = (one.latency_interval.high / one.latency for one in (chain, alone))
    below, least = (one.latency_interval.low / one.latency for one in (chain, alone))
    assert above > known + 0.1
    assert below == pytest.approx(least, abs=0.02)


def test_a_time_that_rests_on_assumed_costs_says_so():
    said = chained("rand", Engine.GPSIMD).caution
    assert said.startswith("the largest unknown is the time of rand (assumed): ")
    assert "(documented)" in chained("bn_stats", Engine.VECTOR).caution
    assert not chained("tensor_reduce", Engine.VECTOR).caution


def test_a_wide_interval_names_the_fact_that_would_narrow_it():
    found = chained("rand", Engine.GPSIMD)
    span = found.latency_interval
    unknown = found.largest_unknown
    assert relative_width(span, found.latency) > WIDE
    narrowed = relative_width(unknown.rest, found.latency)
    assert narrowed < relative_width(span, found.latency) / 2
    low, high = unknown.rest
    assert found.caution.endswith(
        f"with that known, a device takes {low:,.1f} to {high:,.1f} us"
    )
    (least, _), (most, _) = unknown.answers
    assert least < found.middle < most
    assert "\n" not in found.caution


def test_shares_are_of_all_of_the_time():
    shares = chained("rand", Engine.GPSIMD).error_budget.shares
    assert sum(shares.values()) == pytest.approx(1.0)
    assert next(iter(shares)) == "assumed"


def test_generated_descriptors_are_less_sure_than_static_ones():
    keywords = {"FREE_DIM": 2000}
    static, generated = (
        prediction_of(
            "vector_add.vector_add_stream", (256000,), (256000,), dge=dge, **keywords
        )
        for dge in (False, True)
    )
    subjects = {figure.subject for figure in static.error_budget.times}
    assert "DMAs" in subjects
    assert "DMAs with generated descriptors" not in subjects
    assert GENERATED.low < 0.95
    assert width(generated) > math.log(
        static.total_time_interval.high / static.total_time_interval.low
    )


def test_loads_whose_place_a_register_names_may_wait_for_places():
    """A device with a kernel of 144 such loads took 219 us, and this model 185."""
    shapes = (128, 1), (8, 128, 512), (1, 40)
    x, W, places = (
        np.zeros(shape, dtype) for shape, dtype in zip(shapes, "eei", strict=True)
    )
    found = predict(launch(experts, [x, W, places]).trace, TRN2)
    (subject,) = {
        one.subject for one, time in found.error_budget.times.items() if time > 20
    }
    assert subject == "DMAs whose place a register names"
    assert found.latency_interval.high > found.latency * 219 / 185


@pytest.mark.parametrize(("columns", "elements"), [(64, True), (2, False)])
def test_many_rows_of_single_elements_are_less_sure(columns, elements):
    """For few DMAs the packets take no time in addition to their start."""
    build = Builder()
    for _ in range(4):
        source = build.hbm((columns, 128))
        tile = build.tensor((128, columns))
        turned = Region(source, 0, (128, columns), (1, 128))
        build.emit("dma_copy", Engine.DMA, [whole(tile)], [turned])
    subjects = {
        one.subject for one in predict(build.trace, TRN2, dge=True).error_budget.times
    }
    assert ("DMAs in rows of single elements" in subjects) is elements


def test_a_wait_for_a_place_may_be_none_on_a_device():
    """Tiles that fit SBUF one at a time: each load waits for the previous store."""
    build = Builder()
    for _ in range(6):
        build.store(build.load((128, 30 * 1024)))
    shares = predict(build.trace, TRN2, dge=False).error_budget.shares
    assert shares["inferred"] > 0.3


def test_a_hidden_assumed_cost_may_be_the_limit():
    """An assumed cost parallel to a longer measured one: at the top of its range it is longer."""
    build = Builder()
    tile = build.load((128, 512))
    numbers = build.tensor((128, 512))
    for _ in range(100):
        build.emit("rand", Engine.GPSIMD, [whole(numbers)])
        build.add(tile, tile)
    prediction = predict(build.trace, TRN2, dge=True)
    busy = (
        sum(s.busy for s in prediction.schedule.spans if s.engine is Engine.GPSIMD)
        / 1e3
    )
    assert prediction.error_budget.busiest == pytest.approx(4 * busy)
    assert prediction.latency_interval.high >= 4 * busy


def test_nothing_is_faster_than_the_tensor_engine_streams():
    build = Builder()
    stationary = build.load((128, 128))
    moving = build.load((128, 512))
    for _ in range(2000):
        build.matmul(build.psum((128, 512)), stationary, moving)
    prediction = predict(build.trace, TRN2, dge=True)
    streaming = 2000 * 2 * 512 * 2 / 2.4e3
    assert prediction.error_budget.streaming == pytest.approx(streaming)
    assert prediction.latency_estimate.interval(100 * SCALE).low > streaming


def test_the_interval_of_a_spilling_kernel_is_wider():
    def loaded(count):
        build = Builder()
        tiles = [build.load((128, 64 * 256)) for _ in range(count)]
        for tile in tiles:
            build.store(tile)
        return predict(build.trace, TRN2, dge=True)

    assert loaded(4).schedule.timeline.spilled
    assert not loaded(3).schedule.timeline.spilled
    assert width(loaded(4)) > 1.5 * width(loaded(3))
    # Spilling moves an end of the interval; the scale of the ranges does not apply to it.
    spilled = loaded(4)
    assert spilled.latency_interval.high < 4.5 * spilled.latency


def test_decisions_of_the_compiler_widen_the_interval():
    """Loads of the same bytes again and again: a compiler that removes them is much faster."""

    def loaded(again):
        build = Builder()
        source = build.hbm((128, 2048))
        for _ in range(40):
            tile = build.tensor((128, 2048))
            build.dma(tile, source if again else build.hbm((128, 2048)))
            build.store(tile)
        return predict(build.trace, TRN2, dge=True)

    same = loaded(True)
    different = loaded(False)
    assert same.middle == pytest.approx(different.middle, rel=0.01)
    assert same.compiled.low < 0.7 * same.middle
    assert different.compiled.low == pytest.approx(different.middle, rel=0.01)
    assert width(same) > width(different)
    assert same.latency_interval.low <= same.compiled.low + 10
    assert "which repeated loads the compiler makes" in same.caution
    assert "repeated loads" not in different.caution
