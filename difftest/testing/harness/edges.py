"""Calls one step outside a spec's domain, and cases that fill a memory: refused, or correct.

A contract is what a kernel promises, and a check that is missing shows nowhere inside the domain.
So a spec that has rejections is taken at its word: from the plainest case each name takes one step
down and one up, and one beyond the end of its range; each array gets another size, alone; each
operand another dtype. Which of these the contract allows, nobody has to say: whoever accepts a call
must be correct.

And cases that fill a memory to just under its limit, and to just over it. Drawn sizes are small,
and no memory is ever full of them. So each name of the domain on which a kernel's footprint in SBUF
or PSUM depends grows, alone, in the plainest case, until the kernel refuses it or its tensors no
longer fit; one such name for each memory. What comes of the last case that fits and of the first
that does not must be a refusal, or correct.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import settings

from difftest.analysis.placement import MEMORIES, footprint_of, limit_of
from difftest.simulator.machine import TRN2
from difftest.simulator.trace import Trace
from difftest.support.rounding import is_float_dtype
from difftest.support.signature import module_name, signature_of
from difftest.testing.backends.base import (
    Backend,
    Completed,
    Crashed,
    Outcome,
    Rejected,
    Unsupported,
)
from difftest.testing.harness.case import Case, Edge
from difftest.testing.harness.differential import ReferenceResult
from difftest.testing.harness.duplicates import RANGE
from difftest.testing.harness.explicit import NoDataError, minimal_case
from difftest.testing.harness.failures import BrokenReferenceError, EdgeFailure
from difftest.testing.harness.limits import USED, CaseLimitError, fault_of_machine, limit
from difftest.testing.harness.minimal import minimal_example
from difftest.testing.harness.recipes import Ones, Random
from difftest.testing.harness.runner import Runner, make_call, run_kernel, verdict_on
from difftest.testing.harness.spec import (
    KernelSpec,
    Value,
    count_elements,
    is_choice,
    is_function_of_domain,
)
from difftest.testing.harness.spec_arguments import SpecError
from difftest.testing.harness.strategies import strategy_of, values_of
from difftest.testing.harness.verdict import Inconclusive, Verdict, is_failure

_FOREIGN = ("int32", "float32")
"""Dtypes for kernels of floats, and for kernels of integers."""
MOST_ELEMENTS = 2**23
"""Of all arrays of a case together: no kernel is grown beyond that."""
MOST_WORK = 2**27
"""Elements that all instructions of a case together touch, as far as they can be foreseen."""
WORK_OF_A_CASE = 3 * 2**19
"""So many for each case that the profile of Hypothesis draws: who waits for few waits for less."""
INSTRUCTION = 2**12
"""Elements that NumPy computes in the time that an instruction takes beside."""
_LIMITS = tuple(limit_of(space, TRN2) for space in MEMORIES) * 2
"""Of each figure of a footprint."""
_LOOKS = (1, 2, 4)
"""How many times its plainest value a name has, when it is seen whether the footprint grows."""
_NEAR = 2
"""Steps of a footprint from its limit, at most, of a memory that counts as full."""
_DEVICE, _TRACING = "device", "embedded"
"""The backend on which such calls are not made; the one that knows what a kernel's tensors take."""
MOST_SECONDS, MOST_MEMORY = 20.0, 2**10
"""That a reference may take where a memory is full, and MiB."""
_plainest = functools.lru_cache(maxsize=8)(
    lambda spec: minimal_example(lambda: values_of(spec, {}))
)


def edge_cases(spec: KernelSpec) -> Iterator[Edge]:
    """The plainest case, the kernel's defaults; and if the spec has rejections, calls outside.

    Of a kernel that is wrong in the plainest case the others tell nothing.
    """
    base = minimal_values(spec, {})
    defaults = defaults_of(spec)
    yield from _edge(base, spec, "the plainest case", inside=True)
    if defaults:
        shown = ", ".join(f"{name}={value}" for name, value in defaults.items())
        sizes = {name: value for name, value in defaults.items() if is_size(value)}
        values = minimal_values(spec, defaults) or minimal_values(
            spec, sizes
        )  # beside 0, which is no size
        values = values and {**values, **defaults}
        yield from _edge(values, spec, f"the defaults, {shown}", inside=True)
    if spec.rejects and base is not None:
        for others in (_other_values, _other_shapes, _other_dtypes):
            yield from others(spec, base)


