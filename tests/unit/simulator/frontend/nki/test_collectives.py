"""Ranks, each with HBM of its own, and what `nki.collectives` moves between them."""

import threading

import numpy as np
import pytest

from difftest.simulator import (
    BufferError,
    DtypeError,
    KernelError,
    LimitError,
    OutOfBoundsError,
    ShapeError,
    launch,
    launch_ranks,
)
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import collectives as ncc
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.program_scheduler import DeadlockError
from tests.every import every

DATA = [np.arange(8, dtype=np.float32).reshape(4, 2) * 10**rank for rank in range(4)]
ALL = [[0, 1, 2, 3]]
PAIRS = [[0, 2], [3, 1]]


def collective(call, shape, *, buffer=nl.shared_hbm):
    """A kernel that calls a collective on its argument and returns the result."""

    @jit
    def kernel(a):
        out = nl.ndarray(shape, a.dtype, buffer=nl.shared_hbm)
        if buffer is nl.shared_hbm:
            call([a], [out])
            return out
        src = nl.ndarray(a.shape, a.dtype)
        dst = nl.ndarray(shape, a.dtype)
        nisa.dma_copy(src, a)
        call([src], [dst])
        nisa.dma_copy(out, dst)
        return out

    return kernel


def results(kernel, data=DATA):
    return [
        one.outputs[0] for one in launch_ranks(kernel, [(array,) for array in data])
    ]


@every("buffer", [nl.shared_hbm, nl.sbuf])
@every("groups", [ALL, PAIRS])
@every(
    "op, reduced",
    [(nl.add, np.add), (nl.minimum, np.minimum), (nl.maximum, np.maximum)],
)
def test_all_reduce(buffer, groups, op, reduced):
    def call(srcs, dsts):
        ncc.all_reduce(srcs, dsts, ncc.ReplicaGroup(groups), op)

    for rank, result in enumerate(results(collective(call, (4, 2), buffer=buffer))):
        (group,) = [members for members in groups if rank in members]
        np.testing.assert_array_equal(result, reduced.reduce([DATA[n] for n in group]))


@every(
    "groups, dim, buffer",
    [
        (ALL, 0, nl.shared_hbm),
        (PAIRS, 0, nl.shared_hbm),
        (PAIRS, 0, nl.sbuf),
        (PAIRS, 1, nl.sbuf),
    ],
)
def test_all_gather(groups, dim, buffer):
    def call(srcs, dsts):
        ncc.all_gather(srcs, dsts, ncc.ReplicaGroup(groups), dim)

    shape = [4, 2]
    shape[dim] *= len(groups[0])
    for rank, result in enumerate(
        results(collective(call, tuple(shape), buffer=buffer))
    ):
        (group,) = [members for members in groups if rank in members]
        np.testing.assert_array_equal(
            result, np.concatenate([DATA[n] for n in group], axis=dim)
        )


@every("groups", [ALL, PAIRS])
def test_reduce_scatter(groups):
    def call(srcs, dsts):
        ncc.reduce_scatter(srcs, dsts, ncc.ReplicaGroup(groups), 0, nl.add)

    part = 4 // len(groups[0])
    for rank, result in enumerate(results(collective(call, (part, 2)))):
        (group,) = [members for members in groups if rank in members]
        start = group.index(rank) * part
        np.testing.assert_array_equal(
            result, sum(DATA[n] for n in group)[start : start + part]
        )


@every("groups", [ALL, PAIRS])
def test_all_to_all(groups):
    def call(srcs, dsts):
        ncc.all_to_all(srcs, dsts, ncc.ReplicaGroup(groups), 0)

    part = 4 // len(groups[0])
    for rank, result in enumerate(results(collective(call, (4, 2)))):
        (group,) = [members for members in groups if rank in members]
        rows = slice(group.index(rank) * part, (group.index(rank) + 1) * part)
        np.testing.assert_array_equal(
            result, np.concatenate([DATA[n][rows] for n in group])
        )


def test_collective_permute():
    @jit
    def kernel(a):
        out = nl.zeros((4, 2), a.dtype, buffer=nl.shared_hbm)
        ncc.collective_permute([a], [out], [(0, 1), (1, 0), (2, 3)])
        return out

    zero = np.zeros((4, 2), np.float32)
    for result, expected in zip(
        results(kernel), [DATA[1], DATA[0], zero, DATA[2]], strict=True
    ):
        np.testing.assert_array_equal(result, expected)


def test_several_tensors_in_one_collective():
    @jit
    def kernel(a, b):
        outs = [nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm) for _ in range(2)]
        ncc.all_reduce([a, b], outs, ncc.ReplicaGroup([[0, 1]]), nl.add)
        return tuple(outs)

    ranks = launch_ranks(kernel, [(DATA[0], DATA[1]), (DATA[2], DATA[3])])
    for rank in ranks:
        np.testing.assert_array_equal(rank.outputs[0], DATA[0] + DATA[2])
        np.testing.assert_array_equal(rank.outputs[1], DATA[1] + DATA[3])


