import pytest

from difftest.simulator.entry.install import embedded
from difftest.testing.host.shipped import import_shipped
from difftest.timing.calibration import Comparison, comparisons, measurements
from difftest.timing.compiler import Toolchain
from tests.unit.timing.estimates import estimate


def test_every_row_names_its_source():
    assert len(measurements()) == 92
    for row in measurements():
        assert row.source
        assert row.value_us > 0
        assert isinstance(row.toolchain, Toolchain)
        assert row.kind in ("measured", "threshold")


def test_every_counterpart_is_a_kernel_here():
    names = {row.counterpart for row in measurements() if row.counterpart}
    assert len(names) >= 10
    for name in names:
        module, function = name.split(":")
        with embedded():
            assert callable(getattr(import_shipped(module), function))


def test_more_than_half_of_the_products_are_held_out():
    """By size and source, and not by how well they fit."""
    rows = [row for row in measurements() if row.toolchain is Toolchain.SWEEP]
    held = [row for row in rows if row.notes == "held out"]
    assert (len(rows), len(held)) == (26, 16)
    assert held == [
        row for row in rows if not row.is_launched or row.inputs[0][0] > 2560
    ]


def test_profiles_of_one_kernel_are_compared_together():
    groups = {(g[0].kernel, g[0].metric): g for g in comparisons(measurements())}
    group = groups["vector_add_stream FREE_DIM=1000", "profile total_time"]
    assert len(group) == 6
    estimates = {"profile total_time": estimate(26.6 * 1.1), "": estimate(1.0)}
    comparison = Comparison(measurements=group, estimates=estimates)
    assert comparison.measured == pytest.approx(26.6)
    assert comparison.error == pytest.approx(0.1)
