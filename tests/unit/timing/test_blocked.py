"""Tensors with block dimensions before the partition axis cost the data of one partition."""

import numpy as np

from difftest.simulator import TRN2, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.machine import TRN1
from difftest.simulator.trace import Allocation, Space
from difftest.timing import predict
from difftest.timing.buffers import Memory
from difftest.timing.cost_table import inner_stride
from difftest.timing.report import Report, memory_usage
from tests.every import every

X = np.ones((128, 512), np.float32)


def predicted(kernel, *arrays):
    return predict(launch(kernel, list(arrays)).trace, TRN2, dge=True)


def instructions(kernel, *arrays):
    return predicted(kernel, *arrays).program.instructions


def test_a_memset_takes_the_elements_of_one_partition():
    """Not the costs of 128: a cost of 8,192 elements instead of 64 was once taken."""

    def blocked():
        nl.zeros((4, nl.par_dim(128), 64), nl.float32, buffer=nl.sbuf)

    def flat():
        nl.zeros((nl.par_dim(128), 4 * 64), nl.float32, buffer=nl.sbuf)

    (one,), (other,) = instructions(blocked), instructions(flat)
    assert {e: (t.interval, t.latency) for e, t in one.times.items()} == {
        e: (t.interval, t.latency) for e, t in other.times.items()
    }


def columns(x):
    """Copy, one element a partition, from block to block: [4, 128, 1] seen as [128, 4]."""
    kept = nl.ndarray((4, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    for b in range(4):
        kept[b] = nl.load(x[:, b : b + 1])
    rows, blocks = nl.mgrid[0:128, 0:4]
    new = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)
    new[rows, blocks] = nisa.tensor_copy(
        kept[blocks, rows, 0], engine=nisa.vector_engine
    )
    return new


def test_blocks_of_a_column_lie_side_by_side():
    """From one block to the next are 4 bytes of a partition, not 512 over all of them."""

    def kernel(x):
        out = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, columns(x))
        return out

    copy = next(one for one in instructions(kernel, X) if one.opcode == "tensor_copy")
    source = copy.event.reads[0]
    assert source.allocation.shape == (4, 128, 1)
    assert inner_stride(source) == 4
    (timed,) = copy.times.values()
    assert timed.cost.variant == "sbuf"


def test_a_row_of_a_dma_continues_over_the_blocks_of_a_partition():
    def kernel(x):
        kept = nl.ndarray((4, nl.par_dim(128), 64), dtype=nl.float32, buffer=nl.sbuf)
        rows, blocks, inside = nl.mgrid[0:128, 0:4, 0:64]
        kept[blocks, rows, inside] = nl.load(x[rows, 64 * blocks + inside])
        out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out[rows, 64 * blocks + inside], kept[blocks, rows, inside])
        return out

    for one in instructions(kernel, X):
        found = one.transfer
        assert (found.row_bytes, found.rows, found.partitions) == (1024, 128, 128)
        assert found.busy == tuple((engine, 8) for engine in range(16))


def test_a_block_of_many_is_a_row_for_each_partition_and_uses_every_engine():
    def kernel(x):
        kept = nl.ndarray((2, 2, nl.par_dim(128), 64), dtype=nl.float32, buffer=nl.sbuf)
        out = nl.ndarray((2, 2, 128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        for b in range(2):
            for c in range(2):
                column = 64 * (2 * b + c)
                kept[b, c] = nl.load(x[:, column : column + 64])
                nl.store(out[b, c], kept[b, c])
        return out

    found = [one.transfer for one in instructions(kernel, X)]
    assert [one[:3] for one in found] == [(256, 128, 128)] * 8
    assert {len(one.busy) for one in found} == {16}


def test_the_operands_of_a_product_are_in_one_block():
    def kernel(x, blocks):
        kept = nl.ndarray(
            (blocks, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf
        )
        total = nl.zeros((blocks, nl.par_dim(128), 128), nl.float32, buffer=nl.psum)
        out = nl.ndarray((blocks, 128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
        for b in range(blocks):
            kept[b] = nl.load(x[:, 128 * b : 128 * b + 128])
            total[b] += nisa.nc_matmul(kept[b], kept[b])
            nl.store(out[b], nisa.tensor_copy(total[b]))
        return out

    def works(blocks):
        found = instructions(lambda x: kernel(x, blocks), X)
        return [one.matmul for one in found if one.matmul]

    assert works(3) == works(1) * 3
    prediction = predicted(lambda x: kernel(x, 3), X)
    left = {step.opcode for step in prediction.program.instructions}
    assert "memset" not in left  # before the accumulation, of all blocks
    summary = Report(prediction).summary()
    assert summary["model_flops"] == 3 * 2 * 128**3
    assert summary["hbm_read_bytes"] == 3 * 128 * 128 * 4
    assert memory_usage(prediction.schedule, Space.SBUF).peak >= 3 * 512


@every(
    "shape, axis, banks",
    [
        ((4, 128, 16), 1, 4),
        ((128, 64), 0, 1),
        ((2, 2, 128, 768), 2, 8),
        ((1, 128, 512), 1, 1),
    ],
)
def test_each_block_in_psum_has_banks_of_its_own(shape, axis, banks):
    memory = Memory(TRN1.psum_partition_bytes, TRN1.psum_bank_bytes)
    tensor = Allocation(0, Space.PSUM, shape, np.dtype("float32"), axis, None)
    assert memory.enter(tensor) == banks * TRN1.psum_bank_bytes
