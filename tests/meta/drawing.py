"""Measure the cases that a kernel test draws: new, random, and reaching a kernel's loops.

``python -m tests.meta.drawing`` draws ``--cases`` cases of each test in tests/kernels, and prints
the number of distinct cases, of cases with an operand of zeros alone, and of cases whose operands
are all random. Of ``--layers`` drawn convolutions it prints the number that need several blocks, a
halo between them, a second PSUM tile, or a block that begins beyond row 256. No kernel runs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
from hypothesis import Phase, settings

from difftest.simulator.entry.install import embedded
from difftest.simulator.machine import TRN2
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Zeros
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.provider import BACKEND
from difftest.testing.harness.decorated import ATTRIBUTE
from difftest.testing.harness.decorator import decorate
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Match

KERNEL_TESTS = Path(__file__).parent.parent / "kernels"


class Enough(Exception):
    """No more cases need to be drawn."""


def drawn(
    spec: KernelSpec,
    count: int,
    seed: int = 0,
    ends: Callable[[Case], bool] = lambda case: False,
) -> list[Case]:
    """Return the cases of a test with ``count`` examples, up to the first that ``ends`` them."""
    found: list[Case] = []
    ended = False

    def check(case):
        nonlocal ended
        if not ended:
            found.append(case.case)
            ended = ends(case.case)
        if ended:
            raise Enough
        case.verdicts = {"none": Match(elements=1, exact=True)}

    plain = settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        backend=BACKEND,
    )
    with contextlib.suppress(Enough):
        plain(hypothesis.seed(seed)(decorate(spec, check)))(difftest_runner=Runner(()))
    return found


def kernel_tests() -> Iterator[tuple[str, KernelSpec]]:
    """Each test in tests/kernels, and its spec."""
    with embedded():
        for path in sorted(KERNEL_TESTS.glob("test_*.py")):
            module = importlib.import_module(f"tests.kernels.{path.stem}")
            for test, function in vars(module).items():
                if hasattr(function, ATTRIBUTE):
                    yield test, getattr(function, ATTRIBUTE).spec


@dataclass
class Drawn:
    """Counts of drawn cases.

    Attributes
    ----------
    cases : all of them.
    distinct : cases that differ from all cases before them.
    zeros : cases with an operand of zeros alone.
    telling : distinct cases without such an operand.
    random : cases whose operands are all random.
    """

    cases: int = 0
    distinct: int = 0
    zeros: int = 0
    telling: int = 0
    random: int = 0


def counted(cases: list[Case]) -> Drawn:
    """Count the properties of cases."""
    counts = Drawn(len(cases))
    seen: set[str] = set()
    for case in cases:
        new = repr(case) not in seen
        seen.add(repr(case))
        zeros = Zeros() in case.data.values()
        counts.distinct += new
        counts.zeros += zeros
        counts.telling += new and not zeros
        counts.random += all(recipe.is_random for recipe in case.data.values())
    return counts


@dataclass
class Needs:
    """Counts of layers that need several blocks, tiles or halos in kernels/conv2d.py."""

    layers: int = 0
    blocks: int = 0
    halos: int = 0
    tiles: int = 0
    far: int = 0


def needs_of(cases: list[Case]) -> Needs:
    """Count the needs of layers in ``fused_conv2d_maxpool``."""
    needs = Needs(len(cases))
    for case in cases:
        parts = parts_of(case.values, case.dtype)
        needs.blocks += parts.starts > 1
        needs.halos += parts.starts > 1 and case.values["filter_size"] > 1
        needs.tiles += parts.tiles > 1
        needs.far += parts.last > 256
    return needs


@dataclass(frozen=True)
class Parts:
    """The kernel's division of an image: blocks, tiles of the first, start of the last."""

    starts: int
    tiles: int
    last: int


def parts_of(layer: dict[str, Any], dtype: str) -> Parts:
    """Return the kernel's division of a layer's images."""
    with embedded():
        from kernels.classic import conv2d

        X = _Operand(
            (layer["batch"], layer["c_in"], layer["height"], layer["width"]),
            np.dtype(dtype),
        )
        W = _Operand(
            (layer["c_out"], layer["c_in"], layer["filter_size"], layer["filter_size"]),
            X.dtype,
        )
        sizes = types.SimpleNamespace(
            pmax=TRN2.partitions,
            psum_fmax=TRN2.gemm_moving_fmax,
            total_available_sbuf_size=TRN2.sbuf_usable_bytes,
        )
        nl = types.SimpleNamespace(tile_size=sizes, float32=np.dtype("float32"))
        pool = layer["pool_size"]
        height, width = conv2d.convolved_size(X, W)
        kernels_nl = conv2d.nl
        conv2d.nl = nl
        try:
            rows, columns = conv2d.psum_tile(
                height, width, pool, layer.get("TILE_WINDOWS")
            )
            block = conv2d.rows_of_block(
                X, W, pool, rows, layer.get("BLOCK_BYTES", 8 * 1024)
            )
        finally:
            conv2d.nl = kernels_nl
    starts = -(-height // block)
    tiles = -(-min(block, height) // rows) * -(-width // columns)
    return Parts(starts, tiles, (starts - 1) * block)


@dataclass(frozen=True)
class _Operand:
    shape: tuple[int, ...]
    dtype: Any


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--layers", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    layers = []
    print(f"{'':50}cases distinct zeros telling random")
    for name, spec in kernel_tests():
        counts = counted(drawn(spec, given.cases, given.seed))
        numbers = (
            counts.cases,
            counts.distinct,
            counts.zeros,
            counts.telling,
            counts.random,
        )
        print(f"{name:50}{'{:5} {:8} {:5} {:7} {:6}'.format(*numbers)}", flush=True)
        if "filter_size" in spec.domain:
            layers.append((name, spec))
    print(f"\n{'':50}layers blocks halos tiles beyond-256")
    for name, spec in layers:
        needs = needs_of(drawn(spec, given.layers, given.seed))
        numbers = (needs.layers, needs.blocks, needs.halos, needs.tiles, needs.far)
        print(f"{name:50}{'{:6} {:6} {:5} {:5} {:10}'.format(*numbers)}", flush=True)


if __name__ == "__main__":
    main()
