"""Faults between ranks and between the halves of a split: the detectors find them.

Each test names its public record: aws-samples/sample-spectral-dns-on-aws-neuron
(docs/neuron-rules.md, inf2 with SDK 2.32), or published notes on NKI 0.6 (trn2).
"""

import numpy as np
import pytest

import difftest
from difftest.analysis.inspection import Inspector
from difftest.simulator import launch_ranks
from difftest.simulator.entry.install import embedded
from difftest.simulator.launch_listeners import listening
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.verdict import Match
from tests.every import every

with embedded():
    import nki
    import nki.collectives as ncc
    import nki.isa as nisa
    import nki.language as nl

RANKS = 4


def exchanged_twice(buffers):
    """A kernel that sends its rows around twice; ``buffers`` makes the four that it takes."""

    @nki.jit
    def kernel(x):
        send, receive, send_again, receive_again = buffers(x)
        group = ncc.ReplicaGroup([list(range(RANKS))])
        nisa.dma_copy(dst=send, src=x)
        ncc.all_to_all([send], [receive], group, 0)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=receive)
        nisa.dma_copy(dst=send_again, src=tile)
        ncc.all_to_all([send_again], [receive_again], group, 0)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=receive_again)
        return out

    return kernel


def own(x):
    return [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm) for _ in range(4)]


def one_pair(x):
    return own(x)[:2] * 2


def parts_of_one(x):
    whole = nl.ndarray((4, *x.shape), dtype=x.dtype, buffer=nl.private_hbm)
    return [whole[number] for number in range(4)]


@every(
    "buffers, found",
    [(one_pair, ["exchange-buffer-shared"]), (own, []), (parts_of_one, [])],
)
def test_two_exchanges_through_one_pair_of_buffers_were_wrong_at_8_ranks(
    buffers, found
):
    data = [np.full((RANKS, 8), rank, np.float32) for rank in range(RANKS)]
    inspector = Inspector()
    with listening(inspector):
        results = launch_ranks(exchanged_twice(buffers), [(one,) for one in data])
    assert [one.id for one in inspector.findings] == found
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(result.outputs[0], data[rank])


def sums_of_three(halo):
    """Each row with its neighbours, a half of the rows on each of two cores."""

    @nki.jit
    def kernel(x):
        rows, columns = x.shape
        out = nl.ndarray((rows - 2, columns), dtype=x.dtype, buffer=nl.shared_hbm)
        half = (rows - 2) // nl.num_programs()
        first = half * nl.program_id(0)
        total = nl.ndarray((half, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        for shift in range(3):
            tile = nl.ndarray((half, columns), dtype=x.dtype, buffer=nl.sbuf)
            nisa.memset(dst=tile, value=0.0)
            there = (
                half
                if halo
                else min(half, half * (nl.program_id(0) + 1) + 1 - first - shift)
            )
            nisa.dma_copy(
                dst=tile[0:there, :], src=x[first + shift : first + shift + there, :]
            )
            nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out[first : first + half, :], src=total)
        return out

    return kernel


def reference(x):
    x = x.astype(np.float64)
    return x[:-2] + x[1:-1] + x[2:]


@every("halo", [True, False])
def test_a_split_of_rows_over_two_cores_that_drops_the_halo(halo):
    """XLA's split at LNC2 lost the rows at the middle; a case that spans it shows such a kernel."""
    spec = difftest.KernelSpec(
        kernel=sums_of_three(halo),
        reference=reference,
        domain={"rows": (10,), "columns": (8,)},
        inputs={"x": "rows columns"},
        lnc=2,
    )
    if halo:
        assert isinstance(difftest.check(spec, {"rows": 10, "columns": 8}), Match)
        return
    with pytest.raises(DifferentialFailure, match=r"\(3, 0\)|\[3, 0\]"):
        difftest.check(spec, {"rows": 10, "columns": 8})
