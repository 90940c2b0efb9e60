"""Calls one step outside a spec's domain, and cases that fill a memory.

A check that is missing in a kernel does not show inside the domain. So a spec with rejections is
also tested outside it. From the minimal case, each name takes one step down, one step up, and one
step beyond its range. Each array gets another size, one at a time, and each operand another dtype.
The spec need not say which of these calls are valid: the kernel must reject a call or be correct.

Drawn sizes are small and never fill a memory. So further cases fill a memory to just under its
limit, and to just over it. In the minimal case, one name of the domain grows: a name that the
kernel's footprint in SBUF or PSUM depends on. It grows until the kernel rejects the call or its
tensors do not fit. One name is enough for each memory. The last case that fits and the first that
does not must be rejected or correct.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import settings

from difftest.analysis.placement import MEMORIES, footprint_of
from difftest.simulator.capacity import partition_bytes
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
from difftest.testing.contract.case import Case, Edge
from difftest.testing.contract.limits import (
    USED,
    CaseLimitError,
    fault_of_machine,
    limit,
)
from difftest.testing.contract.recipes import Ones, Random
from difftest.testing.contract.sources import RANGE
from difftest.testing.contract.spec import (
    KernelSpec,
    Value,
    count_elements,
    is_choice,
    is_function_of_domain,
)
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.cases import values_of
from difftest.testing.drawing.examples import minimal_example
from difftest.testing.drawing.explicit import NoDataError, minimal_case
from difftest.testing.drawing.sizes import source_of
from difftest.testing.harness.differential import ReferenceResult
from difftest.testing.harness.failures import BrokenReferenceError, EdgeFailure
from difftest.testing.harness.judging import verdict_on
from difftest.testing.harness.kernel_calls import make_call, run_kernel
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Inconclusive, Verdict, is_failure

_FOREIGN = ("int32", "float32")
"""Dtypes for kernels of floats, and for kernels of integers."""
MOST_GROWN_ELEMENTS = 2**23
"""The most elements of all arrays of a grown case."""
MOST_WORK = 2**27
"""The most elements that all instructions of a grown case may touch, by extrapolation."""
WORK_OF_A_CASE = 3 * 2**19
"""The same limit for each case in the profile of Hypothesis, so that short profiles stay short."""
INSTRUCTION = 2**12
"""The overhead of an instruction, in elements that NumPy computes in that time."""
_LIMITS = tuple(partition_bytes(space, TRN2) for space in MEMORIES) * 2
"""The limit of each figure of a footprint."""
_GROWTH = (1, 2, 4)
"""The multiples of a name's minimal value that show whether the footprint grows with it."""
_NEAR = 2
"""A memory counts as full if its footprint is at most this many steps from the limit."""
_DEVICE = "device"
"""The backend that does not run edge calls."""
_TRACING = "embedded"
"""The backend whose traces show the footprint of a kernel."""
MOST_SECONDS = 20.0
"""The most seconds of a reference in a case that fills a memory."""
MOST_MEMORY = 2**10
"""The most MiB of a reference in a case that fills a memory."""


def edge_cases(spec: KernelSpec) -> Iterator[Edge]:
    """Yield the minimal case, the kernel's defaults, and calls outside the domain.

    Calls outside need rejections in the spec. The minimal case comes first, because other calls of
    a kernel that fails it show nothing.
    """
    base = minimal_values(spec, {})
    defaults = defaults_of(spec)
    yield from _edge(base, spec, "the minimal case", inside=True)
    if defaults:
        shown = ", ".join(f"{name}={value}" for name, value in defaults.items())
        sizes = {name: value for name, value in defaults.items() if is_size(value)}
        # A default that is not a size, such as 0, may have no values of the other names.
        values = minimal_values(spec, defaults) or minimal_values(spec, sizes)
        values = values and {**values, **defaults}
        yield from _edge(values, spec, f"the defaults, {shown}", inside=True)
    if spec.rejects and base is not None:
        for others in (_other_values, _other_shapes, _other_dtypes):
            yield from others(spec, base)


def is_size(value: object) -> bool:
    """Return whether a value of the domain may be the size of an array."""
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
    """Yield the call with these values, if the spec has data for them.

    Outside the domain, a strategy may draw an array that does not fit: it promises nothing there.
    """
    missing = (NoDataError,) if inside else (NoDataError, SpecError)
    with contextlib.suppress(*missing):
        if values is not None:
            yield Edge(minimal_case(spec, values, dtype, **own), why, inside)


