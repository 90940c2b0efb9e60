"""Kernels as objects: what ``@nki.jit`` makes of a function, and ``nki.simulate``."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from difftest.simulator.arrays import outputs_of
from difftest.simulator.core import is_running
from difftest.simulator.errors import KernelError, kernel_location, not_modelled
from difftest.simulator.frontend import foreign
from difftest.simulator.frontend.launchable import PARAMETER, NkiLaunchable, Target, need_function
from difftest.simulator.index import as_integers
from difftest.simulator.launch import Launch, witnessed

MOST_CORES = 2
"""Cores that one kernel runs on: the degrees of a logical NeuronCore are 1 and 2."""

_HINTS = ("debug", "debug_kernel", "enable_out_of_bound_checks", "experimental_flags")
_IGNORED = ("mode", "show_compiler_tb", "additional_compile_opt", "opt_level", "schedule", *_HINTS)
"""Keywords of ``nki.jit`` that tell a compiler or a framework something, and change no value."""


class NkiKernel(NkiLaunchable):
    """A kernel of today's dialect.

    Inside another kernel, calling it inlines it; outside, with NumPy arrays, it is simulated.
    ``kernel[n]`` runs it on ``n`` cores.
    """

    def __getitem__(self, key: Any) -> NkiKernel:
        grid = as_integers(key, "a launch grid with")
        if len(grid) != 1 or not 1 <= grid[0] <= MOST_CORES:
            raise KernelError(
                "kernel[n] names the cores of one logical NeuronCore",
                happened=f"a kernel was launched on the grid [{', '.join(map(str, grid))}]",
                received=f"{self.function.__name__}[{', '.join(map(str, grid))}]",
                limit="kernel[1] or kernel[2]",
                remedy="write a loop over larger grids inside the kernel",
            )
        return self.on(grid)

    def with_schedule(self, schedule: Any) -> NkiKernel:
        """The same kernel: a schedule changes no value."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_running():
            return super().__call__(*args, **kwargs)
        finished = witnessed(Launch(self, args, kwargs, record=False))
        foreign.check_outputs([args, kwargs], [array for array, _ in finished.outputs])
        return foreign.like([args, kwargs], outputs_of(finished.result()))


def as_nki_kernel(kernel: Any, level: str | None = None, target: Target | None = None) -> NkiKernel:
    """``kernel`` itself, or a plain function as one of a level and for a machine."""
    if isinstance(kernel, NkiKernel):
        return kernel
    return NkiKernel(need_function(kernel), level=level, target=target)


class Simulation:
    """``nki.simulate(kernel)``: called with arrays, it runs the kernel and returns arrays."""

    def __init__(self, kernel: NkiKernel) -> None:
        self.kernel = kernel

    def __getitem__(self, key: Any) -> Simulation:
        return Simulation(self.kernel[key])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel(*args, **kwargs)


@functools.cache
def functions_of(level: str | None) -> dict[str, Callable[..., Any]]:
    """``nki.jit`` and ``nki.simulate``, whose kernels are of a level of NKI; None for all."""

    def jit(fn: Any = None, **kwargs: Any) -> Any:
        """``@nki.jit``, ``@nki.jit(...)`` and ``nki.jit(function)``."""
        target = None
        for name, value in kwargs.items():
            if name == PARAMETER:
                target = Target(value, kernel_location())
            elif name not in _IGNORED:
                raise not_modelled(f"nki.jit's argument {name!r}", f"{name}={value!r}")
            if name == "mode":
                warnings.warn("nki.jit ignores mode= since NKI 0.3", stacklevel=2)
        made = functools.partial(as_nki_kernel, level=level, target=target)
        return made if fn is None else made(fn)

    def simulate(kernel: Any) -> Simulation:
        """``nki.simulate(kernel)(*arrays)``: NumPy arrays in and out; those written are updated.

        ``nki.simulate(kernel[2])`` and ``nki.simulate(kernel)[2]`` run it on two cores.
        """
        return Simulation(as_nki_kernel(kernel, level))

    return {"jit": jit, "simulate": simulate}


jit, simulate = functions_of(None).values()


def simulation_of(simulate: Callable[..., Any]) -> Callable[..., Any]:
    """``nki.simulator.simulate_kernel``, which vLLM's Neuron plugin calls, by ``nki.simulate``."""

    def simulate_kernel(
        func: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, _lnc: int = 1
    ) -> Any:
        """What ``nki.simulate(func)[_lnc](*args, **kwargs)`` returns."""
        simulation = simulate(func)
        chosen = simulation if _lnc == 1 else simulation[_lnc]
        return chosen(*args, **dict(kwargs or {}))

    return simulate_kernel
