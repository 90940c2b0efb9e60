from dataclasses import replace

import numpy as np
import pytest

from difftest.simulator import TRN1, TRN2, TRN3, launch
from difftest.simulator.dtypes import NKI_NAMES
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.instructions.record import INSTRUCTIONS
from difftest.simulator.trace import Engine, Region
from difftest.timing import UnknownCostError, predict
from difftest.timing import cost_table as costs
from difftest.timing.cost_model import CostModel
from difftest.timing.cost_table import CostTable, all_costs, cost_table, operand_variant
from difftest.timing.evidence import Evidence
from difftest.timing.program import MODELLED
from tests.every import every
from tests.unit.timing.programs import Builder, whole

V = Engine.VECTOR
S = Engine.SCALAR


def of_trn3_alone():
    """The instructions whose records ask for the newest generation."""
    rules = {
        name: [rule.__name__ for rule in one.rules]
        for name, one in INSTRUCTIONS.items()
    }
    return {name for name, names in rules.items() if "needs_generation(4)" in names}


@every("machine", [TRN1, TRN2, TRN3])
def test_every_instruction_has_a_cost_on_the_machines_that_have_it(machine):
    assert nisa.topk  # the names of the current dialect exist only after its import
    priced = {cost.instruction for cost in all_costs() if cost.machine == machine.name}
    absent = set() if machine is TRN3 else of_trn3_alone()
    modelled = {name for name, one in INSTRUCTIONS.items() if one.purpose in MODELLED}
    assert set(INSTRUCTIONS) - priced - modelled - absent == set()
    assert not priced & absent


def test_a_machine_without_timing_data_is_refused():
    other = replace(TRN3, name="trn9")
    trace = launch(lambda: [nl.zeros((4, 4), nl.float32)].clear(), machine=other).trace
    with pytest.raises(
        UnknownCostError, match="no timing data for machine 'trn9'; there are trn1"
    ):
        predict(trace, other, dge=True)


def test_costs_of_trn3_from_trn2_are_assumed_at_its_clock():
    rows = cost_table(TRN3).rows
    reciprocal = rows["reciprocal", V, "*"]
    older = cost_table(TRN2).rows["reciprocal", V, "*"]
    # 64 cycles of 1.2 GHz
    assert (reciprocal.cycles, reciprocal.interval_ns) == (
        8.0,
        54,
    )
    assert (
        reciprocal.latency_ns - reciprocal.interval_ns
        == older.latency_ns - older.interval_ns
    )
    assert reciprocal.evidence is Evidence.ASSUMED
    assert reciprocal.source.endswith("trn2's row at trn3's clock")
    fast = rows["tensor_copy", Engine.SCALAR, "2-byte sbuf"]
    assert (fast.cycles, fast.evidence) == (0.5, Evidence.DOCUMENTED)
    assert rows["tensor_copy", V, "2-byte sbuf"].cycles == 0.25


def test_an_operand_in_hbm_is_no_work_of_an_engine():
    """A barrier names what both cores share, however large; a register one element."""
    build = Builder()
    shared = build.hbm((256, 4096))
    build.emit("core_barrier", Engine.GPSIMD, [whole(shared)], [whole(shared)])
    build.emit("register_load", Engine.UNKNOWN, [], [whole(build.hbm((1, 1)))])
    build.emit("register_store", Engine.UNKNOWN, [whole(build.tensor((1, 1)))])
    events = build.trace.events
    assert [costs.free_elements(event) for event in events] == [0, 0, 1]
    assert [operand_variant(event) for event in events] == ["*", "hbm", "sbuf"]
    prediction = predict(build.trace, TRN2, dge=True)
    assert not prediction.unknown
    assert 3.0 < prediction.schedule.end / 1e3 < 5.0


