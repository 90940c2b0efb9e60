"""Two programs on one logical NeuronCore: their order, their shared memory, and barriers."""

import signal
import threading

import numpy as np
import pytest

from difftest.simulator import (
    BufferError,
    DtypeError,
    KernelError,
    LimitError,
    ShapeError,
    UnwrittenError,
    launch,
)
from difftest.simulator.entry.nki_kernel import jit, simulate
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.constants import dma_engine
from difftest.simulator.instructions.exchanges import BarrierWarning
from difftest.simulator.machine import TRN1
from difftest.simulator.program_scheduler import DeadlockError
from tests.every import every

A = np.arange(8, dtype=np.float32).reshape(2, 4)


def programs():
    return nl.program_id(0), nl.num_programs(), nl.program_ndim()


@jit
def swapped(a):
    """Each program writes its row, and reads the other's after the barrier."""
    me = nl.program_id(0)
    scratch = nl.ndarray((2, 4), nl.float32, buffer=nl.shared_hbm)
    out = nl.ndarray((2, 4), nl.float32, buffer=nl.shared_hbm)
    row = nl.ndarray((1, 4), nl.float32)
    nisa.dma_copy(row, a[me : me + 1])
    nisa.dma_copy(scratch[me : me + 1], row)
    nisa.core_barrier(scratch, (0, 1))
    nisa.dma_copy(row, scratch[1 - me : 2 - me])
    nisa.dma_copy(out[me : me + 1], row)
    return out


@every(
    "run",
    [
        swapped[2],
        simulate(swapped[2]),
        simulate(swapped)[2],
        lambda a: launch(swapped, (a,), grid=(2,)).outputs[0],
    ],
)
def test_a_barrier_makes_the_other_programs_writes_visible(run):
    np.testing.assert_array_equal(run(A), A[::-1])


def test_tensors_of_one_name_in_shared_hbm_are_the_same_in_both_programs():
    @jit
    def kernel(a):
        me = nl.program_id(0)
        parts = {}
        for name in ("x", "y") if me else ("y", "x"):  # in another order on each core
            parts[name] = nl.ndarray(
                (1, 4), nl.float32, buffer=nl.shared_hbm, name=name
            )
        tile = nl.load(a[me : me + 1])
        nisa.dma_copy(parts["xy"[me]], tile)
        nisa.core_barrier(parts["x"], (0, 1))
        nisa.dma_copy(tile, parts["yx"[me]])
        out = nl.ndarray((2, 4), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out[me : me + 1], tile)
        return out

    np.testing.assert_array_equal(kernel[2](A), A[::-1])


@jit
def exchanged(a, engine=dma_engine.dma):
    me = nl.program_id(0)
    out = nl.ndarray((2, 4), nl.float32, buffer=nl.shared_hbm)
    mine = nl.ndarray((1, 4), nl.float32)
    other = nl.ndarray((1, 4), nl.float32)
    nisa.dma_copy(mine, a[me : me + 1])
    nisa.sendrecv(mine, other, 1 - me, 1 - me, 0, dma_engine=engine)
    nisa.memset(mine, 0.0)
    nisa.dma_copy(out[me : me + 1], other)
    return out


@every("engine", list(dma_engine))
def test_sendrecv_exchanges_the_values_at_its_call(engine):
    np.testing.assert_array_equal(exchanged[2](A, engine), A[::-1])


def test_the_programs_know_their_number():
    seen = []

    def kernel():
        seen.append(programs())

    launch(jit(kernel)[2])
    assert seen == [(0, 2, 1), (1, 2, 1)]
    seen.clear()
    launch(jit(kernel))
    assert seen == [(0, 1, 0)]


def test_program_0_runs_up_to_its_first_wait():
    order = []

    @jit
    def kernel():
        me = nl.program_id(0)
        shared = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
        for turn in range(2):
            order.append((me, turn))
            nisa.core_barrier(shared, (0, 1))
        order.append((me, 2))

    for _ in range(3):
        launch(kernel[2])
        assert order == [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)]
        order.clear()


