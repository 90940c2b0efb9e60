"""Kernels as objects: what ``@nki.jit`` makes of a function."""

from __future__ import annotations

import functools
import importlib
import inspect
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any, ClassVar

from difftest.simulator.core import is_running
from difftest.simulator.errors import KernelError, not_modelled
from difftest.simulator.frontend.arguments import as_argument, undocumented_argument
from difftest.simulator.frontend.grid import grid_shape
from difftest.simulator.machine import MACHINES, TRN2, Machine
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
RUN_HINTS = ("device_count", "num_execs")
"""The same of ``nki.baremetal``, ``nki.benchmark`` and ``nki.profile``."""


COMPILER, NO_DGE = "additional_compile_opt", "--disable-dge"
"""The option for the compiler's own, of which one lets the device generate no DMA descriptors."""


def launching() -> Any:
    """The module of launches; imported late, for it stands above the frontends."""
    return importlib.import_module("difftest.simulator.launch")


class Kernel:
    """A kernel function and how it is launched.

    Inside another kernel, calling it inlines it. Outside, calling it simulates it. ``kernel[grid]``
    gives a kernel with an SPMD grid.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        grid: tuple[int, ...] = (),
        machine: Machine = TRN2,
        by_reference: bool = False,
    ) -> None:
        self.function = function
        self.grid = grid
        self.machine = machine
        self.by_reference = by_reference
        """Whether parameters may be written, as in kernels of SDKs before 2.21 (``nki.trace``)."""
        functools.update_wrapper(self, function)

    def __getitem__(self, key: Any) -> Kernel:
        if type(key) is int and key == 0:
            error = KernelError(
                "a grid dimension is positive",
                happened="a kernel was given a grid of 0, and runs as one of 1",
                received=f"{self.function.__name__}[0]",
                remedy="leave the brackets out",
            )
            note(error)
            key = 1
        return Kernel(
            self.function,
            grid=grid_shape(key),
            machine=self.machine,
            by_reference=self.by_reference,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_running():
            if self.grid:
                raise KernelError(
                    "a kernel with a grid is not called inside another kernel",
                    happened="a kernel called another one with a grid",
                    received=f"{self.function.__name__}[{self.grid}]",
                    remedy="call it without the grid",
                )
            return self.function(*args, **kwargs)
        return outputs_of(launching().launch(self, args, kwargs, record=False))

    def __repr__(self) -> str:
        grid = f"{list(self.grid)}" if self.grid else ""
        return f"<NKI kernel {self.function.__module__}.{self.function.__qualname__}{grid}>"


class RunAs:
    """A kernel under ``nki.baremetal``, ``nki.benchmark`` or ``nki.profile``.

    Calling it runs it so; ``nki.simulate_kernel`` and another kernel take the kernel below.
    """

    where: ClassVar[str]
    known: ClassVar[tuple[str, ...]]
    """Its documented options."""
    parameter: ClassVar[str] = "kernel"
    """The name of its first parameter."""

    def __init__(self, kernel: Kernel, predictor: Any, options: dict[str, Any]) -> None:
        self.kernel = kernel
        self.predictor = predictor
        self.options = options
        functools.update_wrapper(self, kernel.function)

    def __getitem__(self, key: Any) -> Any:
        return type(self)(self.kernel[key], self.predictor, self.options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it as the decorator does."""
        raise NotImplementedError

    def launched(self, args: tuple[Any, ...], kwargs: dict[str, Any], record: bool) -> Any:
        """What its launch gives back."""
        args = tuple(map(as_argument, args))
        kwargs = {name: as_argument(value) for name, value in kwargs.items()}
        return launching().launch(self.kernel, args, kwargs, record=record)

    def predicted(self, trace: Any) -> Any:
        """What its predictor says of a launch; the device generates descriptors by default."""
        dge = NO_DGE not in (self.options.get(COMPILER) or "")
        return self.predictor(trace, self.kernel.machine, dge)

    @classmethod
    def decorator(cls, predictor: Any) -> Callable[..., Any]:
        """The decorator, with or without options, of modules installed with this predictor."""

        def decorate(kernel: Any = None, /, **options: Any) -> Any:
            kernel, given = options.pop(cls.parameter, kernel), {}
            for name, value in options.items():
                if name in RUN_HINTS:
                    undocumented_argument(cls.where, name, value)
                elif name not in cls.known:
                    raise not_modelled(f"{cls.where}'s argument {name!r}", f"{name}={value!r}")
                else:
                    given[name] = value
            if kernel is None:
                return functools.partial(decorate, **given)
            return cls(as_kernel(kernel), predictor, given)

        decorate.__doc__ = cls.__doc__
        return decorate


