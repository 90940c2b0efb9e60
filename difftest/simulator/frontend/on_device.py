"""``nki.baremetal`` and ``nki.profile``: on a device they run a kernel, here they simulate it."""

from __future__ import annotations

from typing import Any, ClassVar

from difftest.simulator.core import is_running
from difftest.simulator.errors import NotModelledError
from difftest.simulator.frontend.artifacts import FILE_OPTIONS, artifacts_of
from difftest.simulator.frontend.kernel import COMPILER, RunAs, outputs_of
from difftest.simulator.strictness import note


class OnDevice(RunAs):
    """Run a kernel as on a device: here on the simulator, with NumPy arrays in and out.

    For the files that options name see :mod:`difftest.simulator.frontend.artifacts`.
    """

    where = "nki.baremetal"
    known: ClassVar[tuple[str, ...]] = (*FILE_OPTIONS[:3], COMPILER)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_running():
            return self.kernel(*args, **kwargs)
        predicts = self.predictor is not None
        artifacts = artifacts_of(self.where, self.options, predicts=predicts)
        result = self.launched(args, kwargs, bool(artifacts))

        def profile() -> Any:
            return self.predicted(result.trace).profile()

        try:
            artifacts.write(result.trace, profile if predicts else None)
        except NotModelledError as error:
            note(error)  # the values are there; what they would cost is not known
        return outputs_of(result)


class Profiled(OnDevice):
    """The same under ``nki.profile``."""

    where, parameter = "nki.profile", "func"
    known = (*FILE_OPTIONS, COMPILER, "overwrite", "profile_nth")


baremetal_with, profile_with = OnDevice.decorator, Profiled.decorator
"""``nki.baremetal`` and ``nki.profile`` for modules that are installed with this predictor."""
