"""``nki.baremetal``, ``nki.benchmark`` and ``nki.profile``: as on a device, but simulated.

A latency is a device's to measure; here a timing model may predict it. The model is not the
simulator's: who installs the embedded modules hands it in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol, TypeAlias

from difftest.simulator.arrays import outputs_of
from difftest.simulator.core import is_running
from difftest.simulator.errors import NotModelledError, not_modelled
from difftest.simulator.frontend.arguments import as_argument, undocumented_argument
from difftest.simulator.frontend.artifacts import FILE_OPTIONS, artifacts_of
from difftest.simulator.frontend.kernel import Kernel, as_kernel
from difftest.simulator.index import as_choice
from difftest.simulator.launch import called
from difftest.simulator.machine import Machine
from difftest.simulator.strictness import note
from difftest.simulator.trace import Trace

RUN_HINTS = ("device_count", "num_execs")
"""Arguments of all of them that AWS does not document, and that change no value."""
COMPILER, NO_DGE = "additional_compile_opt", "--disable-dge"
"""The option for the compiler's own, of which one lets the device generate no DMA descriptors."""
PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)
"""Those that AWS documents for ``get_latency_percentile``."""


class Latency(Protocol):
    """A predicted latency."""

    def get_latency_percentile(self, percentile: int) -> float:
        """In microseconds."""

    def get_interval(self) -> tuple[float, float]:
        """Between which microseconds a device's latency would lie, nine times of ten."""

    @property
    def caution(self) -> str:
        """What to know before the time is believed, in words; may be empty."""

    def profile(self) -> Mapping[str, object]:
        """All that is predicted, as what JSON has."""


Predictor: TypeAlias = Callable[[Trace, Machine, bool], Latency]
"""Predicts a launch from its trace, the machine, and whether descriptors are generated on it.

It raises a NotModelledError where it cannot.
"""


class NcLatency:
    """``benchmark_result.nc_latency``: predicted percentiles, in microseconds."""

    predicted = True

    def __init__(self, latency: Latency) -> None:
        self._latency = latency

    def get_latency_percentile(self, percentile: int) -> float:
        """One of :data:`PERCENTILES`, in microseconds: predicted, not measured."""
        chosen = as_choice(percentile, PERCENTILES, "a percentile of nc_latency")
        return self._latency.get_latency_percentile(chosen)

    @property
    def interval(self) -> tuple[float, float]:
        """Between which microseconds a device's latency would lie, nine times of ten: predicted."""
        return self._latency.get_interval()


class RunAs(Kernel):
    """A kernel under ``nki.baremetal``, ``nki.benchmark`` or ``nki.profile``: how a call runs it.

    ``nki.simulate_kernel`` and another kernel take it as the kernel that it is.
    """

    where: ClassVar[str]
    known: ClassVar[tuple[str, ...]]
    """Its documented options."""
    parameter: ClassVar[str] = "kernel"
    """The name of its first parameter."""

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
        if is_running():
            return super().__call__(*args, **kwargs)
        return self.run(
            tuple(map(as_argument, args)), {k: as_argument(v) for k, v in kwargs.items()}
        )

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run it as the decorator does."""
        raise NotImplementedError

    def predicted(self, trace: Any) -> Any:
        """What its predictor says of a launch; the device generates descriptors by default."""
        dge = NO_DGE not in (self.options.get(COMPILER) or "")
        return self.predictor(trace, self.machine, dge)

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


class OnDevice(RunAs):
    """Run a kernel as on a device: here on the simulator, with NumPy arrays in and out.

    For the files that options name see :mod:`difftest.simulator.frontend.artifacts`.
    """

    where = "nki.baremetal"
    known: ClassVar[tuple[str, ...]] = (*FILE_OPTIONS[:3], COMPILER)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        predicts = self.predictor is not None
        artifacts = artifacts_of(self.where, self.options, predicts=predicts)
        result = called(self, args, kwargs, record=bool(artifacts))

        def profile() -> Any:
            return self.predicted(result.trace).profile()

        try:
            artifacts.write(result.trace, profile if predicts else None)
        except NotModelledError as error:
            note(error)  # the values are there; what they would cost is not known
        return outputs_of(result, [args, kwargs])


class Profiled(OnDevice):
    """The same under ``nki.profile``."""

    where, parameter = "nki.profile", "func"
    known = (*FILE_OPTIONS, COMPILER, "overwrite", "profile_nth")


class Benchmark(RunAs):
    """A kernel under ``nki.benchmark``; calling it simulates the kernel and predicts its latency.

    ``benchmark_result`` is there after a call.
    """

    where = "nki.benchmark"
    known = ("warmup", "iters", "save_neff_name", "save_trace_name", COMPILER)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.predictor is None:
            remedy = "use difftest run, or embedded(predictor=...); a Trainium instance measures"
            raise not_modelled("nki.benchmark without a timing model", "a latency", remedy)
        artifacts = artifacts_of(self.where, self.options, predicts=True)
        result = called(self, args, kwargs, record=True)
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
