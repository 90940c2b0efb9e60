"""The shared access index: the accesses that it keeps, and the accesses that it drops."""

import numpy as np

from difftest.analysis.detectors.access_index import AccessIndex, OperandAccess
from difftest.simulator import launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.trace import (
    Allocation,
    Engine,
    Event,
    EventKind,
    Region,
    Space,
    Trace,
)
from tests.every import every
from tests.unit.analysis.detectors.kernels import output

X = np.ones((128, 64), np.float32)


def surveyed(kernel, *others, **options):
    """The survey of a launch, and the spaces of the tensors whose accesses it keeps."""
    trace = launch(kernel, [X, *others], **options).trace
    survey = AccessIndex(trace)
    kept = [touches[0].region.allocation for touches in survey.accesses.values()]
    return survey, [one.space for one in kept]


def test_a_tensor_of_one_iteration_alone_is_left_out():
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            nl.store(
                out[:, nl.ds(16 * i, 16)], nl.exp(nl.load(x[:, nl.ds(16 * i, 16)]))
            )
        return out

    survey, kept = surveyed(kernel)
    assert (survey.has_affine, kept) == (True, [Space.SHARED_HBM])
    (touches,) = survey.accesses.values()
    assert [touch.writes for touch in touches] == [True] * 4
    assert [touch.event.loops[0].number for touch in touches] == [0, 1, 2, 3]


def test_a_tensor_of_several_iterations_is_kept_from_first_to_last_access():
    def kernel(x):
        out = output(x)
        tile = nl.load(x)
        for _ in nl.sequential_range(2):
            tile[...] = nl.add(tile, 1.0)
        nl.store(out, tile)
        return out

    survey, kept = surveyed(kernel)
    assert (survey.has_affine, kept) == (False, [Space.SBUF])
    (touches,) = survey.accesses.values()
    assert [touch.writes for touch in touches] == [
        True,
        False,
        True,
        False,
        True,
        False,
    ]
    assert all(isinstance(touch, OperandAccess) for touch in touches)


def test_a_tensor_made_in_one_iteration_and_used_in_another_is_kept():
    def kernel(x):
        out = output(x)
        for _ in nl.affine_range(1):
            tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        tile[...] = nl.load(x)
        nl.store(out, tile)
        return out

    _, kept = surveyed(kernel)
    assert kept == [Space.SBUF]


def test_a_tensor_of_several_programs_is_kept():
    def kernel(x):
        out = output(x)
        nl.store(out[nl.program_id(0)], nl.load(x)[0])
        return out

    survey, kept = surveyed(kernel, grid=(2,))
    assert kept == [Space.SHARED_HBM]
    (touches,) = survey.accesses.values()
    assert [touch.event.program for touch in touches] == [(0,), (1,)]


def test_psum_is_kept():
    def kernel(x):
        out = nl.ndarray((64, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out, nl.copy(nisa.nc_matmul(tile, tile)))
        return out

    _, kept = surveyed(kernel)
    assert kept == [Space.PSUM]


def test_a_tensor_from_before_the_loop_that_one_iteration_uses_is_left_out():
    def kernel(x):
        out = output(x)
        tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        for _ in nl.affine_range(1):
            tile[...] = nl.load(x)
            nl.store(out, tile)
        return out

    assert surveyed(kernel)[1] == []


@every("scatters", [True, False])
def test_a_scatter_in_one_iteration_keeps_only_tensors_in_hbm(scatters):
    def kernel(x, rows):
        out = output(x)
        line, column = nl.mgrid[0:128, 0:64]
        tile = nl.load(x)
        at = nl.load(rows)
        nl.store(out[at[line, 0], column] if scatters else out[line, column], tile)
        return out

    survey, kept = surveyed(kernel, np.arange(128, dtype=np.int32).reshape(128, 1))
    assert survey.has_scatter is scatters
    assert kept == [Space.SHARED_HBM] * scatters


def test_a_tensor_that_is_written_before_the_first_event_is_kept():
    """Its first write makes the result, too: the iteration of that write is unknown."""
    made = Allocation(1, Space.SBUF, (128, 4), np.dtype(np.float32), 0, None)
    made.first = 0
    made.last = 1
    made.writes = 1
    trace = Trace()
    trace.allocations.append(made)
    trace.events.append(
        Event(
            1,
            EventKind("memset", Engine.VECTOR),
            (Region(made, 0, (128, 4), (4, 1)),),
            (),
        )
    )
    assert list(AccessIndex(trace).accesses) == [made.id]
