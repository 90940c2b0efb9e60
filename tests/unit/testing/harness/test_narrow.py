"""A test whose loops over sizes never need a second tile proves too little."""

import contextlib

import hypothesis
import numpy as np
from hypothesis import Phase, settings

from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.dry_run import search_kernels
from difftest.testing.drawing.provider import BACKEND
from difftest.testing.drawing.sizes import sizes
from difftest.testing.harness.coverage import uncovered_branches
from difftest.testing.harness.decorator import decorate
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.tracer import BranchTracer
from tests.unit.standin import PlainBackend

HEADS = 1


def tiled(x, n):
    out = np.empty_like(x)
    for head in range(HEADS):
        assert head == 0
    for start in range(0, n, 128):
        out[start : start + 128] = x[start : start + 128]
    return out


def chosen(x, n):
    scale = 1 if n == 217 else 2
    return x + x.dtype.type(0 * scale)


def plain(x, n):
    return x.copy()


def ran(kernel, most, count=20, others=()):
    spec = KernelSpec(
        kernel=kernel,
        others=others,
        reference=lambda x: x.astype(np.float64),
        domain={"n": sizes(1, most)},
        inputs={"x": "n"},
        parameters=["n"],
    )
    tracer = BranchTracer()
    runner = Runner((PlainBackend(),), branch_tracer=tracer)
    few = settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        backend=BACKEND,
    )
    with contextlib.closing(tracer):
        test = hypothesis.seed(0)(decorate(spec, lambda case: case.check()))
        few(test)(difftest_runner=runner)
    return runner, spec


def test_a_loop_over_sizes_that_never_runs_twice_is_a_reason():
    runner, spec = ran(tiled, 100)
    text = runner.narrow_domain(spec)
    assert text.startswith("the test of tiled proves too little: no case runs a loop")
    line = tiled.__code__.co_firstlineno + 4
    assert f"test_narrow.py:{line}: never a second iteration" in text
    assert "remedy: widen the domain" in text


def test_a_domain_that_needs_a_second_tile_proves_enough():
    """The loop over heads is none over sizes."""
    runner, spec = ran(tiled, 300)
    assert runner.narrow_domain(spec) == ""


def test_unknown_loops_give_no_report():
    runner, spec = ran(tiled, 100)
    runner.tally.coverage.unknown.add("another tool traces")
    assert runner.narrow_domain(spec) == ""


def test_a_conditional_expression_that_no_case_decides_is_reported():
    runner, _ = ran(chosen, 300, count=2)
    runner.report_uncovered()
    (place,) = uncovered_branches(runner.tally.coverage)
    assert place.what == "its condition never changes"
    assert place.line == chosen.__code__.co_firstlineno + 1
    assert place.tried.startswith("nearest of the last 2 cases: n=")
    runner, _ = ran(chosen, 300, count=60)
    runner.report_uncovered()
    assert uncovered_branches(runner.tally.coverage) == []


def test_one_search_tells_of_the_conditions_of_each_of_several_kernels():
    searches = search_kernels.cache_info().misses
    runner, _ = ran(plain, 300, count=2, others=(chosen,))
    runner.report_uncovered()
    assert search_kernels.cache_info().misses == searches + 1
    (place,) = uncovered_branches(runner.tally.coverage)
    assert place.kernels == ("chosen",)
    assert place.line == chosen.__code__.co_firstlineno + 1
