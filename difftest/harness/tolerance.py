"""How far a right result may lie from the reference: derived, not chosen.

docs/explanation/bound.md derives it. Of n roundings of size u each, gamma is the smaller of

- n u / (1 - n u), which always holds (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
  lemma 3.1);
- exp(lambda sqrt(n) u + n u^2 / (1 - u)) - 1 (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019,
  theorem 2.4), which holds with probability 1 - 2 exp(-lambda^2 (1 - u)^2 / 2) a sum if rounding
  errors are independent with mean zero: for random data only, on constant data they are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difftest.harness.rounding import Array, float_info, unit_roundoff

FAILURE_PROBABILITY = 1e-9
"""That a right result is called wrong, at most, in one case: once in a thousand million cases."""


def worst_case_gamma(n: int, u: float) -> float:
    """Higham's n u / (1 - n u); infinite where n u >= 1 and no bound exists."""
    return n * u / (1 - n * u) if n * u < 1 else math.inf


def probabilistic_gamma(n: int, u: float, elements: int) -> float:
    """Higham and Mary's bound, for n roundings in each of ``elements`` elements of a case."""
    if n == 0 or elements == 0:
        return 0.0
    factor = math.sqrt(2 * math.log(2 * n * elements / FAILURE_PROBABILITY)) / (1 - u)
    return math.expm1(factor * math.sqrt(n) * u + n * u * u / (1 - u))


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """The bound of one case, of n = ``reduction`` roundings on the way to an element.

    They round into ``accumulation``; with ``random`` inputs alone the probabilistic bound applies.
    """

    reduction: int
    accumulation: np.dtype[Any]
    random: bool = False

    def gamma(self, elements: int) -> float:
        """The relative bound on the accumulated error."""
        u = unit_roundoff(self.accumulation)
        worst = worst_case_gamma(self.reduction, u)
        if not self.random:
            return worst
        return min(worst, probabilistic_gamma(self.reduction, u, elements))

    def error(
        self, expected: NDArray[np.float64], magnitude: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """How far each element may lie from ``expected``; 0 where that is not finite."""
        # Roundings whose results are subnormal: half a unit for each.
        underflow = self.reduction * float(float_info(self.accumulation).smallest_subnormal) / 2
        with np.errstate(invalid="ignore", over="ignore"):
            error = self.gamma(expected.size) * magnitude + underflow
        return np.where(np.isfinite(expected) & ~np.isnan(error), error, 0.0)


def is_exact_in(
    accumulation: np.dtype[Any], magnitude: NDArray[np.float64], *operands: Array
) -> bool:
    """Whether integer data cannot round: each operand an integer, each sum within the mantissa.

    True if all ``operands`` and ``magnitude`` (the sums of absolute values) hold integers up to
    1/u = 2**24 for float32: then every partial sum, in any order, is exact.
    """
    if not np.all(magnitude <= 1 / unit_roundoff(accumulation)):
        return False
    return all(
        bool(np.all(array == np.rint(array)))
        for array in (magnitude, *(operand.astype(np.float64) for operand in operands))
    )
