"""The classic compiler's traps, and the forms that it takes."""

import numpy as np

from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in, normal

A = normal(128, 256)


def part(i):
    return nl.ds(i * 64, 64)


@every("loop", [nl.affine_range, nl.sequential_range, nl.static_range])
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
            tile = nl.load(a[:, part(i)])
        for _ in nl.sequential_range(1):
            nl.store(out, tile)
        return out

    assert found_in(kernel, [A]) == [("tensor-scope", "error")]


def test_a_name_that_each_iteration_binds_anew():
    def kernel(a):
        out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((128, 64), dtype=a.dtype)
        for i in nl.sequential_range(4):
            total = nl.subtract(nl.load(a[:, part(i)]), total)
        nl.store(out, total)
        return out

    assert ("tensor-scope", "error") in found_in(kernel, [A])


def test_a_tensor_that_is_made_before_the_loop():
    def kernel(a):
        out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((128, 64), dtype=a.dtype)
        for i in nl.sequential_range(4):
            tile = nl.load(a[:, part(i)])
            for _ in nl.sequential_range(2):
                total[...] = nl.subtract(tile, total)
        nl.store(out, total)
        return out

    assert found_in(kernel, [A]) == []


def test_a_tensor_that_a_called_function_gives_back():
    def helper(a, i):
        return nl.load(a[:, part(i)])

    def kernel(a):
        out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, helper(a, 1))
        return out

    assert found_in(kernel, [A]) == []


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
