"""Numbers of the exact run: a float64 value, and how far from it a correct machine may be.

A :class:`Bounded` is an array of what a kernel computes where nothing rounds, with a bound on the
error of a machine that rounds. The functions here are arithmetic on them: each takes the bounds of
its operands to the bound of its result (a running error analysis: N. J. Higham, *Accuracy and
Stability of Numerical Algorithms*, 2nd edition, SIAM 2002, section 3.3) and adds what the machine's
own rounding of the result may come to.

A bound of None says that the machine's value is the exact one. So it is of data that no instruction
has rounded yet, and of integers and other values that float32 can hold.

Float64 rounds too. Where a value has a bound, float64's own error is 2**-29 of it or less, because
float32 rounds there as well. A value without a bound has no such room, so it must be what the
operation gives without any rounding. A sum of two float32 numbers may have more than 53 bits, and
float64 may round it to a number of float32: :func:`is_sum` tells. A product of two has 48 bits at
most. A quotient or a square root that is no number of float32 differs from the nearest one by more
than 2**-49 of it, which float64 keeps.
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
"""Arrays of float64; NumPy's own annotations know of few functions that they return them."""

_TFLOAT32_MANTISSA = 10
FAILURE_PROBABILITY = 1e-9
"""That a probabilistic bound fails somewhere in one sum of arrays, at most."""


class Rounding(NamedTuple):
    """What one rounding to nearest into a dtype may change of v: ``unit * abs(v) + tiny``.

    ``largest`` is the largest number of the dtype.
    """

    unit: float
    tiny: float
    largest: float


def _rounding(dtype: DType) -> Rounding:
    if dtype == TFLOAT32:
        unit = 2.0 ** -(_TFLOAT32_MANTISSA + 1)
        return Rounding(unit, float(np.finfo(np.float32).tiny) * unit, (1 - unit) * 2.0**128)
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return Rounding(float(info.eps) / 2, float(info.smallest_subnormal) / 2, float(info.max))


ROUNDINGS = {dtype: _rounding(dtype) for dtype in (*FLOATS, FLOAT8_E4M3FN)}
_MX = frozenset(MX_NAMES.values())
UNIT = ROUNDINGS[FLOAT32].unit
TINY = ROUNDINGS[FLOAT32].tiny
LARGEST_SUM = 1 / UNIT
"""Sums of integers up to here are exact in float32, in any order."""


@dataclass(slots=True, eq=False)
class Bounded:
    """Values that a machine meets to within a bound."""

    value: Any
    """Float64."""
    error: Any = None
    """Of the value's shape, or one that broadcasts to it; None where the machine is exact."""
    dtype: DType | None = None
    """The dtype into which it was rounded last, whose values it can take without a rounding."""
    sums: int = 0
    """How many roundings into a dtype narrower than float32 the longest chain of additions has
    behind it."""
    adds: bool = False
    """Whether the last operation was an addition."""
    partial: bool = False
    """Whether it is a sum that was rounded into a narrow dtype, and since then was only added to,
    moved or rounded again."""
    ids: Any = None
    """Which number of the machine's each one is: int64 of the value's shape, or a function that
    makes that. Equal ids are one number, opposite ids a number and its negation, and 0 is any."""

    def shaped(self, change: Callable[[Any], Any]) -> Bounded:
        """The same numbers in another arrangement, which ``change`` makes of an array."""
        error = None if self.error is None else change(element_bounds(self))
        ids = with_ids(self.ids, change)
        held = self.dtype, self.sums, self.adds, self.partial
        return Bounded(change(self.value), error, *held, ids)


def with_ids(ids: Any, change: Callable[[Any], Any]) -> Any:
    """Return changed ids: a function of those that are made when they are needed."""
    if ids is None:
        return None
    return (lambda: change(ids())) if callable(ids) else change(ids)


def made_ids(ids: Any) -> Any:
    """Return ids as an array."""
    return ids() if callable(ids) else ids


def element_bounds(x: Bounded) -> Any:
    """The bound of each element."""
    if x.error is None or x.error.shape == x.value.shape:
        return x.error
    return np.broadcast_to(x.error, x.value.shape)


