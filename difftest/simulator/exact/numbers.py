"""Numbers with bounds as array-likes: a record's meaning, applied to them, gives its exact run.

Each NumPy function and each step has a rule for them here, so a record needs no rules of its own.
If the numbers leave a decision open, the launch gets a doubt.

Some meanings do not run on them: meanings that write ``dst`` themselves, draw random numbers, look
up places or produce bits.

In microscaling (MX), the scale and the elements of a group are the machine's. A quantization
decides, as a conversion to integers does. Quantized exact numbers are exact, and a reference has to
produce the same ones. Quantized rounded numbers are certain if no rounding can change them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from difftest.simulator.dtypes import FLOAT32, Array
from difftest.simulator.exact import bounded, places
from difftest.simulator.exact.bounded import (
    FUNCTIONS,
    Bounded,
    Float64,
    element_bounds,
    magnitudes,
)
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.elementwise import in_integers
from difftest.simulator.instructions.mx import scale_codes, spread_over_groups, unpack
from difftest.simulator.instructions.record import CheckedCall, MaskedValues
from difftest.simulator.instructions.reduce import extreme_along
from difftest.simulator.instructions.values import rows
from difftest.simulator.lifted import Lifted
from difftest.simulator.tile import Tile

Axes = tuple[int, ...]


class ExactContext(Protocol):
    """The parts of the launch's exact run (:class:`.run.Shadow`) that numbers use."""

    def doubt(self, reason: str, *, lost: bool, is_open: bool = False) -> None: ...

    def sure(self, *numbers: Bounded) -> None: ...

    def name_elements(self, *numbers: Bounded) -> None: ...

    def gamma(self, n: int, elements: int, *, terms: int = 0) -> float: ...

    def take(self, tile: Tile) -> Bounded: ...


ARITHMETIC: dict[Any, Callable[..., Bounded]] = {
    np.add: bounded.add,
    np.subtract: bounded.subtract,
    np.multiply: bounded.multiply,
    np.divide: bounded.divide,
    np.power: bounded.power,
    np.maximum: bounded.exact_extreme(np.maximum),
    np.minimum: bounded.exact_extreme(np.minimum),
    np.negative: lambda x: Bounded(
        -x.value,
        x.error,
        x.dtype,
        x.sums,
        x.adds,
        ids=bounded.with_ids(x.ids, np.negative),
    ),
    **{
        getattr(np, name): FUNCTIONS[name]
        for name in ("abs", "square", "reciprocal", "exp")
    },
}
"""Ufuncs that decide nothing."""
_COMPARISONS = (
    np.equal,
    np.not_equal,
    np.greater,
    np.greater_equal,
    np.less,
    np.less_equal,
)
_LOGIC = (np.logical_not, np.logical_and, np.logical_or, np.logical_xor)


