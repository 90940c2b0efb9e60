"""Numbers of the exact run: a float64 value, and a bound on a correct machine's distance from it.

A :class:`Bounded` is an array of a kernel's values without rounding, with a bound on the error of a
machine that rounds. The functions here are arithmetic on such arrays. Each takes the bounds of its
operands to the bound of its result, then adds the largest effect of the machine's own rounding.
This is a running error analysis: N. J. Higham, *Accuracy and Stability of Numerical Algorithms*,
2nd edition, SIAM 2002, section 3.3.

A bound of None means that the machine's value is the exact one. This holds for data before the
first rounding, and for integers and other values that float32 can hold.

Float64 rounds too. Where a value has a bound, float64's own error is at most 2**-29 of that bound,
because float32 rounds there as well. A value without a bound has no such margin, so it must be the
operation's result without any rounding:

- The sum of two float32 numbers may have more than 53 bits, and float64 may round it to a float32
  number. :func:`is_sum` detects this.
- The product of two float32 numbers has at most 48 bits.
- A quotient or square root that float32 cannot hold differs from the nearest float32 number by more
  than 2**-49 of itself. Float64 keeps this difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from difftest.simulator.dtypes import (
    BOOL,
    FLOAT8_E4M3FN,
    FLOAT32,
    FLOATS,
    MX_NAMES,
    TFLOAT32,
    Array,
    DType,
    round_to,
)
from difftest.simulator.errors import Location, Stack
from difftest.simulator.oracle.operators import FUNCTIONS as DEFINITIONS

Float64 = NDArray[Any]
"""Arrays of float64. NumPy annotates few functions as returning them."""

_TFLOAT32_MANTISSA = 10
FAILURE_PROBABILITY = 1e-9
"""The largest probability that a probabilistic bound fails anywhere in one sum of arrays."""


class Rounding(NamedTuple):
    """A dtype's rounding to nearest: it changes v by at most ``unit * abs(v) + tiny``.

    ``largest`` is the largest number of the dtype.
    """

    unit: float
    tiny: float
    largest: float


def _rounding(dtype: DType) -> Rounding:
    """Return the unit and the range of a rounding into a dtype."""
    if dtype == TFLOAT32:
        unit = 2.0 ** -(_TFLOAT32_MANTISSA + 1)
        return Rounding(
            unit, float(np.finfo(np.float32).tiny) * unit, (1 - unit) * 2.0**128
        )
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return Rounding(
        float(info.eps) / 2, float(info.smallest_subnormal) / 2, float(info.max)
    )


ROUNDINGS = {dtype: _rounding(dtype) for dtype in (*FLOATS, FLOAT8_E4M3FN)}
_MX = frozenset(MX_NAMES.values())
UNIT = ROUNDINGS[FLOAT32].unit
TINY = ROUNDINGS[FLOAT32].tiny
LARGEST_SUM = 1 / UNIT
"""Sums of integers up to this limit are exact in float32, in any order."""


@dataclass(slots=True, eq=False)
class Bounded:
    """Values that a machine meets to within a bound."""

    value: Any
    """The exact values, float64."""
    error: Any = None
    """The bound, of the value's shape or broadcastable to it; None if the machine is exact."""
    dtype: DType | None = None
    """The dtype that the values were last rounded into. It can take them without rounding."""
    sums: int = 0
    """Roundings into a dtype narrower than float32 along the longest chain of additions."""
    adds: bool = False
    """True if the last operation was an addition."""
    partial: bool = False
    """True for a sum that was rounded into a narrow dtype, if every operation since then was an
    addition, a move or another rounding.
    """
    ids: Any = None
    """The identity of each of the machine's numbers: int64 of the value's shape, or a function that
    returns such an array. Equal ids are one number, opposite ids a number and its negation. 0 is
    any number.
    """

    def shaped(self, change: Callable[[Any], Any]) -> Bounded:
        """Return these numbers in another arrangement: ``change`` rearranges each array."""
        error = None if self.error is None else change(element_bounds(self))
        ids = with_ids(self.ids, change)
        held = self.dtype, self.sums, self.adds, self.partial
        return Bounded(change(self.value), error, *held, ids)


def with_ids(ids: Any, change: Callable[[Any], Any]) -> Any:
    """Return changed ids. If ``ids`` is a function, return a function: the change is deferred."""
    if ids is None:
        return None
    if callable(ids):
        return lambda: change(ids())
    return change(ids)


def made_ids(ids: Any) -> Any:
    """Return ids as an array."""
    if callable(ids):
        return ids()
    return ids