def minimal_values(
    spec: KernelSpec, fixed: Mapping[str, Value]
) -> dict[str, Any] | None:
    """Return the minimal values of the domain with some fixed values; None if there are none."""
    if not any(map(is_function_of_domain, spec.domain.values())):
        base = _minimal_draw(spec)
        return base and {**base, **fixed}
    try:
        return minimal_example(lambda: values_of(spec, fixed))
    except (SpecError, TypeError, LookupError):
        if fixed:  # a source fails for the fixed value
            return None
        raise


@functools.lru_cache(maxsize=8)
def _minimal_draw(spec: KernelSpec) -> dict[str, Any] | None:
    """Return the minimal values of a domain; None if it has none."""
    return minimal_example(lambda: values_of(spec, {}))


def picked_values(
    spec: KernelSpec, pick: Callable[..., int], most_elements: int
) -> dict[str, Any] | None:
    """Return values whose sizes ``pick`` chooses, such as ``min``.

    None if no case has them, or only one whose arrays have more than ``most_elements`` elements.
    """
    values: dict[str, Any] = {}
    try:
        for name in spec.domain:
            choices = _choices_of(source_of(spec, name, values))
            if choices and all(type(value) is int for value in choices):
                values[name] = pick(choices)
            elif (plain := minimal_values(spec, values)) is not None:
                values[name] = plain[name]
        fits = count_elements(spec, values) <= most_elements
        return values if fits and minimal_case(spec, values) else None
    except (SpecError, LookupError):
        return None


def _choices_of(source: Any) -> Sequence[Any]:
    """Return the values of a list or of a range; empty for another source."""
    if isinstance(source, Sequence):
        return source
    choices: Sequence[Any] = getattr(source, RANGE, ())
    return choices


def defaults_of(spec: KernelSpec) -> dict[str, Any]:
    """Return the defaults of the kernel's parameters that are names of the domain."""
    known = getattr(signature_of(spec.kernel), "parameters", {})
    found = {name: p.default for name, p in known.items() if p.default is not p.empty}
    return {name: found[name] for name in spec.parameters if name in found}


def _other_values(spec: KernelSpec, base: Mapping[str, Any]) -> Iterator[Edge]:
    """Yield calls with one integer one step off, or just beyond its range."""
    for name, value in base.items():
        if isinstance(value, bool) or not isinstance(value, int) or name == spec.ranks:
            continue
        for step in (value - 1, value + 1):
            if step >= 1:
                yield from _edge({**base, name: step}, spec, f"{name}={step}")
        own = getattr(source_of(spec, name, base), RANGE, range(0))
        if own and own.step == 1:
            beyond = minimal_values(spec, {name: own[-1] + 1})
            yield from _edge(
                beyond, spec, f"{name}={own[-1] + 1}, just beyond {own[-1]}"
            )


def _other_shapes(spec: KernelSpec, base: Mapping[str, Any]) -> Iterator[Edge]:
    """Yield calls with twice the size on one axis, where several axes have equal sizes."""
    arrays = spec.arrays
    tokens = [token for name in arrays for token in spec.dimensions(name)]
    for name in arrays:
        shape = spec.shape(name, base)
        for axis, token in enumerate(spec.dimensions(name)):
            if tokens.count(token) > 1 and not (
                token.isdecimal() or token == spec.ranks
            ):
                other = shape[:axis] + (2 * shape[axis],) + shape[axis + 1 :]
                why = f"{name} of shape {other}"
                yield from _edge(base, spec, why, shapes={name: other})


def _other_dtypes(spec: KernelSpec, base: Mapping[str, Any]) -> Iterator[Edge]:
    """Yield calls with another dtype for one operand: of the spec's dtypes, or a foreign dtype."""
    foreign = _FOREIGN[not is_float_dtype(np.dtype(spec.dtypes[0]))]
    free = [name for name in spec.inputs if name not in spec.own_dtypes]
    for name in free:
        for own in (*spec.dtypes[:2], foreign):
            for other in spec.dtypes[:2]:
                is_new = len(free) > 1 or own == foreign
                if own != other and is_new:
                    why = f"{name} of {own} beside {other}"
                    yield from _edge(base, spec, why, other, dtypes={name: own})


@dataclass(frozen=True)
class _FillAttempt:
    """A run of a grown case. Its footprint is empty if the run did not end.

    ``work`` is the cost of its simulation, in elements that its instructions touch.
    """

    count: int
    case: Case
    footprint: tuple[int, ...]
    work: int

    @property
    def fits(self) -> bool:
        sizes = zip(self.footprint, _LIMITS, strict=False)
        return bool(self.footprint) and all(size <= limit for size, limit in sizes)