class Numbers(Lifted):
    """Numbers of one launch's exact run."""

    __slots__ = ("held", "run", "shape")

    def __init__(self, run: ExactContext, held: Bounded) -> None:
        self.run = run
        self.held = held
        self.shape = held.value.shape

    def _of(self, operand: Any) -> Bounded:
        """Return the bounded numbers of an operand: numbers, an unrounded array or a scalar."""
        if isinstance(operand, Numbers):
            return operand.held
        if getattr(operand, "ndim", 0):
            return Bounded(operand.astype(np.float64), None, FLOAT32)
        return bounded.number(operand)

    def _made(self, held: Bounded) -> Numbers:
        return Numbers(self.run, held)

    def moved(self, change: Callable[[Any], Any]) -> Numbers:
        return Numbers(self.run, self.held.shaped(change))

    def settled(self) -> Array:
        held = self.held
        self.run.name_elements(held)
        value: Array = held.value
        return value

    def __ne__(self, other: Any) -> Any:
        """Return ``self != other``, immediately for a single number that the bounds decide."""
        value = self.held.value
        error = self.held.error
        if not self.shape:
            if error is None:
                return value != other
            if type(other) is int and abs(value - other) > error:
                return value != other
        return self.computed(np.not_equal, self, other)

    def computed(self, ufunc: Any, *operands: Any) -> Numbers:
        rule = ARITHMETIC.get(ufunc)
        values = [self._of(operand) for operand in operands]
        if rule is not None:
            return self._made(rule(*values))
        rule = _DECISIONS.get(ufunc)
        if rule is None:
            raise self._unknown(f"np.{ufunc.__name__}")
        return self._made(rule(self.run, ufunc, *values))

    def reduced(self, ufunc: Any, axes: Axes, *, keepdims: bool) -> Numbers:
        rule = _REDUCTIONS.get(ufunc)
        if rule is None:
            raise self._unknown(f"np.{ufunc.__name__}.reduce")
        return self._made(rule(self.run, ufunc, self.held, axes, keepdims))

    # -- other NumPy functions ---------------------------------------------------------------------

    def do_where(self, condition: Any, yes: Any, no: Any) -> Numbers:
        unsure = None
        if isinstance(condition, Numbers):
            unsure = doubtful_truth(condition.held)
            condition = condition.held.value != 0
        return self._made(chosen_from(condition, unsure, self._of(yes), self._of(no)))

    def do_zeros(self, shape: tuple[int, ...]) -> Numbers:
        """Return an array to be filled in; until then it has the properties of these numbers."""
        like = self.held
        planes = np.zeros(shape), np.zeros(shape)
        return Filled(
            self.run, Bounded(*planes, like.dtype, like.sums, like.adds, like.partial)
        )

    def do_full_like(self, like: Any, number: float) -> Numbers:
        return self._made(
            Bounded(np.full(like.shape, float(number)), None, like.held.dtype)
        )

    def do_concatenate(self, parts: Sequence[Any], axis: int) -> Numbers:
        values = [self._of(part) for part in parts]
        value = np.concatenate([part.value for part in values], axis=axis)
        if all(part.error is None for part in values):
            return self._made(Bounded(value, None, FLOAT32))
        errors = [
            np.zeros_like(p.value) if p.error is None else element_bounds(p)
            for p in values
        ]
        error = np.concatenate(errors, axis=axis)
        return self._made(Bounded(value, error if error.any() else None, FLOAT32))

    def do_sort(self, numbers: Numbers, axis: int, kind: Any = None) -> Numbers:
        """Sort the numbers: the k-th smallest of all ends is an end of the k-th smallest number."""
        held = numbers.held
        value, low, high = (
            np.sort(x, axis, kind) for x in (held.value, *bounded.ends(held))
        )
        error = None if held.error is None else bounded.between(value, low, high)
        ids = None
        if needs_ids(held) and axis == 1:
            order, is_sure = places.sure_order(held)
            ids = np.where(
                is_sure, np.take_along_axis(bounded.made_ids(held.ids), order, 1), 0
            )
        return self._made(Bounded(value, error, held.dtype, held.sums, ids=ids))

    def do_argsort(self, numbers: Numbers, axis: int, kind: Any) -> Numbers:
        """Return the places of the exact values, with bounds where rounding may change them."""
        return self._made(places.order_of(self.run, numbers.held, kind))

    # -- steps -------------------------------------------------------------------------------------

    def do_sum_in_order(self, lines: Numbers, start: Numbers | None = None) -> Any:
        if start is not None and (
            start.held.error is not None or start.held.value.any()
        ):
            lines = self.do_concatenate([start[:, None], lines], 1)
        return lines.sum(1)

    def do_multiply_add(self, values: Numbers, factor: Any, shift: Any) -> Any:
        return values * factor + shift

    def do_in_integers(
        self, left: Numbers, right: Numbers, op: AluOp, dtype: Any
    ) -> Any:
        """Compute in integers without rounding; results out of range wrap around in the dtype."""
        value = in_integers(left.held.value, right.held.value, op, dtype)
        sure = left.held.error is right.held.error is None
        return self._made(
            bounded.low_bits(value, None if sure else op.compute(left, right).held)
        )

    def do_rsqrt(self, values: Numbers) -> Numbers:
        return self._made(FUNCTIONS["rsqrt"](values.held))

    def do_check_range(self, values: Numbers, name: str) -> None:
        """Do nothing: the machine's values are checked."""

    def do_activated(self, values: Numbers, name: str) -> Numbers:
        held = values.held
        if name != "sign":
            return self._made(FUNCTIONS[name](held))
        return self._made(
            decided(self.run, np.sign(held.value), doubtful_truth(held), 2.0)
        )