def element_bounds(x: Bounded) -> Any:
    """Return the bound of each element."""
    if x.error is None or x.error.shape == x.value.shape:
        return x.error
    return np.broadcast_to(x.error, x.value.shape)


class ExactValues(NamedTuple):
    """The exact values of a tensor and the bounds of their errors, in the shape of its data."""

    value: Float64
    error: Float64
    sums: Array | None
    """The number of roundings of each element's sum; None if there are none."""
    line: Location | None = None
    """The kernel's line that last rounded such a sum."""
    product: Location | None = None
    """The kernel's line that last rounded a product of tiles held here."""
    partial: bool = False
    """As :attr:`Bounded.partial`, for the last write."""
    ids: Any = 0
    """The ids of the elements: int64 of the data's shape. A scalar is the id of the first element,
    if each element is a number of its own. 0 means unknown.
    """
    narrowed: frozenset[Stack] = frozenset()
    """The calls that rounded wider values into an argument's dtype, if results of these values are
    held here.
    """


def number(value: Any) -> Bounded:
    """Return a constant as a :class:`Bounded`; a machine rounds it into float32."""
    exact = float(value)
    wide = np.asarray(exact)
    near = float(np.float32(exact))
    given = int(value) if isinstance(value, np.integer) else value
    # Python compares integers exactly
    if near == given or math.isnan(exact) or math.isinf(near):
        return Bounded(wide, None, FLOAT32)
    return Bounded(wide, np.asarray(abs(exact) * UNIT + TINY), FLOAT32)


def round_bounded(
    value: Float64,
    error: Float64 | None,
    *operands: Bounded,
    adds: bool = False,
    times: float = 1.0,
    certain: Callable[[], bool] | None = None,
) -> Bounded:
    """Return the result of one float32 operation with its error, rounding included.

    Parameters
    ----------
    operands : the operands whose chains of additions continue in the result.
    times : the most roundings that a machine may need for the result. With more than one, the
        result is never taken as exact.
    certain : return whether float64 has not rounded the value. None if the operation cannot round
        to a float32 number.
    """
    sums = max([operand.sums for operand in operands], default=0)
    partial = adds and any(operand.partial for operand in operands)
    fits = error is None and times == 1.0 and representable(value, FLOAT32)
    if fits and (certain is None or certain()):
        return Bounded(value, None, FLOAT32, sums, adds, partial)
    total = magnitudes(value, error)
    total *= times * UNIT
    total += TINY
    if error is not None:
        total += error
    return Bounded(value, defined(value, total), FLOAT32, sums, adds, partial)


def magnitudes(value: Float64, error: Float64 | None) -> Float64:
    """Return the largest magnitudes that a correct machine may have, in a new array."""
    total: Float64 = np.abs(value)
    if error is not None:
        total += error
    return total


def defined(value: Float64, error: Float64) -> Float64:
    """Return a bound without NaN: 0 where the value is infinite or NaN, else infinity."""
    if math.isnan(error.max(initial=0.0)):
        error = np.where(
            np.isnan(error), np.where(np.isfinite(value), np.inf, 0.0), error
        )
    return error


def sum_bounds(left: Float64 | None, right: Float64 | None) -> Float64 | None:
    """Return the sum of two bounds."""
    if left is None or right is None:
        if left is None:
            return right
        return left
    return left + right


def is_sum(value: Float64, left: Float64, right: Float64) -> bool:
    """Return whether each float64 value is ``left + right`` exactly, not that sum rounded.

    In an exact sum, subtracting one term leaves the other. If both differences do, the error term
    of Knuth's two-sum is 0 (Higham, section 4.3). Infinity and NaN always count as exact.
    """
    first = value - left == right
    if not first.all():
        first |= ~np.isfinite(value)
    second = value - right == left
    if not second.all():
        second |= ~np.isfinite(value)
    return bool(first.all() and second.all())


def add(left: Bounded, right: Bounded) -> Bounded:
    """Return ``left + right``."""
    value = left.value + right.value
    error = cancelled(sum_bounds(left.error, right.error), left, right, opposite=True)
    return round_bounded(
        value,
        error,
        left,
        right,
        adds=True,
        certain=lambda: is_sum(value, left.value, right.value),
    )


def cancelled(error: Any, left: Bounded, right: Bounded, *, opposite: bool) -> Any:
    """Return the error of a difference: 0 where both sides are one number.

    For example, the largest number of a row minus itself is 0, whatever its error.
    """
    ours = left.ids
    theirs = right.ids
    if ours is None or theirs is None or (callable(ours) and callable(theirs)):
        return error
    theirs = made_ids(theirs)
    same = made_ids(ours) == (-theirs if opposite else theirs)
    return np.where(same & (theirs != 0), 0.0, error)


