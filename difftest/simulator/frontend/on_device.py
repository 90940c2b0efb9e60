"""``nki.baremetal`` and ``nki.profile``: on a device they run a kernel, here they simulate it."""

from __future__ import annotations

from typing import Any, ClassVar

from difftest.simulator.core import is_running
from difftest.simulator.errors import NotModelledError
from difftest.simulator.frontend.artifacts import FILE_OPTIONS, artifacts_of
from difftest.simulator.frontend.benchmark import NO_DGE, as_array
from difftest.simulator.frontend.kernel import Kernel, RunAs, outputs_of
from difftest.simulator.strictness import note

COMPILER = "additional_compile_opt"


class OnDevice(RunAs):
    """Run a kernel as on a device: here on the simulator, with NumPy arrays in and out.

    For the files that options name see :mod:`difftest.simulator.frontend.artifacts`.
    """

    where = "nki.baremetal"
    known: ClassVar[tuple[str, ...]] = (
        "save_neff_name",
        "save_trace_name",
        "artifacts_dir",
        COMPILER,
    )

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
    """The same under ``nki.profile``."""

    where = "nki.profile"
    known = (*FILE_OPTIONS, COMPILER, "overwrite", "profile_nth")


baremetal_with, profile_with = OnDevice.decorator, Profiled.decorator
"""``nki.baremetal`` and ``nki.profile`` for modules that are installed with this predictor."""