def is_size(value: object) -> bool:
    """Whether a value of the domain may be one of an array."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _edge(
    values: Mapping[str, Any] | None,
    spec: KernelSpec,
    why: str,
    dtype: str | None = None,
    *,
    inside: bool = False,
    **own: Any,
) -> Iterator[Edge]:
    """The call of these values, if the spec has data for them."""
    with contextlib.suppress(NoDataError):
        if values is not None:
            yield Edge(minimal_case(spec, values, dtype, **own), why, inside)


def minimal_values(spec: KernelSpec, fixed: Mapping[str, Value]) -> dict[str, Any] | None:
    """The plainest values of the domain that have the fixed ones; None if there are none."""
    if not any(map(is_function_of_domain, spec.domain.values())):
        return (base := _plainest(spec)) and {**base, **fixed}
    try:
        return minimal_example(lambda: values_of(spec, fixed))
    except (SpecError, TypeError, LookupError):
        if fixed:  # it has nothing for such a value
            return None
        raise


def defaults_of(spec: KernelSpec) -> dict[str, Any]:
    """The defaults of those of the kernel's parameters that the domain draws."""
    known = getattr(signature_of(spec.kernel), "parameters", {})
    found = {name: one.default for name, one in known.items() if one.default is not one.empty}
    return {name: found[name] for name in spec.parameters if name in found}


def _other_values(spec: KernelSpec, base: Mapping[str, Any]) -> Iterator[Edge]:
    for name, value in base.items():
        if isinstance(value, bool) or not isinstance(value, int) or name == spec.ranks:
            continue
        for step in (value - 1, value + 1):
            if step >= 1:
                yield from _edge({**base, name: step}, spec, f"{name}={step}")
        own = getattr(strategy_of(spec, name, base), RANGE, range(0))
        if own and own.step == 1:
            beyond = minimal_values(spec, {name: own[-1] + 1})
            yield from _edge(beyond, spec, f"{name}={own[-1] + 1}, just beyond {own[-1]}")


def _other_shapes(spec: KernelSpec, base: Mapping[str, Any]) -> Iterator[Edge]:
    """Each size that several axes share is another one on each of them."""
    arrays = spec.arrays
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
    foreign = _FOREIGN[not is_float_dtype(np.dtype(spec.dtypes[0]))]
    free = [name for name in spec.inputs if not spec.input(name).dtypes]
    for name in free:
        for own in (*spec.dtypes[:2], foreign):
            for other in spec.dtypes[:2]:
                if own != other and (len(free) > 1 or own == foreign):
                    why = f"{name} of {own} beside {other}"
                    yield from _edge(base, spec, why, other, dtypes={name: own})


@dataclass(frozen=True)
class _FillAttempt:
    """A run of a grown case; one that did not come to its end has no footprint.

    ``work`` is what it takes to simulate it, in elements that its instructions touch.
    """

    count: int
    case: Case
    footprint: tuple[int, ...]
    work: int

    @property
    def fits(self) -> bool:
        sizes = zip(self.footprint, _LIMITS, strict=False)
        return bool(self.footprint) and all(size <= limit for size, limit in sizes)


