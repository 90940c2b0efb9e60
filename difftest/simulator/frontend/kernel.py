"""Kernels as objects: what ``@nki.jit`` makes of a function."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from difftest.simulator.arrays import outputs_of
from difftest.simulator.core import is_running
from difftest.simulator.errors import not_modelled
from difftest.simulator.frontend.arguments import not_taken, undocumented_argument
from difftest.simulator.frontend.launchable import Launchable, grid_shape, need_function
from difftest.simulator.index import as_choice
from difftest.simulator.launch import called
from difftest.simulator.machine import MACHINES
from difftest.simulator.misuses import GRID_OF_ZERO
from difftest.simulator.strictness import note

MODES = ("auto", "simulation", "baremetal", "benchmark", "trace")
"""Modes of ``nki.jit`` that run here, all on the simulator. ``trace``, which AWS documents in its
``nki-migration-guide.rst`` at v2.27.0, is of kernels that others call (:func:`trace`)."""
FRAMEWORKS = ("jax", "torchxla")
"""Modes that need a framework; their kernels take NumPy arrays here."""
JIT_HINTS = (
    "kernel_return",
    "debug_kernel",
    "experimental_flags",
    "show_compiler_tb",
    "enable_out_of_bound_check",
)
"""Arguments that AWS does not document, that public kernels pass, and that change no value."""
_Own = TypeVar("_Own", bound="Kernel")


class Kernel(Launchable):
    """A kernel function and how it is launched.

    Inside another kernel, calling it inlines it. Outside, calling it simulates it. ``kernel[grid]``
    gives a kernel with an SPMD grid.
    """

    def __getitem__(self: _Own, key: Any) -> _Own:
        if type(key) is int and key == 0:
            note(GRID_OF_ZERO(f"{self.function.__name__}[0]"))
            key = 1
        return self.on(grid_shape(key))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_running():
            return super().__call__(*args, **kwargs)
        return outputs_of(called(self, args, kwargs), [args, kwargs])


def as_kernel(kernel: Any) -> Kernel:
    """``kernel`` itself, or a plain function as one (whose parameters may be written)."""
    return kernel if isinstance(kernel, Kernel) else Kernel(need_function(kernel))


def jit(func: Any = None, mode: str = "auto", **kwargs: Any) -> Any:
    """``@nki.jit``, ``@nki.jit(mode=...)`` and ``nki.jit(kernel, mode=...)``.

    ``platform_target`` ("trn1", "trn2" or "trn3") chooses the machine. ``additional_compile_opt``
    goes to a compiler, and there is none here: it changes no value and is accepted.
    """
    target = kwargs.pop("platform_target", "trn2")
    kwargs.pop("additional_compile_opt", None)
    for name, value in kwargs.items():
        if name not in JIT_HINTS:
            raise not_modelled(f"nki.jit's argument {name!r}", f"{name}={value!r}")
        undocumented_argument("nki.jit", name, value)
    if isinstance(mode, str) and mode in FRAMEWORKS:
        remedy = f"call the kernel with NumPy arrays, or use one of {', '.join(MODES)}"
        takes, got = "a framework's mode where the framework is", f"mode={mode!r} on the simulator"
        note(not_taken("nki.jit", takes, got, f"mode={mode!r}", remedy=remedy))
    elif not isinstance(mode, str) or mode not in MODES:
        remedy = f"use one of {', '.join((*MODES, *FRAMEWORKS))}"
        raise not_modelled(f"nki.jit(mode={mode!r})", f"mode={mode!r}", remedy)
    as_choice(target, MACHINES, "platform_target")
    if func is None:
        return functools.partial(jit, mode=mode, platform_target=target)
    by_reference = mode == "trace"
    return Kernel(as_kernel(func).function, machine=MACHINES[target], by_reference=by_reference)


def trace(func: Any = None, **kwargs: Any) -> Any:
    """``@nki.trace``: a kernel whose parameters may be written, as before SDK 2.21."""
    for name, value in kwargs.items():
        raise not_modelled(f"nki.trace's argument {name!r}", f"{name}={value!r}")
    return trace if func is None else Kernel(as_kernel(func).function)


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """``nki.simulate_kernel``: the kernel's outputs as an array, or a tuple of arrays.

    Elements that the kernel never wrote are poison (NaN, or 0xA5 bytes); a warning says so.
    Inside a kernel it inlines the other one: the course's harness benchmarks a function that
    calls it.
    """
    return Kernel.__call__(as_kernel(kernel), *args, **kwargs)
