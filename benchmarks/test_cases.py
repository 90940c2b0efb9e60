"""Cases a second of each spec of tests/kernels, and the memory that many cases take."""

import gc
import importlib
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import Phase, given, settings

from difftest import kernel_test, sizes
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.drawing.cases import cases
from difftest.testing.drawing.provider import BACKEND
from difftest.testing.harness.bound_case import check_each
from difftest.testing.harness.decorated import kernel_test_of
from difftest.testing.harness.differential import evaluate_reference
from difftest.testing.harness.runner import Runner

CASES = 5
TESTS = Path(__file__).parents[1] / "tests" / "kernels"
FEW = 500
MANY = 5000
GROWTH = 3.0
"""The most blocks of memory for each case. The mark that identifies a repeat takes one."""


def specs():
    """Yield the name and the spec of each kernel test."""
    for file in sorted(TESTS.glob("test_*.py")):
        module = importlib.import_module(f"tests.kernels.{file.stem}")
        for name, made in sorted(vars(module).items()):
            if (test := kernel_test_of(made)) is not None:
                yield name, test.spec


def drawn_cases(spec, count=CASES):
    """Return drawn cases, which are equal in each run."""
    drawn = []

    @hypothesis.seed(0)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        backend=BACKEND,
    )
    @given(cases(spec))
    def draw(case):
        drawn.append(case)

    draw()
    return drawn[:count]


def seconds(work, drawn):
    """CPU time a case."""
    start = time.process_time()
    for case in drawn:
        work(case)
    return (time.process_time() - start) / len(drawn)


def test_cases_a_second(capsys):
    rows = []
    for name, spec in specs():
        runner, drawn = Runner((EmbeddedSimulator(),)), drawn_cases(spec)
        check_each(runner, spec, drawn[0])  # imports and caches
        alone = seconds(lambda case, s=spec: evaluate_reference(s, case), drawn)
        whole = seconds(lambda case, s=spec, r=runner: check_each(r, s, case), drawn)
        rows.append((name, len((spec.kernel, *spec.others)), 1 / whole, whole / alone))
    with capsys.disabled():
        print("\ntest, kernels, cases a second of one core, times the reference alone")
        for name, kernels, rate, ratio in rows:
            print(f"{name:<42} {kernels:>2} {rate:>8.1f} {ratio:>7.1f}")
    assert len(rows) > 20


@pytest.fixture(scope="module")
def small():
    """A test whose cases take as little as any."""
    kernel = importlib.import_module("kernels.nki.vector_add").vector_add_naive

    @kernel_test(
        kernel=kernel,
        reference=lambda a_vec, b_vec: a_vec.astype(np.float64) + b_vec,
        domain={"n": sizes(1, 8)},
        inputs={"a_vec": "n", "b_vec": "n"},
        exact=False,
        edges=False,
    )
    def test(case):
        case.check()

    return kernel_test_of(test).spec


def test_many_cases_take_no_more_memory_than_few(small, capsys):
    runner, drawn = Runner((EmbeddedSimulator(),)), drawn_cases(small, 50)

    def after(count):
        """Blocks of memory that Python holds, and the most that the process ever had."""
        for number in range(count):
            case = drawn[number % len(drawn)]
            case = replace(case, values=dict(case.values), data=dict(case.data))
            runner.check(small, case)
            runner.repeats.add(small, replace(case, values={**case.values, "": number}))
        gc.collect()
        return sys.getallocatedblocks(), resource.getrusage(
            resource.RUSAGE_SELF
        ).ru_maxrss

    after(1000 - FEW)  # the last thousand cases that agreed are remembered
    few, peak_of_few = after(FEW)
    many, peak = after(MANY - 1000)
    growth = (many - few) / (MANY - 1000)
    with capsys.disabled():
        print(
            f"\nfrom 1000 to {MANY} cases {growth:.1f} blocks of memory a case more; the peak "
            f"{peak / peak_of_few:.3f} times"
        )
    assert growth < GROWTH
