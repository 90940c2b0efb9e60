"""Tensors of the body of a loop on the device, and `while register:` in the trace."""

import warnings

import pytest

from difftest.simulator import KernelError, RuleWarning, launch
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.levels import LevelWarning
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.trace import LoopKind
from tests.every import every

# -- tensors of a body -----------------------------------------------------------------------------


@every("told", [True, False])
def test_a_number_that_a_body_keeps_for_the_next_iteration_is_reported(told):
    """A compiler traces a body once: state of Python's does not advance on a device."""

    def kernel():
        out = nl.ndarray((1, 8), nl.float32, buffer=nl.shared_hbm)
        column = 0
        width = 4
        tile = nl.zeros((1, 8), nl.float32)

        def body(i):
            nonlocal column
            nisa.memset(tile[:, column : column + width], 1.0)
            column += width if told else 0

        nl.fori_loop(0, 2, body)
        nisa.dma_copy(out, tile)
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuleWarning)
        notes = launch(jit(kernel)).notes
    said = [("column = 4", "nl.fori_loop(0, 2, body)")] * told
    assert [(note.received, note.location.text) for note in notes] == said


# -- tensors of a body -----------------------------------------------------------------------------


def once(body):
    """A while_loop of one turn."""

    def until(register):
        body(register)
        nisa.register_move(register, 0)
        return register

    nl.while_loop(nisa.register_alloc(1), until)


LOOPS = {"fori_loop": lambda body: nl.fori_loop(0, 2, body), "while_loop": once}
USES = {
    "read on chip": lambda tile, out: nisa.tensor_copy(
        nl.ndarray((1, 8), nl.float32), tile
    ),
    "a view is read": lambda tile, out: nisa.dma_copy(out[:, 0:4], tile[:, 0:4]),
    "written": lambda tile, out: nisa.memset(tile, 1.0),
}


@every("use", USES)
@every("loop", LOOPS)
def test_a_tensor_of_a_body_is_not_used_after_the_loop(loop, use):
    def kernel():
        out = nl.ndarray((1, 8), nl.float32, buffer=nl.shared_hbm)
        kept = {}

        def body(i):
            tile = nl.zeros((1, 8), nl.float32)
            nisa.dma_copy(out, tile)  # within the body it is used as any other
            kept[0] = tile

        LOOPS[loop](body)
        USES[use](kept[0], out)
        return out

    with pytest.raises(
        KernelError, match="after the loop that made it in its body"
    ) as caught:
        launch(jit(kernel))
    assert "make it before the loop" in str(caught.value)
    assert f"nl.{loop}(" in str(caught.value)


def test_a_tensor_of_a_body_is_not_returned():
    def kernel():
        made = []

        def body(i):
            made.append(nl.ndarray((1, 8), nl.float32, buffer=nl.shared_hbm))
            nisa.dma_copy(made[-1], nl.zeros((1, 8), nl.float32))

        nl.fori_loop(0, 1, body)
        return made[0]

    with pytest.raises(KernelError, match="that made it in its body"):
        launch(jit(kernel))


# -- while register --------------------------------------------------------------------------------


def counted_down(start, body):
    """The older parser's loop."""
    left = nisa.register_alloc(start)
    while left:
        body()
        nisa.register_move(left, left.device_value() - 1)
    nisa.memset(nl.ndarray((1, 1), nl.float32), 9.0)


def events_of(kernel):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelWarning)
        return [
            event
            for event in launch(jit(kernel)).trace.events
            if event.opcode == "memset"
        ]


def filled():
    nisa.memset(nl.ndarray((1, 1), nl.float32), 1.0)


def test_while_with_a_register_is_a_loop_of_the_trace():
    *inside, after = events_of(lambda: counted_down(3, filled))
    assert [[turn.number for turn in event.loops] for event in inside] == [
        [0],
        [1],
        [2],
    ]
    assert [event.loops[0].value for event in inside] == [3, 2, 1]
    assert len({event.loops[0].loop for event in inside}) == 1
    assert inside[0].loops[0].loop.kind is LoopKind.DYNAMIC
    assert inside[0].loops[0].loop.location.text == "while left:"
    assert after.loops == ()


def test_such_loops_nest_and_run_again():
    events = events_of(lambda: counted_down(2, lambda: counted_down(1, filled)))
    depths = [len(event.loops) for event in events]
    assert depths == [2, 1, 2, 1, 0]
    assert len({turn.loop for event in events for turn in event.loops}) == 3


def test_a_loop_that_break_can_leave_is_not_noted():
    def kernel():
        left = nisa.register_alloc(3)
        while left:
            filled()
            if left.device_value():
                break
        filled()

    assert [event.loops for event in events_of(kernel)] == [(), ()]


def test_break_in_a_loop_inside_leaves_that_one_alone():
    def kernel():
        left = nisa.register_alloc(1)
        while left:
            for _ in range(3):
                filled()
                break
            nisa.register_move(left, 0)

    assert [len(event.loops) for event in events_of(kernel)] == [1]