def test_the_trace_has_the_program_of_each_instruction():
    trace = launch(swapped[2], (A,)).trace
    assert [event.number for event in trace] == sorted(
        {event.number for event in trace}
    )
    assert [event.program for event in trace if event.opcode == "core_barrier"] == [
        (1,),
        (0,),
    ]
    assert {event.program for event in trace} == {(0,), (1,)}
    for event in trace:
        assert [line.file for line in event.stack] == [__file__]


def test_the_loops_of_one_program_are_not_around_the_others_instructions():
    @jit
    def kernel():
        shared = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            for _ in nl.affine_range(1):
                nisa.core_barrier(shared, (0, 1))
        else:
            nl.zeros((1, 1), nl.float32)
            nisa.core_barrier(shared, (0, 1))

    trace = launch(kernel[2]).trace
    assert [(e.program, len(e.loops)) for e in trace] == [
        ((1,), 0),
        ((1,), 0),
        ((0,), 1),
    ]


def test_each_program_has_on_chip_memories_of_its_own():
    @jit
    def kernel():
        shared = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
        banks = [nl.zeros((128, 512), nl.float32, buffer=nl.psum) for _ in range(8)]
        nisa.core_barrier(shared, (0, 1))
        for bank in banks:
            nisa.tensor_copy(bank, bank)

    launch(kernel[2])


# -- deadlocks and errors ------------------------------------------------------------------------


def uneven():
    shared = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
    for _ in range(1 + nl.program_id(0)):
        nisa.core_barrier(shared, (0, 1))


def two_barriers():
    first = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
    second = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
    nisa.core_barrier(second if nl.program_id(0) else first, (0, 1))


def two_pipes():
    tile = nl.zeros((1, 4), nl.float32)
    me = nl.program_id(0)
    nisa.sendrecv(tile, tile, 1 - me, 1 - me, pipe_id=me)


@every(
    "kernel, parts",
    [
        (uneven, ["program 0 has ended; program 1 waits in nisa.core_barrier of"]),
        (two_barriers, ["program 0 waits in", "program 1 waits in"]),
        (
            two_pipes,
            ["program 0 waits in nisa.sendrecv with pipe_id=0", "pipe_id=1 at"],
        ),
    ],
)
def test_a_deadlock_names_the_waiting_programs_and_lines(kernel, parts):
    before = threading.active_count()
    with pytest.raises(
        DeadlockError, match="meet at the same calls, equally often"
    ) as caught:
        launch(jit(kernel)[2])
    for part in parts:
        assert part in caught.value.received
    assert "test_lnc.py:" in caught.value.received
    assert caught.value.location.file == __file__
    assert threading.active_count() == before


@every("guilty", [0, 1])
def test_one_programs_error_ends_the_launch_and_leaves_nothing_behind(guilty):
    unwound = []

    @jit
    def kernel(a):
        shared = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(a, nl.zeros((2, 4), nl.float32))
        try:
            nisa.core_barrier(shared, (0, 1))
            if nl.program_id(0) == guilty:
                raise LookupError(f"program {guilty}")
            nisa.core_barrier(shared, (0, 1))
        except Exception as error:
            unwound.append(type(error))
            raise
        finally:
            unwound.append(nl.program_id(0))

    before = threading.active_count()
    array = A.copy()
    with pytest.raises(LookupError, match=f"program {guilty}"):
        kernel[2](array)
    assert unwound.count(LookupError) == 1
    assert sorted(n for n in unwound if n is not LookupError) == [0, 1]
    np.testing.assert_array_equal(array, A)
    assert threading.active_count() == before
    np.testing.assert_array_equal(swapped[2](A), A[::-1])


def barrier(**changed):
    given = {
        "data": nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm),
        "cores": (0, 1),
    }
    nisa.core_barrier(**{**given, **changed})


def exchange(dtype=nl.float32, size=4, **changed):
    me = nl.program_id(0)
    given = {
        "src": nl.zeros((2, size), dtype),
        "dst": nl.zeros((2, size), dtype),
        "send_to_rank": 1 - me,
        "recv_from_rank": 1 - me,
        "pipe_id": 0,
    }
    nisa.sendrecv(**{**given, **changed})


GPSIMD = {"dma_engine": dma_engine.gpsimd_dma}


