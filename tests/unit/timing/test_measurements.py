import pytest

from difftest.timing.measurements import (
    Comparison,
    grouped,
    measurements,
    median_error,
)
from tests.unit.timing.estimates import estimate
from tests.unit.timing.shipped import shipped


def test_every_row_names_its_source():
    assert len(measurements()) == 50
    for row in measurements():
        assert row.source
        assert row.value_us > 0
        assert row.descriptors in ("dge", "static")
        assert row.kind in ("measured", "threshold")


def test_every_counterpart_is_a_kernel_here():
    names = {row.counterpart for row in measurements() if row.counterpart}
    assert len(names) >= 10
    for name in names:
        module, function = name.split(":")
        assert callable(shipped(f"{module.removeprefix('kernels.classic.')}.{function}"))


def test_profiles_of_one_kernel_are_compared_together():
    groups = {(g[0].kernel, g[0].metric): g for g in grouped(measurements())}
    group = groups["vector_add_stream FREE_DIM=1000", "profile total_time"]
    assert len(group) == 6
    comparison = Comparison(measurements=group, estimate=estimate(26.6 * 1.1))
    assert comparison.measured == pytest.approx(26.6)
    assert comparison.error == pytest.approx(0.1)


def test_the_median_error_is_of_absolute_errors():
    row = measurements()[0]
    made = [
        Comparison(measurements=(row,), estimate=estimate(row.value_us * factor))
        for factor in (0.8, 1.01, 1.1)
    ]
    assert median_error(made) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="no comparison"):
        median_error([])