def test_a_bfloat16_sum_is_rounded_once():
    values = [
        np.full((1, 1), value, np.float32).astype(nl.bfloat16) for value in (256, 1, 1)
    ]

    def call(srcs, dsts):
        ncc.all_reduce(srcs, dsts, ncc.ReplicaGroup([[0, 1, 2]]), nl.add)

    assert [float(r[0, 0]) for r in results(collective(call, (1, 1)), values)] == [
        258
    ] * 3


def test_a_rank_sends_its_values_at_the_call():
    @jit
    def kernel(a):
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        ncc.collective_permute([a], [out], [(0, 1), (1, 0)])
        nisa.dma_copy(a, nl.zeros(a.shape, a.dtype))
        return out

    first, second = results(kernel, [DATA[0].copy(), DATA[1].copy()])
    np.testing.assert_array_equal(first, DATA[1])
    np.testing.assert_array_equal(second, DATA[0])


def test_each_rank_has_a_number_and_a_trace_of_its_own():
    @jit
    def kernel(a):
        out = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
        tile = nl.ndarray((1, 1), nl.int32)
        nisa.register_store(tile, ncc.rank_id())
        nisa.dma_copy(out, tile)
        return out

    ranks = launch_ranks(kernel, [(array,) for array in DATA])
    assert [int(rank.outputs[0][0, 0]) for rank in ranks] == [0, 1, 2, 3]
    assert [rank.trace.count("register_store") for rank in ranks] == [1] * 4
    assert launch(kernel, (DATA[0],)).outputs[0] == 0


def test_a_collective_is_in_the_trace():
    def call(srcs, dsts):
        ncc.all_gather(srcs, dsts, ncc.ReplicaGroup(ALL), 0)

    for rank in launch_ranks(collective(call, (16, 2)), [(array,) for array in DATA]):
        (event,) = rank.trace.events
        assert event.arguments == {"collective_dim": 0, "replica_group": (0, 1, 2, 3)}
        assert event.opcode == "all_gather"
        assert event.operand("src").shape == (4, 2)
        assert event.operand("dst").shape == (16, 2)
        assert [line.file for line in event.stack] == [__file__] * 2


# -- sizes that lie in a tensor, and rings ------------------------------------------------------


def fetched(meta, in_sbuf):
    """The metadata as a collective takes it: a tensor in HBM, or in one partition of SBUF."""
    if not in_sbuf:
        return meta
    held = nl.ndarray((1, *meta.shape), meta.dtype)
    nisa.dma_copy(held, meta)
    return held


