"""Loops on the device, registers and scalars."""

import numpy as np
import pytest

from difftest.simulator import (
    DtypeError,
    KernelError,
    ShapeError,
    UnwrittenError,
    launch,
)
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.virtual_registers import NkiScalar, RegisterError
from tests.every import every

A = np.arange(8, dtype=np.float32).reshape(1, 8)


def register(value=None):
    return nisa.register_alloc(value)


def stored(value):
    """A register or scalar as an int32 in SBUF."""
    tile = nl.ndarray((1, 1), nl.int32)
    store = nisa.scalar_store if isinstance(value, NkiScalar) else nisa.register_store
    store(tile, value)
    return tile


def result_of(make):
    """Return the value that a kernel gets in a register of ``make``."""

    @jit
    def kernel():
        out = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, stored(make()))
        return out

    return int(launch(kernel).outputs[0][0, 0])


def scalar(value, dtype=nl.int32):
    """``value`` through memory, as an NkiScalar."""
    tile = nl.ndarray((1, 1), dtype)
    nisa.memset(tile, value)
    return nisa.scalar_load(tile)


def test_the_variable_is_a_register_unless_a_bound_is_a_scalar():
    seen = []

    @jit
    def kernel():
        nl.fori_loop(0, 1, lambda i: seen.append(type(i)))
        nl.fori_loop(0, register(1), lambda i: seen.append(type(i)))
        nl.fori_loop(0, scalar(1), lambda i: seen.append(type(i)))

    launch(kernel)
    assert seen == [nisa.VirtualRegister, nisa.VirtualRegister, nl.NkiScalar]


def counted(start):
    """Return the number of iterations of a while_loop that counts down from ``start``."""
    turns = {}

    @jit
    def kernel():
        count = nl.ndarray((1, 1), nl.int32)
        nisa.memset(count, start)
        begin = register()
        nisa.register_load(begin, count)

        def body(r):
            turns[len(turns)] = None
            nisa.tensor_scalar(count, count, nl.subtract, 1.0)
            nisa.register_load(r, count)
            return r

        nl.while_loop(begin, body)

    return turns, launch(kernel).trace


@every("start", [0, 1, 3])
def test_a_while_loop_tests_before_each_turn(start):
    turns, trace = counted(start)
    assert len(turns) == start
    loops = [event.loops for event in trace if event.opcode == "tensor_scalar"]
    assert [(loop.number, loop.value) for (loop,) in loops] == [
        (n, start - n) for n in turns
    ]


def test_a_view_keeps_the_offset_that_its_register_had():
    @jit
    def kernel(a):
        out = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
        one = nl.ndarray((1, 1), nl.float32)
        at = register(3)
        view = a.select(1, at)
        nisa.register_move(at, 5)
        nisa.dma_copy(one, view)
        nisa.dma_copy(out, one)
        return out

    assert launch(kernel, (A,)).outputs[0] == 3


# -- registers -----------------------------------------------------------------------------------


def moved(value):
    target = register()
    nisa.register_move(target, value)
    return target


@every(
    "make, value",
    [
        (lambda: register(7), 7),
        (lambda: moved(-3), -3),
        (lambda: moved(register(9)), 9),
        (lambda: moved(2**31 - 1), 2**31 - 1),
        (lambda: scalar(4), 4),
        (lambda: scalar(4) + 3, 7),
        (lambda: 3 - scalar(4), -1),
        (lambda: scalar(4) - scalar(6), -2),
        (lambda: 2 * scalar(4), 8),
        (lambda: scalar(100000) * 100000, 1410065408),
    ],
)
def test_registers_and_scalars_hold_integers(make, value):
    assert result_of(make) == value


def test_int32_scalars_wrap_around_and_int64_scalars_do_not():
    @jit
    def kernel():
        assert (scalar(100000) * 100000).device_value() == 1410065408
        wide = NkiScalar(100000, np.dtype(np.int64)) * 100000
        assert wide.device_value() == 10**10

    launch(kernel)


@every(
    "use",
    [
        bool,
        int,
        range,
        float,
        lambda r: r < 3,
        lambda r: r == 3,
        lambda r: nl.affine_range(r).__next__(),
        lambda r: nl.zeros((4, 4), nl.float32)[:, r],
        lambda r: nl.ndarray((4, r), nl.float32),
    ],
)
@every("make", [lambda: register(1), lambda: scalar(1)])
def test_a_register_in_pythons_control_flow_is_a_type_error(use, make):
    with pytest.raises(
        TypeError, match="not known while the kernel is built"
    ) as caught:
        launch(jit(lambda: use(make())))
    assert isinstance(caught.value, RegisterError)
    assert caught.value.location.file == __file__


def loaded(shape, dtype):
    nisa.register_load(register(), nl.zeros(shape, dtype))


@every(
    "call, error, text",
    [
        (lambda: stored(register()), UnwrittenError, "written before it is read"),
        (lambda: register(1 << 32), KernelError, "32 bits"),
        (lambda: moved(-(1 << 31) - 1), KernelError, "32 bits"),
        (lambda: moved(1.0), KernelError, "register_move of 1.0"),
        (lambda: nisa.register_move(3, 4), KernelError, "dst as a register"),
        (lambda: loaded((1, 2), nl.int32), ShapeError, "src of one element"),
        (lambda: loaded((1, 1), nl.float32), DtypeError, "src of certain dtypes"),
        (lambda: nl.fori_loop(0, 1, lambda i: i), KernelError, "returns nothing"),
        (
            lambda: nl.fori_loop(0, 4, print, step=0),
            KernelError,
            "step as a positive integer",
        ),
        (
            lambda: nl.fori_loop(0, 4, print, step=register(1)),
            KernelError,
            "step as a positive",
        ),
        (lambda: nl.while_loop(1, print), KernelError, "init as a register"),
        (
            lambda: nl.while_loop(register(1), lambda r: None),
            KernelError,
            "what body_fun returns",
        ),
        (
            lambda: nisa.scalar_store(nl.zeros((1, 1), nl.int32), 3),
            KernelError,
            "NkiScalar",
        ),
        (
            lambda: scalar(1) + NkiScalar(1, np.dtype(np.int64)),
            KernelError,
            "takes one dtype",
        ),
    ],
)
def test_misuse_gives_one_error_with_the_line(call, error, text):
    with pytest.raises(error) as caught:
        launch(jit(lambda: call()))
    assert text in str(caught.value)
    assert caught.value.location.file == __file__


# -- levels --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning")
@every(
    "kind, told",
    [(nl.dynamic_range, 1), (nl.affine_range, 0), (nl.sequential_range, 0)],
)
def test_a_number_that_a_device_loop_carries_is_reported(kind, told):
    @jit
    def kernel(a):
        column = 0
        out = nl.ndarray((1, 8), nl.float32, buffer=nl.shared_hbm)
        for _ in kind(4):
            nisa.dma_copy(out[:, column : column + 2], a[:, column : column + 2])
            column += 2
        return out

    notes = launch(kernel, [A]).notes
    assert [one.location.text for one in notes if "traced once" in one.rule] == [
        "for _ in kind(4):"
    ] * told