class Filled(Numbers):
    """An array to be filled in, or some of its elements."""

    __slots__ = ("_array", "_part", "_rounded")

    def __init__(
        self, run: ExactContext, part: Bounded, array: Filled | None = None
    ) -> None:
        self.run = run
        self._part = part
        self.shape = part.value.shape
        self._array = array
        """The array of all elements, which tracks its own state; None if this is that array."""
        self._rounded: bool | None = None
        """True if an array filled at once has errors; None if it was filled piece by piece."""

    def _whole(self) -> Filled:
        if self._array is None:
            return self
        return self._array

    @property
    def held(self) -> Bounded:  # type: ignore[override]
        part = self._part
        array = self._whole()
        about = array._part
        rounded = array._rounded
        if rounded is None:
            rounded = part.error.any()
        error = part.error if rounded else None
        return Bounded(
            part.value, error, about.dtype, about.sums, about.adds, about.partial
        )

    def moved(self, change: Callable[[Any], Any]) -> Filled:
        return Filled(self.run, self._part.shaped(change), self._whole())

    def __setitem__(self, index: Any, numbers: Any) -> None:
        array = self._whole()
        source = self._of(numbers)
        self._part.value[index] = source.value
        self._part.error[index] = 0.0 if source.error is None else source.error
        held = array._part
        whole = index is ...
        rounds = source.error is not None
        sure = rounds or self is array or array._rounded is False
        array._rounded = rounds if whole and sure else None
        about = (source.dtype, source.sums, source.adds and whole, source.partial)
        if not whole and about != (held.dtype, held.sums, held.adds, held.partial):
            about = (FLOAT32, 0, False, False)
        held.dtype, held.sums, held.adds, held.partial = about


# -- decisions -------------------------------------------------------------------------------------


def decided(run: ExactContext, value: Any, unsure: Any, apart: float = 1.0) -> Bounded:
    """Return the result of a decision, with a doubt where rounding may have changed it.

    ``apart`` is the largest difference of two results, such as 1 and 0.
    """
    truth = np.asarray(value, dtype=np.float64)
    if unsure is None or not unsure.any():
        return Bounded(truth, None, FLOAT32)
    run.doubt("a rounded value decides", lost=False)
    return Bounded(truth, np.where(unsure, apart, 0.0), FLOAT32)


def compared(run: ExactContext, ufunc: Any, left: Bounded, right: Bounded) -> Bounded:
    """Compare exact values. The result is unsure where the bounds allow the machine another one."""
    error = bounded.sum_bounds(left.error, right.error)
    unsure = None
    if error is not None:
        unsure = doubtful_truth(Bounded(left.value - right.value, error))
    return decided(run, ufunc(left.value, right.value), unsure)


def doubtful_truth(x: Bounded) -> Any:
    """Return where a number may be 0 without being exactly 0; None if this is so nowhere."""
    if x.error is None:
        return None
    return (np.abs(x.value) <= x.error) & (x.error > 0)


def _logic(run: ExactContext, ufunc: Any, *operands: Bounded) -> Bounded:
    doubts = [doubt for doubt in map(doubtful_truth, operands) if doubt is not None]
    unsure = functools.reduce(np.logical_or, doubts) if doubts else None
    return decided(run, ufunc(*(operand.value for operand in operands)), unsure)


def _remainder(run: ExactContext, ufunc: Any, left: Bounded, right: Bounded) -> Bounded:
    """Return ``left - k * right`` for an integer k, which a rounding may change."""
    value = ufunc(left.value, right.value)
    if left.error is None and right.error is None:
        # float64 holds it; np.mod may add the divisor
        rest = np.fmod(left.value, right.value)
        kept = np.where(value == rest, 0.0, right.value)
        certain = functools.partial(bounded.is_sum, value, rest, kept)
        return bounded.round_bounded(value, None, left, right, certain=certain)
    turns = np.abs(np.round((left.value - value) / right.value))
    error = np.zeros_like(value)
    for part, times in ((left.error, 1.0), (right.error, turns)):
        if part is not None:
            error = error + part * times
    size = np.abs(right.value)
    near = error if right.error is None else error + right.error
    unsure = (np.abs(value) <= near) | (size - np.abs(value) <= near)
    if unsure.any():
        run.doubt("a rounded value decides", lost=False)
        error = np.where(unsure, size + near, error)
    return bounded.round_bounded(value, error, left, right)