def added_at(
    before: Bounded, terms: Bounded, places: Any, growth: Callable[..., float]
) -> Bounded:
    """Return the values at ``places`` after additions; a repeated place is added to repeatedly.

    ``growth`` returns the relative error of a number of roundings, as :func:`gamma` does.
    """
    value = before.value.copy()
    sizes = np.abs(before.value)
    error = np.zeros(value.shape)
    times = np.zeros(value.shape)
    if before.error is not None:
        error[...] = before.error
    np.add.at(value, places, terms.value)
    np.add.at(sizes, places, np.abs(terms.value))
    np.add.at(times, places, 1.0)
    if terms.error is not None:
        np.add.at(error, places, terms.error)
    most = int(times.max(initial=0.0))
    if before.error is None and terms.error is None and most == 1:
        made = value[places]
        return round_bounded(
            made,
            None,
            before,
            terms,
            adds=True,
            certain=lambda: is_sum(made, before.value[places], terms.value),
        )
    error = error + growth(most, value.size) * (sizes + error)
    sums = max(before.sums, terms.sums) + most - 1
    again = before.partial or terms.partial or most > 1
    return Bounded(
        value[places], error[places], FLOAT32, sums, adds=True, partial=again
    )


def added_or_put(held: Bounded, added: Bounded, missing: Array | None) -> Bounded:
    """Return the sum in the shape of ``held``; where ``missing`` is true, ``added`` alone."""
    added = added.shaped(lambda array: array.reshape(held.value.shape))
    if missing is None:
        return add(held, added)
    # the held values there are not added, so they must not decide whether the sums are exact
    held = held.shaped(lambda array: np.where(missing, 0, array))
    if held.error is not None and not held.error.any():
        held.error = None
    total = add(held, added)
    fresh, other = (
        np.zeros(()) if part.error is None else part.error for part in (added, total)
    )
    value = np.where(missing, added.value, total.value)
    error = np.where(missing, fresh, other)
    return Bounded(value, error, FLOAT32, total.sums, total.adds, total.partial)


def subtract(left: Bounded, right: Bounded) -> Bounded:
    """Return ``left - right``."""
    value = left.value - right.value
    error = cancelled(sum_bounds(left.error, right.error), left, right, opposite=False)
    return round_bounded(
        value,
        error,
        left,
        right,
        adds=True,
        certain=lambda: is_sum(value, left.value, -right.value),
    )


def multiply(left: Bounded, right: Bounded) -> Bounded:
    """Return ``left * right``; a factor of 1 or -1 rounds nothing."""
    if left.error is not None and right.error is None and right.value.shape == ():
        sign = float(right.value)
        if abs(sign) == 1.0:
            ids = left.ids if sign > 0 else with_ids(left.ids, np.negative)
            return Bounded(
                left.value * sign, left.error, left.dtype, left.sums, ids=ids
            )
    error = None if left.error is None else left.error * np.abs(right.value)
    if right.error is not None:
        error = sum_bounds(error, magnitudes(left.value, left.error) * right.error)
    return round_bounded(left.value * right.value, error, left, right)


def divide(left: Bounded, right: Bounded) -> Bounded:
    """Return ``left / right``; the bound is infinite where the divisor may reach 0."""
    value = left.value / right.value
    error = left.error
    if right.error is not None:
        carried = np.abs(value) * right.error
        error = carried if error is None else error + carried
        room = np.abs(right.value) - right.error
        error = np.where(room > 0, error / room, np.inf)
    elif error is not None:
        error = error / np.abs(right.value)
    return round_bounded(value, error, left, right)


def exact_extreme(function: Any) -> Callable[[Bounded, Bounded], Bounded]:
    """Return an exact ``maximum`` or ``minimum``: they round nothing and are monotone."""

    def chosen(left: Bounded, right: Bounded) -> Bounded:
        value = function(left.value, right.value)
        error = None
        if left.error is not None or right.error is not None:
            low, high = ends(left)
            least, most = ends(right)
            error = between(value, function(low, least), function(high, most))
        sums = max(left.sums, right.sums)
        dtype = left.dtype if left.dtype == right.dtype else FLOAT32
        ids = None
        if isinstance(left.ids, np.ndarray) and isinstance(right.ids, np.ndarray):
            ids = _ids_of_either(function, left, right)
        return Bounded(value, error, dtype, sums, ids=ids)

    return chosen


