"""Array-likes that evaluate the meaning of a record unchanged, in another arithmetic.

A meaning is a NumPy function. NumPy first dispatches to its operands (``__array_ufunc__``: NEP 13,
``__array_function__``: NEP 18). The same code thus computes with numbers that carry more than a
machine's values, such as error bounds (:mod:`difftest.simulator.exact.numbers`). Operations without
a NumPy function are a named :func:`step`. An operation that an arithmetic lacks raises a TypeError
with its name. No class here derives from ndarray or converts to an array implicitly, so that the
extra data cannot get lost silently.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.pattern import Shape, with_free_axes

Function = TypeVar("Function", bound=Callable[..., Any])

STEPS: dict[str, Callable[..., Any]] = {}
"""The function of each :func:`step` on plain arrays, by name."""


def _operator(ufunc: np.ufunc) -> Any:
    """Return an operator method.

    NumPy's mixin would show its own frame instead of the kernel's line.
    """
    return lambda self, *other: self.computed(ufunc, self, *other)


class Lifted:
    """An operand of a meaning: planes of one shape, which moves treat equally.

    A subclass has ``moved``, ``computed`` and ``reduced``, and a method ``do_x`` for each other
    NumPy function and each step x that it supports, with the arguments of x.
    """

    __slots__ = ()
    dtype = np.dtype(np.float64)
    """float64, which requests unrounded intermediate values."""
    shape: Shape

    def moved(self, change: Callable[[Any], Any]) -> Any:
        """Move the elements: apply ``change`` to each array of the operand."""
        raise NotImplementedError

    def computed(self, ufunc: np.ufunc, *operands: Any) -> Any:
        """Apply a ufunc to operands, element by element."""
        raise NotImplementedError

    def reduced(self, ufunc: np.ufunc, axes: tuple[int, ...], *, keepdims: bool) -> Any:
        """Reduce the operand along axes by a ufunc."""
        raise NotImplementedError

    def settled(self) -> Any:
        """Return the plain array, for indices and decisions.

        A subclass reports uncertain values.
        """
        raise NotImplementedError

    __add__, __sub__, __neg__ = map(_operator, (np.add, np.subtract, np.negative))
    __mul__, __truediv__ = map(_operator, (np.multiply, np.divide))
    __eq__, __ne__ = map(_operator, (np.equal, np.not_equal))
    __lt__, __le__ = map(_operator, (np.less, np.less_equal))
    __gt__, __ge__ = map(_operator, (np.greater, np.greater_equal))
    __hash__ = None  # type: ignore[assignment]

    # -- NumPy's protocols -------------------------------------------------------------------------

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *operands: Any, **how: Any
    ) -> Any:
        if method == "__call__" and not how:
            return self.computed(ufunc, *operands)
        if method != "reduce" or how.keys() - {"axis", "keepdims"}:
            raise self._unknown(
                f"np.{ufunc.__name__} ({method} with {', '.join(how) or 'nothing'})"
            )
        axis = how.get("axis", 0)
        axes = axis if isinstance(axis, tuple) else (axis,)
        return self.reduced(ufunc, axes, keepdims=how.get("keepdims", False))

    def __array_function__(self, function: Any, types: Any, args: Any, how: Any) -> Any:
        return self.do(function.__name__, *args, **how)

    def __array__(self, *args: Any, **how: Any) -> Any:
        raise TypeError(
            f"{type(self).__name__} became a plain array, which would lose its planes"
        )

    def do(self, name: str, *args: Any, **how: Any) -> Any:
        """Call a NumPy function, or a step, by name."""
        rule = getattr(self, f"do_{name}", None)
        if rule is None:
            raise self._unknown(name)
        return rule(*args, **how)

    def _unknown(self, name: str) -> TypeError:
        return TypeError(f"{name} has no rule for {type(self).__name__}")

    # -- moves -------------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def T(self) -> Any:
        return self.moved(np.transpose)

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self.settled())

    def __getitem__(self, index: Any) -> Any:
        return self.moved(lambda plane: plane[index])

    def reshape(self, *shape: Any) -> Any:
        same = self.shape in (shape, *shape)
        if same:
            return self
        return self.moved(lambda plane: plane.reshape(*shape))

    def transpose(self, *axes: int) -> Any:
        same = axes == tuple(range(self.ndim))
        if same:
            return self
        return self.moved(lambda plane: plane.transpose(*axes))

    def copy(self) -> Any:
        return self.moved(np.copy)

    def astype(self, dtype: Any) -> Any:
        """Return self for floats, which round when they are written; a plain array for integers."""
        if np.dtype(dtype).kind == "f":
            return self
        return self.settled().astype(dtype)

    def sum(self, axis: int, dtype: Any = None, *, keepdims: bool = False) -> Any:
        return self.reduced(np.add, (axis,), keepdims=keepdims)

    def mean(self, axis: int, dtype: Any = None) -> Any:
        return self.sum(axis) / self.shape[axis]

    def do_broadcast_to(self, array: Any, shape: Shape) -> Any:
        return array.moved(lambda plane: np.broadcast_to(plane, shape))

    def do_take_along_axis(self, array: Any, places: Any, axis: int) -> Any:
        return array.moved(lambda plane: np.take_along_axis(plane, places, axis=axis))

    def do_take(self, array: Any, places: Any, axis: int) -> Any:
        return array.moved(lambda plane: np.take(plane, places, axis=axis))


def step(function: Function) -> Function:
    """Let array-likes, as the first argument, replace a function by their own method."""
    name = function.__name__
    STEPS[name] = function

    @functools.wraps(function)
    def done(values: Any, *args: Any, **how: Any) -> Any:
        if isinstance(values, Lifted):
            return values.do(name, values, *args, **how)
        return function(values, *args, **how)

    return done  # type: ignore[return-value]


def over(shape: Shape, values: Any) -> Any:
    """Return an operand in the shape of a result; a smaller one is repeated in each partition."""
    if values.size == math.prod(shape):
        return values.reshape(shape)
    return np.broadcast_to(
        values.reshape(with_free_axes(values.shape, len(shape))), shape
    )


def broadcast_mask(where: Array, shape: Shape) -> Array:
    """Return a mask in the shape of its data; it may lack axes of them."""
    if where.size == math.prod(shape):
        return where.reshape(shape)
    return np.broadcast_to(where, shape)


def settled(values: Any) -> Array:
    """Return the plain array of a value that decides."""
    plain: Array = values.settled() if isinstance(values, Lifted) else values
    return plain


def is_array(value: object) -> bool:
    """Return whether an operand is an array, and not a single number."""
    return isinstance(value, (np.ndarray, Lifted)) and value.ndim > 0


def as_constant(value: Any, dtype: Any = np.float32) -> Array:
    """Return a number as float32, as an engine uses it; ``dtype`` float64 keeps it exact."""
    constant: Any = value if isinstance(value, Lifted) else np.asarray(value, dtype)
    return constant  # type: ignore[no-any-return]


def constant_beside(values: Any, number: float) -> Any:
    """Return an option's number as float32. An array-like gets it as the kernel wrote it.

    So an exact run knows how far the machine rounds it.
    """
    if isinstance(values, Lifted):
        return number
    return as_constant(number)


def made_like(array: Any, shape: Shape) -> Any:
    """Return zeros of the kind of ``array``, to be filled in."""
    if isinstance(array, Lifted):
        return array.do("zeros", shape)
    return np.zeros(shape, array.dtype)
