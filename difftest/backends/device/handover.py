"""Compile a newer kernel once, keep its NEFF, and hand it to nrtpy for every run after that.

Documented for SDK 2.32 (nrtpy's tutorials): with NKI_ARTIFACTS_DIR set before ``nki`` is imported,
a call with NumPy arrays leaves ``kernel.neff`` there. Where no NEFF is left, kernels run as without
a second environment. It has not run on a device.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from difftest.backends.base import KernelCall, Outcome, Ran
from difftest.backends.device.cache import CompileCache
from difftest.backends.device.core import ATTEMPTS, Failure, NeuronCore, failure_of
from difftest.backends.device.entries import Entry
from difftest.backends.device.fingerprint import UnknownStateError, fingerprint
from difftest.backends.device.neff import LoadedNeff, NrtpyError
from difftest.backends.device.running import Device, outcome_of
from difftest.backends.device.worker import WorkerDiedError, WorkerHungError
from difftest.backends.dialect import function_of

ARTIFACTS = "NKI_ARTIFACTS_DIR"
NEFF = "kernel.neff"
_OUTPUTS = "outputs.json"


def prepare_artifacts() -> bool:
    """Have the newer SDK keep its NEFFs; whether it will.

    It reads the variable as it is imported: afterwards it is too late, unless a person set it.
    """
    if os.environ.get(ARTIFACTS):
        return True
    if "nki" in sys.modules:
        return False
    folder = tempfile.mkdtemp(prefix="difftest-nki-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[ARTIFACTS] = folder
    return True


class NoNeffError(Exception):
    """The kernel was not compiled to a NEFF that can be handed over."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        super().__init__("no NEFF was left")


class HandedOver(Device):
    """A newer device whose compiled kernels are kept, and run by nrtpy."""

    def __init__(
        self,
        entry: Entry,
        core: NeuronCore,
        description: str,
        cache: CompileCache,
        versions: Mapping[str, str],
    ) -> None:
        super().__init__(entry, core, f"{description}, then nrtpy")
        self.cache = cache
        self._versions = dict(versions)
        self._loaded: tuple[Path, LoadedNeff] | None = None

    def run_untrusted(self, call: KernelCall) -> Outcome:
        """Run the kernel's NEFF; the first time, compile it and take the outcome of that."""
        compiled = self.compile(call)
        if isinstance(compiled, Path):
            return self._run_neff(compiled, call)
        return compiled

    def compile(self, call: KernelCall) -> Path | Outcome:
        """The folder of the kernel's NEFF, or the outcome of running the kernel without one.

        Kernels that write their arguments are not handed over: how their NEFFs name what they write
        is not documented.
        """
        first: list[Outcome] = []

        def make(folder: Path) -> None:
            first.append(self._compile_into(folder, call))

        if call.outputs:
            return super().run_untrusted(call)
        try:
            entry = self.cache.get(fingerprint(call, self._versions), make)
        except UnknownStateError:
            return super().run_untrusted(call)
        except NoNeffError as error:
            return error.outcome
        return first[0] if first else entry

    def neff(self, call: KernelCall) -> Path | None:
        """The kernel's NEFF, compiled if it was not; None if there is none."""
        for _ in range(2):  # the first time, compiling gives the outcome of its run
            compiled = self.compile(call)
            if isinstance(compiled, Path):
                return compiled / NEFF
        return None

    def benchmark(self, call: KernelCall, *, warmup: int, iterations: int) -> list[float]:
        """Time on the device of each execution, microseconds.

        Raises
        ------
        NrtpyError, WorkerHungError, WorkerDiedError : nrtpy did not do it.
        """
        neff = self.neff(call)
        if neff is None:
            raise NrtpyError("there is no NEFF to time: the kernel was not compiled to one")
        loaded = self._load(neff)
        return loaded.benchmark(named_inputs(call), warmup=warmup, iterations=iterations)

    def close(self) -> None:
        """End the processes and give the core back."""
        self._unload()
        super().close()

    def _compile_into(self, folder: Path, call: KernelCall) -> Outcome:
        """Compile and run the kernel, and put its NEFF and what it returned there."""
        artifacts = Path(os.environ[ARTIFACTS])
        for left in artifacts.rglob("*.neff"):
            left.unlink()
        self._unload()
        outcome = super().run_untrusted(call)
        self.core.stop()  # the compiler's process holds the core, and nrtpy needs it
        neffs = sorted(artifacts.rglob("*.neff"))
        if not isinstance(outcome, Ran) or len(neffs) != 1:
            raise NoNeffError(outcome)
        shutil.copyfile(neffs[0], folder / NEFF)
        described = [[list(one.shape), one.dtype.name] for one in outcome.outputs]
        (folder / _OUTPUTS).write_text(json.dumps(described), encoding="utf-8")
        return outcome

    def _run_neff(self, entry: Path, call: KernelCall) -> Outcome:
        described = json.loads((entry / _OUTPUTS).read_text(encoding="utf-8"))
        like = [(tuple(shape), np.dtype(name)) for shape, name in described]
        failure: Failure | None = None
        for _ in range(ATTEMPTS):
            try:
                return Ran(self._load(entry / NEFF).run(named_inputs(call), like))
            except (NrtpyError, WorkerHungError, WorkerDiedError) as error:
                log = self._loaded[1].log() if self._loaded else getattr(error, "log", "")
                self._unload()
                failure = failure_of(error, log)
                if not failure.is_infrastructure:
                    break
        assert failure is not None
        return outcome_of(call, self.core.judged(failure))

    def _load(self, neff: Path) -> LoadedNeff:
        if self._loaded is not None and self._loaded[0] == neff:
            return self._loaded[1]
        self._unload()
        self.core.stop()
        settings = self.core.settings
        assert settings.nrtpy_python is not None, "device_backend() makes this where it is set"
        loaded = LoadedNeff(
            settings.nrtpy_python,
            neff,
            self.core.index,
            self.core.environment(lnc=1),
            settings.timeout,
        )
        self._loaded = neff, loaded
        return loaded

    def _unload(self) -> None:
        if self._loaded is not None:
            self._loaded[1].close()
            self._loaded = None


def named_inputs(call: KernelCall) -> dict[str, Any]:
    """The arrays under the names of the kernel's parameters, as its NEFF names its inputs."""
    function = function_of(call.kernel)
    assert function is not None, "a kernel that has a fingerprint has a function"
    names = call.names or tuple(inspect.signature(function).parameters)
    return dict(zip(names, call.inputs, strict=False))
