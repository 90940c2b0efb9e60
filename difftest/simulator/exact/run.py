"""What an exact run gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.exact import rules  # noqa: F401
from difftest.simulator.exact.bounded import Float64
from difftest.simulator.exact.contract import ExactSettings as ExactSettings
from difftest.simulator.exact.contract import Narrowing
from difftest.simulator.exact.held import raw_values
from difftest.simulator.exact.losses import Loss
from difftest.simulator.exact.shadow import Doubt, Shadow
from difftest.simulator.tile import Tile


@dataclass(frozen=True)
class ExactOutput:
    """One output of an exact run.

    Attributes
    ----------
    value : what the kernel computes where nothing rounds, float64, of the output's shape.
    error : how far from it rounding may lead a correct machine, float64, of that shape; None where
        nothing rounded and the machine's values are exact.
    """

    value: Float64
    error: Float64 | None


@dataclass(frozen=True)
class ExactRun:
    """The exact run of a launch.

    Attributes
    ----------
    outputs : the returned tensors, as those of the launch.
    arguments : of each mutable argument what the kernel left in it, with the caller's array.
    doubts : where the run says less than it seems, or nothing (``Doubt.lost``).
    narrowed : roundings into a dtype that no argument or output has, and of long sums. Their
        errors count as float32's.
    losses : what each instruction lost, if that was asked for, the worst first.
    """

    outputs: tuple[ExactOutput, ...]
    arguments: tuple[tuple[Array, ExactOutput], ...]
    doubts: tuple[Doubt, ...]
    narrowed: tuple[Narrowing, ...]
    losses: tuple[Loss, ...] = ()

    @property
    def has_meaning(self) -> bool:
        """Whether its values can be compared with anything."""
        return not any(doubt.lost for doubt in self.doubts)

    def of(self, arrays: Sequence[Array]) -> ExactRun:
        """The same run, whose outputs are what the kernel left in these mutable arguments."""
        left = {id(array): output for array, output in self.arguments}
        return replace(self, outputs=tuple(left[id(array)] for array in arrays))


def exact_output(shadow: Shadow, tile: Tile) -> ExactOutput:
    """What the exact run holds of a tensor in HBM."""
    held = shadow.held(tile)
    if held is None:
        return ExactOutput(raw_values(tile).astype(np.float64), None)
    return ExactOutput(held.value.copy(), None if held.error is None else held.error.copy())


def exact_run(
    shadow: Shadow, outputs: Sequence[Tile], arguments: Sequence[tuple[Array, Array, Tile]]
) -> ExactRun:
    """What the exact run of a launch has come to."""
    found = shadow.losses.found.values() if shadow.losses is not None else ()
    return ExactRun(
        tuple(exact_output(shadow, tile) for tile in outputs),
        tuple((array, exact_output(shadow, tile)) for array, _, tile in arguments),
        tuple(shadow.doubts.values()),
        tuple(shadow.contract.narrowed.values()),
        tuple(sorted(found, key=lambda loss: -loss.happened)),
    )