def by_table(call, *, ranks=2, in_sbuf=False, **options):
    """A kernel that returns the results of a collective with metadata: dst and the metadata."""

    @jit
    def kernel(a, meta):
        out = nl.ndarray((8,), a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, nl.full((1, 8), -1.0, a.dtype))
        given = fetched(meta, in_sbuf)
        call([a], [out], ncc.ReplicaGroup([list(range(ranks))]), given, **options)
        after = nl.ndarray(meta.shape, meta.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(after, given)
        return out, after

    return kernel


@every("in_sbuf", [False, True])
@every("known", [False, True])
def test_all_gather_v(known, in_sbuf):
    """Four ranks, each with two cores: AWS supports no others."""
    sent = [(2, 1), (1, 4), (0, 0), (2, 6)]  # count and displacement of each rank
    metas = [
        np.array([[n, 99, 99, 99], [at, 99, 99, 99], [77] * 4], np.uint32)
        for n, at in sent
    ]
    kernel = by_table(
        ncc.all_gather_v, ranks=4, in_sbuf=in_sbuf, recv_counts_known=known
    )
    expected = np.full(8, -1.0, np.float32)
    data = [np.arange(8, dtype=np.float32).reshape(4, 2) + 10 * k for k in range(4)]
    for place, (count, at) in enumerate(sent):
        chunk = data[place].reshape(-1)[at : at + count]
        expected[2 * place : 2 * place + count] = chunk
    ranks = launch_ranks(kernel[2], list(zip(data, metas, strict=True)))
    for rank, meta in zip(ranks, metas, strict=True):
        np.testing.assert_array_equal(rank.outputs[0], expected)
        counts = [77] * 4 if known else [2, 1, 0, 2]
        np.testing.assert_array_equal(rank.outputs[1], [meta[0], meta[1], counts])


def test_all_to_all_v():
    counts = [[1, 3], [2, 0]]
    places = [[7, 0], [5, 0]]
    metas = [
        np.array([n, at, [77, 77]], np.uint32)
        for n, at in zip(counts, places, strict=True)
    ]
    ranks = launch_ranks(
        by_table(ncc.all_to_all_v), list(zip(DATA[:2], metas, strict=True))
    )
    for me, rank in enumerate(ranks):
        expected = np.full(8, -1.0, np.float32)
        for sender in range(2):
            count = counts[sender][me]
            at = places[sender][me]
            expected[4 * sender : 4 * sender + count] = DATA[sender].reshape(-1)[
                at : at + count
            ]
        np.testing.assert_array_equal(rank.outputs[0], expected)
        np.testing.assert_array_equal(
            rank.outputs[1][2], [counts[0][me], counts[1][me]]
        )


@every("groups", [ALL, PAIRS])
def test_collective_permute_implicit_passes_on_around_the_ring(groups):
    """The data of each step are the data of the rank that the step names."""

    @jit
    def kernel(a):
        group = ncc.ReplicaGroup(groups)
        size = len(groups[0])
        names = nl.ndarray((1, size), nl.int32, buffer=nl.shared_hbm)
        held = a
        seen = []
        for step in range(size):
            seen.append(held)
            name = nl.ndarray((1, 1), nl.int32)
            ring = ncc.collective_permute_implicit_current_processing_rank_id
            nisa.register_store(name, ring(step, group))
            nisa.dma_copy(names[:, step : step + 1], name)
            after = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
            ncc.collective_permute_implicit([[held]], [[after]], group)
            held = after
        return names, *seen[1:], held

    for rank, result in enumerate(launch_ranks(kernel, [(array,) for array in DATA])):
        (group,) = [members for members in groups if rank in members]
        names, *steps = result.outputs
        assert names[0, 0] == rank
        for name, data in zip([*names[0, 1:], rank], steps, strict=True):
            np.testing.assert_array_equal(data, DATA[name])
        assert sorted(names[0]) == sorted(group)


@every("op", [nl.add, nl.maximum])
def test_collective_permute_implicit_reduce_on_two_channels(op):
    @jit
    def kernel(a, b):
        outs = [nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm) for _ in range(2)]
        ncc.collective_permute_implicit_reduce(
            [[a], [b]],
            [[b], [b]],
            [[out] for out in outs],
            ncc.ReplicaGroup(ALL),
            op,
            [0, 1],
        )
        return tuple(outs)

    reduce = np.add if op is nl.add else np.maximum
    ranks = launch_ranks(kernel, [(array, -array) for array in DATA])
    for rank, result in enumerate(ranks):
        before = DATA[rank - 1]
        np.testing.assert_array_equal(result.outputs[0], reduce(before, -before))
        np.testing.assert_array_equal(result.outputs[1], reduce(-before, -before))


# -- errors --------------------------------------------------------------------------------------


def test_ranks_that_do_not_all_come_are_named():
    @jit
    def kernel(a, times):
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        for _ in range(times):
            ncc.all_reduce([a], [out], ncc.ReplicaGroup([[0, 1]]), nl.add)

    before = threading.active_count()
    with pytest.raises(DeadlockError) as caught:
        launch_ranks(kernel, [(DATA[0], 2), (DATA[1], 1)])
    assert "rank 0 waits in ncc.all_reduce among ranks [0, 1]" in caught.value.received
    assert "rank 1 has ended" in caught.value.received
    assert caught.value.location.file == __file__
    assert threading.active_count() == before


def test_one_ranks_error_changes_no_ranks_arguments():
    @jit
    def kernel(a, guilty):
        nisa.dma_copy(a, nl.zeros(a.shape, a.dtype))
        if guilty:
            raise LookupError("rank 1")

    data = [array.copy() for array in DATA[:2]]
    with pytest.raises(LookupError, match="rank 1"):
        launch_ranks(kernel, [(data[0], False), (data[1], True)])
    for array, before in zip(data, DATA, strict=False):
        np.testing.assert_array_equal(array, before)


def hbm(*shape, dtype=nl.float32):
    return nl.zeros(shape, dtype, buffer=nl.shared_hbm)


def reduced(**changed):
    given = {
        "srcs": [hbm(4, 2)],
        "dsts": [hbm(4, 2)],
        "replica_group": ncc.ReplicaGroup([[0, 1]]),
        "op": nl.add,
    }
    ncc.all_reduce(**{**given, **changed})


def sent_to_each(make):
    ncc.all_to_all([make(4, 2)], [make(4, 2)], ncc.ReplicaGroup([[0, 1]]), 0)


def table(rows):
    return nl.shared_constant(np.array(rows, np.uint32))


def varying(call=ncc.all_to_all_v, meta=None, srcs=None, dsts=None, **options):
    group = ncc.ReplicaGroup([[0, 1]])
    meta = table([[1, 1], [0, 0], [0, 0]]) if meta is None else meta
    call(srcs or [hbm(4, 2)], dsts or [hbm(4, 2)], group, meta, True, **options)


