"""Predictions of trn1 against published probes: one instruction, back to back.

ns for an instruction, the slope over 256 repeats on four tensors in turn, to 10 ns (nki 0.6.0,
neuronx-cc 2.27.5334, one core of a trn1.2xlarge).
"""

import pytest

from difftest.simulator import TRN1, Engine
from difftest.simulator.trace import Region
from difftest.timing import predict
from difftest.timing.calibration import predict_probe, probes
from difftest.timing.parameters import TRN1 as TIMES
from difftest.timing.program import lower
from difftest.timing.tensor_engine import TensorEngine, matmul
from tests.every import every
from tests.unit.timing.programs import Builder, whole

V = Engine.VECTOR


LOOSE = {"64 of 64 from fp8": 0.18}
"""Start-ups that the same instruction on 2048 elements contradicts."""
FITTED = [
    probe
    for probe in probes()
    if probe.fitted and probe.engine in (Engine.VECTOR, Engine.SCALAR, Engine.TENSOR)
]


@every("probe", FITTED)
def test_an_instruction_takes_its_time_in_the_probe(probe):
    usual = 0.37 if probe.engine is Engine.TENSOR else 0.07
    error = LOOSE.get(probe.what, usual)
    assert predict_probe(probe).predicted == pytest.approx(probe.measured, rel=error)


def test_probes_that_gave_no_cost_judge_the_intervals():
    judged = [predict_probe(probe) for probe in probes() if not probe.fitted]
    assert len(judged) >= 7
    assert sum(one.inside for one in judged) >= 0.9 * len(judged)
    assert any(abs(one.predicted / one.measured - 1) > 0.2 for one in judged)


def product(dtype, columns):
    """ns from one product of 128 x 128 to the next, warm."""
    build = Builder()
    build.matmul(
        build.psum((128, columns)),
        build.tensor((128, 128), dtype=dtype),
        build.tensor((128, columns), dtype=dtype),
    )
    work = matmul(build.trace.events[0], TRN1)
    engine = TensorEngine(TIMES, 0.5)
    now = 0.0
    results = []
    for _ in range(50):
        visible, now = engine.issue(now, work)
        results.append(visible)
    return results[-1] - results[-2]


@every(
    "dtype, columns, measured, error",
    [
        ("float16", 512, 219, 0.04),
        ("float16", 128, 48, 0.14),
        ("float32", 128, 192, 0.12),
        # docs/contributing/timing-instructions.md: no model here says it
        (
            "float32",
            512,
            1150,
            0.28,
        ),
    ],
)
def test_a_product_takes_its_time_in_the_probe(dtype, columns, measured, error):
    assert product(dtype, columns) == pytest.approx(measured, rel=error)


def loading(columns, count):
    """ns until ``count`` loads of [128, columns] float32 are done."""
    build = Builder()
    for _ in range(count):
        build.load((128, columns))
    return predict(build.trace, TRN1, dge=False).schedule.end


@every(
    "columns, few, many, rate, error",
    [(2048, 4, 12, 262.5, 0.03), (8192, 1, 4, 262.5, 0.03), (128, 20, 180, 160, 0.06)],
)
def test_loads_run_at_the_rate_that_the_probe_shows(columns, few, many, rate, error):
    """261 to 264 GB/s into 8 to 64 KiB a partition; about 160 in rows of 512 bytes."""
    bytes_more = (many - few) * 128 * columns * 4
    time = loading(columns, many) - loading(columns, few)
    assert bytes_more / time == pytest.approx(rate, rel=error)


def test_a_result_in_psum_is_no_operand_there():
    """An input in PSUM halves the time of two; the result's place does not."""
    build = Builder()
    bank = build.psum((128, 512))
    other = build.tensor((128, 512))
    part = Region(bank, 0, (128, 256), (512, 1))
    build.emit("tensor_tensor", V, [part], [whole(other), whole(other)])
    (one,) = lower(build.trace, TRN1).instructions
    assert one.times[V].cost.variant == "*"
