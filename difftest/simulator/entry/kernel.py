"""Kernels of ``@nki.jit``, ``nki.baremetal``, ``nki.benchmark`` and ``nki.profile``.

Only a device can measure latency. Here a timing model may predict it. The model is not part of the
simulator: the caller of ``embedded`` passes it. Sources: ``nki.benchmark``, ``nki.baremetal`` and
``nki.profile`` at tag v2.26.0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from difftest.simulator.arrays import outputs_of
from difftest.simulator.core import is_running
from difftest.simulator.entry.artifacts import (
    ARTIFACTS,
    FILE_OPTIONS,
    NEFF,
    PROFILE,
    artifacts_of,
)
from difftest.simulator.errors import NotModelledError, not_modelled
from difftest.simulator.frontend.arguments import (
    as_argument,
    not_taken,
    undocumented_argument,
)
from difftest.simulator.frontend.launchable import Launchable, grid_shape, need_function
from difftest.simulator.index import as_choice
from difftest.simulator.launch import launch_call
from difftest.simulator.machine import MACHINES, Machine
from difftest.simulator.misuses import GRID_OF_ZERO
from difftest.simulator.strictness import report_violation
from difftest.simulator.trace import Trace

MODES = ("auto", "simulation", "baremetal", "benchmark", "trace")
"""Modes of ``nki.jit`` that run here, all on the simulator. ``trace``, which AWS documents in its
``nki-migration-guide.rst`` at v2.27.0, is for kernels that others call (:func:`trace`).
"""
FRAMEWORKS = ("jax", "torchxla")
"""Modes that need a framework. Here their kernels take NumPy arrays."""
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
    """A kernel function and its launch settings.

    Inside another kernel, calling it inlines it. Outside, calling it simulates it. ``kernel[grid]``
    gives a kernel with an SPMD grid.
    """

    def __getitem__(self: _Own, key: Any) -> _Own:
        if type(key) is int and key == 0:
            report_violation(GRID_OF_ZERO(f"{self.function.__name__}[0]"))
            key = 1
        return self.on(grid_shape(key))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_running():
            return super().__call__(*args, **kwargs)
        return self.run(args, kwargs)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch the kernel with the arguments of a call."""
        return outputs_of(launch_call(self, args, kwargs), [args, kwargs])


def as_kernel(kernel: Any) -> Kernel:
    """Return ``kernel`` itself, or a plain function as a kernel with writable parameters."""
    if isinstance(kernel, Kernel):
        return kernel
    return Kernel(need_function(kernel))


def jit(func: Any = None, mode: str = "auto", **kwargs: Any) -> Any:
    """Compile a kernel: ``@nki.jit``, ``@nki.jit(mode=...)`` or ``nki.jit(kernel, mode=...)``.

    ``platform_target`` ("trn1", "trn2" or "trn3") chooses the machine. ``additional_compile_opt``
    is accepted and changes no value, because there is no compiler here.
    """
    target = kwargs.pop("platform_target", "trn2")
    kwargs.pop("additional_compile_opt", None)
    for name, value in kwargs.items():
        if name not in JIT_HINTS:
            raise not_modelled(f"nki.jit's argument {name!r}", f"{name}={value!r}")
        undocumented_argument("nki.jit", name, value)
    if isinstance(mode, str) and mode in FRAMEWORKS:
        remedy = f"call the kernel with NumPy arrays, or use one of {', '.join(MODES)}"
        takes = "a framework's mode where the framework is"
        got = f"mode={mode!r} on the simulator"
        report_violation(
            not_taken("nki.jit", takes, got, f"mode={mode!r}", remedy=remedy)
        )
    elif not isinstance(mode, str) or mode not in MODES:
        raise not_modelled(
            f"nki.jit(mode={mode!r})",
            f"mode={mode!r}",
            f"use one of {', '.join(MODES + FRAMEWORKS)}",
        )
    as_choice(target, MACHINES, "platform_target")
    if func is None:
        return functools.partial(jit, mode=mode, platform_target=target)
    by_reference = mode == "trace"
    return Kernel(
        as_kernel(func).function, machine=MACHINES[target], by_reference=by_reference
    )


def trace(func: Any = None, **kwargs: Any) -> Any:
    """Make a kernel with writable parameters, as before SDK 2.21: ``@nki.trace``."""
    for name, value in kwargs.items():
        raise not_modelled(f"nki.trace's argument {name!r}", f"{name}={value!r}")
    if func is None:
        return trace
    return Kernel(as_kernel(func).function)


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Simulate a kernel; return its outputs as an array, or a tuple of arrays.

    Unwritten elements are poison (NaN, or 0xA5 bytes), and a warning reports them. Inside a kernel
    it inlines the other one: the course's harness benchmarks a function that calls it.
    """
    return Kernel.__call__(as_kernel(kernel), *args, **kwargs)


RUN_HINTS = ("device_count", "num_execs")
"""Undocumented arguments of all three decorators. They change no value."""
COMPILER, NO_DGE = "additional_compile_opt", "--disable-dge"
"""The option for compiler options, and the one that disables DMA descriptors made on the device."""
PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)
"""The percentiles that AWS documents for ``get_latency_percentile``."""


class Latency(Protocol):
    """A predicted latency."""

    def get_latency_percentile(self, percentile: int) -> float:
        """Return a percentile, in microseconds."""

    def get_interval(self) -> tuple[float, float]:
        """Return the range of a device's latency, in microseconds, at 90 percent confidence."""

    @property
    def caution(self) -> str:
        """A caution about the prediction, in words; may be empty."""

    def profile(self) -> Mapping[str, object]:
        """Return the whole prediction as JSON values."""


