from difftest.timing.calibration import align, device_trace
from tests.every import every
from tests.unit.timing.shipped import prediction_of

KERNELS = {
    "vector-add-stream-256000-fd1k": (
        "vector_add.vector_add_stream",
        2 * [(256000,)],
        1000,
    ),
    "vector-add-stream-256000-fd2k": (
        "vector_add.vector_add_stream",
        2 * [(256000,)],
        2000,
    ),
    "matrix-transpose-1024": ("transpose.transpose_by_tiles", [(1024, 1024)], None),
}


def aligned(name):
    kernel, shapes, free = KERNELS[name]
    keywords = {"FREE_DIM": free} if free else {}
    timeline = prediction_of(kernel, *shapes, **keywords).schedule
    return {one.unit: one for one in align(device_trace(name), timeline)}


@every("name", KERNELS)
def test_each_engine_lines_up_with_the_device(name):
    """Counts are equal; first starts and last ends are within 8 % of the kernel's own part, and so
    is the middle of the offsets between the n-th instruction here and there."""
    units = aligned(name)
    whole = max(one.device_span[1] for one in units.values())
    for one in units.values():
        assert one.predicted_count == one.device_count
        for theirs, ours in zip(one.device_span, one.predicted_span, strict=True):
            assert abs(ours - theirs) < 0.08 * whole
        assert abs(one.median_offset) < 0.08 * whole


def test_the_engines_of_the_transpose_keep_step():
    """Within half a microsecond of 31 at each of 64 transposes and 64 copies."""
    units = aligned("matrix-transpose-1024")
    assert units["tensor"].device_count == units["scalar"].device_count == 64
    for unit in ("tensor", "scalar"):
        assert abs(units[unit].worst_offset) < 0.5


def test_another_kernels_timeline_does_not_line_up():
    """Planted: the trace of two tiles against the prediction for one."""
    name = "vector-add-stream-256000-fd1k"
    timeline = prediction_of(
        "vector_add.vector_add_stream", *2 * [(256000,)], FREE_DIM=2000
    )
    units = {one.unit: one for one in align(device_trace(name), timeline.schedule)}
    assert units["load"].device_count != units["load"].predicted_count
    assert abs(units["vector"].median_offset) > 2.0
