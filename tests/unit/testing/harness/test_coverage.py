"""Coverage of branches and loops from a function's lines, by both kinds of tracing."""

import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import difftest
from difftest.simulator import errors, launch, recording
from difftest.testing.harness import tracer
from difftest.testing.harness.coverage import (
    Coverage,
    branches_of,
    coverage_from_list,
    uncovered_branches,
)
from difftest.testing.harness.tracer import BranchTracer
from tests.unit.tools.scale.sample import doubled


@pytest.fixture(params=["monitoring", "settrace"])
def watch(request):
    """A watch of each kind; ``sys.monitoring`` where this Python has it."""
    before = sys.gettrace()
    if request.param == "settrace":
        sys.settrace(None)  # of a coverage tool that measures this very test
        watch = BranchTracer(monitoring=None)
    else:
        watch = BranchTracer()
    yield watch
    watch.close()
    sys.settrace(before)


# fmt: off
def branches(n):
    if n > 1:
        n += 1
    if n < 100:
        n -= 1
    elif (
        n == 1000
    ):
        n = 2
    if n > 5:  # the last statement: no line follows where it is passed over
        n = 3


def loops(n):
    for _ in range(n):
        for _ in range(
            min(n, 2)
        ):
            pass
    while (
        n > 0
        and n < 7
    ):
        n -= 1
    for _ in range(5):  # nothing that a case decides
        pass
    if n == 99:
        raise ValueError(n)  # nor a refusal
# fmt: on


def inner(deep):
    while deep > 2:
        deep -= 1


def recursive(n):
    for each in range(n):
        recursive(n - 1)
        inner(each)


def of_threads(n):
    thread = threading.Thread(target=inner, args=(n,))
    thread.start()
    thread.join()


def coverage_of(watch, function, *arguments):
    """Run the function for the arguments, a call for each."""
    coverage = Coverage()
    for one in arguments:
        with watch.call(function) as seen:
            function(one)
        watch.record(seen, function.__name__, coverage)
    assert watch.unknown == ""
    return coverage


def said(function, coverage):
    """Return lines from the function's first, and their missed outcomes."""
    first = function.__code__.co_firstlineno
    return [(one.line - first, one.what) for one in uncovered_branches(coverage)]


def test_a_branch_is_taken_or_passed_over(watch):
    assert said(branches, coverage_of(watch, branches, 50)) == [
        (1, "never false"),
        (3, "never false"),
        (5, "never true"),
        (5, "never false"),
        (9, "never false"),
    ]


def test_a_branch_at_the_end_of_a_function_is_passed_over(watch):
    found = said(branches, coverage_of(watch, branches, 1, 50))
    assert (9, "never false") not in found
    assert (9, "never true") not in found
    assert (1, "never false") not in found


def generated(n):
    for turn in range(n):
        yield -turn
    if n > 3:
        yield from range(n)


def test_a_generator_that_continues_is_the_same_call(watch):
    found = said(generated, coverage_of(watch, lambda n: list(generated(n)), 2))
    assert found == [(1, "never a third iteration"), (3, "never true")]
    assert said(generated, coverage_of(watch, lambda n: list(generated(n)), 5)) == [
        (3, "never false")
    ]


def test_loops_without_an_iteration_never_ran(watch):
    assert said(loops, coverage_of(watch, loops, 0)) == [
        (1, "it never ran"),
        (2, "it never ran"),
        (6, "it never ran"),
    ]


def test_each_entry_of_a_loop_counts_its_iterations_from_0(watch):
    assert said(loops, coverage_of(watch, loops, 1)) == [
        (1, "never a second iteration"),
        (2, "never a second iteration"),
        (6, "never a second iteration"),
    ]
    assert said(loops, coverage_of(watch, loops, 5)) == [(2, "never a third iteration")]


def test_recursive_calls_are_distinguished(watch):
    assert (1, "never a third iteration") in said(
        recursive, coverage_of(watch, recursive, 2)
    )
    assert all(
        line != 1 for line, _ in said(recursive, coverage_of(watch, recursive, 3))
    )


def test_functions_that_are_called_count(watch):
    found = uncovered_branches(coverage_of(watch, recursive, 2))
    assert [(one.source, one.what, one.kernels) for one in found][-1:] == [
        ("for each in range(n):", "never a third iteration", ("recursive",))
    ]
    assert ("while deep > 2:", "it never ran") in [
        (one.source, one.what) for one in found
    ]