Predictor: TypeAlias = Callable[[Trace, Machine, bool], Latency]
"""Predicts a launch from its trace, the machine, and whether the device generates descriptors.

It raises a NotModelledError where it cannot.
"""


class NcLatency:
    """Predicted percentiles, in microseconds: ``benchmark_result.nc_latency``."""

    predicted = True

    def __init__(self, latency: Latency) -> None:
        self._latency = latency

    def get_latency_percentile(self, percentile: int) -> float:
        """Return one of :data:`PERCENTILES`, in microseconds: predicted, not measured."""
        chosen = as_choice(percentile, PERCENTILES, "a percentile of nc_latency")
        return self._latency.get_latency_percentile(chosen)

    @property
    def interval(self) -> tuple[float, float]:
        """The predicted range of a device's latency, in microseconds, at 90 percent confidence."""
        return self._latency.get_interval()


class RunAs(Kernel):
    """A kernel under ``nki.baremetal``, ``nki.benchmark`` or ``nki.profile``.

    ``nki.simulate_kernel`` and other kernels treat it as the kernel itself.
    """

    where: ClassVar[str]
    documented: ClassVar[tuple[str, ...]]
    """The documented options."""
    parameter: ClassVar[str] = "kernel"
    """The name of the first parameter."""

    def __init__(self, kernel: Kernel, predictor: Any, options: dict[str, Any]) -> None:
        super().__init__(
            kernel.function,
            grid=kernel.grid,
            machine=kernel.machine,
            by_reference=kernel.by_reference,
        )
        self.predictor = predictor
        self.options = options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        named = {name: as_argument(value) for name, value in kwargs.items()}
        return super().__call__(*map(as_argument, args), **named)

    def predicted(self, trace: Any) -> Any:
        """Return the predictor's result for a launch.

        The device generates descriptors by default.
        """
        dge = NO_DGE not in (self.options.get(COMPILER) or "")
        return self.predictor(trace, self.machine, dge)

    @classmethod
    def decorator(cls, predictor: Any) -> Callable[..., Any]:
        """Return the decorator for modules with this predictor.

        It works with or without options.
        """

        def decorate(kernel: Any = None, /, **options: Any) -> Any:
            kernel = options.pop(cls.parameter, kernel)
            settings = {}
            for name, value in options.items():
                if name in RUN_HINTS:
                    undocumented_argument(cls.where, name, value)
                elif name not in cls.documented:
                    raise not_modelled(
                        f"{cls.where}'s argument {name!r}", f"{name}={value!r}"
                    )
                else:
                    settings[name] = value
            if kernel is None:
                return functools.partial(decorate, **settings)
            return cls(as_kernel(kernel), predictor, settings)

        decorate.__doc__ = cls.__doc__
        return decorate


class OnDevice(RunAs):
    """Run a kernel as on a device: here on the simulator, with NumPy arrays in and out.

    For the files that options name see :mod:`difftest.simulator.entry.artifacts`.
    """

    where = "nki.baremetal"
    documented: ClassVar[tuple[str, ...]] = (NEFF, PROFILE, ARTIFACTS, COMPILER)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        predicts = self.predictor is not None
        artifacts = artifacts_of(self.where, self.options, predicts=predicts)
        result = launch_call(self, args, kwargs, record=bool(artifacts))

        def profile() -> Any:
            return self.predicted(result.trace).profile()

        try:
            artifacts.write(result.trace, profile if predicts else None)
        except NotModelledError as error:
            report_violation(error)  # the values exist; only the prediction is missing
        return outputs_of(result, [args, kwargs])


class Profiled(OnDevice):
    """Run a kernel as ``nki.baremetal`` does, under ``nki.profile``."""

    where = "nki.profile"
    parameter = "func"
    documented = (*FILE_OPTIONS, COMPILER, "overwrite", "profile_nth")


class Benchmark(RunAs):
    """Run a kernel on the simulator and predict its latency, under ``nki.benchmark``.

    After a call, ``benchmark_result`` has the prediction.
    """

    where = "nki.benchmark"
    documented = ("warmup", "iters", NEFF, PROFILE, COMPILER)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.predictor is None:
            raise not_modelled(
                "nki.benchmark without a timing model",
                "a latency",
                "use difftest run, or embedded(predictor=...); a Trainium instance measures",
            )
        artifacts = artifacts_of(self.where, self.options, predicts=True)
        result = launch_call(self, args, kwargs, record=True)
        predicted = self.predicted(result.trace)
        latency = NcLatency(predicted)
        artifacts.write(result.trace, predicted.profile)
        self.benchmark_result = SimpleNamespace(nc_latency=latency)
        p50, p99 = (latency.get_latency_percentile(p) for p in (50, 99))
        low, high = latency.interval
        warning = f"\n  {predicted.caution}" if predicted.caution else ""
        print(
            f"{self.function.__name__}: predicted latency p50 {p50:,.1f} us, "
            f"p99 {p99:,.1f} us; on a device between {low:,.1f} and {high:,.1f} us "
            f"(by a timing model; nothing was measured){warning}"
        )
        return outputs_of(result, [args, kwargs])


baremetal_with, benchmark_with, profile_with = (
    kind.decorator for kind in (OnDevice, Benchmark, Profiled)
)
"""The decorators of modules that are installed with a predictor."""
