"""Kernels as objects: what ``@nki.jit``, ``nki.baremetal`` and their kin make of a function.

A latency is a device's to measure; here a timing model may predict it. The model is not the
simulator's: who installs the embedded modules hands it in. A compiler writes a NEFF and a device a
profile of the run (NTFF). Neither is here, so the file that is named for the NEFF gets the trace of
the launch, and the one named for the profile what a timing model predicts, both as JSON that says
what it is. Sources: ``nki.benchmark``, ``nki.baremetal`` and ``nki.profile`` at tag v2.26.0.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

from difftest.simulator.arrays import outputs_of
from difftest.simulator.core import is_running
from difftest.simulator.errors import KernelError, NotModelledError, not_modelled
from difftest.simulator.frontend.arguments import as_argument, not_taken, undocumented_argument
from difftest.simulator.frontend.launchable import Launchable, grid_shape, need_function
from difftest.simulator.index import as_choice
from difftest.simulator.instructions.checks import wrong_kind
from difftest.simulator.launch import launch_call
from difftest.simulator.machine import MACHINES, Machine
from difftest.simulator.misuses import GRID_OF_ZERO
from difftest.simulator.strictness import report_violation
from difftest.simulator.trace import Trace
from difftest.simulator.trace_json import trace_to_json

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
            report_violation(GRID_OF_ZERO(f"{self.function.__name__}[0]"))
            key = 1
        return self.on(grid_shape(key))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_running():
            return super().__call__(*args, **kwargs)
        return self.run(args, kwargs)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch it with what it was called with."""
        return outputs_of(launch_call(self, args, kwargs), [args, kwargs])


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
        takes = "a framework's mode where the framework is"
        got = f"mode={mode!r} on the simulator"
        report_violation(not_taken("nki.jit", takes, got, f"mode={mode!r}", remedy=remedy))
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


NEFF, PROFILE, ARTIFACTS, FOLDER = FILE_OPTIONS = (
    "save_neff_name",
    "save_trace_name",
    "artifacts_dir",
    "working_directory",
)
"""Options that name files and folders."""
PROFILE_FORMAT = "difftest predicted profile"
_OURS = b'{"format":"difftest '
"""With this begins each file that the simulator writes."""


class Artifacts(NamedTuple):
    """The files of one launch. ``folders`` are created if they are missing."""

    traces: tuple[Path, ...] = ()
    profiles: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.traces or self.profiles)

    def write(self, trace: Trace, profile: Callable[[], Mapping[str, object]] | None) -> None:
        """Write what the launch has.

        Parameters
        ----------
        trace : of the launch.
        profile : makes the predicted profile, as what JSON has; None where nothing predicts.

        Raises
        ------
        KernelError : a file cannot be written. Whatever ``profile`` raises.
        """
        try:
            for folder in self.folders:
                folder.mkdir(parents=True, exist_ok=True)
            if self.traces:
                document = trace_to_json(trace)
                for path in self.traces:
                    path.write_text(document, encoding="utf-8")
            if self.profiles and profile is not None:
                head = {**_PROFILE_HEAD, "kernel": trace.kernel}
                document = json.dumps({**head, **profile()}, separators=(",", ":")) + "\n"
                for path in self.profiles:
                    path.write_text(document, encoding="utf-8")
        except OSError as error:
            got = f"{error.filename}: {error.strerror}"
            remedy = "make its folder, or name another"
            received = str(error.filename)
            raise not_taken("a decorator", "files to write", got, received, remedy=remedy) from None


_PROFILE_HEAD = {
    "format": PROFILE_FORMAT,
    "version": 1,
    "about": "Predicted by a timing model from the trace of a simulation; nothing was measured",
}


def artifacts_of(where: str, options: Mapping[str, Any], *, predicts: bool) -> Artifacts:
    """The files that the options of ``where`` name, and a note of what will be in them.

    A file that is there and that the simulator did not write is never replaced; ``nki.profile``
    replaces none unless it is told to (``overwrite=True``).

    Parameters
    ----------
    predicts : whether a timing model is at hand.

    Raises
    ------
    KernelError : an option is no path; or the note, where notes are errors.
    """
    named = {name: options[name] for name in FILE_OPTIONS if options.get(name)}
    paths = {name: _path(where, name, value) for name, value in named.items()}
    if not paths:
        return Artifacts()
    folder = paths.get(FOLDER)
    traces = []
    profiles = []
    folders = []
    if folder is not None:
        folders.append(folder)
        paths.setdefault(NEFF, Path("file.neff"))
        paths.setdefault(PROFILE, Path("profile.ntff"))
    base = Path() if folder is None else folder
    if NEFF in paths:
        traces.append(base / paths[NEFF])
    if PROFILE in paths:
        profiles.append(base / paths[PROFILE])
    if ARTIFACTS in paths:
        folders.append(paths[ARTIFACTS])
        traces.append(paths[ARTIFACTS] / "trace.json")
    replace_own = FOLDER not in paths or bool(options.get("overwrite"))
    left = [path for path in (*traces, *profiles) if _stays(path, replace_own)]
    if not predicts:
        left += [path for path in profiles if path not in left]
    _say(where, named, left, predicts)
    return Artifacts(
        tuple(path for path in traces if path not in left),
        tuple(path for path in profiles if path not in left),
        tuple(folders),
    )