def _ids_of_either(function: Any, left: Bounded, right: Bounded) -> Array:
    """Return the ids of the larger or smaller numbers; 0 where the bounds do not decide which."""
    low, high = ends(left)
    least, most = ends(right)
    above = low > most
    below = least > high
    first, second = (above, below) if function is np.maximum else (below, above)
    chosen: Array = np.where(first, left.ids, np.where(second, right.ids, 0))
    return chosen


def between(value: Float64, low: Float64, high: Float64) -> Float64:
    """Return how far a number in ``[low, high]`` may be from ``value``; 0 at infinities."""
    return defined(value, np.maximum(high - value, value - low))


def power(base: Bounded, exponent: Bounded) -> Bounded:
    """Return ``base ** exponent``. Over a box, its extremes are at the corners or at base 0."""
    value = base.value**exponent.value
    if base.error is None and exponent.error is None:
        return round_bounded(value, None, base, exponent, times=8.0)
    low, high = ends(base)
    few, many = ends(exponent)
    error = np.zeros_like(value)
    for corner in (low**few, low**many, high**few, high**many):
        error = np.maximum(error, np.abs(corner - value))
    crosses = (low < 0) & (high > 0)
    error = np.where(
        crosses, np.maximum(error, np.abs(0.0**exponent.value - value)), error
    )
    return round_bounded(value, error, base, exponent, times=8.0)


def ends(x: Bounded) -> tuple[Float64, Float64]:
    """Return the smallest and the largest value that a correct machine may have."""
    if x.error is None:
        return (x.value, x.value)
    return (x.value - x.error, x.value + x.error)


def gamma(n: int, elements: int, *, random: bool, unit: float = UNIT) -> float:
    """Return the largest relative error of n roundings: the worst case, or the likely case if less.

    The likely case takes rounding errors as independent. Its bound is theorem 2.4 of N. J. Higham
    and T. Mary, *A new approach to probabilistic rounding error analysis*, SIAM Journal on
    Scientific Computing 41(5), 2019.
    """
    worst = n * unit / (1 - n * unit) if n * unit < 1 else math.inf
    if not random or n < 2:
        return worst
    factor = math.sqrt(2 * math.log(2 * n * max(elements, 1) / FAILURE_PROBABILITY))
    likely = math.expm1(factor * math.sqrt(n) * unit + n * unit * unit)
    return min(worst, likely)


def is_integral(value: Float64) -> bool:
    """Return whether all values are integers. The first 16 values decide most negative cases."""
    return all(bool((part == np.rint(part)).all()) for part in (value.flat[:16], value))


def representable(value: Float64, dtype: DType) -> bool:
    """Return whether a dtype holds all values. The first 16 values decide most negative cases."""
    for part in (value.flat[:16], value):
        kept = round_to(part.astype(np.float32), dtype)
        same = kept == part
        if not same.all() and not (same | np.isnan(part)).all():
            return False
    return True


def into(x: Bounded, dtype: DType, rounding: Rounding) -> Bounded:
    """Return numbers as a tensor of ``dtype`` holds them, after a rounding of size ``rounding``."""
    if dtype in (x.dtype, FLOAT32) and x.dtype in ROUNDINGS:
        return x
    value = x.value
    error = x.error
    if error is None and representable(value, dtype):
        return Bounded(value, None, dtype, x.sums, x.adds)
    total = magnitudes(value, error)
    total *= rounding.unit
    total += rounding.tiny if error is None else error + rounding.tiny
    return Bounded(value, defined(value, total), dtype, x.sums, x.adds)


def into_integers(x: Bounded, dtype: DType) -> Bounded | None:
    """Convert rounded numbers to integers or bools; return None if every result is certain."""
    value, low, high = (_whole(end, dtype) for end in (x.value, *ends(x)))
    if dtype == BOOL:
        error = ((np.abs(x.value) <= x.error) & (x.error > 0)).astype(np.float64)
    else:
        value = np.where(np.isnan(value), 0.0, value)  # as the machine converts it
        error = defined(value, high - low)  # between any two of them
    if error.any():
        return Bounded(value, error, dtype)
    return None


def low_bits(value: Array, about: Bounded | None) -> Bounded:
    """Return integers with bounds from ``about``, whose ends wrap around in the dtype."""
    exact = value.astype(np.float64)
    if about is None:
        return Bounded(exact, None, FLOAT32)
    low, high = (
        np.rint(end).astype(np.int64).astype(value.dtype) for end in ends(about)
    )
    return Bounded(
        exact, np.maximum(np.abs(high - exact), np.abs(low - exact)), FLOAT32
    )


def _whole(value: Float64, dtype: DType) -> Float64:
    if dtype == BOOL:
        return np.asarray(value != 0, dtype=np.float64)
    info = np.iinfo(dtype)
    whole: Float64 = np.clip(np.rint(value), info.min, info.max)
    return whole