class ExactValues(NamedTuple):
    """The exact values of a tensor and the bounds of their errors, of its data's shape."""

    value: Float64
    error: Float64
    sums: Array | None
    """For each element the roundings of the sum that it holds; None where there are none."""
    line: Location | None = None
    """The kernel's line that rounded that sum last."""
    product: Location | None = None
    """The kernel's line that last rounded a product of tiles that it holds."""
    partial: bool = False
    """As :attr:`Bounded.partial`, of what was written last."""
    ids: Any = 0
    """Which numbers it holds: int64 of the data's shape, or the id of the first element where the
    elements are numbers of their own; 0 where that is not known."""
    narrowed: frozenset[Stack] = frozenset()
    """The calls that rounded wider values into the dtype of an argument, of which it holds
    what came of them."""


def number(value: Any) -> Bounded:
    """A constant, which a machine rounds into float32."""
    exact = float(value)
    wide = np.asarray(exact)
    near = float(np.float32(exact))
    given = int(value) if isinstance(value, np.integer) else value
    if near == given or math.isnan(exact) or math.isinf(near):  # Python compares integers exactly
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
    """The result of one float32 operation: its error, and that of rounding it.

    ``operands`` are those whose sums it goes on with. ``times`` is how many roundings a machine's
    way to the result may cost; with more than one the result is never taken as exact. ``certain``
    says whether float64 has not rounded the value; None if it rounds no number of float32.
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
    """The largest magnitudes that a correct machine may have, in an array that nobody else has."""
    total: Float64 = np.abs(value)
    if error is not None:
        total += error
    return total


def defined(value: Float64, error: Float64) -> Float64:
    """A bound without NaN: 0 where the value is infinite or NaN itself, else no bound at all."""
    if math.isnan(error.max(initial=0.0)):
        error = np.where(np.isnan(error), np.where(np.isfinite(value), np.inf, 0.0), error)
    return error


def sum_bounds(left: Float64 | None, right: Float64 | None) -> Float64 | None:
    """The sum of two bounds."""
    if left is None or right is None:
        return right if left is None else left
    return left + right


def is_sum(value: Float64, left: Float64, right: Float64) -> bool:
    """Return whether each float64 value is ``left + right`` itself, and not that sum rounded.

    Each difference of an exact sum and one of its terms is the other term. If both differences
    are, the error term of Knuth's two-sum is 0 (Higham, section 4.3). An infinity and NaN are what
    they are.
    """
    first = value - left == right
    if not first.all():
        first |= ~np.isfinite(value)
    second = value - right == left
    if not second.all():
        second |= ~np.isfinite(value)
    return bool(first.all() and second.all())


def add(left: Bounded, right: Bounded) -> Bounded:
    """``left + right``."""
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
    """Return the error of a difference, which is 0 where both sides are one number.

    So the largest number of a row less itself is 0, whatever its error.
    """
    ours = left.ids
    theirs = right.ids
    if ours is None or theirs is None or (callable(ours) and callable(theirs)):
        return error
    theirs = made_ids(theirs)
    same = made_ids(ours) == (-theirs if opposite else theirs)
    return np.where(same & (theirs != 0), 0.0, error)


def added_at(before: Bounded, terms: Bounded, places: Any, growth: Callable[..., float]) -> Bounded:
    """What an addition to each place leaves there; a place named twice is added to twice.

    ``growth`` is the relative error of a number of roundings, as :func:`gamma` has it.
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
    return Bounded(value[places], error[places], FLOAT32, sums, adds=True, partial=again)


def added_or_put(held: Bounded, added: Bounded, missing: Array | None) -> Bounded:
    """The sum of both, in the shape of the first; where that is ``missing`` the second alone."""
    added = added.shaped(lambda array: array.reshape(held.value.shape))
    total = add(held, added)
    if missing is None:
        return total
    fresh, other = (np.zeros(()) if part.error is None else part.error for part in (added, total))
    value = np.where(missing, added.value, total.value)
    error = np.where(missing, fresh, other)
    return Bounded(value, error, FLOAT32, total.sums, total.adds, total.partial)


