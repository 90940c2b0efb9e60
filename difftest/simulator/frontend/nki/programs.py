"""The programs of a logical NeuronCore: one kernel on two cores, side by side.

Source: "Logical NeuronCore configuration" and the stubs ``nisa.core_barrier`` and
``nisa.sendrecv`` at v2.32.0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from difftest.simulator.baton import Baton
from difftest.simulator.core import Core
from difftest.simulator.ordering import FORWARD


def run_side_by_side(core: Core, kernel: Callable[[], Any]) -> Any:
    """Run a kernel once for each instance of the launch's grid; what the last one returns.

    Each has on-chip memories of its own; HBM and the trace are those of ``core``. They take turns:
    see :mod:`difftest.simulator.baton`.

    Raises
    ------
    DeadlockError : they wait for each other. Whatever one of them raises ends the launch.
    """
    cores = [core.beside(program) for program in itertools.product(*map(range, core.grid))]
    names = [f"program {', '.join(map(str, one.program))}" for one in cores]
    order, first, seed = core.order, None, None
    if order.interleaved:
        seed = order.seed
    elif order.loop is None and order is not FORWARD:
        first = order.arranged(range(len(cores)))[0]
    baton = Baton(names, lambda before, after: cores[after].follow(cores[before]), first, seed)
    cores[first or 0].follow(core)
    for seat, one in enumerate(cores):
        one.baton, one.seat = baton, seat

    def instance(one: Core) -> Callable[[], Any]:
        def run() -> Any:
            with one.running():
                return kernel()

        return run

    returned = baton.run([instance(one) for one in cores])
    for one in cores:
        one.check_capacity()
    return returned[-1]
