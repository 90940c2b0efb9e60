"""Rows whose cycles count something else than the elements of the largest operand."""

import numpy as np
import pytest

from difftest.simulator import TRN1, TRN2, TRN3, Engine, launch
from difftest.simulator.dtypes import NKI_NAMES
from difftest.simulator.frontend.classic import isa, language
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.timing import predict
from difftest.timing.cost_table import operand_variant, work
from tests.every import every
from tests.unit.timing.programs import Builder, whole

MACHINES = [TRN1, TRN2, TRN3]


def timed(trace, opcode, machine=TRN2):
    """The one instruction of this opcode in a prediction that has a total: (work, interval)."""
    prediction = predict(trace, machine, dge=True)
    assert prediction.latency > 0
    (one,) = [i for i in prediction.program.instructions if i.event.opcode == opcode]
    (time,) = one.times.values()
    return work(one.event), time.interval


def emitted(opcode, writes, reads, engine=Engine.GPSIMD):
    """A trace of one instruction on tiles of (shape, dtype)."""
    build = Builder()
    made = [
        [
            whole(build.tensor(shape, dtype=NKI_NAMES.get(dtype, dtype)))
            for shape, dtype in tiles
        ]
        for tiles in (writes, reads)
    ]
    build.emit(opcode, engine, *made)
    return build.trace


def test_topk_takes_four_cycles_for_each_element_of_its_snake():
    def kernel(x):
        src = nl.load(x)
        values = nl.ndarray((16, 16), nl.bfloat16)
        places = nl.ndarray((16, 16), nl.uint32)
        nisa.topk(values, places, src, 96)

    trace = launch(
        kernel, [np.zeros((16, 6), NKI_NAMES["bfloat16"])], level="0.7"
    ).trace
    assert timed(trace, "topk") == (
        4 * 96 + 16,
        pytest.approx((4 * 96 + 16) / 1.2 + 125),
    )


@every(
    "dtype, width, cycles",
    [("float32", 1, 8), ("float32", 4, 2.75), ("bfloat16", 4, 1.375)],
)
def test_local_gather_counts_the_gathered_elements(dtype, width, cycles):
    """ISA's C: (28 + 4 e) / (4 e) / min(4 / bytes, e), e elements for an index."""
    shape = (128, 64, width)
    trace = emitted(
        "local_gather", [(shape, dtype)], [((128, 4096), dtype), ((128, 4), "uint16")]
    )
    counted, interval = timed(trace, "local_gather")
    assert counted == 64 * width * cycles
    assert interval == pytest.approx(counted / 1.2 + 125)


def test_a_kernel_that_gathers_inside_sixteen_partitions_has_a_total():
    def kernel():
        source = language.zeros((32, 64), language.float32)
        index = language.zeros((32, 3), language.uint16)
        isa.local_gather(source, index, num_elem_per_idx=2, num_valid_indices=40)

    counted, _ = timed(launch(kernel).trace, "local_gather")
    assert counted == 40 * 2 * 4.5


def test_the_source_of_a_gather_costs_nothing():
    tiles = [((128, 8), "uint32"), ((128, 4096), "float32")]
    trace = emitted("gather_flattened", [((128, 8), "float32")], tiles)
    assert timed(trace, "gather_flattened")[0] == 8


@every("machine", MACHINES)
@every(
    "opcode, writes, reads",
    [
        ("rand", [(128, 8)], []),
        ("sequence_bounds", [(1, 2, 8)], [(1, 8)]),
        ("tensor_partition_reduce", [(1, 8)], [(128, 8)]),
    ],
)
def test_a_cost_without_a_source_is_assumed(opcode, writes, reads, machine):
    trace = emitted(
        opcode,
        [(one, "float32") for one in writes],
        [(one, "float32") for one in reads],
    )
    assert timed(trace, opcode, machine)[0] == (
        16 if opcode == "sequence_bounds" else 8
    )


def test_select_reduce_takes_twice_as_long_from_sbuf_alone():
    def taken(first):
        build = Builder()
        true = getattr(build, first)((128, 512))
        predicate = build.tensor((128, 512), dtype="uint8")
        target = build.tensor((128, 512))
        build.emit(
            "select_reduce",
            Engine.VECTOR,
            [whole(target)],
            [whole(true), whole(predicate)],
        )
        return operand_variant(build.trace.events[0]), timed(
            build.trace, "select_reduce"
        )[1]

    assert taken("psum") == ("psum", pytest.approx(512 / 0.96 + 312))
    assert taken("tensor") == ("sbuf", pytest.approx(2 * 512 / 0.96 + 312))
