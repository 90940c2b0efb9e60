import json

import pytest

from difftest.simulator import TRN1, TRN2, TRN3, launch
from difftest.simulator.entry.nki_kernel import jit as nki_jit
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.trace import Engine, Space
from difftest.timing import predict
from difftest.timing.report import (
    UNAVAILABLE,
    Report,
    as_mapping,
    memory_usage,
    roofline,
)
from tests.every import every
from tests.unit.timing.programs import Builder, whole
from tests.unit.timing.shipped import prediction_of

FIELDS = [
    "total_time",
    "total_exec_time",
    "total_active_time",
    "total_active_time_percent",
    "neuroncore_cycle_count",
    "model_flops",
    "hardware_flops",
    "transpose_flops",
    "mm_arithmetic_intensity",
    "peak_flops_bandwidth_ratio",
    "mfu_estimated_percent",
    "mfu_max_achievable_estimated_percent",
    "hfu_estimated_percent",
    "mbu_estimated_percent",
    "mbu_min_read_util_percent",
    "hbm_read_bytes",
    "hbm_write_bytes",
    "sbuf_read_bytes",
    "sbuf_write_bytes",
    "psum_read_bytes",
    "psum_write_bytes",
    "spill_save_bytes",
    "spill_reload_bytes",
    "dma_active_time",
    "dma_active_time_percent",
    "dma_transfer_count",
    "dma_transfer_average_bytes",
    "dma_transfer_total_bytes",
    "dma_queue_count",
    "static_dma_packet_count",
    "software_dynamic_dma_packet_count",
    "hardware_dynamic_dma_packet_count",
    "matmul_instruction_count",
]
ENGINE_FIELDS = (
    "instruction_time",
    "active_time",
    "active_time_percent",
    "instruction_count",
)


@pytest.fixture(scope="module")
def matmul():
    return Report(
        prediction_of(
            "matmul.nki_matmul_tiled_", (256, 128), (256, 512), (128, 512), dge=True
        )
    )


def test_the_fields_are_neuron_explorers(matmul):
    engines = [
        f"{engine}_engine_{field}"
        for engine in ("tensor", "vector", "scalar", "gpsimd", "sync")
        for field in ENGINE_FIELDS
    ]
    assert set(matmul.summary()) == {*FIELDS, *engines}


def test_the_counts_of_the_report_are_right(matmul):
    summary = matmul.summary()
    assert summary["model_flops"] == 2 * 128 * 256 * 512
    assert summary["hbm_read_bytes"] == 4 * (256 * 128 + 256 * 512)
    assert summary["hbm_write_bytes"] == 4 * 128 * 512
    assert summary["dma_transfer_count"] == 5
    assert summary["dma_transfer_total_bytes"] == 4 * (
        256 * 128 + 256 * 512 + 128 * 512
    )
    assert summary["matmul_instruction_count"] == 4  # two in float32, two passes each
    assert summary["tensor_engine_instruction_count"] == 2
    assert summary["hardware_dynamic_dma_packet_count"] == 5 * 128
    assert summary["spill_save_bytes"] == 0
    assert summary["software_dynamic_dma_packet_count"] == 0


def test_shares_of_time_are_fractions(matmul):
    for name, value in matmul.summary().items():
        if name.endswith("_percent"):
            assert 0 <= value <= 1, name


def test_the_critical_path_takes_all_of_the_time(matmul):
    schedule = matmul.prediction.schedule
    path = schedule.critical
    spans = schedule.spans
    assert sum(path.values()) == pytest.approx(max(s.end for s in spans) / 1e3)
    opcodes = [spans[index].instruction.opcode for index in path]
    assert opcodes[0] == opcodes[-1] == "dma_copy"
    assert "nc_matmul" in opcodes
    lines = matmul.by_line()
    assert sum(line.critical for line in lines) == pytest.approx(sum(path.values()))


def test_evidence_is_carried_along():
    build = Builder()
    tile = build.load((128, 512))
    build.emit(
        "reciprocal", Engine.VECTOR, [whole(build.tensor((128, 512)))], [whole(tile)]
    )
    report = Report(predict(build.trace, TRN2, dge=True))
    shares = report.evidence()
    assert set(shares) == {"measured", "documented"}
    assert sum(shares.values()) == pytest.approx(1)
    assert {line.group: line.evidence.value for line in report.by_instruction()} == {
        "dma_copy (dma)": "measured",
        "reciprocal (vector)": "documented",
    }