def subtract(left: Bounded, right: Bounded) -> Bounded:
    """``left - right``."""
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
    """``left * right``; by 1 or -1 it rounds nothing."""
    if left.error is not None and right.error is None and right.value.shape == ():
        sign = float(right.value)
        if abs(sign) == 1.0:
            ids = left.ids if sign > 0 else with_ids(left.ids, np.negative)
            return Bounded(left.value * sign, left.error, left.dtype, left.sums, ids=ids)
    error = None if left.error is None else left.error * np.abs(right.value)
    if right.error is not None:
        error = sum_bounds(error, magnitudes(left.value, left.error) * right.error)
    return round_bounded(left.value * right.value, error, left, right)


def divide(left: Bounded, right: Bounded) -> Bounded:
    """``left / right``; no bound where the divisor may reach 0."""
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
    """``maximum`` or ``minimum``, which round nothing and rise with both operands."""

    def chosen(left: Bounded, right: Bounded) -> Bounded:
        value = function(left.value, right.value)
        error = None
        if left.error is not None or right.error is not None:
            (low, high), (least, most) = ends(left), ends(right)
            error = between(value, function(low, least), function(high, most))
        sums = max(left.sums, right.sums)
        dtype = left.dtype if left.dtype == right.dtype else FLOAT32
        ids = None
        if isinstance(left.ids, np.ndarray) and isinstance(right.ids, np.ndarray):
            ids = _ids_of_either(function, left, right)
        return Bounded(value, error, dtype, sums, ids=ids)

    return chosen


def _ids_of_either(function: Any, left: Bounded, right: Bounded) -> Array:
    """Return the ids of the larger or the smaller numbers, where the bounds say which they are."""
    (low, high), (least, most) = ends(left), ends(right)
    above = low > most
    below = least > high
    first, second = (above, below) if function is np.maximum else (below, above)
    chosen: Array = np.where(first, left.ids, np.where(second, right.ids, 0))
    return chosen


def between(value: Float64, low: Float64, high: Float64) -> Float64:
    """How far a number from ``low`` to ``high`` may lie from ``value``; 0 for infinities alone."""
    return defined(value, np.maximum(high - value, value - low))


def power(base: Bounded, exponent: Bounded) -> Bounded:
    """``base ** exponent``: over a box, its extremes lie at the corners, or where the base is 0."""
    value = base.value**exponent.value
    if base.error is None and exponent.error is None:
        return round_bounded(value, None, base, exponent, times=8.0)
    low, high = ends(base)
    few, many = ends(exponent)
    error = np.zeros_like(value)
    for corner in (low**few, low**many, high**few, high**many):
        error = np.maximum(error, np.abs(corner - value))
    crosses = (low < 0) & (high > 0)
    error = np.where(crosses, np.maximum(error, np.abs(0.0**exponent.value - value)), error)
    return round_bounded(value, error, base, exponent, times=8.0)


def ends(x: Bounded) -> tuple[Float64, Float64]:
    """The smallest and the largest value of a correct machine."""
    return (x.value, x.value) if x.error is None else (x.value - x.error, x.value + x.error)


def gamma(n: int, elements: int, *, random: bool, unit: float = UNIT) -> float:
    """The relative error of n roundings, at most: the worst case, or with independent errors less.

    The second is the bound of N. J. Higham and T. Mary, *A new approach to probabilistic rounding
    error analysis*, SIAM Journal on Scientific Computing 41(5), 2019, theorem 2.4.
    """
    worst = n * unit / (1 - n * unit) if n * unit < 1 else math.inf
    if not random or n < 2:
        return worst
    factor = math.sqrt(2 * math.log(2 * n * max(elements, 1) / FAILURE_PROBABILITY))
    likely = math.expm1(factor * math.sqrt(n) * unit + n * unit * unit)
    return min(worst, likely)


def is_integral(value: Float64) -> bool:
    """Whether all values are integers; most that are not tell so at once."""
    return all(bool((part == np.rint(part)).all()) for part in (value.flat[:16], value))


def representable(value: Float64, dtype: DType) -> bool:
    """Whether rounding into a dtype changes no value; most arrays with others tell so at once."""
    for part in (value.flat[:16], value):
        kept = round_to(part.astype(np.float32), dtype)
        if not ((kept == part) | np.isnan(part)).all():
            return False
    return True