def filling_cases(spec: KernelSpec, run: Callable[[KernelSpec, Case], Outcome]) -> Iterator[Edge]:
    """For each name on which the footprint depends, the last case that fits and the first not.

    ``run`` runs a case and records its trace.
    """
    filled: set[int] = set()
    values = minimal_values(spec, {}) or {}
    for name, value in values.items():
        # A list says which values there are. A spec without rejections promises none beyond it.
        if not (
            is_size(value) and (spec.rejects or not is_choice(strategy_of(spec, name, values)))
        ):
            continue
        grown = functools.partial(_grown, spec, run, name, value)
        looks = list(itertools.takewhile(lambda look: look.fits, filter(None, map(grown, _LOOKS))))
        figures = enumerate(zip(*(look.footprint for look in looks), strict=True))
        growing = {place % len(MEMORIES) for place, sizes in figures if len(set(sizes)) > 1}
        is_one = len(looks) == len(_LOOKS) and not growing <= filled
        pair = _limit_of(grown, *looks[-2:]) if is_one else None
        if pair is not None:
            # The next counts overfill what is full: a kernel's own limit may come long before.
            near = 1 + _NEAR / pair[0].count
            ends = enumerate(zip(pair[0].footprint, _LIMITS, strict=True))
            full = {at % len(MEMORIES) for at, (size, end) in ends if near * size > end}
            filled |= full & growing
            for look, side in zip(pair, ("just under", "just over"), strict=True):
                size = f"{name}={look.case.values[name]}"
                yield Edge(look.case, f"{size}, {side} the limit", fills=True)


def _grown(
    spec: KernelSpec,
    run: Callable[[KernelSpec, Case], Outcome],
    name: str,
    value: int,
    count: int,
    foreseen: float = 0,
) -> _FillAttempt | None:
    """The run with ``count`` times the value; None if there is none, or it is too large."""
    values = minimal_values(spec, {name: count * value})
    most_work = min(MOST_WORK, WORK_OF_A_CASE * settings().max_examples)
    if values is None or count_elements(spec, values) > MOST_ELEMENTS or foreseen > most_work:
        return None
    if (edge := next(_edge(values, spec, name), None)) is None:
        return None
    trace: Trace | None = getattr(run(spec, edge.case), "trace", None)
    events = () if trace is None else trace.events
    regions = (region for event in events for region in (*event.writes, *event.reads))
    work = sum(region.elements for region in regions) + INSTRUCTION * len(events)
    return _FillAttempt(count, edge.case, () if trace is None else footprint_of(trace, TRN2), work)


def _limit_of(
    grown: Callable[..., _FillAttempt | None], first: _FillAttempt, under: _FillAttempt
) -> tuple[_FillAttempt, _FillAttempt] | None:
    """The last multiple that fits, and the next; None if the limit is out of reach.

    It lies where the footprint foretells it, or in the middle: a kernel may have its own limit.
    """
    second = under
    over = None
    guesses = itertools.cycle((True, False, False))
    while over is None or over.count - under.count > 1:
        most = MOST_ELEMENTS if over is None else over.count - 1
        count = min(max(_crossing(first, second), under.count + 1), most)
        if over is not None and not next(guesses):
            count = (under.count + over.count) // 2
        growth = (second.work - first.work) / (second.count - first.count)
        look = grown(count, second.work + growth * (count - second.count))
        if look is None:
            return None
        if look.footprint:
            first = under
            second = look
        if look.fits:
            under = look
        else:
            over = look
    return under, over


def _crossing(first: _FillAttempt, second: _FillAttempt) -> int:
    """The first count that is too large, if what is needed grows on as between two looks."""
    counts = [1.0 * MOST_ELEMENTS]
    for least, most, end in zip(first.footprint, second.footprint, _LIMITS, strict=True):
        growth = (most - least) / (second.count - first.count)
        if growth > 0:
            counts.append(first.count + (end - least) / growth)
    return math.floor(min(counts)) + 1


def has_edges(spec: KernelSpec, backends: Iterable[Backend]) -> bool:
    """Whether there are calls to make on one of the backends.

    All that a spec without rejections or defaults has is a memory to fill.
    """
    names = {backend.name for backend in backends} - {_DEVICE}
    tokens = {token for name in spec.arrays for token in spec.dimensions(name)}
    is_fixed = all(map(is_choice, spec.domain.values())) or all(map(str.isdecimal, tokens))
    promised = bool(spec.rejects or defaults_of(spec))
    return spec.edges and bool(names if promised else not is_fixed and _TRACING in names)


