"""Kernels on several ranks in a kernel test: bugs of their groups are found, shrunk, and said."""

import numpy as np
import pytest

from difftest import check
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import collectives as ncc
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.testing.backends.base import Completed, Unsupported
from difftest.testing.backends.sdk import ByDialect
from difftest.testing.contract.spec import KernelSpec, Rejection
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.explicit import minimal_case
from difftest.testing.drawing.sizes import sizes
from difftest.testing.harness.edges import edge_cases
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.kernel_calls import call_of_case, make_call
from difftest.testing.harness.verdict import Match
from difftest.tools.verdict.candidate import spec_for
from tests.every import every
from tests.meta.search import smallest_failure

GROUPS = (((0, 1),), ((0, 1), (2, 3)), ((0, 2), (1, 3)))
CASE = {"groups": ((0, 2), (1, 3)), "ranks": 4, "rows": 3, "columns": 5}


def mean_of(x, weight, groups, members=None, scaled=True):
    members = groups if members is None else members
    product, total = (
        nl.ndarray(weight.shape, nl.float32, buffer=nl.sbuf) for _ in range(2)
    )
    nisa.dma_copy(dst=product, src=x)
    nisa.dma_copy(dst=total, src=weight)
    nisa.tensor_tensor(dst=product, data1=product, data2=total, op=nl.multiply)
    ncc.all_reduce([product], [total], ncc.ReplicaGroup(members), nl.add)
    factor = 1 / len(groups[0]) if scaled else 1.0
    nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=factor)
    return total


def returned(x, weight, groups):
    total = mean_of(x, weight, groups)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out


def in_place(x, weight, out, groups):
    nisa.dma_copy(dst=out, src=mean_of(x, weight, groups))
    return out


def neighbours(x, weight, out, groups):
    pairs = [(0, 1), (2, 3)][: len(groups)]
    nisa.dma_copy(dst=out, src=mean_of(x, weight, groups, pairs))


def unscaled(x, weight, out, groups):
    nisa.dma_copy(dst=out, src=mean_of(x, weight, groups, scaled=False))


def without_last(x, weight, groups):
    total = mean_of(x, weight, groups)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[:, 0:4], src=total[:, 0:4])
    return out


def overwriting(x, weight, out, groups):
    in_place(x, weight, out, groups)
    nisa.dma_copy(dst=x, src=out)


def reference(x, weight, groups):
    result = np.empty(x.shape)
    for group in map(list, groups):
        result[group] = (x[group].astype(np.float64) * weight).mean(axis=0)
    return result


def spec_of(kernel, **changed):
    given = {
        "kernel": jit(kernel),
        "reference": reference,
        "domain": {
            "groups": GROUPS,
            "ranks": lambda groups: (sum(map(len, groups)),),
            "rows": sizes(1, 8),
            "columns": sizes(1, 6),
        },
        "inputs": {"x": "ranks rows columns", "weight": "rows columns"},
        "outputs": {}
        if kernel in (returned, without_last)
        else {"out": "ranks rows columns"},
        "parameters": ("groups",),
        "dtypes": ("float32",),
        "reduction": 3,
        "ranks": "ranks",
    }
    return KernelSpec(**{**given, **changed})


@every("kernel", [returned, in_place])
def test_ranks_get_their_parts_and_the_reference_gets_all(kernel):
    verdict = check(spec_of(kernel), CASE)
    assert isinstance(verdict, Match)
    assert verdict.elements == 4 * 3 * 5


def test_a_wrong_group_shrinks_to_the_fewest_ranks_that_show_it():
    failure = smallest_failure(spec_of(neighbours))
    assert failure.case.values == {
        "groups": GROUPS[2],
        "ranks": 4,
        "rows": 1,
        "columns": 1,
    }
    assert "x:           (4, 1, 1) " in str(failure)
    # what `run again` says
    with pytest.raises(DifferentialFailure, match="neighbours disagrees"):
        check(spec_of(neighbours), failure.case.to_json())


@every(
    "kernel, said",
    [
        (unscaled, "scaled: each wrong element is 2 times the right value"),
        (without_last, "never wrote some elements"),
        (overwriting, "overwrites its input x"),
    ],
)
def test_errors_on_the_ranks_are_reported(kernel, said):
    with pytest.raises(DifferentialFailure, match=said):
        check(spec_of(kernel), CASE)


def test_a_backend_without_ranks_reports_that():
    class Backend:
        name = description = "sdk"

        def run(self, call):
            return Completed(())

    spec = spec_of(in_place)
    case = minimal_case(spec, CASE, "float32")
    call = make_call(spec, case)
    outcome = ByDialect({"newer": Backend()}, {}).run(call)
    assert isinstance(outcome, Unsupported)
    assert "sdk runs no ranks" in str(outcome.error)
    for use in (
        lambda: call_of_case(spec, case),
        lambda: spec_for(spec, jit(in_place), "newer"),
    ):
        with pytest.raises(SpecError, match="a test of several ranks"):
            use()


def test_the_number_of_ranks_is_no_edge_of_a_contract():
    values = {"groups": GROUPS[0], "ranks": 2, "rows": 129, "columns": 1}
    spec = spec_of(in_place, rejects=(Rejection(values, "128"),))
    edges = [
        edge for edge in edge_cases(spec) if "ranks" in edge.why or edge.case.shapes
    ]
    assert {len(shape) for edge in edges for shape in edge.case.shapes.values()} == {
        2,
        3,
    }
    assert all(
        edge.case.shapes.get(name, (2,))[0] == 2
        for edge in edges
        for name in ("x", "out")
    )
    assert all(edge.case.values["ranks"] == 2 for edge in edges)


@every(
    "changed, said",
    [
        ({"ranks": "cores"}, "ranks: received the name 'cores'"),
        ({"outputs": {"out": "rows columns"}}, "the first dimension of each output"),
        (
            {"inputs": {"x": "rows columns", "weight": "rows columns"}, "outputs": {}},
            "and of an input at least",
        ),
    ],
)
def test_a_spec_says_which_arrays_are_shared_out(changed, said):
    kernel = returned if changed.get("outputs") == {} else in_place
    with pytest.raises(SpecError, match=said):
        spec_of(kernel, **changed)