def into(x: Bounded, dtype: DType, rounding: Rounding) -> Bounded:
    """Numbers as a tensor of ``dtype`` holds them, their rounding counted as ``rounding``."""
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
    """Rounded numbers that become integers or bools; None where all are sure to become these."""
    value, low, high = (_whole(end, dtype) for end in (x.value, *ends(x)))
    if dtype == BOOL:
        error = ((np.abs(x.value) <= x.error) & (x.error > 0)).astype(np.float64)
    else:
        value = np.where(np.isnan(value), 0.0, value)  # as the machine has it
        error = defined(value, high - low)  # between any two of them
    return Bounded(value, error, dtype) if error.any() else None


def low_bits(value: Array, about: Bounded | None) -> Bounded:
    """Integers as their dtype keeps them: those of ``about`` that leave it, from its other end."""
    exact = value.astype(np.float64)
    if about is None:
        return Bounded(exact, None, FLOAT32)
    low, high = (np.rint(end).astype(np.int64).astype(value.dtype) for end in ends(about))
    return Bounded(exact, np.maximum(np.abs(high - exact), np.abs(low - exact)), FLOAT32)


def _whole(value: Float64, dtype: DType) -> Float64:
    if dtype == BOOL:
        return np.asarray(value != 0, dtype=np.float64)
    info = np.iinfo(dtype)
    whole: Float64 = np.clip(np.rint(value), info.min, info.max)
    return whole


def as_bounded(array: Array, dtype: DType, *, computed: bool = False) -> Bounded:
    """What memory holds and no instruction has rounded.

    ``computed`` says that an engine takes it as float32, which rounds wide integers.
    """
    if dtype in _MX:  # which are moved alone
        return Bounded(np.zeros(array.shape))
    value = array.astype(np.float64)
    if (
        computed
        and dtype.kind in "iu"
        and dtype.itemsize == 4
        and not representable(value, FLOAT32)
    ):
        return Bounded(value, np.abs(value) * UNIT, FLOAT32)
    # Of tfloat32 the host may give bits that the dtype has not, which only an engine rounds off.
    fits = dtype in ROUNDINGS and dtype != TFLOAT32
    return Bounded(value, None, dtype if fits else None)


# -- the Scalar Engine's functions -----------------------------------------------------------------

FUNCTION_ROUNDINGS = 8.0
"""Of an elementary function: 4 units in the last place, the most that NumPy promises in float32
(NumPy 1.20 release notes and SIMD accuracy tables: exp 2.5, log 3.8, others below 4)."""

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
"""The steepest of each function that is steep nowhere."""
_MONOTONE = ("log", "sqrt", "rsqrt", "reciprocal")
"""On positive arguments; the reciprocal also on negative ones."""


def exponential(x: Bounded) -> Bounded:
    """``exp(x)``: an error of the argument is a relative one of the result."""
    value = np.exp(x.value)
    error = None
    if x.error is not None:
        error = np.expm1(element_bounds(x))
        error *= value
        if x.error.max(initial=0.0) > 1.0:  # far below 0 the power stays 0 whatever the error
            error = np.where(x.error > 1.0, np.exp(x.value + x.error) - value, error)
    return round_bounded(value, error, times=FUNCTION_ROUNDINGS)


def monotone(name: str) -> Callable[[Bounded], Bounded]:
    """``log``, ``sqrt``, ``rsqrt`` or ``reciprocal``: no bound where the argument may reach 0."""
    function = DEFINITIONS[name]
    times = 1.0 if name in ("sqrt", "reciprocal") else FUNCTION_ROUNDINGS

    def computed(x: Bounded) -> Bounded:
        value = function(x.value)
        if x.error is None:
            return round_bounded(value, None, times=times)
        low, high = ends(x)
        if name == "sqrt":
            low = np.maximum(low, 0.0)
        error = np.maximum(np.abs(function(low) - value), np.abs(function(high) - value))
        if name != "sqrt":
            error = np.where((low > 0) | (high < 0), error, np.inf)
        return round_bounded(value, error, times=times)

    return computed


def smooth(name: str) -> Callable[[Bounded], Bounded]:
    """A function that is steep nowhere; machines compute it to float32's precision around 0.

    Near where it vanishes the error is one of its argument's size, not of its own.
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
"""By the name of the activation; ``sign``, which decides, is in :mod:`.numbers`."""
