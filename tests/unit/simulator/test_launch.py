"""The one way in: arguments, the grid, outputs, and nothing half-done after an error."""

from __future__ import annotations

import sys
import threading
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import TRN2, KernelError, NkiError, ShapeError, launch
from difftest.simulator.core import is_running
from difftest.simulator.entry import kernel as nki
from difftest.simulator.errors import KernelExit
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic import typing as nt
from tests.every import every
from tests.unit.simulator.on_tiles import normal

DATA = normal(4, 6)


@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2.0)
    return out


@nki.jit
def copied(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


# -- arguments ---------------------------------------------------------------------------------


LAYOUTS = {
    "transposed": DATA.T,
    "reversed": DATA[::-1, ::-1],
    "strided": normal(8, 12)[::2, ::3],
    "Fortran": np.asfortranarray(DATA),
    "read-only": np.broadcast_to(DATA[:1], (4, 6)),
    "one dimension": DATA[0],
    "a row of a larger array": normal(9, 6)[3:4],
}


@every("array", LAYOUTS.values())
def test_inputs_of_any_layout(array):
    before = array.copy()
    assert_array_equal(launch(copied, [array]).outputs[0], before, strict=True)
    assert_array_equal(array, before)


def test_arrays_inside_arguments_become_tensors():
    def kernel(pair, *rest, **named):
        tiles = [nl.load(x) for x in (*pair, *rest, named["last"])]
        out = nl.ndarray((4, 6), nl.float32, buffer=nl.shared_hbm)
        total = tiles[0]
        for tile in tiles[1:]:
            total = total + tile
        nl.store(out, total)
        return out

    for pair in ((DATA, DATA), [DATA, DATA]):
        result = launch(kernel, [pair, DATA], {"last": DATA}).outputs[0]
        assert_array_equal(result, DATA + DATA + DATA + DATA)


REFUSED = [
    ("float64", DATA.astype(np.float64), "argument 'x' of dtype dtype('float64')"),
    ("int64", np.arange(3), "argument 'x' of dtype dtype('int64')"),
    ("complex", DATA.astype(np.complex64), "argument 'x' of dtype dtype('complex64')"),
    ("objects", np.array([[None]]), "argument 'x' of dtype dtype('O')"),
    ("another byte order", DATA.astype(">f4"), "argument 'x' of dtype dtype('>f4')"),
    (
        "another float8",
        DATA.astype(ml_dtypes.float8_e4m3fn),
        "argument 'x' of dtype dtype(float8_e4m3fn)",
    ),
    ("nothing", np.zeros((0, 3), np.float32), "argument 'x' of shape (0, 3)"),
]


@every("array, received", [row[1:] for row in REFUSED])
def test_arrays_that_are_no_tensors(array, received):
    with pytest.raises(NkiError) as caught:
        launch(copied, [array])
    assert caught.value.received == received


# -- mutable parameters ------------------------------------------------------------------------


@nki.jit
def accumulated(total: nt.mutable_tensor, x):
    nl.store(total, nl.load(total) + nl.load(x))
    return total


def test_a_read_only_array_is_not_a_mutable_tensor():
    data = DATA.copy()
    data.flags.writeable = False
    with pytest.raises(KernelError, match="is written in place") as caught:
        launch(accumulated, [data, DATA])
    assert caught.value.received == "argument 'total', an array that is read-only"


def test_a_read_only_array_is_an_argument_of_any_callable():
    without_hash = type(
        "Kernel", (list,), {"__call__": lambda self, x: copied.function(x)}
    )
    for kernel in (copied.function, without_hash()):
        assert_array_equal(
            launch(kernel, [np.broadcast_to(DATA, DATA.shape)]).outputs[0], DATA
        )


def test_an_error_leaves_mutable_arrays_as_they_were():
    @nki.jit
    def kernel(total: nt.mutable_tensor):
        nl.store(total, 0.0)
        nl.load(nl.zeros((4, 6), nl.float32))

    total = DATA.copy()
    with pytest.raises(NkiError):
        launch(kernel, [total])
    assert_array_equal(total, DATA)


# -- the grid ----------------------------------------------------------------------------------


def test_instances_that_create_different_shared_tensors():
    @nki.jit
    def kernel():
        nl.ndarray((1 + nl.program_id(0), 4), nl.float32, buffer=nl.shared_hbm)

    with pytest.raises(
        KernelError, match="every instance of an SPMD grid creates"
    ) as caught:
        launch(kernel, grid=(2,))
    assert caught.value.received.startswith("shape (2, 4) float32 in program (1,)")


def test_the_grid_is_the_launchs_or_the_kernels():
    seen = []

    @nki.jit
    def kernel():
        seen.append(nl.program_id(0))

    launch(kernel[3])
    launch(kernel, grid=(2,))
    launch(kernel[3], grid=(nl.nc(4),))
    assert seen == [0, 1, 2, 0, 1, 0, 1, 2, 3]


# -- outputs -----------------------------------------------------------------------------------

Pair = namedtuple("Pair", "first second")


@every(
    "dtype, poison",
    [(nl.float32, np.nan), (nl.bfloat16, np.nan), (nl.int16, -23131), (nl.uint8, 0xA5)],
)
def test_unwritten_outputs_are_poison_and_are_named(dtype, poison):
    @nki.jit
    def kernel():
        out = nl.ndarray((4, 6), dtype, buffer=nl.shared_hbm)
        nl.store(out[1:3, 2:5], 1)
        return out

    result = launch(kernel)
    expected = np.full((4, 6), poison)
    expected[1:3, 2:5] = 1
    assert_array_equal(result.outputs[0].astype(np.float64), expected)
    missing = np.ones((4, 6), bool)
    missing[1:3, 2:5] = False
    assert_array_equal(result.unwritten[0], missing)


@every(
    "returned, rule",
    [
        (lambda: 3, "a kernel returns tensors"),
        (lambda: {"out": 3}, "a kernel returns tensors"),
        (lambda: nl.zeros((2, 2), nl.float32), "a kernel returns tensors in HBM"),
        (
            lambda: nl.ndarray((2, 2), nl.float32, buffer=nl.hbm)[2],
            "an access stays inside",
        ),
    ],
)
def test_a_result_that_no_kernel_can_return_is_rejected(returned, rule):
    with pytest.raises(NkiError, match=rule):
        launch(returned, strictness="documented")


# -- the launch's own state --------------------------------------------------------------------


def test_record_false_gives_the_same_outputs_and_no_events():
    recorded = launch(doubled, [DATA])
    plain = launch(doubled, [DATA], record=False)
    assert_array_equal(recorded.outputs[0], plain.outputs[0], strict=True)
    assert len(recorded.trace) == 3
    assert len(plain.trace) == 0


def test_a_kernel_that_ends_the_program_breaks_down():
    def kernel():
        sys.exit(0)

    with pytest.raises(KernelExit, match="SystemExit: 0") as caught:
        launch(kernel)
    assert caught.traceback[-1].name == "kernel"


def test_a_failing_contract_stays_an_assertion_error():
    def kernel(x):
        assert x.shape[0] % 128 == 0, f"{x.shape[0]} rows are not a multiple of 128"

    with pytest.raises(
        AssertionError, match="4 rows are not a multiple of 128"
    ) as caught:
        launch(kernel, [DATA])
    assert not isinstance(caught.value, NkiError)


def test_launches_in_threads_do_not_see_each_other():
    inside = threading.Barrier(4, timeout=20)

    def kernel(x, factor):
        inside.wait()
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        total = nl.zeros(x.shape, nl.float32)
        for _ in nl.affine_range(3):
            total += nl.load(x) * factor
        inside.wait()
        nl.store(out, total)
        return out

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda k: launch(kernel, [DATA, float(k)]), range(4)))
    for k, result in enumerate(results):
        single = DATA * np.float32(k)
        assert_array_equal(result.outputs[0], (single + single) + single)
        assert len(result.trace) == 11


