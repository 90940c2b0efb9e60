"""Kernels of ``@nki.jit`` and ``nki.simulate``, and the modules that kernels import.

The modules contain only names that AWS documents. The simulator's own helpers are AttributeErrors
there, like any other name that does not exist.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from difftest.simulator.arrays import outputs_of
from difftest.simulator.core import is_running
from difftest.simulator.errors import kernel_location, missing_name, not_modelled
from difftest.simulator.frontend.arguments import Annotation, Unmodelled, not_taken
from difftest.simulator.frontend.launchable import (
    PARAMETER,
    NkiLaunchable,
    Target,
    need_function,
)
from difftest.simulator.frontend.levels import ending, known_level
from difftest.simulator.frontend.nki import collectives, constants, isa, language
from difftest.simulator.frontend.nki.tensor import NkiTensor
from difftest.simulator.index import as_integers
from difftest.simulator.launch import launch_call

MOST_CORES = 2
"""The limit on cores for one kernel: a logical NeuronCore has 1 or 2."""

_HINTS = ("debug", "debug_kernel", "enable_out_of_bound_checks", "experimental_flags")
_IGNORED = (
    "mode",
    "show_compiler_tb",
    "additional_compile_opt",
    "opt_level",
    "schedule",
    *_HINTS,
)
"""Keywords of ``nki.jit`` for a compiler or a framework, which change no value."""


class NkiKernel(NkiLaunchable):
    """A kernel of the current dialect.

    Inside another kernel, calling it inlines it; outside, with NumPy arrays, it is simulated.
    ``kernel[n]`` runs it on ``n`` cores.
    """

    def __getitem__(self, key: Any) -> NkiKernel:
        grid = as_integers(key, "a launch grid with")
        if len(grid) != 1 or not 1 <= grid[0] <= MOST_CORES:
            got = f"the grid [{', '.join(map(str, grid))}]"
            raise not_taken(
                "kernel[n]",
                "the cores of one logical NeuronCore, 1 or 2",
                got,
                got,
                remedy="write a loop over larger grids inside the kernel",
            )
        return self.on(grid)

    def with_schedule(self, schedule: Any) -> NkiKernel:
        """Return the kernel itself: a schedule changes no value."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_running():
            return super().__call__(*args, **kwargs)
        return outputs_of(launch_call(self, args, kwargs), [args, kwargs])


def as_nki_kernel(
    kernel: Any, level: str | None = None, target: Target | None = None
) -> NkiKernel:
    """Return ``kernel`` itself, or a plain function as a kernel of a level and for a machine."""
    if isinstance(kernel, NkiKernel):
        return kernel
    return NkiKernel(need_function(kernel), level=level, target=target)


class Simulation:
    """The result of ``nki.simulate(kernel)``: called with arrays, it runs the kernel."""

    def __init__(self, kernel: NkiKernel) -> None:
        self.kernel = kernel

    def __getitem__(self, key: Any) -> Simulation:
        return Simulation(self.kernel[key])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel(*args, **kwargs)


@functools.cache
def functions_of(level: str | None) -> dict[str, Callable[..., Any]]:
    """Return ``nki.jit`` and ``nki.simulate`` for kernels of a level of NKI.

    None for all levels.
    """

    def jit(fn: Any = None, **kwargs: Any) -> Any:
        """Make a kernel: ``@nki.jit``, ``@nki.jit(...)`` or ``nki.jit(function)``."""
        target = None
        for name, value in kwargs.items():
            if name == PARAMETER:
                target = Target(value, kernel_location())
            elif name not in _IGNORED:
                raise not_modelled(f"nki.jit's argument {name!r}", f"{name}={value!r}")
            if name == "mode":
                warnings.warn("nki.jit ignores mode= since NKI 0.3", stacklevel=2)
        decorator = functools.partial(as_nki_kernel, level=level, target=target)
        if fn is None:
            return decorator
        return decorator(fn)

    def simulate(kernel: Any) -> Simulation:
        """Simulate a kernel: ``nki.simulate(kernel)(*arrays)``; written arrays are updated.

        ``nki.simulate(kernel[2])`` and ``nki.simulate(kernel)[2]`` run it on two cores.
        """
        return Simulation(as_nki_kernel(kernel, level))

    return {"jit": jit, "simulate": simulate}


jit, simulate = functions_of(None).values()


def simulation_of(simulate: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``nki.simulator.simulate_kernel``, which vLLM's Neuron plugin calls."""

    def simulate_kernel(
        func: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        _lnc: int = 1,
    ) -> Any:
        """Return ``nki.simulate(func)[_lnc](*args, **kwargs)``."""
        simulation = simulate(func)
        chosen = simulation if _lnc == 1 else simulation[_lnc]
        return chosen(*args, **dict(kwargs or {}))

    return simulate_kernel


# -- the modules that kernels import ---------------------------------------------------------------


ROOT = "nki"
DOCUMENTED = "0.6"
"""The level of AWS's documentation that the dialect follows, v2.32.0. It applies without a level.
"""
_UNMODELLED = ("compiler", "compiler.kernel_builder", "framework")
"""Parts that AWS's language guide (v2.32.0) and public modules import, and no kernel here uses."""


def modules(level: str | None = None) -> dict[str, ModuleType]:
    """Return new modules ``nki`` and its submodules; their kernels are of a level, if given.

    Raises
    ------
    KernelError : there is no such level.
    """
    functions = functions_of(known_level(level))
    table = {"isa.constants": _module("isa.constants", constants.NAMES, constants)}
    table["isa"] = _module(
        "isa", {**isa.NAMES, "constants": table["isa.constants"]}, isa
    )
    table |= {
        "language": _module("language", language.NAMES, language),
        "language.tensor": _module("language.tensor", {"NkiTensor": NkiTensor}),
        "collectives": _module("collectives", collectives.NAMES, collectives),
        "typing": _module("typing", {"tensor": Annotation("tensor", mutable=False)}),
        "simulator": _module(
            "simulator", {"simulate_kernel": simulation_of(functions["simulate"])}
        ),
    }
    table |= {
        name: _module(name, {}, Unmodelled(f"{ROOT}.{name}")) for name in _UNMODELLED
    }
    root = types.ModuleType(ROOT, "NKI on the embedded simulator of nki-difftest.")
    root.__spec__ = ModuleSpec(ROOT, loader=None, is_package=True)
    root.__path__ = []
    vars(root).update(
        **functions,
        **{name: module for name, module in table.items() if "." not in name},
        dtype=np.dtype,
        __version__=f"{level or DOCUMENTED}.0",
        __difftest_embedded__=True,
    )

    def missing(name: str) -> NoReturn:
        raise missing_name(ROOT, name, vars(root), ended=ending(f"nki.{name}"))

    root.__getattr__ = missing  # type: ignore[method-assign]
    return {ROOT: root, **{f"{ROOT}.{name}": module for name, module in table.items()}}


def _module(name: str, names: Mapping[str, Any], source: Any = None) -> ModuleType:
    """Return a module of some names; ``source`` handles access to other names."""
    module = types.ModuleType(
        f"{ROOT}.{name}", (source and source.__doc__) or "Names of NKI."
    )
    vars(module).update(names, __all__=sorted(names))
    other: Callable[[str], Any] | None = getattr(source, "__getattr__", None)
    if other is not None:
        module.__getattr__ = other  # type: ignore[method-assign]
    return module
