"""Runs in other orders: conclusive and inconclusive cases."""

import warnings

import numpy as np

from difftest.analysis.inspection.inspector import (
    REVERSED,
    SERIAL,
    SHUFFLED,
    depends_on_order,
    informative_orders,
)
from difftest.simulator import launch
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as nki_isa
from difftest.simulator.frontend.nki import language as newer
from difftest.simulator.instructions import effects
from difftest.simulator.launch_listeners import listening
from difftest.simulator.program_scheduler import FORWARD, ExecutionOrder
from difftest.simulator.trace import Purpose
from tests.every import every


def last_loop(trace):
    inside = [event for event in trace.events if event.loops]
    return inside[-1].loops[0].loop.location if inside else None


def depends(kernel, *arrays):
    kept = []
    with listening(
        lambda told: kept.append(depends_on_order(told, (), last_loop(told.trace)))
    ):
        launch(kernel, arrays)
    return kept[0]


def last_wins(value):
    def kernel(a):
        out = nl.ndarray((128, 4), dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)
        for i in nl.affine_range(3):
            nl.store(out, value(tile, i))
        return out

    return kernel


@every(
    "value, told",
    [
        (lambda tile, i: nl.add(tile, i), True),
        (lambda tile, i: nl.add(tile, 1), False),
        (lambda tile, i: nl.rand((128, 4)), True),
        (
            lambda tile, i: nl.add(nl.copy(tile), nl.multiply(nl.rand((128, 4)), 0)),
            False,
        ),
    ],
)
def test_whether_the_last_value_wins(value, told):
    assert depends(last_wins(value), np.ones((128, 4), np.float32)) is told


def test_a_kernel_that_ends_in_one_order_alone_depends_on_it():
    def kernel(a):
        out = nl.ndarray((128, 4), dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 4), dtype=a.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(2):
            if i == 0:
                tile[...] = nl.load(a)
            else:
                nl.store(out, tile)
        return out

    assert depends(kernel, np.ones((128, 4), np.float32))


def test_late_programs_of_a_grid_read_the_writes_of_others():
    """In sequence, in any order, each program reads back its own write."""

    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        scratch = nl.ndarray((128, 1), dtype=a.dtype, buffer=nl.shared_hbm)
        own = nl.ds(nl.program_id(0), 1)
        nl.store(scratch, nl.load(a[:, own]))
        nl.store(out[:, own], nl.load(scratch))
        return out

    a = np.arange(3 * 128, dtype=np.float32).reshape(128, 3)
    kept = []
    with listening(kept.append):
        launch(kernel, [a], grid=(3,))
    (told,) = kept
    held = frozenset({told.trace.events[-1].location})
    orders = informative_orders(told.trace, held)
    latest_writes = [
        ExecutionOrder(held=held),
        ExecutionOrder(held=held, reversed=True),
        ExecutionOrder(held=held, serial=True),
    ]
    assert orders == [*latest_writes, REVERSED, SHUFFLED]
    outputs = {order: told.again(order)[0] for order in orders}
    assert [np.array_equal(outputs[order], a) for order in orders] == [False] * 3 + [
        True
    ] * 2
    assert all(np.array_equal(told.again(order)[0], outputs[order]) for order in orders)


def test_only_orders_that_may_differ_are_run():
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.program_id(0)
        nl.store(out, nl.load(a))
        return out

    kept = []
    with listening(kept.append):
        launch(kernel, [np.ones((128, 4), np.float32)], grid=(2,))
    trace = kept[0].trace
    assert informative_orders(trace, ()) == [REVERSED]
    trace.dialect = "nki"
    assert informative_orders(trace, ()) == [REVERSED, SERIAL]


def products(value):
    """A sum of products in PSUM, and a store through a tile of indices."""

    def kernel(a, b, rows):
        out = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.zeros((128, 4), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(9):
            total += nl.matmul(
                nl.load(a[nl.ds(i * 128, 128), :]), nl.load(b), transpose_x=True
            )
        for i in nl.affine_range(2):
            index = nl.load(rows[:, nl.ds(i, 1)])
            nl.store(out[index, nl.arange(4)[None, :]], value(total, i))
        return out

    return kernel


@every(
    "value, told",
    [
        (lambda total, i: nl.copy(total), False),
        (lambda total, i: nl.add(total, i), True),
    ],
)
def test_sums_in_another_order_are_other_roundings_alone(value, told):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((9 * 128, 128)).astype(np.float32)
    b = rng.standard_normal((128, 4)).astype(np.float32)
    rows = np.repeat(rng.permutation(128)[:, None], 2, axis=1).astype(np.int32)
    kept = []

    def look(testimony):
        first = testimony.trace.events[2].loops[0].loop.location
        again = testimony.again(ExecutionOrder(first, reversed=True))
        assert not np.array_equal(again[0], testimony.outputs[0])
        loops = first, last_loop(testimony.trace)
        kept.append(tuple(depends_on_order(testimony, (), loop) for loop in loops))

    with listening(look):
        launch(products(value), [a, b, rows])
    assert kept == [(False, told)]


def test_affine_range_of_todays_dialect_keeps_its_order():
    @jit
    def kernel(a):
        out = newer.ndarray((128, 4), dtype=a.dtype, buffer=newer.shared_hbm)
        tile = newer.ndarray((128, 4), dtype=a.dtype, buffer=newer.sbuf)
        nki_isa.dma_copy(dst=tile, src=a)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            turns = list(newer.affine_range(3))
        for i in turns:
            nki_isa.tensor_scalar(
                dst=tile, data=tile, op0=newer.multiply, operand0=float(i + 2)
            )
            nki_isa.tensor_scalar(dst=tile, data=tile, op0=newer.add, operand0=float(i))
        nki_isa.dma_copy(dst=out, src=tile)
        return out

    assert not depends(kernel, np.ones((128, 4), np.float32))


def test_further_runs_do_not_repeat_the_printed_output(capsys):
    def kernel(a):
        out = nl.ndarray((128, 4), dtype=a.dtype, buffer=nl.shared_hbm)
        print("once")
        nl.store(out, nl.load(a))
        return out

    assert not depends(kernel, np.ones((128, 4), np.float32))
    assert capsys.readouterr().out == "once\n"


def test_each_instruction_that_draws_is_known():
    drawing = {Purpose.BITS, Purpose.DRAW}
    assert effects.rng.purpose in drawing
    assert effects.rand2.purpose in drawing


@every(
    "order, items",
    [(FORWARD, [0, 1, 2, 3]), (ExecutionOrder(reversed=True), [3, 2, 1, 0])],
)
def test_an_order_arranges_the_iterations(order, items):
    assert list(order.arranged(range(4))) == items


def test_a_shuffle_is_the_same_each_time():
    shuffled = list(ExecutionOrder(seed=0).arranged(range(9)))
    assert shuffled == list(ExecutionOrder(seed=0).arranged(range(9)))
    assert sorted(shuffled) == list(range(9)) != shuffled
