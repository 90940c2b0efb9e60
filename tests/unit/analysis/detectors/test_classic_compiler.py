"""The classic compiler's traps, and the forms that it takes."""

import numpy as np
import pytest

from difftest.simulator import ShapeError, launch
from difftest.simulator.errors import relative_path
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in, normal

A = normal(128, 256)


def part(i):
    return nl.ds(i * 64, 64)


@every("loop", [nl.affine_range, nl.sequential_range])
def test_a_tensor_that_is_used_after_the_loop_that_makes_it(loop):
    def kernel(a):
        out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        for i in loop(4):
            tile = nl.load(a[:, part(i)])
        nl.store(out, tile)
        return out

    (finding,) = findings_in(kernel, [A])
    first = kernel.__code__.co_firstlineno
    assert (finding.id, finding.severity.value) == ("tensor-scope", "error")
    assert [line.line - first for line in finding.locations] == [4, 3, 2]


def test_a_tensor_that_is_used_in_the_same_iteration_of_another_loop():
    def kernel(a):
        out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.sequential_range(1):
            for _ in nl.sequential_range(1):
                tile = nl.load(a[:, part(i)])
            for _ in nl.sequential_range(1):
                nl.store(out, tile)
        return out

    assert found_in(kernel, [A]) == [("tensor-scope", "error")]


@pytest.mark.parametrize(
    ("loop", "found"),
    [(nl.sequential_range, [("tensor-scope", "error")]), (nl.static_range, [])],
)
def test_a_name_that_each_iteration_binds_again(loop, found):
    """The second is unrolled when the kernel is traced, as Python's own range is."""

    def kernel(a):
        out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((128, 64), dtype=a.dtype)
        for i in loop(4):
            total = nl.subtract(nl.load(a[:, part(i)]), total)
        nl.store(out, total)
        return out

    assert list(dict.fromkeys(found_in(kernel, [A]))) == found


def softmax_sums(inside):
    """Sums of exponentials, added up in each iteration or after the loop."""

    def kernel(a):
        out = nl.ndarray((128, 1), dtype=np.float32, buffer=nl.shared_hbm)
        total = nl.zeros((128, 1), dtype=np.float32)
        sums = nl.ndarray((128, 4), dtype=np.float32, buffer=nl.sbuf)
        for i in nl.sequential_range(4):
            tile = nl.load(a[:, part(i)])
            one = nl.ndarray((128, 1), dtype=np.float32, buffer=nl.sbuf)
            into = one if inside else sums[:, i]
            nisa.activation_reduce(np.exp, tile, reduce_op=np.add, reduce_res=into)
            if inside:
                total[...] = nl.add(total, one)
        if not inside:
            total[...] = nl.sum(sums, axis=1, keepdims=True)
        nl.store(out, total)
        return out

    return kernel


@every("inside, found", [(True, [("reduce-res-accumulated", "warning")]), (False, [])])
def test_reductions_beside_a_result(inside, found):
    assert found_in(softmax_sums(inside), [A]) == found


def test_a_finding_in_a_helper_names_the_call_and_is_allowed_there():
    """As an error of the simulator does."""

    def helper(total, tile):
        total[...] = nl.add(total, tile)

    def kernel(a, out):
        total = nl.zeros((128, 64), dtype=a.dtype)
        for i in nl.affine_range(4):
            helper(total, nl.load(a[:, part(i)]))
        for i in nl.affine_range(4):
            helper(total, nl.load(a[:, part(i)]))  # difftest: allow[affine-reduction]
        nl.store(out, total)
        if a.shape[1] > 256:
            helper(total, nl.load(a[:, 0:63]))
        return out

    first = kernel.__code__.co_firstlineno
    with pytest.raises(ShapeError) as raised:
        launch(kernel, [normal(128, 320), normal(128, 64)])
    assert [call.line - first for call in raised.value.location.calls] == [8]
    assert f"called at {relative_path(__file__)}:{first + 8}" in str(raised.value)
    (finding,) = findings_in(kernel, [A, normal(128, 64)])
    assert finding.location.text == "total[...] = nl.add(total, tile)"
    assert [call.line - first for call in finding.location.calls] == [3]


LOOPS = (nl.affine_range, nl.sequential_range, nl.static_range, range)


def summed_in_two_loops(outer, inner, *, in_registers):
    """A sum over the inner loop, reset in each iteration of the outer loop."""
    commands = nisa.reduce_cmd

    def kernel(a):
        out = nl.ndarray((128, 2), dtype=np.float32, buffer=nl.shared_hbm)
        for i in outer(2):
            total = nl.zeros((128, 1), dtype=np.float32, buffer=nl.sbuf)
            for k in inner(2):
                tile = nl.load(a[:, part(2 * i + k)])
                one = nl.zeros((128, 1), np.float32)
                command = (
                    commands.reset_reduce
                    if k == 0 or not in_registers
                    else commands.reduce
                )
                into = total if in_registers else one
                options = {
                    "reduce_op": np.add,
                    "reduce_res": into,
                    "reduce_cmd": command,
                }
                nisa.activation(np.exp, tile, **options)
                if not in_registers:
                    total[...] = nl.add(total, one)
            nl.store(out[:, i : i + 1], total)
        return out

    return kernel


@every("in_registers", [True, False])
@every("outer", LOOPS)
@every("inner", LOOPS)
def test_a_reduction_goes_on_in_the_inner_of_two_loops(outer, inner, in_registers):
    found = {
        id
        for id, _ in found_in(
            summed_in_two_loops(outer, inner, in_registers=in_registers), [A]
        )
    }
    carried = inner is nl.affine_range and in_registers
    assert ("affine-carried" if carried else "reduce-res-accumulated") in found
