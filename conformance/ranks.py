"""Tests of nki-library on several ranks, which its hook for a simulator does not support.

Its ``run_simulator_inference`` (commit of 2026-04-13) runs one launch with one set of arguments,
while tests of collectives give a set for each rank and compare the files ``output_worker_<rank>/``.
Here the embedded simulator runs the ranks, and the outputs go where the suite looks for them.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.stand_ins import TARGET, environment
from difftest.simulator import launch_ranks

ALIAS = ".must_alias_input"
"""The suffix that the suite gives to names of written arguments (its simulation_setup.py)."""


class Ranks:
    """A pytest plugin: lets the suite's orchestrator simulate tests of several ranks."""

    @pytest.hookimpl
    def pytest_collection_finish(self) -> None:
        """Patch the orchestrator after conftest has imported it, and before a test makes one."""
        module = sys.modules.get("test.utils.test_orchestrator")
        if module is None or not hasattr(
            module.Orchestrator, "_run_simulator_inference"
        ):
            return
        alone = module.Orchestrator._run_simulator_inference

        def simulated(orchestrator: Any, test: Any) -> Any:
            if test.inference_args.collective_ranks == 1:
                return alone(orchestrator, test)
            try:
                return str(_on_ranks(orchestrator, test, module))
            except Exception as error:
                raise module.InferenceException(str(error)) from error

        module.Orchestrator._run_simulator_inference = simulated


def outputs_of_ranks(
    kernel: Any, inputs: list[Mapping[str, Any]], cores: int
) -> list[tuple[np.ndarray[Any, Any], ...]]:
    """Return the kernel's outputs on each rank, on ``cores`` cores.

    ``inputs`` has the arguments of each rank. Ranks may share an array: each gets a copy.
    """
    launched = sys.modules["nki"].jit(kernel)[cores]
    signature = inspect.signature(launched.function)
    arguments = []
    for given in inputs:
        own = {
            name.removesuffix(ALIAS): _copied(value) for name, value in given.items()
        }
        bound = signature.bind(**own)
        bound.apply_defaults()
        arguments.append(bound.args)
    return [one.outputs for one in launch_ranks(launched, arguments, record=False)]


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _on_ranks(orchestrator: Any, test: Any, module: Any) -> Path:
    """Run a test's kernel on its ranks, write the outputs, and return their folder."""
    ranks = range(test.inference_args.collective_ranks)
    compiler = test.compiler_input
    with environment(TARGET, compiler.platform_target.get_nc_gen()):
        inputs = [_of_rank(test.kernel_input, rank) for rank in ranks]
        outputs = outputs_of_ranks(test.kernel_func, inputs, compiler.logical_nc_config)
    folder = Path(
        orchestrator.fs_config.artifacts_output_directory_path,
        module.INF_ARTIFACT_DIR_NAME,
    )
    wanted: Callable[[Any, int], Mapping[str, Any]] = module.normalize_golden_output
    for rank, found in zip(ranks, outputs, strict=True):
        golden = wanted(test.validation_args.golden_output, rank)
        if len(found) != len(golden):
            raise RuntimeError(
                f"the kernel returned {len(found)} outputs for {list(golden)}"
            )
        place = folder / f"output_worker_{rank}"
        os.makedirs(place, exist_ok=True)
        for (name, expected), array in zip(golden.items(), found, strict=True):
            (place / f"{name}.bin").write_bytes(
                np.asarray(array, expected.dtype).tobytes()
            )
    return folder


def _of_rank(given: Any, rank: int) -> Mapping[str, Any]:
    """Return a rank's arguments, from one set for all ranks or a generator of sets."""
    found: Mapping[str, Any] = (
        given.for_rank(rank) if hasattr(given, "for_rank") else given
    )
    return found