_DECISIONS: dict[Any, Callable[..., Bounded]] = {
    **dict.fromkeys(_COMPARISONS, compared),
    **dict.fromkeys(_LOGIC, _logic),
    **dict.fromkeys((np.mod, np.fmod), _remainder),
}


def chosen_from(condition: Any, unsure: Any, yes: Bounded, no: Bounded) -> Bounded:
    """Return ``condition ? yes : no``; where the condition is unsure, with a bound over both."""
    value = np.where(condition, yes.value, no.value)
    sums = max(yes.sums, no.sums)
    partial = yes.partial and no.partial
    dtype = yes.dtype if yes.dtype == no.dtype else FLOAT32
    if yes.error is None and no.error is None and unsure is None:
        return Bounded(value, None, dtype, sums, partial=partial)
    zero = np.zeros(())
    left, right = (zero if side.error is None else side.error for side in (yes, no))
    error = np.where(condition, left, right)
    if unsure is not None:
        apart = np.abs(yes.value - no.value) + np.maximum(left, right)
        error = np.where(unsure, apart, error)
    return Bounded(value, error, dtype, sums, partial=partial)


# -- reductions ------------------------------------------------------------------------------------


def _total(
    run: ExactContext, ufunc: Any, x: Bounded, axes: Axes, keepdims: bool
) -> Bounded:
    """Return a sum in float32, in any order."""
    value = x.value
    total = functools.partial(np.add.reduce, axis=axes, keepdims=keepdims)
    n = math.prod([value.shape[axis] for axis in axes])
    summed = np.asarray(total(value))
    sizes = np.asarray(total(np.abs(value)))
    error = element_bounds(x)
    errors = 0.0
    if error is not None:
        errors = total(error)
    elif n == 1 or (
        sizes.max(initial=0.0) <= bounded.LARGEST_SUM and bounded.is_integral(value)
    ):
        return Bounded(summed, None, FLOAT32, adds=True)
    carried = errors + run.gamma(n - 1, summed.size, terms=n) * (sizes + errors)
    return Bounded(summed, bounded.defined(summed, carried), FLOAT32, adds=True)


def _extreme(
    run: ExactContext, ufunc: Any, x: Bounded, axes: Axes, keepdims: bool
) -> Bounded:
    value = extreme_along(ufunc, x.value, axes)
    error = element_bounds(x)
    if error is not None:
        error = bounded.between(
            value, *(extreme_along(ufunc, e, axes) for e in bounded.ends(x))
        )
    ids = ids_of_extremes(ufunc, x, axes) if needs_ids(x) else None
    extreme = Bounded(np.asarray(value), error, x.dtype, x.sums, ids=ids)
    if keepdims:
        return extreme.shaped(lambda array: np.expand_dims(array, axes))
    return extreme


WORTH_IDS = 2.0**-10
"""The smallest error that makes ids worthwhile. They make the largest number minus itself 0, and an
exponential turns an absolute error into a relative one.
"""


def needs_ids(x: Bounded) -> bool:
    """Return whether the numbers have ids, and errors large enough to make ids worthwhile."""
    return (
        x.ids is not None
        and x.error is not None
        and float(x.error.max(initial=0)) > WORTH_IDS
    )


def ids_of_extremes(ufunc: Any, x: Bounded, axes: Axes) -> Array:
    """Return the ids of the largest or smallest numbers along axes; 0 where several may be it."""
    low, high = bounded.ends(x)
    if ufunc is np.minimum:
        low, high = -high, -low
    rest = tuple(size for axis, size in enumerate(x.value.shape) if axis not in axes)
    low, high, ids = (
        np.moveaxis(plane, axes, range(-len(axes), 0)).reshape(*rest, -1)
        for plane in (low, high, bounded.made_ids(x.ids))
    )
    at = np.argmax(low, axis=-1)[..., None]
    least = np.take_along_axis(low, at, axis=-1)
    may_be = np.count_nonzero(high >= least, axis=-1)
    found: Array = np.take_along_axis(ids, at, axis=-1)[..., 0]
    return np.where(may_be == 1, found, 0)