def filling_cases(
    spec: KernelSpec, run: Callable[[KernelSpec, Case], Outcome]
) -> Iterator[Edge]:
    """Yield the last case that fits and the first that does not, for names that fill a memory.

    ``run`` runs a case and records its trace.
    """
    filled: set[int] = set()
    values = minimal_values(spec, {}) or {}
    for name, value in values.items():
        if not _may_grow(spec, name, values):
            continue
        grown = functools.partial(_grown, spec, run, name, value)
        attempts = _fitting_attempts(grown)
        growing = _growing_memories(attempts)
        if len(attempts) < len(_GROWTH) or growing <= filled:
            continue
        pair = _limit_of(grown, *attempts[-2:])
        if pair is None:
            continue
        filled |= _full_memories(pair[0]) & growing
        for attempt, side in zip(pair, ("just under", "just over"), strict=True):
            size = f"{name}={attempt.case.values[name]}"
            yield Edge(attempt.case, f"{size}, {side} the limit", fills=True)


def _may_grow(spec: KernelSpec, name: str, values: Mapping[str, Any]) -> bool:
    """Return whether a name is a size that the spec does not limit to a list.

    A list names all values. Without rejections the spec promises nothing for other values.
    """
    if not is_size(values[name]):
        return False
    return bool(spec.rejects) or not is_choice(source_of(spec, name, values))


def _fitting_attempts(
    grown: Callable[[int], _FillAttempt | None],
) -> list[_FillAttempt]:
    """Return the first runs of a grown case, up to the first that does not fit."""
    attempts = []
    for count in _GROWTH:
        attempt = grown(count)
        if attempt is None:
            continue
        if not attempt.fits:
            break
        attempts.append(attempt)
    return attempts


def _growing_memories(attempts: Sequence[_FillAttempt]) -> set[int]:
    """Return the memories, by number, whose use grows with the case."""
    footprints = [attempt.footprint for attempt in attempts]
    growing = set()
    for place, sizes in enumerate(zip(*footprints, strict=True)):
        if len(set(sizes)) > 1:
            growing.add(place % len(MEMORIES))
    return growing


def _full_memories(under: _FillAttempt) -> set[int]:
    """Return the memories, by number, that the next counts overfill.

    The limit that was found may be the kernel's own, long before a memory is full.
    """
    near = 1 + _NEAR / under.count
    full = set()
    for place, size in enumerate(under.footprint):
        if near * size > _LIMITS[place]:
            full.add(place % len(MEMORIES))
    return full


def _grown(
    spec: KernelSpec,
    run: Callable[[KernelSpec, Case], Outcome],
    name: str,
    value: int,
    count: int,
    expected_work: float = 0,
) -> _FillAttempt | None:
    """Run the case with ``count`` times the value; None if there is none, or it is too large."""
    values = minimal_values(spec, {name: count * value})
    most_work = min(MOST_WORK, WORK_OF_A_CASE * settings().max_examples)
    if values is None or expected_work > most_work:
        return None
    if count_elements(spec, values) > MOST_GROWN_ELEMENTS:
        return None
    for edge in _edge(values, spec, name):
        trace: Trace | None = getattr(run(spec, edge.case), "trace", None)
        if trace is None:
            return _FillAttempt(count, edge.case, (), 0)
        work = INSTRUCTION * len(trace.events)
        for event in trace.events:
            work += sum(region.elements for region in event.writes + event.reads)
        return _FillAttempt(count, edge.case, footprint_of(trace, TRN2), work)
    return None


def _limit_of(
    grown: Callable[..., _FillAttempt | None], first: _FillAttempt, under: _FillAttempt
) -> tuple[_FillAttempt, _FillAttempt] | None:
    """Return the last multiple that fits, and the next; None if the limit is out of reach.

    The search tries the count that the footprint predicts. It also halves the interval, because a
    kernel may have its own limit.
    """
    second = under
    over = None
    guesses = itertools.cycle((True, False, False))
    while over is None or over.count - under.count > 1:
        most = MOST_GROWN_ELEMENTS if over is None else over.count - 1
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
    """Return the first count that is too large, by linear extrapolation of two footprints."""
    counts = [1.0 * MOST_GROWN_ELEMENTS]
    for least, most, end in zip(
        first.footprint, second.footprint, _LIMITS, strict=True
    ):
        growth = (most - least) / (second.count - first.count)
        if growth > 0:
            counts.append(first.count + (end - least) / growth)
    return math.floor(min(counts)) + 1


