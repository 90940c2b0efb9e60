"""Kernels as objects: the documented ways to make and to call them."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import (
    KernelError,
    NotModelledError,
    RuleWarning,
    launch,
    strictness,
)
from difftest.simulator.core import current
from difftest.simulator.entry import kernel as nki
from difftest.simulator.entry import nki_kernel as todays
from difftest.simulator.entry.kernel import baremetal_with, profile_with
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic import typing as nt
from difftest.simulator.frontend.nki import isa as today_isa
from difftest.simulator.frontend.nki import language as today_nl
from tests.every import every

baremetal = baremetal_with(None)
DATA = np.arange(6, dtype=np.float32).reshape(2, 3)


def scaled(x, factor=2.0, *, offset=0.0):
    """Scale a tensor."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * factor + offset)
    return out


FORMS = {
    "@nki.jit": lambda: nki.jit(scaled),
    "@nki.jit()": lambda: nki.jit()(scaled),
    "@nki.jit(mode=...)": lambda: nki.jit(mode="simulation")(scaled),
    "nki.jit(kernel, mode=...)": lambda: nki.jit(scaled, mode="baremetal"),
    "platform_target": lambda: nki.jit(platform_target="trn1")(scaled),
    "additional_compile_opt": lambda: nki.jit(additional_compile_opt="--flag")(scaled),
    "nki.jit of nki.jit": lambda: nki.jit(nki.jit(scaled)),
    "@nki.trace": lambda: nki.trace(scaled),
    "@nki.trace()": lambda: nki.trace()(scaled),
    "@nki.baremetal": lambda: baremetal(scaled),
    "@nki.baremetal(...)": lambda: baremetal(additional_compile_opt="--flag")(scaled),
    "nki.baremetal(nki.jit)": lambda: baremetal(nki.jit(scaled)),
    "@nki.profile": lambda: profile_with(None)(scaled),
}


@every("form", FORMS)
def test_a_kernel_is_called_and_simulated(form):
    kernel = FORMS[form]()
    assert_array_equal(kernel(DATA), 2 * DATA)
    assert_array_equal(kernel(DATA, 3.0, offset=1.0), 3 * DATA + 1)
    assert_array_equal(kernel(x=DATA, factor=np.float32(3)), 3 * DATA)
    assert kernel.func is scaled
    assert_array_equal(nki.simulate_kernel(kernel, DATA, factor=4.0), 4 * DATA)
    assert (kernel.__name__, kernel.__doc__) == ("scaled", "Scale a tensor.")
    assert kernel.__wrapped__ is not None


def test_the_outputs_are_an_array_a_tuple_or_nothing():
    def one(x):
        return [scaled(x)]

    def two(x):
        return scaled(x), (scaled(x, 3.0),)

    def none(x):
        scaled(x)

    assert_array_equal(nki.simulate_kernel(one, DATA), 2 * DATA)
    first, second = nki.simulate_kernel(two, DATA)
    assert_array_equal(first, 2 * DATA)
    assert_array_equal(second, 3 * DATA)
    assert nki.simulate_kernel(none, DATA) is None