@every("engine", [V, Engine.SCALAR, Engine.GPSIMD, Engine.TENSOR])
def test_a_barrier_on_each_engine_has_a_cost(engine):
    build = Builder()
    shared = build.hbm((4, 4))
    build.emit("core_barrier", engine, [whole(shared)], [whole(shared)])
    assert not predict(build.trace, TRN2, dge=True).unknown


def test_a_sum_by_dma_takes_a_copy_for_each_source():
    def taken(sources):
        build = Builder()
        inputs = [whole(build.hbm((128, 2048))) for _ in range(sources)]
        build.emit(
            "dma_compute", Engine.DMA, [whole(build.tensor((128, 2048)))], inputs
        )
        return predict(build.trace, TRN2, dge=False).program.instructions[0].transfer

    one = taken(1)
    two = taken(2)
    assert [rows for _, rows in two.busy] == [2 * rows for _, rows in one.busy]
    assert two.row_bytes == one.row_bytes


def test_a_product_of_packed_elements_streams_as_many_rows_as_one_of_two_bytes():
    build = Builder()
    packed = {"dtype": NKI_NAMES["float8_e4m3fn_x4"]}
    left = build.tensor((128, 128), **packed)
    right = build.tensor((128, 512), **packed)
    result = build.psum((128, 512))
    build.emit(
        "nc_matmul_mx", Engine.TENSOR, [whole(result)], [whole(left), whole(right)]
    )
    prediction = predict(build.trace, TRN3, dge=True)
    (one,) = prediction.program.instructions
    assert not prediction.unknown
    assert (one.matmul.passes, one.matmul.rows) == (1, 512)
    assert one.matmul.flops == 2 * (4 * 128) * 128 * 512


def test_each_row_says_where_it_comes_from():
    assert len(all_costs()) > 80
    for cost in all_costs():
        assert cost.source
        assert cost.evidence in Evidence
        assert cost.latency_ns >= cost.interval_ns > 0
        assert cost.cycles > 0


@every(
    "instruction, engine, cycles, interval, latency",
    [
        ("reciprocal", "vector", 8.0, 57, 219),  # 64 cycles of 1.12 GHz
        ("iota", "gpsimd", 1.0, 107, 142),  # 150 cycles of 1.4 GHz
        ("tensor_copy_dynamic_src", "scalar", 1.0, 429, 598),  # 600 cycles of 1.4 GHz
    ],
)
def test_a_row_of_trn2_at_the_clock_of_trn1(
    instruction, engine, cycles, interval, latency
):
    row = cost_table(TRN1).rows[instruction, Engine(engine), "*"]
    assert (row.cycles, row.interval_ns, row.latency_ns) == (cycles, interval, latency)
    assert row.source.endswith("trn2's row at trn1's clock")


def test_a_row_of_trn1_itself_stays():
    row = cost_table(TRN1).rows["tensor_tensor", V, "*"]
    assert (row.cycles, row.evidence) == (2.0, Evidence.MEASURED)
    assert "trn2" not in row.source


def test_measurements_on_trn2_are_assumptions_on_trn1():
    row = replace(
        cost_table(TRN2).rows["reciprocal", V, "*"], evidence=Evidence.MEASURED
    )
    (derived,) = costs.on_older_machine((row,))
    assert derived.evidence is Evidence.ASSUMED


def test_two_rows_for_one_thing_are_refused():
    row = all_costs()[0]
    with pytest.raises(ValueError, match=r"two rows for \('tensor_copy'"):
        CostTable((row, row))


def interval(kernel, opcode):
    """ns that the kernel's one event of this opcode keeps its engine, and its elements."""
    trace = launch(kernel).trace
    (event,) = [event for event in trace if event.opcode == opcode]
    row = cost_table(TRN2).find(event, event.engine)
    return row.cycles * costs.free_elements(event) / 0.96 + row.interval_ns


