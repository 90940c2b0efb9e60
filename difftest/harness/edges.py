"""Calls one step outside a spec's domain, one at a time: a kernel refuses them, or is correct.

A contract is what a kernel promises, and a check that is missing shows nowhere inside the domain.
So a spec that has rejections is taken at its word: from the plainest case each name takes one step
down and one up, and one beyond the end of its range; each array gets another size, alone; each
operand another dtype. Which of these the contract allows, nobody has to say: whoever accepts a call
must be correct.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from difftest.harness.case import Case
from difftest.harness.explicit import NoDataError, simplest_case
from difftest.harness.rounding import is_float
from difftest.harness.signature import signature_of
from difftest.harness.simplest import simplest
from difftest.harness.spec import KernelSpec, Value
from difftest.harness.spec_arguments import SpecError
from difftest.harness.strategies import RANGE, source_of, values_of

_FOREIGN = ("int32", "float32")
"""Dtypes for kernels of floats, and for kernels of integers."""


@dataclass(frozen=True)
class Edge:
    """A call near the contract's edge; ``why`` is what sets it apart, e.g. ``"K=129"``.

    ``shapes`` are those that differ from what dimensions say. One ``inside`` the domain has to be
    accepted; the reference of one that ``fills`` a memory may take too long.
    """

    case: Case
    why: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inside: bool = False
    fills: bool = False


def edges_of(spec: KernelSpec) -> Iterator[Edge]:
    """The plainest case, the kernel's defaults; and if the spec has rejections, calls outside.

    Of a kernel that is wrong in the plainest case the others tell nothing.
    """
    base, defaults = plainest(spec, {}), defaults_of(spec)
    yield from _edge(base, spec, "the plainest case", inside=True)
    if defaults:
        shown = ", ".join(f"{name}={value}" for name, value in defaults.items())
        values = plainest(spec, defaults) or _beside(spec, defaults)
        yield from _edge(values, spec, f"the defaults, {shown}", inside=True)
    if not spec.rejects or base is None:
        return
    yield from _other_values(spec, base)
    yield from _other_shapes(spec, base)
    yield from _other_dtypes(spec, base)


def _beside(spec: KernelSpec, defaults: Mapping[str, Any]) -> dict[str, Any] | None:
    """The plainest values beside a default that is no size, such as 0, from which none follow."""
    sizes = {name: value for name, value in defaults.items() if is_size(value)}
    values = None if sizes == defaults else plainest(spec, sizes)
    return None if values is None else {**values, **defaults}


def is_size(value: object) -> bool:
    """Whether a value of the domain may be one of an array."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _edge(
    values: Mapping[str, Any] | None,
    spec: KernelSpec,
    why: str,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dtypes: tuple[str, dict[str, str]] | None = None,
    inside: bool = False,
) -> Iterator[Edge]:
    """The call of these values, if the spec has data for them."""
    case = None if values is None else case_of(spec, values, *(dtypes or ()))
    if case is not None:
        yield Edge(case, why, shapes or {}, inside)


def plainest(spec: KernelSpec, fixed: Mapping[str, Value]) -> dict[str, Any] | None:
    """The plainest values of the domain that have the fixed ones; None if there are none."""
    try:
        return simplest(lambda: values_of(spec, fixed))
    except (SpecError, TypeError, LookupError):
        if fixed:  # it has nothing for such a value
            return None
        raise


def defaults_of(spec: KernelSpec) -> dict[str, Any]:
    """The defaults of those of the kernel's parameters that the domain draws."""
    signature = signature_of(spec.kernel)
    if signature is None:
        return {}
    return {
        name: signature.parameters[name].default
        for name in spec.parameters
        if name in signature.parameters
        and signature.parameters[name].default is not inspect.Parameter.empty
    }


def _other_values(spec: KernelSpec, base: Mapping[str, Any]) -> Iterator[Edge]:
    for name, value in base.items():
        if isinstance(value, bool) or not isinstance(value, int) or name == spec.ranks:
            continue
        for step in (value - 1, value + 1):
            if step >= 1:
                yield from _edge({**base, name: step}, spec, f"{name}={step}")
        own = getattr(source_of(spec, name, base), RANGE, range(0))
        if own and own.step == 1:
            beyond = plainest(spec, {name: own[-1] + 1})
            yield from _edge(beyond, spec, f"{name}={own[-1] + 1}, just beyond {own[-1]}")


def _other_shapes(spec: KernelSpec, base: Mapping[str, Any]) -> Iterator[Edge]:
    """Each size that several axes share is another one on each of them."""
    arrays = (*spec.inputs, *spec.outputs)
    tokens = [token for name in arrays for token in spec.dimensions(name)]
    for name in arrays:
        shape = spec.shape(name, base)
        for axis, token in enumerate(spec.dimensions(name)):
            if tokens.count(token) > 1 and not (token.isdecimal() or token == spec.ranks):
                other = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
                why = f"{name} of shape {other}"
                yield from _edge(base, spec, why, shapes={name: other})


def _other_dtypes(spec: KernelSpec, base: Mapping[str, Any]) -> Iterator[Edge]:
    """Each operand alone has another of the spec's dtypes, and one that is none of them."""
    known = [np.dtype(name) for name in spec.dtypes]
    foreign = next(
        (name for name in _FOREIGN if is_float(np.dtype(name)) != is_float(known[0])), None
    )
    free = [name for name in spec.inputs if not spec.input(name).dtypes]
    dtypes = [*spec.dtypes[:2], foreign]
    for name in free:
        for own in filter(None, dtypes):
            for other in spec.dtypes[:2]:
                if own != other and (len(free) > 1 or own == foreign):
                    why = f"{name} of {own} beside {other}"
                    yield from _edge(base, spec, why, dtypes=(other, {name: own}))


def case_of(
    spec: KernelSpec,
    values: Mapping[str, Any],
    dtype: str | None = None,
    others: Mapping[str, str] | None = None,
) -> Case | None:
    """The plainest case of these values; None if an input has no data for them."""
    try:
        return simplest_case(spec, values, dtype or spec.dtypes[0], others)
    except NoDataError:
        return None