@every(
    "call, error, text",
    [
        (lambda: barrier(cores=(0,)), KernelError, "both cores"),
        (
            lambda: barrier(data=nl.ndarray((1, 1), nl.float32, buffer=nl.private_hbm)),
            BufferError,
            "data in shared_hbm",
        ),
        (lambda: exchange(send_to_rank=2), KernelError, "sends to a core"),
        (lambda: exchange(recv_from_rank=-1), KernelError, "receives from a core"),
        (
            lambda: exchange(send_to_rank=nl.program_id(0)),
            KernelError,
            "each core sends to the",
        ),
        (
            lambda: exchange(dst=nl.zeros((2, 5), nl.float32)),
            ShapeError,
            "operands of one shape",
        ),
        (
            lambda: exchange(dst=nl.zeros((2, 4), nl.int32)),
            DtypeError,
            "src and dst of one dtype",
        ),
        (
            lambda: exchange(dst=nl.zeros((2, 4), nl.float32, buffer=nl.psum)),
            BufferError,
            "dst in sbuf",
        ),
        (
            lambda: exchange(size=4 + nl.program_id(0)),
            ShapeError,
            "both cores of a sendrecv",
        ),
        (lambda: exchange(size=257, **GPSIMD), LimitError, "1028 bytes"),
        (lambda: exchange(nl.bfloat16, 257, **GPSIMD), LimitError, "514 bytes"),
        (lambda: exchange(nl.int8, 257, **GPSIMD), LimitError, "257 bytes"),
    ],
)
def test_misuse_gives_one_error_with_the_line(call, error, text):
    with pytest.raises(error) as caught:
        launch(jit(lambda: call())[2])
    assert text in str(caught.value)
    assert caught.value.location.file == __file__


@every("dtype", [nl.float32, nl.bfloat16, nl.int8])
def test_the_most_that_gpsimd_moves(dtype):
    @jit
    def kernel():
        me = nl.program_id(0)
        other = nl.zeros((2, 256), dtype)
        exchange(dtype, 256, src=nl.full((2, 256), me + 1, dtype), dst=other, **GPSIMD)
        out = nl.ndarray((4, 256), dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out[2 * me : 2 * me + 2], other)
        return out

    received = np.asarray(kernel[2]()).astype(np.float32)
    np.testing.assert_array_equal(
        received, np.repeat([[2], [2], [1], [1]], 256, axis=1)
    )


@every("call", [barrier, exchange])
def test_one_program_alone_meets_nobody(call):
    with pytest.raises(KernelError, match="is for two programs side by side"):
        launch(jit(call))


@every("call", [barrier, exchange])
def test_the_first_generation_has_no_such_instruction(call):
    with pytest.raises(KernelError, match="needs NeuronCore-v3"):
        launch(jit(call)[2], machine=TRN1)


def test_programs_see_each_other_as_if_they_ran_an_instruction_each_in_turn():
    """Both clear all of the output, then each stores its half: a race that a barrier would end."""

    def kernel(a):
        me = nl.program_id(0)
        out = nl.ndarray((2, 4), nl.float32, buffer=nl.shared_hbm)
        zeros = nl.zeros((2, 4), nl.float32)
        row = nl.ndarray((1, 4), nl.float32)
        nisa.dma_copy(out, zeros)
        nisa.dma_copy(row, a[me : me + 1])
        nisa.dma_copy(out[me : me + 1], row)
        return out

    result = launch(kernel, (A,), grid=(2,))
    np.testing.assert_array_equal(result.outputs[0], A)
    stores = [
        e.program for e in result.trace.events if e.writes[0].allocation.space.is_hbm
    ]
    assert stores == [(0,), (1,), (0,), (1,)]


@every("late", [0, 1])
def test_the_core_with_more_work_before_writes_later(late):
    def kernel():
        me = nl.program_id(0)
        out = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
        mine = nl.ndarray((1, 1), nl.int32)
        for _ in range(5 if me == late else 2):
            nisa.memset(mine, me)
        nisa.dma_copy(out, mine)
        return out

    assert launch(kernel, grid=(2,)).outputs[0] == late