@nki.jit
def tile_of_the_grid(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    row = nl.ds(nl.program_id(0), 1)
    nl.store(out[row], nl.load(x[row]) * float(nl.num_programs()))
    return out


GRIDS = {
    "2": 2,
    "(2,)": (2,),
    "nl.nc": nl.nc(2),
    "nl.spmd_dim": nl.spmd_dim(nl.nc(2), 1),
    "(2, 1)": (2, 1),
}


@every("grid", GRIDS.values())
def test_a_grid_runs_each_program(grid):
    assert_array_equal(tile_of_the_grid[grid](DATA), 2 * DATA)
    assert_array_equal(nki.simulate_kernel(tile_of_the_grid[grid], DATA), 2 * DATA)
    assert_array_equal(launch(tile_of_the_grid[grid], [DATA]).outputs[0], 2 * DATA)


def test_a_grid_makes_another_kernel():
    assert tile_of_the_grid.grid == ()
    assert tile_of_the_grid[2].grid == (2,)
    assert repr(tile_of_the_grid) == f"<NKI kernel {__name__}.tile_of_the_grid>"
    assert repr(tile_of_the_grid[2]) == f"<NKI kernel {__name__}.tile_of_the_grid[2]>"


def test_a_kernel_may_call_another_kernel():
    @nki.jit
    def inner(tile):
        return nl.multiply(tile, 2.0)

    @nki.jit
    def outer(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, inner(inner(nl.load(x))))
        return out

    assert_array_equal(outer(DATA), 4 * DATA)
    assert_array_equal(outer(DATA), 4 * DATA)


def test_a_kernel_with_a_grid_is_not_called_by_a_kernel():
    def outer(x):
        return tile_of_the_grid[2](x)

    with pytest.raises(
        KernelError, match="a kernel with a grid is not called inside"
    ) as caught:
        nki.simulate_kernel(outer, DATA)
    assert caught.value.received == repr(tile_of_the_grid[2])
    assert "return tile_of_the_grid[2](x)" in str(caught.value.location)


def test_simulate_kernel_inside_a_kernel_inlines_the_other():
    def outer(x):
        return nki.simulate_kernel(scaled, x, factor=3.0)

    assert_array_equal(nki.simulate_kernel(outer, DATA), 3 * DATA)


def version():
    assert nisa.get_nc_version() == {"trn1": 2, "trn2": 3}[current().machine.name]
    seen.append(nisa.get_nc_version())


seen = []


def test_the_platform_chooses_the_machine():
    seen.clear()
    for target in ("trn1", "trn2"):
        nki.jit(version, platform_target=target)()
    assert seen == [nisa.nc_version.gen2, nisa.nc_version.gen3]


def increment(x: nt.mutable_tensor):
    nl.store(x, nl.load(x) + 1.0)


def test_a_traced_kernel_writes_its_parameters():
    """The convention before SDK 2.21, and the convention of undecorated functions."""

    def doubled(source, target):
        nl.store(target, nl.load(source) * 2.0)

    for kernel in (nki.trace(doubled), doubled):
        target = np.zeros_like(DATA)
        assert nki.simulate_kernel(kernel, DATA, target) is None
        assert_array_equal(target, 2 * DATA)


def test_jits_mode_trace_is_nki_trace():
    def add_into(x, out):
        nl.store(out, nl.load(x) + 1.0)

    inner, outer = nki.jit(mode="trace")(add_into), np.zeros_like(DATA)
    inner(DATA, outer)
    assert_array_equal(outer, DATA + 1)

    def calls(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        inner(x, out)
        return out

    assert_array_equal(nki.jit(calls)(DATA), DATA + 1)


def test_a_grid_of_zero_is_one_of_one():
    with pytest.warns(RuleWarning, match="a grid of 0"):
        kernel = nki.jit(scaled)[0]
    assert kernel.grid == (1,)
    with strictness("documented"), pytest.raises(KernelError, match="a grid of 0"):
        nki.jit(scaled)[0]


def test_a_mutable_parameter_is_written():
    data = DATA.copy()
    nki.jit(increment)(data)
    nki.simulate_kernel(nki.jit(increment), data)
    assert_array_equal(data, DATA + 2)


def partly(x):
    out = nl.ndarray((4, 3), x.dtype, buffer=nl.shared_hbm)
    nl.store(out[0:2], nl.load(x))
    return out


def test_an_output_that_is_partly_written_is_a_warning():
    with pytest.warns(
        UserWarning, match="output 0 has 6 of 12 elements that the kernel never"
    ):
        result = nki.simulate_kernel(partly, DATA)
    assert_array_equal(result[:2], DATA)
    assert np.isnan(result[2:]).all()


REFUSED = [
    (
        "another mode",
        lambda: nki.jit(scaled, mode="onnx"),
        NotModelledError,
        "mode='onnx'",
    ),
    ("an option", lambda: nki.jit(scaled, debug=True), NotModelledError, "debug=True"),
    (
        "a machine",
        lambda: nki.jit(scaled, platform_target="inf1"),
        KernelError,
        "'inf1'",
    ),
    (
        "a list as machine",
        lambda: nki.jit(scaled, platform_target=[]),
        KernelError,
        "[]",
    ),
    ("an array as mode", lambda: nki.jit(scaled, mode=DATA), NotModelledError, "mode="),
    (
        "trace's option",
        lambda: nki.trace(scaled, debug=True),
        NotModelledError,
        "debug=True",
    ),
    (
        "baremetal's option",
        lambda: baremetal(scaled, warmup=3),
        NotModelledError,
        "warmup=3",
    ),
    ("no kernel", lambda: nki.simulate_kernel(3, DATA), KernelError, "int 3"),
    (
        "too many",
        lambda: nki.simulate_kernel(scaled, DATA, 1.0, 2.0),
        KernelError,
        "too many posi",
    ),
    (
        "one missing",
        lambda: nki.simulate_kernel(scaled),
        KernelError,
        "a required argument: 'x'",
    ),
    (
        "one unknown",
        lambda: nki.simulate_kernel(scaled, DATA, scale=3),
        KernelError,
        "'scale'",
    ),
]


@every("use, error, received", [row[1:] for row in REFUSED])
def test_misuse_of_a_kernel_is_rejected(use, error, received):
    with pytest.raises(error) as caught:
        use()
    assert received in caught.value.received


@pytest.mark.parametrize(
    "decorate", [nki.jit, nki.trace, nki.simulate_kernel, todays.jit, todays.simulate]
)
def test_a_kernel_must_be_a_python_function(decorate):
    for given in (5, "matmul", np.exp, len, dict, functools.partial(np.add, 1)):
        with pytest.raises(
            KernelError, match="a kernel is a Python function"
        ) as caught:
            decorate(given)
        assert caught.value.happened == f"{given!r:.60} was to be a kernel"


def test_a_partial_has_the_name_of_its_function():
    def scaled(x, factor):
        out = today_nl.ndarray(x.shape, x.dtype, buffer=today_nl.shared_hbm)
        today_isa.dma_copy(dst=out, src=x)
        return out

    half = functools.partial(scaled, factor=0.5)
    x = np.ones((2, 2), np.float32)
    assert launch(half, [x]).trace.kernel == scaled.__qualname__
    with pytest.raises(KernelError, match="scaled got arguments that do not fit it"):
        launch(half, [x, x, x])