@every("block", [(), (2,), (2, 3)])
def test_a_block_dimension_is_not_the_partitions(block):
    """Blocks lie one after the other in each partition: [2, par_dim(128), 1000] has 2000 there."""

    def blocked():
        nl.zeros((*block, nl.par_dim(128), 1000), nl.float32)

    def flat():
        nl.zeros((128, 1000 * int(np.prod(block))), nl.float32)

    assert interval(blocked, "memset") == interval(flat, "memset") < 10_000


def test_one_partition_that_an_integer_names_has_all_its_elements():
    """The axis over partitions is gone: the other axes do not take its place."""

    def row():
        tile = nl.ndarray((4, 3, 1000), nl.float32)
        tile[2] = 0.0

    def sliced():
        tile = nl.ndarray((4, 3, 1000), nl.float32)
        tile[2:3] = 0.0

    assert interval(row, "memset") == interval(sliced, "memset") > 3000


def copied(
    shape, source="float32", target="float32", space="sbuf", strides=None, engine=None
):
    """ns of a copy: (interval, latency)."""
    build = Builder()
    one = (
        build.psum(shape, source)
        if space == "psum"
        else build.tensor(shape, dtype=source)
    )
    other = build.tensor((shape[0], shape[1] * (strides or 1)), dtype=target)
    written = Region(other, 0, shape, (other.shape[1], strides or 1))
    build.emit("tensor_copy", engine, [written], [whole(one)])
    event = build.trace.events[0]
    row = cost_table(TRN2).find(event, engine)
    clock = {Engine.VECTOR: 0.96, Engine.SCALAR: 1.2}[engine]
    return row.cycles * shape[1] / clock + row.latency_ns


@every(
    "measured, arguments",
    [
        (
            269.8,
            {
                "shape": (128, 444),
                "source": "float16",
                "target": "float16",
                "engine": V,
            },
        ),
        (387.5, {"shape": (128, 444), "target": "float16", "engine": V}),
        (212.5, {"shape": (128, 111), "target": "float16", "engine": V}),
        (375.5, {"shape": (128, 420), "engine": V}),
        (290.6, {"shape": (128, 128), "space": "psum", "engine": V}),
        (171.9, {"shape": (128, 14), "space": "psum", "engine": V}),
        (281.2, {"shape": (128, 128), "strides": 9, "engine": V}),
        (388.5, {"shape": (128, 128), "strides": 9, "space": "psum", "engine": V}),
        (265.8, {"shape": (128, 128), "space": "psum", "engine": S}),
        (509.6, {"shape": (128, 420), "space": "psum", "engine": S}),
        (543.3, {"shape": (128, 420), "engine": S}),
        (416.7, {"shape": (128, 128), "strides": 9, "engine": S}),
        (287.5, {"shape": (128, 111), "target": "float16", "engine": S}),
    ],
)
def test_copies_take_their_time_in_the_traces(measured, arguments):
    """Medians of durations in public device traces of trn2 (neuronx-cc 2.21)."""
    assert copied(**arguments) == pytest.approx(measured, rel=0.06)


@every("count, measured", [(14, 172.9), (444, 617.7), (1000, 1200.5), (2000, 2242.7)])
def test_additions_take_their_time_in_the_traces(count, measured):
    build = Builder()
    build.add(build.tensor((128, count)), build.tensor((128, count)))
    row = cost_table(TRN2).find(build.trace.events[0], V)
    assert count / 0.96 + row.latency_ns == pytest.approx(measured, rel=0.02)
    assert row.evidence is Evidence.MEASURED


def test_two_inputs_take_twice_as_long_on_trn1():
    build = Builder()
    build.add(build.tensor((128, 8192)), build.tensor((128, 8192)))
    row = cost_table(TRN1).find(build.trace.events[0], V)
    assert row.cycles * 8192 / 1.12 + row.latency_ns == pytest.approx(14_987, rel=0.02)