def _all_or_any(
    run: ExactContext, ufunc: Any, x: Bounded, axes: Axes, keepdims: bool
) -> Bounded:
    value = ufunc.reduce(x.value != 0, axis=axes, keepdims=keepdims)
    unsure = doubtful_truth(x)
    if unsure is not None:
        unsure = element_bounds(Bounded(x.value, unsure)).any(
            axis=axes, keepdims=keepdims
        )
    return decided(run, value, unsure)


def _product(
    run: ExactContext, ufunc: Any, x: Bounded, axes: Axes, keepdims: bool
) -> Bounded:
    value = np.asarray(x.value.prod(axis=axes, keepdims=keepdims))
    largest: Any = magnitudes(x.value, x.error)
    most = np.asarray(largest.prod(axis=axes, keepdims=keepdims))
    small = most.max(initial=0.0) <= bounded.LARGEST_SUM
    if x.error is None and small and bounded.is_integral(x.value):
        return Bounded(value, None, FLOAT32)
    n = math.prod(x.value.shape[axis] for axis in axes)
    carried = most - np.abs(value) + run.gamma(n, value.size) * most + n * bounded.TINY
    return Bounded(value, bounded.defined(value, carried), FLOAT32)


def _difference(
    run: ExactContext, ufunc: Any, x: Bounded, axes: Axes, keepdims: bool
) -> Bounded:
    """Return the first element along an axis minus the others."""
    (axis,) = axes
    signs = np.where(np.arange(x.value.shape[axis]) == 0, 1.0, -1.0)
    shape = [1] * x.value.ndim
    shape[axis] = -1
    turned = Bounded(x.value * signs.reshape(shape), x.error)
    return _total(run, np.add, turned, axes, keepdims)


_REDUCTIONS: dict[Any, Callable[..., Bounded]] = {
    np.add: _total,
    np.subtract: _difference,
    np.multiply: _product,
    np.maximum: _extreme,
    np.minimum: _extreme,
    **dict.fromkeys(_LOGIC[1:], _all_or_any),
}


# -- instructions whose meaning does not run on numbers --------------------------------------------


def iota(run: ExactContext, call: CheckedCall, expr: Any) -> Bounded:
    """Return whole numbers."""
    return Bounded(expr.array().astype(np.float64), None)


def drawn(run: ExactContext, call: CheckedCall, *operands: Any) -> None:
    """Note a doubt: no reference has the same random numbers."""
    run.doubt("random numbers", lost=True)


def sequence_bounds(run: ExactContext, call: CheckedCall, segment_ids: Bounded) -> None:
    """Note a doubt if rounded ids name segments."""
    if segment_ids.error is not None:
        run.doubt("rounded values name segments", lost=True)


# -- products --------------------------------------------------------------------------------------


def nc_matmul(run: ExactContext, call: CheckedCall, *operands: Bounded) -> Bounded:
    """Return ``stationary.T @ moving``; ``double_row`` has two contraction rows a partition."""
    if "product" in call.operands:
        return operands[0]
    depth = 2 if call.options["perf_mode"] == "double_row" else 1
    if depth == 1 and operands[0].value.ndim == operands[1].value.ndim == 2:
        return matrix_product(run, *operands)
    sides = [side.shaped(lambda a: a.reshape(depth * len(a), -1)) for side in operands]
    return matrix_product(run, *sides)


def matrix_product(run: ExactContext, left: Bounded, right: Bounded) -> Bounded:
    """Return ``left.T @ right`` for [K, M] and [K, N], summed in float32 in any order."""
    values = (left.value, right.value)
    errors = (element_bounds(left), element_bounds(right))
    value = values[0].T @ values[1]
    depth = len(left.value)
    growth = run.gamma(depth, value.size)
    wide = [
        v if e is None else magnitudes(v, e)
        for v, e in zip(values, errors, strict=True)
    ]
    whole = left.error is right.error is None and all(map(bounded.is_integral, values))
    if whole and _sizes_product(*values).max(initial=0.0) <= bounded.LARGEST_SUM:
        return Bounded(value, None, FLOAT32)
    grown = wide[0] if errors[0] is None else wide[0] + errors[0] / growth
    error = _sizes_product(grown, wide[1], growth)
    if errors[1] is not None:
        error += _sizes_product(values[0], errors[1] / growth, growth)
    error += bounded.TINY * depth
    return Bounded(value, bounded.defined(value, error), FLOAT32)


