"""Iterations of ``affine_range`` that share the reduction registers of an engine."""

import numpy as np

from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.analysis.detectors.kernels import found_in, normal

COLUMNS = 128


def part(i):
    return nl.ds(i * COLUMNS, COLUMNS)


def summed_in_registers(loop, *, begins, shown):
    """Which command ``begins`` the sum, and whether each iteration shows it so far."""
    commands = nisa.reduce_cmd

    def activate(tile, command, **options):
        nisa.activation(nl.copy, tile, reduce_op=np.add, reduce_cmd=command, **options)

    def kernel(a):
        out = nl.ndarray((128, 4), dtype=a.dtype, buffer=nl.shared_hbm)
        sums = nl.zeros((128, 4), dtype=a.dtype, buffer=nl.sbuf)
        if begins == "before":
            activate(nl.load(a[:, part(0)]), commands.reset_reduce)
        for i in loop(4):
            first = begins == "each" or (begins == "first" and i == 0)
            command = commands.reset_reduce if first else commands.reduce
            options = {"reduce_res": sums[:, i : i + 1]} if shown else {}
            activate(nl.load(a[:, part(i)]), command, **options)
        if not shown:
            activate(nl.load(a[:, part(0)]), commands.reduce, reduce_res=sums[:, 0:1])
        nl.store(out, sums)
        return out

    return kernel


@every(
    "begins, shown, found",
    [
        ("first", True, [("affine-carried", "error")]),
        ("first", False, [("affine-carried", "error")]),
        ("before", True, [("affine-carried", "error")]),
        ("before", False, [("affine-reduction", "warning")]),
        ("each", True, []),
    ],
)
def test_sums_in_reduction_registers(begins, shown, found):
    a = normal(128, 512)
    kernel = summed_in_registers(nl.affine_range, begins=begins, shown=shown)
    assert found_in(kernel, [a]) == found
    spoilt = [("reduce-res-accumulated", "warning")] if begins != "each" else []
    for loop in (nl.sequential_range, range):
        kernel = summed_in_registers(loop, begins=begins, shown=shown)
        assert found_in(kernel, [a]) == spoilt


@every(
    ("command", "found"),
    [("reduce", [("uninitialised-register", "error")]), ("reset_reduce", [])],
)
def test_a_reduction_in_registers_that_nothing_has_reset(command, found):
    def kernel(a):
        out = nl.ndarray((128, 1), dtype=a.dtype, buffer=nl.shared_hbm)
        total = nl.ndarray((128, 1), dtype=a.dtype, buffer=nl.sbuf)
        options = {"reduce_op": np.add, "reduce_cmd": getattr(nisa.reduce_cmd, command)}
        nisa.activation(nl.copy, nl.load(a), reduce_res=total, **options)
        nl.store(out, total)
        return out

    assert found_in(kernel, [normal(128, 4)]) == found