def as_bounded(array: Array, dtype: DType, *, computed: bool = False) -> Bounded:
    """Return values from memory that no instruction has rounded.

    ``computed`` means that an engine reads them as float32, which rounds wide integers.
    """
    if dtype in _MX:  # MX data is only moved
        return Bounded(np.zeros(array.shape))
    value = array.astype(np.float64)
    is_wide = dtype.kind in "iu" and dtype.itemsize == 4
    if computed and is_wide and not representable(value, FLOAT32):
        return Bounded(value, np.abs(value) * UNIT, FLOAT32)
    # The host may pass bits that tfloat32 cannot hold; only an engine rounds them off.
    fits = dtype in ROUNDINGS and dtype != TFLOAT32
    return Bounded(value, None, dtype if fits else None)


# -- the Scalar Engine's functions -----------------------------------------------------------------

FUNCTION_ROUNDINGS = 8.0
"""The error of an elementary function: 4 units in the last place, NumPy's limit for float32
(NumPy 1.20 release notes and SIMD accuracy tables: exp 2.5, log 3.8, others below 4).
"""

SLOPES = {
    "sigmoid": 0.25,
    "gelu": 1.13,
    "gelu_dx": 0.8,
    "gelu_apprx_tanh": 1.13,
    "gelu_apprx_sigmoid": 1.1,
    "gelu_apprx_sigmoid_dx": 0.86,
    "silu": 1.1,
    "silu_dx": 0.5,
    "tanh": 1.0,
    "softplus": 1.0,
    "mish": 1.09,
    "erf": 1.13,
    "erf_dx": 0.97,
    "sin": 1.0,
    "arctan": 1.0,
}
"""The largest slope of each function whose slope is bounded."""
_MONOTONE = ("log", "sqrt", "rsqrt", "reciprocal")
"""Monotone on positive arguments; ``reciprocal`` also on negative ones."""


def exponential(x: Bounded) -> Bounded:
    """Return ``exp(x)``: an absolute error of the argument is a relative error of the result."""
    value = np.exp(x.value)
    error = None
    if x.error is not None:
        error = np.expm1(element_bounds(x))
        error *= value
        # far below 0 the power stays 0 for any error
        if x.error.max(initial=0.0) > 1.0:
            error = np.where(x.error > 1.0, np.exp(x.value + x.error) - value, error)
    return round_bounded(value, error, times=FUNCTION_ROUNDINGS)


def monotone(name: str) -> Callable[[Bounded], Bounded]:
    """Return ``log``, ``sqrt``, ``rsqrt`` or ``reciprocal``.

    The bound is infinite where the argument of a function other than ``sqrt`` may reach 0.
    """
    function = DEFINITIONS[name]
    times = 1.0 if name in ("sqrt", "reciprocal") else FUNCTION_ROUNDINGS

    def computed(x: Bounded) -> Bounded:
        value = function(x.value)
        if x.error is None:
            return round_bounded(value, None, times=times)
        low, high = ends(x)
        if name == "sqrt":
            low = np.maximum(low, 0.0)
        error = np.maximum(
            np.abs(function(low) - value), np.abs(function(high) - value)
        )
        if name != "sqrt":
            error = np.where((low > 0) | (high < 0), error, np.inf)
        return round_bounded(value, error, times=times)

    return computed


def smooth(name: str) -> Callable[[Bounded], Bounded]:
    """Return a function of bounded slope.

    Machines compute it to float32's precision around 0. Near a zero of the function, the error is
    relative to the argument, not to the result.
    """
    function = DEFINITIONS[name]
    slope = SLOPES[name]

    def computed(x: Bounded) -> Bounded:
        value = function(x.value)
        own = np.minimum(np.abs(x.value), 1.0) * (FUNCTION_ROUNDINGS * 2.0**-24)
        error = own if x.error is None else own + slope * x.error
        return round_bounded(value, error, times=FUNCTION_ROUNDINGS)

    return computed


FUNCTIONS: dict[str, Callable[[Bounded], Bounded]] = {
    "copy": lambda x: x,
    "square": lambda x: multiply(x, x),
    "relu": lambda x: exact_extreme(np.maximum)(x, number(0.0)),
    "exp": exponential,
    "abs": lambda x: Bounded(np.abs(x.value), x.error, x.dtype, x.sums),
    **{name: monotone(name) for name in _MONOTONE},
    **{name: smooth(name) for name in SLOPES},
}
"""Functions by activation name. ``sign`` is a decision, so it is in :mod:`.numbers`."""
