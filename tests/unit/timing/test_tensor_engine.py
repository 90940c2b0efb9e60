import pytest

from difftest.simulator.machine import TRN1, TRN2
from difftest.simulator.trace import Engine, Region
from difftest.timing import parameters
from difftest.timing.tensor_engine import Matmul, TensorEngine, Throttle, matmul
from tests.every import every
from tests.unit.timing.programs import Builder, whole

FP16 = Matmul(passes=1, rows=444, four_byte=False, strided=False, flops=0)
FP32 = Matmul(passes=2, rows=2 * 512, four_byte=True, strided=False, flops=0)


def steady(work, count=400):
    """Result to result of the last of many matmuls, whose operands are always ready."""
    engine = TensorEngine(parameters.TRN2, 0.5)
    now = 0.0
    results = []
    for _ in range(count):
        visible, now = engine.issue(now, work)
        results.append(visible)
    return results[-1] - results[-2], results[1] - results[0], engine


def test_float16_rows_stream_one_a_cycle():
    """Measured: (444 + 5) / 2.4 = 187 ns warm, 444 / 1.2 = 370 ns at half speed."""
    warm, cold, _ = steady(FP16)
    assert warm == pytest.approx(187.1, abs=0.1)
    assert cold == pytest.approx(370.0)


def test_float32_takes_two_passes_of_two_cycles():
    """Measured: 429.7 ns for 512 rows, twice."""
    warm, _, _ = steady(FP32)
    assert warm == pytest.approx(2 * 429.4, abs=0.1)


@every(
    "four_byte, strided, interval",
    [(False, False, 47.0), (False, True, 64.0), (True, True, 232.0)],
)
def test_few_rows_wait_for_the_weights(four_byte, strided, interval):
    work = Matmul(1, 14, four_byte, strided, 0)
    assert steady(work, 50)[0] == pytest.approx(interval)


def test_transposes_of_strided_filters_wait_longer():
    """Measured: 116 to 117 ns of 128 x 128 float16, warm; one pass of 128 rows takes 55."""
    work = Matmul(1, 128, False, True, 0, transposes=True)
    assert steady(work)[0] == pytest.approx(116.5)
    assert steady(work._replace(strided=False))[0] == pytest.approx(133 / 2.4)


def test_a_transpose_says_that_it_is_one():
    build = Builder()
    tile = build.tensor((128, 9, 128), dtype="float16")
    tap = Region(tile, 3, (128, 128), (9 * 128, 9))
    build.emit(
        "nc_transpose", Engine.TENSOR, [whole(build.psum((128, 128), "float16"))], [tap]
    )
    found = matmul(build.trace.events[0], TRN2)
    assert (found.transposes, found.strided, found.four_byte) == (True, True, False)


def test_a_single_transpose_takes_its_measured_time():
    """Measured: 331 ns from LDWEIGHTS to the end of MATMUL for 128 x 128 float32, warm."""
    engine = TensorEngine(parameters.TRN2, 0.5)
    engine.throttle.warm = True
    assert engine.issue(0.0, Matmul(1, 256, True, False, 0))[0] == pytest.approx(
        331, abs=3
    )


def test_weights_load_behind_the_matmul_before():
    engine = TensorEngine(parameters.TRN2, 0.5)
    first, following = engine.issue(0.0, FP16)
    second, _ = engine.issue(following, FP16)
    assert following == 47.0
    assert second - first == pytest.approx(444 / 1.2)


def test_it_warms_up_after_a_busy_window():
    """Half a window has passed at time 0, so that the second is the first whole one."""
    *_, engine = steady(FP16)
    window = parameters.TRN2.throttle_window.value
    assert engine.throttle.cold_time == pytest.approx(1.5 * window, rel=0.1)


def test_an_idle_window_makes_it_cold_again():
    throttle = Throttle(parameters.TRN2, 0.0)
    window = throttle.window
    throttle.edge = 0.0
    throttle.count(0.0, window, 4096)
    assert throttle.speed(1.5 * window) == 1.0
    throttle.count(1.5 * window, 1.6 * window, 1000)
    assert throttle.speed(2.5 * window) == 2.0


def test_rows_count_in_the_window_in_which_they_stream():
    throttle = Throttle(parameters.TRN2, 0.0)
    throttle.edge = 0.0
    throttle.count(throttle.window - 100, throttle.window + 300, 400)
    assert throttle.counted == pytest.approx(300)


def test_the_work_of_a_matmul_has_its_sizes():
    build = Builder()
    moving = build.tensor((128, 512))
    weights = build.tensor((128, 64))
    build.matmul(build.psum((64, 512)), weights, moving)
    found = matmul(build.trace.events[0], TRN2)
    assert found == Matmul(2, 1024, True, False, 2 * 128 * 64 * 512, partial=True)


@every(
    "stationary, partial",
    [((128, 128), False), ((64, 128), True), ((1, 128), True), ((128, 8), True)],
)
def test_products_of_a_part_of_the_array_take_longer_not_less(stationary, partial):
    """Measured on trn1: 1.21 to 1.92 times as long; that they take less was never seen."""
    build = Builder()
    depth, columns = stationary
    moving = build.tensor((depth, 512), dtype="float16")
    weights = build.tensor(stationary, dtype="float16")
    build.matmul(build.psum((columns, 512)), weights, moving)
    work = matmul(build.trace.events[0], TRN2)
    assert work.partial is partial
    warm = steady(work)[0]
    assert warm == pytest.approx((512 * (1.15 if partial else 1.0) + 5) / 2.4)


@every("machine, passes", [(TRN1, 2), (TRN2, 1)])
def test_float32_is_transposed_in_one_pass_from_trn2_on(machine, passes):
    """Documented; measured on trn1: 208 ns, four cycles a row."""
    build = Builder()
    tile = build.tensor((128, 128))
    build.emit(
        "nc_transpose", Engine.TENSOR, [whole(build.psum((128, 128)))], [whole(tile)]
    )
    found = matmul(build.trace.events[0], machine)
    assert (found.passes, found.rows) == (passes, 256)


def test_trn1_is_not_throttled():
    engine = TensorEngine(parameters.TRN1, 0.5)
    first, following = engine.issue(0.0, FP16)
    assert engine.issue(following, FP16)[0] - first == pytest.approx(
        449 / (0.875 * 2.8)
    )
