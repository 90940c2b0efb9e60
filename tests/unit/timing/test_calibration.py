import math
from statistics import median

import pytest

from difftest.timing.calibration import (
    CheckedPrediction,
    Comparison,
    calibration,
    check_prediction,
    comparisons,
    measurements,
    needed_scale,
    scale_for,
)
from difftest.timing.interval import Interval
from tests.every import every
from tests.unit.timing.estimates import estimate
from tests.unit.timing.shipped import prediction_of


def judged(kernel, needed):
    return CheckedPrediction(kernel, 100.0, 100.0, Interval(90.0, 110.0), needed)


def test_the_scale_that_just_reaches_a_measurement():
    one = estimate(100.0, 0.9, 1.2)
    assert needed_scale(120.0, one.interval) == pytest.approx(1.0)
    assert needed_scale(100 * 1.2**3, one.interval) == pytest.approx(3.0)
    assert needed_scale(90.0, one.interval) == pytest.approx(1.0)
    assert needed_scale(100.0, one.interval) == 0.0
    assert needed_scale(1e9, one.interval) == math.inf


def test_a_measurement_outside_its_interval_needs_a_wider_one():
    one = estimate(100.0, 0.9, 1.2)
    inside, outside = (
        check_prediction("k", measured, 100.0, one.interval)
        for measured in (110.0, 300.0)
    )
    assert inside.inside
    assert not outside.inside
    assert outside.needed > inside.needed


def test_the_scale_that_holds_nine_of_ten():
    assert scale_for([float(n) for n in range(1, 11)]) == 9.0
    assert scale_for([3.0]) == 3.0
    with pytest.raises(ValueError, match="nothing to calibrate with"):
        scale_for([])


def test_a_kernel_is_judged_with_the_scale_of_the_others():
    """Ten rows of one kernel that need much raise the scale for themselves, not for others."""
    hard = [judged("hard", 5.0)] * 10
    easy = [judged(f"easy {n}", 1.0) for n in range(10)]
    result = calibration(hard + easy)
    assert result.scale == 5.0
    assert result.left_out == 10
    assert (result.rows, result.inside) == (20, 20)
    assert result.median_width == pytest.approx(0.2)


def test_one_kernel_alone_says_nothing_of_others():
    assert calibration([judged("one", 1.0)] * 3).left_out == 0


QUICK = {
    "vector_add_stream FREE_DIM=1000": (
        "vector_add.vector_add_stream",
        {"FREE_DIM": 1000},
    ),
    "vector_add_stream FREE_DIM=200": (
        "vector_add.vector_add_stream",
        {"FREE_DIM": 200},
    ),
    "vector_add_tiled ROW_CHUNK=128": (
        "vector_add.vector_add_tiled",
        {"ROW_CHUNK": 128},
    ),
    "matrix_transpose": ("transpose.transpose_by_tiles", {}),
}


@every("kernel", QUICK)
def test_published_latencies_lie_inside(kernel):
    name, keywords = QUICK[kernel]
    groups = [g for g in comparisons(measurements()) if g[0].kernel == kernel]
    measured = [group for group in groups if group[0].kind == "measured"]
    assert measured
    for group in measured:
        first = group[0]
        prediction = prediction_of(name, *first.inputs, dge=first.toolchain, **keywords)
        low, high = Comparison(
            measurements=group, estimates=prediction.estimates
        ).judged.interval
        assert low <= median(row.value_us for row in group) <= high