@every("machine, known", [(TRN1, {"measured", "assumed"}), (TRN3, {"assumed"})])
def test_a_dma_of_a_machine_without_traces_or_probes_is_assumed(machine, known):
    build = Builder()
    tile = build.load((128, 512))
    build.emit(
        "nc_matmul", Engine.TENSOR, [whole(build.psum((128, 128)))], [whole(tile)] * 2
    )
    report = Report(predict(build.trace, machine, dge=True))
    assert set(report.evidence()) == known


def test_an_unknown_cost_leaves_no_total():
    build = Builder()
    tile = build.load((128, 8))
    build.emit("sort", Engine.GPSIMD, [whole(tile)])
    report = Report(predict(build.trace, TRN2, dge=True))
    assert report.summary()["total_time"] == UNAVAILABLE
    mapping = as_mapping(report)
    assert mapping["nc_latency_us"] is None
    assert mapping["unknown_costs"] == {"sort": 1}


def test_the_report_is_json_and_says_that_it_is_predicted(matmul):
    mapping = json.loads(json.dumps(as_mapping(matmul)))
    assert mapping["predicted"] is True
    assert mapping["descriptors"] == "classic-benchmark"
    assert set(mapping["nc_latency_us"]) == {"0", "50", "100"}


def test_peaks_by_tensor_and_line(matmul):
    sbuf = memory_usage(matmul.prediction.schedule, Space.SBUF)
    psum = memory_usage(matmul.prediction.schedule, Space.PSUM)
    assert sbuf.peak == 2 * 4 * (128 + 512)
    assert psum.peak == 4 * 512
    assert [holder.bytes for holder in sbuf.holders] == [2 * 4 * 512, 2 * 4 * 128]
    assert [holder.tensors for holder in sbuf.holders] == [2, 2]
    assert "matmul.py:" in sbuf.holders[0].line
    assert sbuf.steps[-1].bytes == psum.steps[-1].bytes == 0


def test_the_roofline_follows_from_passes_and_bytes():
    """8192 rows of four passes each at 2.4 GHz; 2.5 MiB at 424 bytes a ns."""
    prediction = prediction_of(
        "matmul.nki_matmul_tiled_", (512, 512), (512, 512), (512, 512), dge=True
    )
    bounds = roofline(prediction)
    assert bounds.tensor_bound == pytest.approx(16 * 512 * 4 / 2.4 / 1e3)
    moved = 4 * (16 * 128 * 128 + 16 * 128 * 512 + 512 * 512)
    assert bounds.memory_bound == pytest.approx(moved / 424 / 1e3)
    assert bounds.intensity == pytest.approx(2 * 512**3 / moved)
    assert bounds.limit == "memory"
    assert 0 < bounds.share < 1


def double_row(count):
    """Products of fp8 operands with two rows of the contraction in each partition."""
    left = nl.zeros((128, 2, 128), nl.float8_e4m3)
    right = nl.zeros((128, 2, 512), nl.float8_e4m3)
    for _ in range(count):
        product = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(product, left, right, perf_mode=nisa.matmul_perf_mode.double_row)


def of_mx(count):
    """Products of MX operands, four elements of the contraction in each partition."""
    left, right = (nl.zeros((128, n), nl.float8_e4m3fn_x4) for n in (128, 512))
    scales = [nl.ndarray((128, n), nl.uint8) for n in (128, 512)]
    for one in scales:
        nisa.memset(one, 127)
    for _ in range(count):
        product = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(product, left, right, *scales)


@every("kernel, width", [(double_row, 2), (of_mx, 4)])
def test_wide_modes_have_a_peak_of_their_own(kernel, width):
    """A percentage of the peak at two bytes went beyond 100."""
    trace = launch(nki_jit(lambda: kernel(40)), machine=TRN3).trace
    fields = Report(predict(trace, TRN3, dge=True)).summary()
    ordinary = 2 * TRN3.pe_cells
    assert (
        fields["model_flops"] == fields["hardware_flops"] == 40 * 512 * width * ordinary
    )
    assert fields["mfu_max_achievable_estimated_percent"] == 1
    assert 0.1 < fields["mfu_estimated_percent"] == fields["hfu_estimated_percent"] < 1
