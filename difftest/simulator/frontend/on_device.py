"""``nki.baremetal`` and ``nki.profile``: on a device they run a kernel, here they simulate it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from difftest.simulator.core import is_running
from difftest.simulator.errors import NotModelledError
from difftest.simulator.frontend.artifacts import FILE_OPTIONS, artifacts_of
from difftest.simulator.frontend.benchmark import NO_DGE, Predictor, as_array
from difftest.simulator.frontend.kernel import (
    Kernel,
    RunAs,
    as_kernel,
    options_of_run,
    outputs_of,
)
from difftest.simulator.strictness import note

COMPILER = "additional_compile_opt"
BAREMETAL_OPTIONS = ("save_neff_name", "save_trace_name", "artifacts_dir", COMPILER)
PROFILE_OPTIONS = (*FILE_OPTIONS, COMPILER, "overwrite", "profile_nth")


class OnDevice(RunAs):
    """A kernel under one of the two decorators: NumPy arrays in and out."""

    where = "nki.baremetal"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_running():
            return self.kernel(*args, **kwargs)
        predictor = self.predictor
        artifacts = artifacts_of(self.where, self.options, predicts=predictor is not None)
        args = tuple(map(as_array, args))
        kwargs = {name: as_array(value) for name, value in kwargs.items()}
        result = Kernel.launcher(self.kernel, args, kwargs, bool(artifacts))
        dge = NO_DGE not in (self.options.get(COMPILER) or "")
        try:
            artifacts.write(
                result.trace,
                predictor and (lambda: predictor(result.trace, self.kernel.machine, dge).profile()),
            )
        except NotModelledError as error:
            note(error)  # the values are there; what they would cost is not known
        return outputs_of(result)


class Profiled(OnDevice):
    """A kernel under ``nki.profile``."""

    where = "nki.profile"


def on_device(
    kind: type[OnDevice], known: tuple[str, ...], predictor: Predictor | None
) -> Callable[..., Any]:
    """A decorator, with or without options, for modules installed with this predictor."""

    def decorate(func: Any = None, **options: Any) -> Any:
        """Run a kernel as on a device: here on the simulator, with NumPy arrays in and out.

        For the files that options name see :mod:`difftest.simulator.frontend.artifacts`.
        """
        options = options_of_run(kind.where, options, known)
        if func is None:
            return functools.partial(decorate, **options)
        return kind(as_kernel(func), predictor, options)

    return decorate


def baremetal_with(predictor: Predictor | None) -> Callable[..., Any]:
    """``nki.baremetal`` for modules that are installed with this predictor."""
    return on_device(OnDevice, BAREMETAL_OPTIONS, predictor)


def profile_with(predictor: Predictor | None) -> Callable[..., Any]:
    """``nki.profile`` for modules that are installed with this predictor."""
    return on_device(Profiled, PROFILE_OPTIONS, predictor)