def test_a_broadcast_operand_has_no_fast_mode():
    build = Builder()
    tile = build.tensor((128, 8), dtype="float16")
    column = Region(build.tensor((128, 1), dtype="float16"), 0, (128, 8), (1, 0))
    total = build.tensor((128, 8), dtype="float16")
    build.emit("tensor_tensor", V, [whole(total)], [whole(tile), whole(tile)])
    build.emit("tensor_tensor", V, [whole(total)], [whole(tile), column])
    assert [operand_variant(event) for event in build.trace.events] == [
        "2-byte sbuf",
        "*",
    ]


def test_a_dma_that_no_model_knows_is_loud():
    """A collective is not a dma_copy of its first source."""
    build = Builder()
    build.emit(
        "all_reduce", Engine.DMA, [whole(build.hbm((8, 8)))], [whole(build.hbm((8, 8)))]
    )
    prediction = predict(build.trace, TRN2, dge=True)
    assert prediction.unknown == {"all_reduce": 1}
    with pytest.raises(
        UnknownCostError, match="no total: the cost of 1 all_reduce is unknown"
    ):
        prediction.latency  # noqa: B018


def test_a_dropped_row_is_loud(monkeypatch):
    """Without the row of tensor_tensor the total is missing, and the text names the row."""
    build = Builder()
    build.store(build.add(build.load((128, 8)), build.load((128, 8))))
    kept = tuple(cost for cost in all_costs() if cost.instruction != "tensor_tensor")
    monkeypatch.setattr(costs, "all_costs", lambda: kept)
    prediction = predict(build.trace, TRN2, dge=True)
    assert prediction.unknown == {"tensor_tensor": 1}
    for total in (
        lambda: prediction.latency,
        lambda: prediction.total_time,
        lambda: prediction.get_latency_percentile(99),
    ):
        with pytest.raises(
            UnknownCostError, match="no total: the cost of 1 tensor_tensor is unk"
        ):
            total()
    assert prediction.middle > 0
    assert np.isfinite(prediction.middle)


def test_an_instruction_with_a_sum_has_a_longer_startup():
    """Published probes of trn1: 268 ns of start-up instead of 37, and 105 instead of 23."""
    two = cost_table(TRN2).rows
    summed = two["tensor_scalar_reduce", V, "*"]
    assert summed.interval_ns == pytest.approx(268 * 1.12 / 0.96, rel=0.01)
    assert summed.evidence is Evidence.ASSUMED
    plain = two["activation", S, "*"]
    reduced = two["activation", S, "reduced"]
    assert reduced.interval_ns - plain.interval_ns == pytest.approx(
        82 * 1.4 / 1.2, rel=0.01
    )


@every(
    "space, scaled, interval, latency",
    [("sbuf", False, 307, 397), ("psum", False, 250, 367), ("sbuf", True, 517, 517),
     ("psum", True, 476, 476)],
)  # fmt: skip
def test_a_function_takes_longer_with_a_scale_of_each_partition(
    space, scaled, interval, latency
):
    """Traced on trn2, 128 elements: 517 ns start to start from SBUF, 476 from PSUM."""
    build = Builder()
    data = build.psum((128, 128)) if space == "psum" else build.tensor((128, 128))
    column = whole(build.tensor((128, 1)))._replace(role="scale" if scaled else "bias")
    reads = [whole(data), column]
    build.emit("activation", S, [whole(build.tensor((128, 128)))], reads, op="exp")
    timed = CostModel(TRN2).of(build.trace.events[0]).times[S]
    assert (timed.interval, timed.latency) == pytest.approx((interval, latency), abs=1)


def test_costs_of_scales_and_biases_are_looked_up_apart():
    build = Builder()
    tile = build.tensor((128, 128))
    column = whole(build.tensor((128, 1)))
    for role in ("scale", "bias"):
        reads = [whole(tile), column._replace(role=role)]
        build.emit("activation", S, [whole(build.tensor((128, 128)))], reads, op="exp")
    costing = CostModel(TRN2)
    first, second = (
        costing.of(event).times[S].interval for event in build.trace.events
    )
    assert first > second
