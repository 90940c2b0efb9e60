"""Both kernels on the simulator, on small integers: bit for bit the same, or told apart."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator import TRN2, Machine, launch
from difftest.simulator.dtypes import as_dtype
from difftest.simulator.frontend.install import embedded

SEEDS = (0, 1, 2)
LARGEST = 3
"""Inputs are integers up to this, so that sums are exact in every dtype that is drawn."""


class ProofError(RuntimeError):
    """The kernels cannot be compared, or differ; the text says which and why."""


class Arguments(NamedTuple):
    """What both kernels are called with, beside the values of their arrays."""

    shapes: Sequence[tuple[int, ...]]
    keywords: Mapping[str, Any]
    grid: tuple[int, ...] = ()
    machine: Machine | None = None
    level: str | None = None


def prove(old: Path, new: Path, kernel: str, dtypes: Sequence[str], given: Arguments) -> int:
    """Run ``kernel`` of both files on arrays of each dtype; return how many runs agreed.

    Outputs are compared by their bits, and so are the arguments that a kernel writes to.

    Raises
    ------
    ProofError : a kernel is missing or refuses a run, or the two do not agree.
    """
    files = {"classic": old, "new": new}
    with embedded():
        kernels = [(name, _loaded(file, name, kernel)) for name, file in files.items()]
        runs = [(dtype, seed) for dtype in dtypes for seed in SEEDS]
        for dtype, seed in runs:
            before, after = (_run(*one, dtype, seed, given) for one in kernels)
            _compare(before, after, f"{dtype}, seed {seed}")
    return len(runs)


def _loaded(file: Path, dialect: str, kernel: str) -> Any:
    """The function ``kernel`` of a file, which is imported under a name of its own."""
    name = f"difftest_migrated_{dialect}_{file.stem}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ProofError(f"{file} is no Python module")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ProofError(f"the {dialect} file does not load: {error}") from error
    finally:
        del sys.modules[name]
    if not callable(getattr(module, kernel, None)):
        raise ProofError(f"the {dialect} file has no function {kernel}")
    return getattr(module, kernel)


def _run(
    dialect: str, kernel: Any, dtype: str, seed: int, given: Arguments
) -> list[np.ndarray[Any, Any]]:
    """What one launch returns and what it leaves in its arguments."""
    rng = np.random.default_rng(seed)
    arrays = [
        rng.integers(-LARGEST, LARGEST, shape, endpoint=True).astype(as_dtype(dtype))
        for shape in given.shapes
    ]
    try:
        result = launch(
            kernel,
            arrays,
            given.keywords,
            machine=given.machine or getattr(kernel, "machine", TRN2),
            level=given.level,
            grid=given.grid,
        )
    except Exception as error:  # of whatever kind: the kernel is someone's code
        raise ProofError(f"the {dialect} kernel fails, {dtype}, seed {seed}: {error}") from error
    return [*result.outputs, *arrays]


def _compare(
    before: list[np.ndarray[Any, Any]], after: list[np.ndarray[Any, Any]], where: str
) -> None:
    """Refuse a difference of any bit.

    Raises
    ------
    ProofError : there is one.
    """
    if len(before) != len(after):
        raise ProofError(f"{where}: {len(before)} arrays before, {len(after)} after")
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.shape != new.shape or old.dtype != new.dtype:
            raise ProofError(
                f"{where}: array {number} was {old.dtype}{list(old.shape)}, "
                f"and is {new.dtype}{list(new.shape)}"
            )
        if old.tobytes() != new.tobytes():
            different = np.argwhere(old != new)
            place = tuple(int(index) for index in different[0]) if len(different) else ()
            raise ProofError(f"{where}: array {number} differs, first at {place}")
