from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import settings

from difftest.analysis.placement import footprint_of
from difftest.simulator.entry.install import embedded
from difftest.simulator.machine import TRN2
from difftest.testing.backends.base import Completed, Rejected
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.spec import KernelSpec, Rejection
from difftest.testing.drawing.sizes import multiples, sizes
from difftest.testing.harness import edges
from difftest.testing.harness.edges import check_edges, filling_cases, run_recorded
from difftest.testing.harness.failures import NotRejectedError
from difftest.testing.harness.runner import Runner

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl

WIDEST = TRN2.sbuf_usable_bytes // 12
"""Columns of three float32 tiles that fill SBUF."""
LIMITS = (TRN2.sbuf_usable_bytes, TRN2.psum_partition_bytes)
FEW_ROWS = {"x": "4 n"}
"""They fill a memory too, and a case takes a thirtieth of the time of 128 rows."""


@pytest.fixture(autouse=True)
def enough_work(monkeypatch):
    """As much as the profile of 20 cases has, whichever profile these tests run under."""
    work = -(-20 * edges.WORK_OF_A_CASE // settings.default.max_examples)
    monkeypatch.setattr(edges, "WORK_OF_A_CASE", work)


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
    """Rearranges every 128 columns, which are all in PSUM at one time."""
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


@nki.jit
def guarded_twice(x, y):
    assert x.shape[1] <= 1000, f"at most 1000 columns, got {x.shape[1]}"
    return double(x), double(y)


def spec_of(kernel, columns=None, **changes):
    fields = {
        "kernel": kernel,
        "reference": lambda x: 2 * x.astype(np.float64),
        "domain": {"n": sizes(1, 64) if columns is None else columns},
        "inputs": {"x": "128 n"},
        "rejects": (Rejection({"n": 0}, "at least"),),
    }
    return KernelSpec(**{**fields, **changes})


def found(kernel, columns=None, **changes):
    return looked(spec_of(kernel, columns, **changes))[0]


def looked(spec):
    """The found cases, with their outcomes and whether tensors exceed a memory, and all runs."""
    runner = Runner((EmbeddedSimulator(),))
    runs = {}

    def run(spec, case):
        runs[case.label()] = run_recorded(runner, runner.backends[0], spec, case)
        return runs[case.label()]

    edges = []
    for edge in filling_cases(spec, run):
        outcome = runs[edge.case.label()]
        sizes = (
            footprint_of(outcome.trace, TRN2) if isinstance(outcome, Completed) else ()
        )
        spilled = any(size > limit for size, limit in zip(sizes, LIMITS, strict=False))
        edges.append(SimpleNamespace(**vars(edge), outcome=outcome, spilled=spilled))
    return edges, runs


def test_sbuf_is_filled_to_just_under_and_just_over():
    under, over = found(double)
    assert isinstance(under.outcome, Completed)
    assert not under.spilled
    assert over.spilled
    assert over.case.values["n"] == under.case.values["n"] + 1
    assert under.case.values["n"] == WIDEST
    assert under.why.endswith("just under the limit")


def test_psum_is_filled_to_just_under_and_just_over():
    under, over = found(in_psum, multiples(128, at_most=512))
    assert isinstance(under.outcome, Completed)
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


def test_a_kernel_that_is_wrong_only_with_full_memory_is_found():
    with pytest.raises(NotRejectedError, match="just under the limit"):
        check_edges(
            Runner((EmbeddedSimulator(),)), spec_of(wrong_if_wide, inputs=FEW_ROWS)
        )


def test_a_correct_kernel_passes_on_both_sides():
    runner = Runner((EmbeddedSimulator(),))
    check_edges(runner, spec_of(double))
    assert runner.tally.rows["double", "embedded"].cases >= 2


def test_a_limit_that_the_footprint_foretells_takes_few_runs():
    for spec in (spec_of(double), spec_of(in_psum, multiples(128, at_most=512))):
        fillings, runs = looked(spec)
        assert len(fillings) == 2
        assert len(runs) <= 8


def test_a_profile_of_few_cases_leaves_long_fills_out(monkeypatch):
    """SBUF filled by three tiles of 128 rows takes some 20 million elements."""
    monkeypatch.setattr(edges, "WORK_OF_A_CASE", 2**20)
    default = settings.get_current_profile_name()
    try:
        for cases, count in ((10, 0), (30, 2)):
            settings.register_profile("of this test", max_examples=cases)
            settings.load_profile("of this test")
            assert len(found(double)) == count
    finally:
        settings.load_profile(default)


def test_a_limit_that_nothing_foretells_takes_as_many_runs_as_its_digits():
    fillings, runs = looked(spec_of(guarded))
    assert len(fillings) == 2
    assert len(runs) <= 3 + 2 * WIDEST.bit_length()


def test_a_spec_without_rejections_is_filled_too():
    under, over = found(double, rejects=())
    assert (under.case.values["n"], over.spilled) == (WIDEST, True)
    with pytest.raises(NotRejectedError, match="wrong_if_wide must"):
        check_edges(
            Runner((EmbeddedSimulator(),)),
            spec_of(wrong_if_wide, inputs=FEW_ROWS, rejects=()),
        )


def test_a_list_is_left_only_where_a_contract_is_promised():
    assert found(double, (1, 2, 4), rejects=()) == []
    assert len(found(double, (1, 2, 4))) == 2


def test_a_limit_of_the_kernels_own_fills_no_memory():
    """So that the search tries another name."""
    fillings = found(
        guarded_twice,
        domain={"n": sizes(1, 64), "m": sizes(1, 64)},
        inputs={"x": "128 n", "y": "128 m"},
        reference=lambda x, y: (2 * x.astype(np.float64), 2 * y.astype(np.float64)),
        rejects=(),
    )
    assert [one.why for one in fillings] == [
        "n=1000, just under the limit",
        "n=1001, just over the limit",
        f"m={WIDEST}, just under the limit",
        f"m={WIDEST + 1}, just over the limit",
    ]


def no_wider_than_drawn(x):
    if x.shape[1] > 64:
        raise ValueError("at most 64 columns")
    return 2 * x.astype(np.float64)


def test_outside_the_drawn_cases_a_rejecting_reference_decides_nothing():
    runner = Runner((EmbeddedSimulator(),))
    check_edges(runner, spec_of(double, rejects=(), reference=no_wider_than_drawn))
    assert runner.tally.rows["double", "embedded"].inconclusive == 2
    (reason, *_) = runner.tally.reasons
    assert (
        "is outside the drawn cases: its reference rejects it: at most 64 columns"
        in str(reason)
    )
    with pytest.raises(NotRejectedError):
        check_edges(runner, spec_of(double, reference=no_wider_than_drawn))


def through_a_square(x):
    """As ``np.eye(n)[indices]`` is: with 2.3 GiB where SBUF is full."""
    n = x.shape[1]
    return x.astype(np.float64) @ (2 * np.eye(n))


def test_a_reference_that_takes_gigabytes_is_stopped():
    runner = Runner((EmbeddedSimulator(),))
    check_edges(runner, spec_of(double, rejects=(), reference=through_a_square))
    counts = runner.tally.rows["double", "embedded"]
    assert (counts.inconclusive, counts.rejections) == (2, 0)
    (under, over) = sorted(runner.tally.reasons)
    assert (
        f"n={WIDEST}, just under the limit, is outside the drawn cases: the reference"
        in under
    )
    assert "needed more than 1024 MiB of memory" in over


def test_a_reference_of_nested_loops_is_not_waited_for(monkeypatch):
    def loops(x):
        while x.shape[1] > WIDEST - 9:
            pass
        return 2.0 * x

    monkeypatch.setattr(edges, "MOST_SECONDS", 0.2)
    runner = Runner((EmbeddedSimulator(),))
    check_edges(runner, spec_of(double, rejects=(), reference=loops))
    assert all("ran for more than 0.2 s" in reason for reason in runner.tally.reasons)
    assert runner.tally.rows["double", "embedded"].inconclusive == 2
