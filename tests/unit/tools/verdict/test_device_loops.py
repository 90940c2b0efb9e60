"""What a kernel asks of a device in loops whose bodies a compiler traces once."""

import neuronxcc.nki.language as cl
import nki.isa as nisa
import nki.language as nl
import numpy as np

from difftest.simulator import launch
from difftest.simulator.core import SINGLE_TURN
from difftest.simulator.errors import set_to
from difftest.simulator.launch_listeners import recording_tapes
from difftest.simulator.tape_json import tape_from_json, tape_to_json
from difftest.tools.verdict.device_loops import (
    difference_of_runs,
    difference_of_turns,
    has_device_loop,
    unpredicted_turn,
)
from tests.every import every

ONES = np.ones((8, 6), np.float32)


def tape_of(kernel, *arrays, single_turn=False):
    with set_to(SINGLE_TURN, single_turn), recording_tapes() as tapes:
        launch(kernel, list(arrays))
    return tape_from_json(tape_to_json(tapes[0]))


def table(a):
    """Each turn writes a row of a table, which is read afterwards."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.private_hbm)

    def body(i):
        tile = nl.ndarray((1, 6), dtype=a.dtype, buffer=nl.sbuf)
        part = [[6, 1], [1, 6]]
        nisa.dma_copy(dst=tile, src=a.ap(part, scalar_offset=i, indirect_dim=0))
        nisa.dma_copy(dst=rows.ap(part, scalar_offset=i, indirect_dim=0), src=tile)

    nl.fori_loop(0, 8, body)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=rows)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_a_run_of_one_turn_asks_for_the_same():
    whole = tape_of(table, ONES)
    once = tape_of(table, ONES, single_turn=True)
    assert len(once.steps) < len(whole.steps)
    assert has_device_loop(whole)
    assert difference_of_turns(whole) is None
    assert difference_of_runs(whole, once) is None


def nested(a):
    """A loop in a loop, and a tensor that the inner turns make."""
    tile = nl.ndarray((8, 6), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)

    def outer(i):
        def inner(j):
            other = nl.ndarray((8, 6), dtype=a.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=other, src=tile)
            nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.maximum)

        nl.fori_loop(0, 2, inner)

    nl.fori_loop(0, 3, outer)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_tensors_of_a_turn_are_numbered_in_it():
    assert difference_of_turns(tape_of(nested, ONES)) is None


def classic(variant):
    def kernel(a):
        out = cl.ndarray(a.shape, dtype=a.dtype, buffer=cl.shared_hbm)
        for i in cl.affine_range(4):
            tile = cl.load(a[2 * i : 2 * i + 2])
            cl.store(out[2 * i : 2 * i + 2], tile * variant(i))
        return out

    return kernel


@every(
    "variant, is_alike",
    [
        (lambda i: 2.0, True),
        (lambda i: 1.0 + 0.5 * i, True),
        (lambda i: 2.0 if i == 3 else 1.0, False),
        (lambda i: 1.0 + i * i, False),
    ],
)
def test_turns_of_a_classic_loop_are_affine(variant, is_alike):
    found = unpredicted_turn(tape_of(classic(variant), ONES))
    assert (found is None) == is_alike, str(found)
    if found is not None:
        assert str(found).startswith("turn ")
        assert "test_device_loops.py:" in str(found)
