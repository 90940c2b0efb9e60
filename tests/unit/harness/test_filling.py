import numpy as np
import pytest

from difftest.backends.base import Ran, Rejected
from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.edge_checks import check_edges, run_recorded
from difftest.harness.failures import NotRejectedError
from difftest.harness.filling import fillings_of
from difftest.harness.runner import Runner
from difftest.harness.spec import KernelSpec, Rejection
from difftest.harness.strategies import multiples, sizes
from difftest.simulator.frontend.install import embedded
from difftest.simulator.machine import TRN2

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl

WIDEST = TRN2.sbuf_usable_bytes // 12
"""Columns of three float32 tiles that fill SBUF."""


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    right = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=x)
    nisa.dma_copy(dst=right, src=x)
    nisa.dma_copy(dst=out, src=nisa.tensor_tensor(left, right, nl.add))
    return out


@nki.jit
def guarded(x):
    assert x.shape[1] <= 1000, f"at most 1000 columns, got {x.shape[1]}"
    return double(x)


@nki.jit
def wrong_if_wide(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(out, nl.add(tile, tile) if x.shape[1] < 10_000 else tile)
    return out


@nki.jit
def by_columns(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for column in range(x.shape[1]):
        tile = nl.load(x[:, column : column + 1])
        nl.store(out[:, column : column + 1], nl.add(tile, tile))
    return out


@nki.jit
def in_psum(x):
    """Turns every 128 columns, all of which lie in PSUM at one time."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    turned = [
        nisa.nc_transpose(nl.load(x[:, left : left + 128]), engine=nisa.tensor_engine)
        for left in range(0, x.shape[1], 128)
    ]
    for number, tile in enumerate(turned):
        back = nisa.nc_transpose(nl.copy(tile), engine=nisa.tensor_engine)
        place = slice(number * 128, number * 128 + 128)
        nl.store(out[:, place], nl.add(back, back))
    return out


def spec_of(kernel, columns=None):
    return KernelSpec(
        kernel=kernel,
        reference=lambda x: 2 * x.astype(np.float64),
        domain={"n": sizes(1, 64) if columns is None else columns},
        inputs={"x": "128 n"},
        rejects=(Rejection({"n": 0}, "at least"),),
    )


def found(kernel, columns=None):
    runner = Runner((EmbeddedSimulator(),))

    def run(spec, case):
        return run_recorded(runner, runner.backends[0], spec, case)

    return list(fillings_of(spec_of(kernel, columns), run))


def test_sbuf_is_filled_to_just_under_and_just_over():
    under, over = found(double)
    assert isinstance(under.outcome, Ran)
    assert not under.spilled
    assert over.spilled
    assert over.case.values["n"] == under.case.values["n"] + 1
    assert under.case.values["n"] == WIDEST
    assert under.why.endswith("just under the limit")


def test_psum_is_filled_to_just_under_and_just_over():
    under, over = found(in_psum, multiples(128, at_most=512))
    assert isinstance(under.outcome, Ran)
    assert not under.spilled
    assert over.spilled or isinstance(over.outcome, Rejected)
    assert over.case.values["n"] == under.case.values["n"] + 128
    assert 1024 < under.case.values["n"] <= TRN2.psum_partition_bytes // 4


def test_a_limit_of_the_kernels_own_is_found_too():
    under, over = found(guarded)
    assert (under.case.values["n"], over.case.values["n"]) == (1000, 1001)
    assert isinstance(over.outcome, Rejected)


def test_a_footprint_that_does_not_grow_has_no_limit():
    assert found(by_columns) == []


def test_what_is_wrong_only_where_memory_is_full_is_found():
    with pytest.raises(NotRejectedError, match="just under the limit"):
        check_edges(Runner((EmbeddedSimulator(),)), spec_of(wrong_if_wide))


def test_a_correct_kernel_passes_on_both_sides():
    runner = Runner((EmbeddedSimulator(),))
    check_edges(runner, spec_of(double))
    assert runner.tally.rows["double", "embedded"].cases >= 2