@every("late", [0, 1])
def test_after_a_barrier_the_programs_are_equally_far(late):
    """The late program has done more, but the next instruction of both counts."""

    def kernel():
        me = nl.program_id(0)
        out = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
        mine = nl.ndarray((1, 1), nl.int32)
        nisa.memset(mine, me)
        for _ in range(9 if me == late else 1):
            nisa.memset(mine, me)
        nisa.core_barrier(out, (0, 1))
        for _ in range(3 - me):
            nisa.memset(mine, me)
        nisa.dma_copy(out, mine)
        return out

    assert launch(kernel, grid=(2,)).outputs[0] == 0


def test_programs_that_share_nothing_but_arguments_run_one_after_the_other():
    def kernel(a):
        me = nl.program_id(0)
        out = nl.ndarray((2, 4), nl.float32, buffer=nl.shared_hbm)
        row = nl.ndarray((1, 4), nl.float32)
        for _ in range(3):
            nisa.dma_copy(row, a[me : me + 1])
        nisa.dma_copy(out[me : me + 1], nl.add(row, nl.rand((1, 4), nl.float32)))
        return out

    result = launch(kernel, (A,), grid=(2,))
    assert [e.program for e in result.trace] == [(0,)] * 5 + [(1,)] * 5 + [(0,), (1,)]
    first, second = result.outputs[0] - A
    assert (abs(first - second) > 1e-3).any()  # each has random numbers of its own


@every("rows", [1, 2])
def test_sendrecv_sends_the_written_part_of_a_tile(rows):
    """A tile that is written in part arrives so (router_topk of aws-neuron/nki-library)."""

    def kernel(a):
        me = nl.program_id(0)
        out = nl.ndarray((2 * rows, 4), nl.float32, buffer=nl.shared_hbm)
        mine = nl.ndarray((2, 4), nl.float32)
        other = nl.zeros((2, 4), nl.float32)
        nisa.dma_copy(mine[0:1], a[me : me + 1])
        nisa.sendrecv(mine, other, 1 - me, 1 - me, 0)
        nisa.dma_copy(out[rows * me : rows * (me + 1)], other[0:rows])
        return out

    if rows == 1:
        np.testing.assert_array_equal(
            launch(kernel, (A,), grid=(2,)).outputs[0], A[::-1]
        )
    else:
        with pytest.raises(UnwrittenError, match=r"sent by core \d at"):
            launch(kernel, (A,), grid=(2,))


def test_a_barrier_on_an_unshared_tensor_warns_and_holds():
    def kernel(a):
        me = nl.program_id(0)
        scratch = nl.ndarray((2, 4), nl.float32, buffer=nl.shared_hbm)
        out = nl.ndarray((2, 4), nl.float32, buffer=nl.shared_hbm)
        row = nl.ndarray((1, 4), nl.float32)
        own = nl.zeros((1, 1), nl.int32)
        nisa.dma_copy(row, a[me : me + 1])
        nisa.dma_copy(scratch[me : me + 1], row)
        for _ in range(3 * me):  # the first program is far ahead
            nisa.memset(own, 1)
        nisa.core_barrier(own, (0, 1))
        nisa.dma_copy(row, scratch[1 - me : 2 - me])
        nisa.dma_copy(out[me : me + 1], row)
        return out

    with pytest.warns(
        BarrierWarning, match="data in sbuf, which the cores do not share"
    ):
        result = launch(kernel, (A,), grid=(2,))
    np.testing.assert_array_equal(result.outputs[0], A[::-1])


def test_no_program_begins_before_each_has_its_thread(monkeypatch):
    """Or an interrupt that one sends itself could leave another half made."""
    begun = threading.Event()
    start = threading.Thread.start

    def late(thread):
        assert not begun.wait(0.05)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", late)
    launch(jit(begun.set)[2])
    assert begun.is_set()


def test_an_interrupt_ends_the_programs_at_their_next_instruction():
    """Or a program would continue in its thread during later tests."""
    issued = []

    def kernel():
        tile = nl.ndarray((1, 1), nl.int32)
        for number in range(500_000):
            nisa.memset(tile, 1)
            issued.append(number)
            # as a terminal does: the thread that waits for the programs gets it
            if number == 10:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    # A job in the background of a shell, such as a run of CI, inherits that it ignores interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            launch(kernel, grid=(2,))
    finally:
        signal.signal(signal.SIGINT, before)
    for thread in threading.enumerate():
        if thread.name.startswith("program"):
            thread.join()
    assert 10 < len(issued) < 500_000
