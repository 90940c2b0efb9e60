"""Predictions of trn1 against published probes: one instruction, back to back.

ns for an instruction, the slope over 256 repeats on four tensors in turn, to 10 ns (nki 0.6.0,
neuronx-cc 2.27.5334, one core of a trn1.2xlarge).
"""

from __future__ import annotations

import pytest

from difftest.simulator import TRN1, Engine
from difftest.simulator.trace import Region
from difftest.timing import predict
from difftest.timing.clockwork import TRN1 as TIMES
from difftest.timing.program import lower
from difftest.timing.tensor_engine import TensorEngine, matmul
from tests.unit.timing.programs import Builder, whole

V, S = Engine.VECTOR, Engine.SCALAR


def tile(build, operand):
    space, dtype, columns = operand
    make = build.psum if space == "psum" else build.tensor
    return whole(make((128, columns), dtype=dtype))


def interval(opcode, engine, writes, reads, **attributes):
    """ns that the engine is kept by one instruction on (space, dtype, columns)."""
    build = Builder()
    made = [[tile(build, one) for one in operands] for operands in (writes, reads)]
    build.emit(opcode, engine, *made, **attributes)
    (one,) = lower(build.trace, TRN1).instructions
    return one.times[engine].interval


def wide(columns, space="sbuf", dtype="float32"):
    return (space, dtype, columns)


ONE = wide(1)
PROBES = [
    (147, "tensor_reduce", V, [ONE], [wide(128)]),
    (494, "tensor_reduce", V, [ONE], [wide(512, "psum")]),
    (1908, "tensor_reduce", V, [ONE], [wide(2048)]),
    (447, "tensor_copy", V, [wide(512, dtype="float16")], [wide(512, "psum")]),
    (165, "tensor_copy", V, [wide(128, dtype="float16")], [wide(128)]),
    (1039, "tensor_tensor", V, [wide(512)], [wide(512), wide(512)]),
    (494, "tensor_tensor", V, [wide(512)], [wide(512, "psum"), wide(512)]),
    (387, "tensor_tensor", V, [wide(128)], [wide(128), wide(128, dtype="float16")]),
    (505, "scalar_tensor_tensor", V, [wide(512)], [wide(512, "psum"), wide(512)]),
    (1894, "tensor_scalar", V, [wide(2048)], [wide(2048)]),
    (2154, "tensor_scalar_reduce", V, [wide(2112), ONE], [wide(2112)]),
    (383, "tensor_copy", S, [wide(512, dtype="float16")], [wide(512, "psum")]),
    (106, "tensor_copy", S, [wide(128)], [wide(128)]),
    (117, "tensor_copy", S, [wide(128, dtype="float16")], [wide(128)]),
    (466, "activation", S, [wide(512, dtype="float16"), ONE], [wide(512, "psum")]),
    (1574, "activation", S, [wide(2048), ONE], [wide(2048)]),
]


@pytest.mark.parametrize(
    ("measured", "opcode", "engine", "writes", "reads"),
    PROBES,
    ids=[f"{probe[1]}-{probe[2].name.lower()}-{probe[0]}" for probe in PROBES],
)
def test_an_instruction_takes_what_the_probe_shows(measured, opcode, engine, writes, reads):
    op = {"op": "exp"} if opcode == "activation" else {}
    predicted = interval(opcode, engine, writes, reads, **op)
    assert predicted == pytest.approx(measured, rel=0.07)


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
    now, starts = 0.0, []
    for _ in range(50):
        issued = engine.issue(now, work)
        starts.append(issued.stream)
        now = issued.next
    return starts[-1] - starts[-2]


@pytest.mark.parametrize(
    ("dtype", "columns", "measured", "error"),
    [
        ("float16", 512, 219, 0.04),
        ("float16", 128, 48, 0.14),
        ("float32", 128, 192, 0.12),
        ("float32", 512, 1150, 0.28),  # longer than any model here says: see docs/timing.md
    ],
)
def test_a_product_takes_what_the_probe_shows(dtype, columns, measured, error):
    assert product(dtype, columns) == pytest.approx(measured, rel=error)


def loading(columns, count):
    """ns until ``count`` loads of [128, columns] float32 are done."""
    build = Builder()
    for _ in range(count):
        build.load((128, columns))
    return predict(build.trace, TRN1, dge=False).schedule.end


@pytest.mark.parametrize(
    ("columns", "few", "many", "rate", "error"),
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
    bank, other = build.psum((128, 512)), build.tensor((128, 512))
    part = Region(bank, 0, (128, 256), (512, 1))
    build.emit("tensor_tensor", V, [part], [whole(other), whole(other)])
    (one,) = lower(build.trace, TRN1).instructions
    assert one.times[V].cost.variant == "*"