_SCALED_TO = 2.0**50
"""The largest factor of a product in float32; a sum of 2**27 such products is below infinity."""


def _sizes_product(left: Float64, right: Float64, times: float = 1.0) -> Any:
    """Return an upper bound of ``times * abs(left).T @ abs(right)``, in float32 if it fits.

    Scaling keeps most factors out of the subnormal range, where a processor takes a hundred times
    as long. Factors are never scaled down. Otherwise small numbers next to large ones would become
    0, and with them the bound of a row of small numbers.
    """
    sides = [side.astype(np.float32) for side in (left, right)]
    peaks = [float(np.abs(side, out=side).max(initial=0.0)) for side in sides]
    if not 0.0 < min(peaks) <= max(peaks) < _SCALED_TO:
        return times * (np.abs(left).T @ np.abs(right))
    scales = [min(_SCALED_TO / 2.0 ** math.frexp(peak)[1], 2.0**120) for peak in peaks]
    for side, scale in zip(sides, scales, strict=True):
        side *= np.float32(scale)
    factor = times * (1 + 2 * len(left) * bounded.UNIT) / (scales[0] * scales[1])
    return np.multiply(sides[0].T @ sides[1], factor, dtype=np.float64)


# -- microscaling ---------------------------------------------------------------------------------


def quantize_mx(
    run: ExactContext, call: CheckedCall, src: Bounded
) -> tuple[None, None]:
    """Leave packed elements and scales to the machine; note a doubt if rounding may change them."""
    if src.error is not None and not _is_sure(call, src):
        run.doubt("rounded values are quantized to MX", lost=True)
    return None, None


def _is_sure(call: CheckedCall, src: Bounded) -> bool:
    """Return whether the largest and the smallest possible magnitudes have equal quantizations."""
    sizes = np.abs(src.value)
    largest, smallest = (
        np.copysign(end, src.value).astype(np.float32)
        for end in (sizes + src.error, np.maximum(sizes - src.error, 0.0))
    )
    if not np.isfinite(largest).all():
        return False
    (most, scales), (least, others) = (
        call.instruction.meaning(call, values) for values in (largest, smallest)
    )
    assert isinstance(scales, MaskedValues)
    assert isinstance(others, MaskedValues)
    return (
        most.tobytes() == least.tobytes()
        and scales.values.tobytes() == others.values.tobytes()
    )


def nc_matmul_mx(run: ExactContext, call: CheckedCall, *tiles: Tile) -> Bounded:
    """Return ``stationary.T @ moving`` of the elements times their scales."""
    stationary, moving, stationary_scale, moving_scale = tiles
    left = _scaled(run, stationary, stationary_scale, "stationary_scale")
    right = _scaled(run, moving, moving_scale, "moving_scale")
    return matrix_product(run, Bounded(left), Bounded(right))


def _scaled(run: ExactContext, tile: Tile, scale: Tile, name: str) -> Float64:
    """Return elements times their scales, the contraction axis first: [4 P, F]."""
    run.sure(run.take(scale))
    packed = unpack(rows(tile._engine_values(unwritten=True)), tile.dtype).astype(
        np.float64
    )
    exponents = spread_over_groups(scale_codes(scale, len(packed), name))
    values = np.ldexp(packed, exponents[..., None])
    return values.transpose(0, 2, 1).reshape(-1, values.shape[1])


RULES: dict[str, Callable[..., Any]] = {
    "iota": iota,
    **dict.fromkeys(("rng", "rand", "rand2", "dropout"), drawn),
    "nc_find_index8": places.find_index8,
    "nc_match_replace8": places.match_replace8,
    "nonzero_with_count": places.nonzero,
    "sequence_bounds": sequence_bounds,
    "nc_matmul": nc_matmul,
    "quantize_mx": quantize_mx,
    "nc_matmul_mx": nc_matmul_mx,
}
"""Rules: ``rule(run, call, *operands)``, with a :class:`Bounded` for each tile. The rule of
``nc_matmul_mx`` takes tiles. A rule returns the numbers of ``dst``, or of all destinations, or None
where the machine's are exact.
"""
