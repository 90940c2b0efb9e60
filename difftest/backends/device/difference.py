"""A difference that only the device shows: every pair of parties, and who is farther from float64.

No simulator fails on the case, so that nothing can be shrunk. What can be told is how far each
party stands from each other one, and from the reference, which is computed in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difftest.backends.base import Array, KernelCall
from difftest.backends.device.embedding import ran_beside
from difftest.harness.rounding import ulp

REFERENCE = "reference"
Outputs = Sequence[NDArray[Any]] | str
"""What a party computed, or why it has nothing to say."""


def difference_text(expected: Sequence[NDArray[np.float64]], parties: Mapping[str, Outputs]) -> str:
    """The pairs and the verdict, as lines under a failure's report.

    Parameters
    ----------
    expected : the reference's outputs, float64.
    parties : what each backend computed, by name, the device among them; or the reason why not.
    """
    all_parties: dict[str, Outputs] = {REFERENCE: expected, **parties}
    silent = {name: reason for name, reason in parties.items() if isinstance(reason, str)}
    speaking = {name: got for name, got in all_parties.items() if not isinstance(got, str)}
    dtypes = next(got for name, got in speaking.items() if name != REFERENCE)
    lines = ["  pairs:       largest difference, in units in the last place of the output's dtype"]
    distances = {}
    for (a, left), (b, right) in combinations(speaking.items(), 2):
        distances[a, b] = _distance(left, right, expected, dtypes)
        lines.append(f"    {a} - {b}: {distances[a, b]:.3g}")
    lines += [f"    {name}: not compared, {reason}" for name, reason in silent.items()]
    return "\n".join([*lines, f"  float64:     {_verdict(distances)}"])


def _verdict(distances: Mapping[tuple[str, str], float]) -> str:
    """Who is farther from the reference."""
    errors = {b: distance for (a, b), distance in distances.items() if a == REFERENCE}
    (far, most), *rest = sorted(errors.items(), key=lambda one: -one[1])
    if not rest:
        return f"only {far} was compared with it, {most:.3g} ULP away"
    if most == rest[0][1]:
        return f"{far} and {rest[0][0]} are equally far, {most:.3g} ULP"
    others = ", ".join(f"{name} {distance:.3g}" for name, distance in rest)
    return f"{far} is farther: {most:.3g} ULP, against {others}"


def _distance(
    left: Sequence[Array],
    right: Sequence[Array],
    expected: Sequence[NDArray[np.float64]],
    like: Sequence[Array],
) -> float:
    """The largest difference of two parties over all outputs; infinite where NaN stands alone."""
    most = 0.0
    for a, b, right_value, typed in zip(left, right, expected, like, strict=True):
        with np.errstate(invalid="ignore"):
            one, other = a.astype(np.float64), b.astype(np.float64)
            apart = np.abs(one - other) / ulp(right_value, typed.dtype).astype(np.float64)
        apart = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, apart)
        most = max(most, float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0.0)))
    return most


def embedded_outputs(call: KernelCall) -> Outputs:
    """What the embedded simulator computes for a kernel that was imported with the SDK."""
    ran = ran_beside(call)
    return ran if isinstance(ran, str) else ran.outputs