def has_edges(spec: KernelSpec, backends: Iterable[Backend]) -> bool:
    """Return whether one of the backends has edge calls to run.

    A spec without rejections or defaults only has cases that fill a memory.
    """
    if not spec.edges:
        return False
    names = {backend.name for backend in backends} - {_DEVICE}
    if spec.rejects or defaults_of(spec):
        return bool(names)
    return _TRACING in names and not _has_fixed_sizes(spec)


def _has_fixed_sizes(spec: KernelSpec) -> bool:
    """Return whether no size of an array can grow: each is a number, or has a list of values."""
    tokens = {token for name in spec.arrays for token in spec.dimensions(name)}
    is_listed = all(map(is_choice, spec.domain.values()))
    return is_listed or all(map(str.isdecimal, tokens))


def check_edges(runner: Runner, spec: KernelSpec) -> None:
    """Check that calls near the contract's edge or a memory's limit are rejected or correct.

    They run on each simulator of the runner. Cases that fill a memory need a backend with traces.
    """
    __tracebackhide__ = True
    for backend in runner.backends:
        if not has_edges(spec, (backend,)):
            continue
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
    """Run an edge call on a backend, and judge it."""
    __tracebackhide__ = True
    exact = runner.settings_of(spec, edge.case) if spec.reduction is None else None
    outcome = run_kernel(backend, make_call(spec, edge.case, exact=exact))
    if isinstance(outcome, Crashed) and fault_of_machine(outcome.error):
        raise outcome.error
    # A reference may need too much time or memory for a full memory: np.eye(n)[indices] is a good
    # one-hot encoding of all drawn sizes, but takes 21 GiB if the kernel's tile fills SBUF.
    memory = MOST_MEMORY if USED.exists() else None
    with limit(MOST_SECONDS, memory) if edge.fills else contextlib.nullcontext():
        judge_edge(runner, spec, edge, backend, outcome)


def run_recorded(
    runner: Runner, backend: Backend, spec: KernelSpec, case: Case
) -> Outcome:
    """Run a case on a backend with a trace and without an exact run, and return the outcome."""
    # A trace does not depend on random data, which take longer to draw than to compute with.
    data = dict(case.data)
    for name, recipe in case.data.items():
        if isinstance(recipe, Random):
            data[name] = Ones()
    runner.now = spec, case
    return run_kernel(backend, make_call(spec, replace(case, data=data), record=True))


def judge_edge(
    runner: Runner, spec: KernelSpec, edge: Edge, backend: Backend, outcome: Outcome
) -> None:
    """Count the outcome of an edge call; raise an EdgeFailure if it is wrong."""
    __tracebackhide__ = True
    runner.tally.homes[spec.name] = module_name(spec.kernel)
    if isinstance(outcome, Rejected) and not edge.inside:
        runner.tally.rows[spec.name, backend.name].rejections += 1
    elif not isinstance(outcome, Unsupported):
        verdict = _verdict_on_edge(runner, spec, edge, outcome)
        runner.tally.count(spec.name, backend.name, verdict)
        if is_failure(verdict):
            raise EdgeFailure(spec, edge, (backend.name, verdict), runner.reproduction)


def _verdict_on_edge(
    runner: Runner, spec: KernelSpec, edge: Edge, outcome: Outcome
) -> Verdict:
    """Return the verdict on an edge call that was not rejected, or that must not be."""
    if isinstance(outcome, Completed):
        spec = _with_any_dtype(spec, edge, outcome)
    elif not edge.inside:
        return verdict_on(None, outcome)
    is_promised = edge.inside or bool(spec.rejects)
    try:
        reference = runner.reference(spec, edge.case)
        if is_promised or isinstance(reference, ReferenceResult):
            with runner.defects(spec, edge.case):
                return verdict_on(reference, outcome)
        reason = f"its reference rejects it: {reference}"
    except BrokenReferenceError as broken:
        is_limit = edge.fills and isinstance(broken.raised, CaseLimitError)
        if is_promised and not is_limit:
            raise
        reason = broken.defect.happened
    return Inconclusive(f"{edge.why}, is outside the drawn cases: {reason}")


def _with_any_dtype(spec: KernelSpec, edge: Edge, outcome: Completed) -> KernelSpec:
    """Return a spec whose outputs may have the dtype of any operand, unless it states one."""
    if spec.output_dtype is not None:
        return spec
    own = {np.dtype(edge.case.dtype_of(name)) for name in spec.inputs}
    dtypes = [
        array.dtype.name if array.dtype in own else None for array in outcome.outputs
    ]
    return replace(spec, output_dtype=tuple(dtypes))