def _path(where: str, name: str, value: object) -> Path:
    if not isinstance(value, (str, os.PathLike)):
        raise wrong_kind(value, "a path", where, name)
    return Path(value)


def _stays(path: Path, replace_own: bool) -> bool:
    """Whether a file is there that must not be replaced."""
    if not path.exists():
        return False
    if not (path.is_file() and replace_own and os.access(path, os.R_OK)):
        return True
    with path.open("rb") as file:
        return file.read(len(_OURS)) not in (_OURS, b"")


def _say(where: str, named: Mapping[str, Any], left: list[Path], predicts: bool) -> None:
    """Note that the files are not what a compiler and a device write."""
    written = "the trace of the simulation, and a predicted profile" if predicts else "the trace"
    kept = f"; not written: {', '.join(map(str, left))}" if left else ""
    error = KernelError(
        f"a compiler writes a NEFF and a device a profile; here it is {written}, as JSON",
        happened=f"files were asked for that only a compiler and a device can write ({where})",
        received=", ".join(f"{name}={str(value)!r}" for name, value in named.items()) + kept,
        remedy="name files that are not there yet; difftest trace and difftest profile write the "
        "same"
        if kept
        else "difftest trace and difftest profile write the same",
    )
    report_violation(error)


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
    documented: ClassVar[tuple[str, ...]]
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
        named = {name: as_argument(value) for name, value in kwargs.items()}
        return super().__call__(*map(as_argument, args), **named)

    def predicted(self, trace: Any) -> Any:
        """What its predictor says of a launch; the device generates descriptors by default."""
        dge = NO_DGE not in (self.options.get(COMPILER) or "")
        return self.predictor(trace, self.machine, dge)

    @classmethod
    def decorator(cls, predictor: Any) -> Callable[..., Any]:
        """The decorator, with or without options, of modules installed with this predictor."""

        def decorate(kernel: Any = None, /, **options: Any) -> Any:
            kernel = options.pop(cls.parameter, kernel)
            settings = {}
            for name, value in options.items():
                if name in RUN_HINTS:
                    undocumented_argument(cls.where, name, value)
                elif name not in cls.documented:
                    raise not_modelled(f"{cls.where}'s argument {name!r}", f"{name}={value!r}")
                else:
                    settings[name] = value
            if kernel is None:
                return functools.partial(decorate, **settings)
            return cls(as_kernel(kernel), predictor, settings)

        decorate.__doc__ = cls.__doc__
        return decorate


class OnDevice(RunAs):
    """Run a kernel as on a device: here on the simulator, with NumPy arrays in and out.

    For the files that options name see :mod:`difftest.simulator.entry.kernel`.
    """

    where = "nki.baremetal"
    documented: ClassVar[tuple[str, ...]] = (*FILE_OPTIONS[:3], COMPILER)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        predicts = self.predictor is not None
        artifacts = artifacts_of(self.where, self.options, predicts=predicts)
        result = launch_call(self, args, kwargs, record=bool(artifacts))

        def profile() -> Any:
            return self.predicted(result.trace).profile()

        try:
            artifacts.write(result.trace, profile if predicts else None)
        except NotModelledError as error:
            report_violation(error)  # the values are there; what they would cost is not known
        return outputs_of(result, [args, kwargs])


class Profiled(OnDevice):
    """The same under ``nki.profile``."""

    where = "nki.profile"
    parameter = "func"
    documented = (*FILE_OPTIONS, COMPILER, "overwrite", "profile_nth")


class Benchmark(RunAs):
    """A kernel under ``nki.benchmark``; calling it simulates the kernel and predicts its latency.

    ``benchmark_result`` is there after a call.
    """

    where = "nki.benchmark"
    documented = ("warmup", "iters", "save_neff_name", "save_trace_name", COMPILER)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.predictor is None:
            remedy = "use difftest run, or embedded(predictor=...); a Trainium instance measures"
            raise not_modelled("nki.benchmark without a timing model", "a latency", remedy)
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