def passed_on(srcs, **options):
    ncc.collective_permute_implicit(srcs, srcs, ncc.ReplicaGroup([[0, 1]]), **options)


def sbuf(*shape):
    return nl.zeros(shape, nl.float32)


@every(
    "call, error, text",
    [
        (lambda: reduced(srcs=hbm(4, 2)), KernelError, "srcs as a list"),
        (lambda: reduced(srcs=[]), KernelError, "srcs as a list"),
        (lambda: reduced(srcs=[hbm(4, 2)] * 2), KernelError, "as many as srcs"),
        (
            lambda: reduced(srcs=[sbuf(4, 2)] * 2, dsts=[sbuf(4, 2)] * 2),
            BufferError,
            "several dsts in hbm",
        ),
        (lambda: reduced(dsts=[hbm(2, 4)]), ShapeError, "writes dst of shape"),
        (
            lambda: reduced(replica_group=[[0, 1]]),
            KernelError,
            "as an ncc.ReplicaGroup",
        ),
        (
            lambda: reduced(replica_group=ncc.ReplicaGroup([[0, 2]])),
            KernelError,
            "0 to 1",
        ),
        (
            lambda: reduced(replica_group=ncc.ReplicaGroup([[1]])),
            KernelError,
            "has rank 0",
        ),
        (lambda: ncc.ReplicaGroup([[0, 1], [1, 2]]), KernelError, "do not overlap"),
        (lambda: reduced(priority=1), KernelError, "NeuronCore-v4"),
        (lambda: sent_to_each(sbuf), BufferError, "takes src in hbm"),
        (
            lambda: ncc.all_gather(
                [sbuf(4, 2, 2)], [sbuf(4, 4, 2)], ncc.ReplicaGroup([[0, 1]]), 1
            ),
            LimitError,
            "two dimensions on chip",
        ),
        (
            lambda: ncc.collective_permute([hbm(1, 1)], [hbm(1, 1)], [(0, 1), (1, 1)]),
            KernelError,
            "each rank once as either",
        ),
        (
            lambda: ncc.collective_permute([hbm(1, 1)] * 2, [hbm(1, 1)] * 2, [(0, 1)]),
            KernelError,
            "as one tensor",
        ),
        (
            lambda: varying(meta=hbm(3, 2)),
            DtypeError,
            "metadata_tensor of certain dtypes",
        ),
        (
            lambda: varying(meta=table([[0, 0]] * 4)),
            ShapeError,
            "metadata_tensor of shape [3, 2]",
        ),
        (
            lambda: varying(meta=table([[9, 0], [0, 0], [0, 0]])),
            OutOfBoundsError,
            "elements of src",
        ),
        (
            lambda: varying(meta=table([[5, 0], [0, 0], [0, 0]])),
            OutOfBoundsError,
            "elements of dst",
        ),
        (
            lambda: varying(srcs=[hbm(4, 2)] * 2, dsts=[hbm(4, 2)] * 2),
            KernelError,
            "one tensor",
        ),
        (lambda: passed_on(hbm(4, 2)), KernelError, "a list of channels"),
        (lambda: passed_on([[hbm(4, 2)]], channel_ids=[1]), KernelError, "consecutive"),
        (
            lambda: passed_on([[hbm(4, 2)]] * 5, channel_ids=list(range(5))),
            KernelError,
            "4 channels",
        ),
        (
            lambda: ncc.collective_permute_implicit_current_processing_rank_id(
                0, ncc.ReplicaGroup([[0, 1]]), 4
            ),
            KernelError,
            "the number of a channel",
        ),
        (
            lambda: ncc.collective_permute([hbm(1, 1)], [hbm(1, 1)], None),
            KernelError,
            "a list of pairs",
        ),
    ],
)
def test_misuse_gives_one_error_with_the_line(call, error, text):
    with pytest.raises(error) as caught:
        launch_ranks(jit(lambda: call()), [(), ()])
    assert text in str(caught.value)
    assert caught.value.location.file == __file__


def test_ranks_with_tensors_of_other_shapes():
    def kernel(a):
        ncc.all_reduce([a], [hbm(*a.shape)], ncc.ReplicaGroup([[0, 1]]), nl.add)

    with pytest.raises(ShapeError, match="same shapes and dtypes on all ranks"):
        results(jit(kernel), [DATA[0], DATA[1][:2]])


def test_a_kernel_launched_alone_has_no_other_ranks():
    with pytest.raises(KernelError, match="between ranks") as caught:
        launch(jit(reduced))
    assert "launch_ranks" in caught.value.remedy


@every("args", [[], [DATA[0]]])
def test_launch_ranks_takes_arguments_for_each_rank(args):
    with pytest.raises(KernelError, match="a list of arguments for each rank"):
        launch_ranks(jit(reduced), args)