def check_edges(runner: Runner, spec: KernelSpec) -> None:
    """Calls near the contract's edge and near a memory's limit are refused or correct.

    They run on each simulator of the runner; those near a memory's limit only where there are
    traces.
    """
    __tracebackhide__ = True
    for backend in (simulator for simulator in runner.backends if has_edges(spec, (simulator,))):
        record = functools.partial(run_recorded, runner, backend)
        filling = filling_cases(spec, record) if backend.name == _TRACING else ()
        for edge in itertools.chain(edge_cases(spec), filling):
            runner.now = spec, edge.case
            try:
                _check_edge(runner, spec, edge, backend)
            except (MemoryError, OSError) as error:
                if not fault_of_machine(error):
                    raise
                with runner.on((backend,)):
                    runner.undecided(spec, edge.case, error)


def _check_edge(runner: Runner, spec: KernelSpec, edge: Edge, backend: Backend) -> None:
    __tracebackhide__ = True
    exact = runner.settings_of(spec, edge.case) if spec.reduction is None else None
    outcome = run_kernel(backend, make_call(spec, edge.case, exact=exact))
    if isinstance(outcome, Crashed) and fault_of_machine(outcome.error):
        raise outcome.error
    # Where a memory is full the reference is not waited for without end: np.eye(n)[indices] is a
    # fine one-hot encoding of all sizes that are drawn, and takes 21 GiB where the kernel's tile
    # fills SBUF.
    memory = MOST_MEMORY if USED.exists() else None
    with limit(MOST_SECONDS, memory) if edge.fills else contextlib.nullcontext():
        judge_edge(runner, spec, edge, backend, outcome)


def run_recorded(runner: Runner, backend: Backend, spec: KernelSpec, case: Case) -> Outcome:
    """What comes of a case on a backend that keeps its trace, without an exact run."""
    # No trace depends on random numbers, and to draw them takes longer than to compute with them.
    data = {name: Ones() if isinstance(r, Random) else r for name, r in case.data.items()}
    runner.now = spec, case
    return run_kernel(backend, make_call(spec, replace(case, data=data), record=True))


def judge_edge(
    runner: Runner, spec: KernelSpec, edge: Edge, backend: Backend, outcome: Outcome
) -> None:
    """Count an outcome that is a refusal, or correct."""
    __tracebackhide__ = True
    runner.tally.homes[spec.name] = module_name(spec.kernel)
    if isinstance(outcome, Rejected) and not edge.inside:
        runner.tally.rows[spec.name, backend.name].rejections += 1
    elif not isinstance(outcome, Unsupported):
        verdict = _verdict(runner, spec, edge, outcome)
        runner.tally.count(spec.name, backend.name, verdict)
        if is_failure(verdict):
            raise EdgeFailure(spec, edge, (backend.name, verdict), runner.reproduction)


def _verdict(runner: Runner, spec: KernelSpec, edge: Edge, outcome: Outcome) -> Verdict:
    if isinstance(outcome, Completed):
        own = {np.dtype(edge.case.dtype_of(name)) for name in spec.inputs}
        if spec.output_dtype is None:  # that of any operand will do
            dtypes = (array.dtype.name if array.dtype in own else None for array in outcome.outputs)
            spec = replace(spec, output_dtype=tuple(dtypes))
    elif not edge.inside:
        return verdict_on(None, outcome)
    is_promised = edge.inside or bool(spec.rejects)
    try:
        reference = runner.reference(spec, edge.case)
        if is_promised or isinstance(reference, ReferenceResult):
            with runner.defects(spec, edge.case):
                return verdict_on(reference, outcome)
        reason = f"its reference refuses it: {reference}"
    except BrokenReferenceError as broken:
        if is_promised and not (edge.fills and isinstance(broken.raised, CaseLimitError)):
            raise
        reason = broken.defect.happened
    return Inconclusive(f"{edge.why}, is beyond what is drawn: {reason}")