def test_threads_of_a_call_count(watch):
    assert [
        one.what for one in uncovered_branches(coverage_of(watch, of_threads, 4))
    ] == ["never a third iteration"]
    assert uncovered_branches(coverage_of(watch, of_threads, 5)) == []


def test_a_function_with_full_coverage_is_no_longer_traced(watch):
    assert uncovered_branches(coverage_of(watch, inner, 9)) == []
    assert coverage_of(watch, inner, 9).branches == set()
    before = sys.gettrace()
    with watch.call(inner):
        assert sys.gettrace() is before


def test_a_kernel_without_forks_or_a_hash_is_traced_once(watch):
    class Unhashable:
        __hash__ = None
        __name__ = "without"
        __call__ = staticmethod(len)

    kernel = Unhashable()
    before = sys.gettrace()
    assert coverage_of(watch, kernel, "").branches == set()
    with watch.call(kernel):
        assert sys.gettrace() is before


def test_libraries_are_not_watched(watch):
    import json

    assert coverage_of(watch, json.loads, "[1, 2]").branches == set()


def test_a_package_that_is_installed_counts_for_its_own_kernels(
    watch, tmp_path, monkeypatch
):
    folder = tmp_path / "site-packages"
    for name in ("own_kernels", "of_others"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(
            "def pairs(n):\n    while n > 2:\n        n -= 2\n"
        )
    monkeypatch.syspath_prepend(folder)
    import of_others
    import own_kernels

    def both(n):
        own_kernels.pairs(n)
        of_others.pairs(n)

    both.__module__ = "own_kernels"
    (found,) = uncovered_branches(coverage_of(watch, both, 1))
    assert "own_kernels" in found.file
    for name in ("own_kernels", "of_others"):
        sys.modules.pop(name)


def test_where_another_tool_traces_nothing_is_claimed():
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    watch = BranchTracer(monitoring=None)
    try:
        with watch.call(inner) as seen:
            inner(3)
    finally:
        sys.settrace(before)
    assert seen.branches == set()
    assert "a debugger or a coverage tool traces" in watch.unknown


def test_settrace_sees_the_kernel_and_nothing_within_the_simulator(monkeypatch):
    """Tracing the callees of an instruction took half of the time of a test."""
    watch = BranchTracer(monitoring=None)
    within = []
    stack_of = recording.kernel_stack
    look = lambda *at: within.append(sys.gettrace()) or stack_of(*at)  # noqa: E731
    monkeypatch.setattr(recording, "kernel_stack", look)
    with watch.call(doubled) as seen:
        launch(doubled, [np.ones((2, 3), np.float32)], record=True)
        assert sys.gettrace() is not None
    assert set(within) == {None}
    # the loop's only turn, after an instruction
    assert {what for _, _, what in seen.covered} == {0}


def test_a_body_on_the_line_of_its_head_is_no_fork():
    namespace = {}
    exec(
        compile("def one(n):\n    if n: return 1\n    return 2\n", __file__, "exec"),
        namespace,
    )
    assert branches_of(namespace["one"].__code__) == {}


def test_kernels_of_one_file_are_merged():
    """Each kernel covers a branch of a shared function by itself."""
    first = Coverage()
    second = Coverage()
    first.add_function("first", [("tiles.py", 3, False)])
    second.add_function("second", [("tiles.py", 3, False)])
    first.covered.add(("tiles.py", 3, 0))
    second.covered.add(("tiles.py", 3, 1))
    first.merge(second)
    assert uncovered_branches(first) == []


def test_a_kernel_whose_cases_did_not_all_run_misses_nothing():
    coverage = Coverage()
    coverage.add_function("add", [("add.py", 7, True)])
    coverage.branches.clear()
    assert uncovered_branches(coverage) == []
    assert uncovered_branches(coverage_from_list(coverage.to_list())) == []


def test_branches_are_merged_under_the_other_name_of_a_kernel():
    other = Coverage()
    other.add_function("add", [("kernel.py", 8, True)])
    merged = Coverage()
    merged.merge(other, {"add": "add (nki)"})
    assert merged.branches == {("kernel.py", 8, True, "add (nki)")}


def test_the_files_that_code_names_are_there():
    """Renames of modules do not reach the names of files in strings."""
    package = Path(difftest.__file__).parents[1]
    assert (package / tracer._AFTERWARDS).is_file()
    assert all(Path(file).is_file() for file in errors._LAUNCH)