def as_kernel(kernel: Any) -> Kernel:
    """``kernel`` itself, or a plain function as one (whose parameters may be written)."""
    if isinstance(kernel, RunAs):
        return kernel.kernel
    if isinstance(kernel, Kernel):
        return kernel
    return Kernel(need_function(kernel), by_reference=True)


def function_in(kernel: Any) -> FunctionType | None:
    """The Python function that a call of ``kernel`` runs; None for a class, or what is in C."""
    while not isinstance(kernel, FunctionType) or hasattr(kernel, "__wrapped__"):
        inner = getattr(kernel, "__wrapped__", None) or getattr(kernel, "__func__", None)
        if isinstance(kernel, functools.partial):
            inner = kernel.func
        called = inspect.getattr_static(type(kernel), "__call__", None)
        kernel = inner or called
        if inner is None and not isinstance(called, FunctionType):
            return None
    return kernel


def need_function(kernel: Any) -> Any:
    """``kernel``, unless no Python function is in it.

    Raises
    ------
    KernelError : it is a class, a function written in C such as ``numpy.exp``, or not callable.
    """
    if function_in(kernel) is not None:
        return kernel
    raise KernelError(
        "a kernel is a Python function",
        happened=f"{kernel!r:.60} was to be a kernel",
        received=f"{type(kernel).__name__} {kernel!r:.80}",
        remedy="write a function of tensors that calls nki.language or nki.isa",
    )


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
        error = KernelError(
            "a framework's mode needs the framework",
            happened=f"nki.jit got mode={mode!r} on the simulator",
            received=f"mode={mode!r}",
            remedy=f"call the kernel with NumPy arrays, or use one of {', '.join(MODES)}",
        )
        note(error)
    elif not isinstance(mode, str) or mode not in MODES:
        raise not_modelled(
            f"nki.jit(mode={mode!r})",
            f"mode={mode!r}",
            f"use one of {', '.join((*MODES, *FRAMEWORKS))}",
        )
    if not isinstance(target, str) or target not in MACHINES:
        raise KernelError(
            "platform_target names a machine",
            happened=f"platform_target is {target!r:.40}, which is not modelled",
            received=f"{target!r}",
            limit=", ".join(sorted(MACHINES)),
        )
    if func is None:
        return functools.partial(jit, mode=mode, platform_target=target)
    by_reference = mode == "trace"
    return Kernel(as_kernel(func).function, machine=MACHINES[target], by_reference=by_reference)


def trace(func: Any = None, **kwargs: Any) -> Any:
    """``@nki.trace``: a kernel whose parameters may be written, as before SDK 2.21."""
    for name, value in kwargs.items():
        raise not_modelled(f"nki.trace's argument {name!r}", f"{name}={value!r}")
    return trace if func is None else Kernel(as_kernel(func).function, by_reference=True)


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """``nki.simulate_kernel``: the kernel's outputs as an array, or a tuple of arrays.

    Elements that the kernel never wrote are poison (NaN, or 0xA5 bytes); a warning says so.
    Inside a kernel it inlines the other one: the course's harness benchmarks a function that
    calls it.
    """
    if is_running():
        return as_kernel(kernel)(*args, **kwargs)
    return outputs_of(launching().launch(as_kernel(kernel), args, kwargs, record=False))


def outputs_of(result: Any) -> Any:
    """A launch's outputs as the API gives them: one array, a tuple of arrays, or None."""
    for number, missing in enumerate(result.unwritten):
        if missing is not None:
            warnings.warn(
                f"output {number} has {int(missing.sum())} of {missing.size} elements that the "
                "kernel never wrote; on a device they are whatever was there",
                stacklevel=3,
            )
    if not result.outputs:
        return None
    return result.outputs[0] if len(result.outputs) == 1 else result.outputs
