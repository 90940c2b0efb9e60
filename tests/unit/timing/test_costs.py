from dataclasses import replace

import numpy as np
import pytest

from difftest.simulator import TRN1, TRN2, TRN3, launch
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.dma_compute import MOST_SOURCES, dma_compute
from difftest.simulator.instructions.record import INSTRUCTIONS
from difftest.simulator.trace import Engine, Region
from difftest.timing import UnknownCostError, costs, predict
from difftest.timing.costs import CostTable, all_costs, cost_table, variant
from difftest.timing.evidence import Evidence
from tests.unit.timing.programs import Builder, whole

MODELLED_ELSEWHERE = {"nc_matmul", "dma_copy", "dma_gather", "dma_scatter", "dma_transpose"}
UNKNOWN = {
    "activate2",
    "activation_accumulator",
    "dma_compute",
    "exponential",
    "gather_flattened",
    "local_gather",
    "nc_matmul_mx",
    "nc_n_gather",
    "nonzero_with_count",
    "quantize_mx",
    "rand",
    "rand2",
    "rng",
    "select_reduce",
    "sequence_bounds",
    "tensor_partition_reduce",
    "tensor_scalar_cumulative",
}
"""Instructions for which no source gives a cost, or a formula without the sizes that it needs."""


@pytest.mark.parametrize("machine", [TRN1, TRN2], ids=lambda machine: machine.name)
def test_every_instruction_has_a_cost_or_is_known_to_have_none(machine):
    priced = {cost.instruction for cost in all_costs() if cost.machine == machine.name}
    assert set(INSTRUCTIONS) - priced - MODELLED_ELSEWHERE <= UNKNOWN
    assert not priced & UNKNOWN


def test_a_machine_without_timing_data_is_refused():
    trace = launch(lambda: [nl.zeros((4, 4), nl.float32)].clear(), machine=TRN3).trace
    with pytest.raises(UnknownCostError, match="no timing data for machine 'trn3'; there are trn1"):
        predict(trace, TRN3, dge=True)


def test_each_row_says_where_it_comes_from():
    assert len(all_costs()) > 80
    for cost in all_costs():
        assert cost.source
        assert cost.evidence in Evidence
        assert cost.latency_ns >= cost.interval_ns > 0
        assert cost.cycles > 0


@pytest.mark.parametrize(
    ("instruction", "engine", "cycles", "interval", "latency"),
    [
        ("reciprocal", "vector", 8.0, 57, 213),  # 64 cycles of 1.12 GHz
        ("iota", "gpsimd", 1.0, 107, 142),  # 150 cycles of 1.4 GHz
        ("tensor_copy_dynamic_src", "scalar", 1.0, 429, 572),  # 600 cycles of 1.4 GHz
    ],
)
def test_a_row_of_trn2_at_the_clock_of_trn1(instruction, engine, cycles, interval, latency):
    row = cost_table(TRN1).rows[instruction, Engine(engine), "*"]
    assert (row.cycles, row.interval_ns, row.latency_ns) == (cycles, interval, latency)
    assert row.source.endswith("trn2's row at trn1's clock")


def test_a_row_of_trn1_itself_stays():
    row = cost_table(TRN1).rows["tensor_tensor", V, "*"]
    assert (row.cycles, row.evidence) == (2.0, Evidence.MEASURED)
    assert "trn2" not in row.source


def test_what_was_measured_on_trn2_is_assumed_on_trn1():
    row = replace(cost_table(TRN2).rows["reciprocal", V, "*"], evidence=Evidence.MEASURED)
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


@pytest.mark.parametrize("block", [(), (2,), (2, 3)])
def test_a_block_dimension_is_not_the_partitions(block):
    """Blocks lie one after the other in each partition: [2, par_dim(128), 1000] has 2000 there."""

    def blocked():
        nl.zeros((*block, nl.par_dim(128), 1000), nl.float32)

    def flat():
        nl.zeros((128, 1000 * int(np.prod(block))), nl.float32)

    assert interval(blocked, "memset") == interval(flat, "memset") < 10_000


def test_one_partition_that_an_integer_names_has_all_its_elements():
    """The axis over partitions is gone: none of the others takes its place."""

    def row():
        tile = nl.ndarray((4, 3, 1000), nl.float32)
        tile[2] = 0.0

    def sliced():
        tile = nl.ndarray((4, 3, 1000), nl.float32)
        tile[2:3] = 0.0

    assert interval(row, "memset") == interval(sliced, "memset") > 3000


def copied(shape, source="float32", target="float32", space="sbuf", strides=None, engine=None):
    """ns of a copy: (interval, latency)."""
    build = Builder()
    one = build.psum(shape, source) if space == "psum" else build.tensor(shape, dtype=source)
    other = build.tensor((shape[0], shape[1] * (strides or 1)), dtype=target)
    written = Region(other, 0, shape, (other.shape[1], strides or 1))
    build.emit("tensor_copy", engine, [written], [whole(one)])
    event = build.trace.events[0]
    row = cost_table(TRN2).find(event, engine)
    clock = {Engine.VECTOR: 0.96, Engine.SCALAR: 1.2}[engine]
    return row.cycles * shape[1] / clock + row.latency_ns


V, S = Engine.VECTOR, Engine.SCALAR


@pytest.mark.parametrize(
    ("measured", "arguments"),
    [
        (269.8, {"shape": (128, 444), "source": "float16", "target": "float16", "engine": V}),
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
def test_copies_take_what_the_traces_show(measured, arguments):
    """Medians of durations in public device traces of trn2 (neuronx-cc 2.21)."""
    assert copied(**arguments) == pytest.approx(measured, rel=0.06)


@pytest.mark.parametrize(
    ("count", "measured"), [(14, 172.9), (444, 617.7), (1000, 1200.5), (2000, 2242.7)]
)
def test_additions_take_what_the_traces_show(count, measured):
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
    assert [variant(event) for event in build.trace.events] == ["2-byte sbuf", "*"]


def test_a_dma_that_no_model_knows_is_loud():
    """dma_compute is no dma_copy of its first source."""

    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        sources = (x, x, *(None,) * (MOST_SOURCES - 2))
        return gate.issue(dma_compute, sources, (ALU_OPS["add"], None), dst=out)

    trace = launch(kernel, [np.ones((8, 8), np.float32)]).trace
    prediction = predict(trace, TRN2, dge=True)
    assert prediction.unknown == {"dma_compute": 1}
    with pytest.raises(UnknownCostError, match="no total: the cost of 1 dma_compute is unknown"):
        prediction.latency  # noqa: B018


def test_a_dropped_row_is_loud(monkeypatch):
    """Without the row of tensor_tensor there is no total, and the text names it."""
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
        with pytest.raises(UnknownCostError, match="no total: the cost of 1 tensor_tensor is unk"):
            total()
    assert prediction.middle > 0
    assert np.isfinite(prediction.middle)