def test_a_launch_inside_a_kernel_is_refused():
    def kernel():
        launch(doubled, [DATA])

    with pytest.raises(KernelError, match="a kernel is launched from outside kernels"):
        launch(kernel)
    assert not is_running()


@nki.jit(platform_target="trn1")
def version_of_trn1():
    assert nisa.get_nc_version() == nisa.nc_version.gen2


def test_the_machine_is_the_kernels_own_unless_another_is_named():
    launch(version_of_trn1)
    nki.simulate_kernel(version_of_trn1)
    with pytest.raises(AssertionError):
        launch(version_of_trn1, machine=TRN2)


def test_outputs_share_no_memory():
    """Neither with the caller's argument nor with each other."""

    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return x, out, out, out.reshape((6,))

    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    outputs = launch(nki.jit(kernel), [array]).outputs
    for number, output in enumerate(outputs):
        assert_array_equal(output.ravel(), array.ravel())
        assert not np.shares_memory(output, array)
        assert not any(np.shares_memory(output, other) for other in outputs[:number])


def test_floating_point_events_are_no_warnings():
    """Nor do they stay changed for the caller: NumPy's own state is the caller's."""
    before = np.geterr()
    assert np.isinf(
        launch(doubled, [np.full((2, 2), 3e38, np.float32)]).outputs[0]
    ).all()
    assert np.geterr() == before


def test_a_tensor_of_no_dimension_cannot_be_declared():
    with pytest.raises(ShapeError):
        launch(copied, [np.array(3, np.float32)])


@every(
    "call, happened, remedy",
    [
        ({"machine": "trn1"}, "launch got a str as machine", "MACHINES['trn1']"),
        ({"kwargs": 5}, "launch got a int as kwargs", "launch(kernel, args, {'n': 1})"),
        (
            {"args": np.float32([1])},
            "launch got a ndarray as args",
            "launch(kernel, [array])",
        ),
    ],
)
def test_an_argument_of_another_kind_is_one_clear_error(call, happened, remedy):
    with pytest.raises(KernelError) as caught:
        launch(lambda: None, **call)
    assert caught.value.happened.startswith(happened)
    assert remedy in caught.value.remedy
