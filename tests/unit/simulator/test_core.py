import contextlib

import numpy as np
import pytest

from difftest.simulator import TRN2, KernelError, LimitError, OutOfBoundsError, launch
from difftest.simulator.core import Core
from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.trace import Space
from tests.every import every

OUTSIDE = [
    lambda: nl.zeros((2, 2), nl.float32),
    lambda: nl.ndarray((2, 2), nl.float32, buffer=nl.shared_hbm),
    lambda: nisa.memset((2, 2), 0, nl.float32),
    lambda: nl.program_id(0),
    lambda: nl.num_programs(),
    lambda: nisa.get_nc_version(),
    lambda: list(nl.affine_range(3)),
    lambda: nl.rand((2, 2)),
    lambda: nl.shared_constant(np.zeros((2, 2), np.float32)),
]


@every("call", OUTSIDE)
def test_the_api_runs_inside_kernels(call):
    with pytest.raises(KernelError) as caught:
        call()
    assert caught.value.rule == "NKI functions run inside a kernel"
    assert "nki.simulate_kernel" in caught.value.remedy
    assert caught.value.location.file == __file__


def test_a_tile_that_outlives_its_kernel():
    kept = []
    launch(lambda: kept.append(nl.zeros((2, 2), nl.float32)))
    with pytest.raises(KernelError, match="NKI functions run inside a kernel"):
        kept[0] + 1.0


def test_each_tensor_is_checked_that_does_not_fit():
    core = Core(TRN2, (), record=True, tile=Tensor)
    for _ in range(2):
        with pytest.raises(LimitError, match="a tile has 129 partitions"):
            core.allocate((129, 3), FLOAT32, Space.SBUF)
    assert core.trace.allocations == []


def lines(trace):
    return [event.location.text for event in trace]


def failing(tile):
    nl.add(tile, "one")


def test_a_call_after_an_error_has_its_own_line():
    """The launch notes its caller; a failed call is forgotten."""

    def kernel():
        tile = nl.zeros((2, 2), nl.float32)
        with contextlib.suppress(KernelError):
            failing(tile)
        tile[...] = 1.0
        tile += 2.0
        return nl.ndarray((2, 2), nl.float32, buffer=nl.shared_hbm)

    core = Core(TRN2, (), record=True, tile=Tensor)
    core.trace.dialect = "classic"
    with core.running():
        kernel()
    assert lines(core.trace) == [
        "tile = nl.zeros((2, 2), nl.float32)",
        "tile[...] = 1.0",
        "tile += 2.0",
    ]
    assert core.lines.caller is None


def test_an_event_counts_its_accesses():
    core = Core(TRN2, (), record=False, tile=Tensor)
    core.trace.dialect = "classic"
    with core.running():
        a = nl.zeros((2, 3), nl.float32)
        b = nl.exp(a)
        nl.add(a, b)
    first = a._storage.allocation
    second = b._storage.allocation
    assert (first.writes, first.reads, first.first, first.last) == (1, 2, 0, 2)
    assert (second.writes, second.reads, second.first, second.last) == (1, 1, 1, 2)
    assert core.instructions == 3
    assert core.trace.events == []


def test_an_error_names_the_tensors_of_its_own_launch():
    """Signatures that a launch has checked are its own: labels of its tensors hang on them."""

    def kernel(name, index):
        table = nl.ndarray((128, 4), nl.float32, buffer=nl.sbuf, name=name)
        table[...] = 1.0
        places = nl.full((128, 1), index, nl.uint32)
        out = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.gather_flattened(table, places))
        return out

    launch(kernel, ("first_table", 3))
    with pytest.raises(OutOfBoundsError, match="second_table"):
        launch(kernel, ("second_table", 4))
