"""Run the calls near a contract's edge and near a memory's limit, and judge what comes of them."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from difftest.backends.base import Backend, Outcome, Ran, Rejected, Unsupported
from difftest.harness.case import Case
from difftest.harness.edges import Edge, defaults_of, edges_of
from difftest.harness.failures import BrokenReferenceError, EdgeFailure
from difftest.harness.filling import fillings_of, has_sizes, keeps_traces
from difftest.harness.limits import LIMITS, USED, CaseLimitError, limit
from difftest.harness.questions import reference_of
from difftest.harness.recipes import Ones, Random
from difftest.harness.reference import ReferenceDefect, ReferenceRefusal
from difftest.harness.runner import Runner, judge, make_call, run_kernel, verdict_on
from difftest.harness.signature import home_of
from difftest.harness.spec import KernelSpec
from difftest.harness.verdict import Inconclusive, Verdict, is_failure

_DEVICE = "device"
"""The backend on which such calls are not made."""
MOST_SECONDS, MOST_MEMORY = 20.0, 2**10
"""That a reference may take where a memory is full, and MiB."""


def has_edges(spec: KernelSpec, backends: Iterable[Backend]) -> bool:
    """Whether there are calls to make on one of the backends.

    All that a spec without rejections or defaults has is a memory to fill.
    """
    simulators = [one for one in backends if one.name != _DEVICE]
    promised = bool(spec.rejects or defaults_of(spec))
    return spec.edges and any(
        promised or (has_sizes(spec) and keeps_traces(one)) for one in simulators
    )


def check_edges(runner: Runner, spec: KernelSpec) -> None:
    """Calls near the contract's edge and near a memory's limit are refused or correct.

    They run on each simulator of the runner; those near a memory's limit only where there are
    traces.
    """
    __tracebackhide__ = True
    for backend in (one for one in runner.backends if has_edges(spec, (one,))):
        record = functools.partial(run_recorded, runner, backend)
        filling = fillings_of(spec, record) if keeps_traces(backend) else ()
        for edge in itertools.chain(edges_of(spec), filling):
            outcome = _run(runner, backend, spec, edge)
            with _patience() if edge.fills else limit(None, None):
                judge_edge(runner, spec, edge, backend, outcome)


def _patience() -> contextlib.ExitStack:
    """Where a memory is full the reference is not waited for without end.

    ``np.eye(n)[indices]`` is a fine one-hot encoding of all sizes that are drawn, and takes 21 GiB
    where the kernel's tile fills SBUF.
    """
    memory = min(LIMITS.memory or MOST_MEMORY, MOST_MEMORY) if USED.exists() else None
    return limit(min(LIMITS.seconds or MOST_SECONDS, MOST_SECONDS), memory)


def _run(runner: Runner, backend: Backend, spec: KernelSpec, edge: Edge) -> Outcome:
    settings = runner.settings_of(spec, edge.case) if spec.reduction is None else None
    runner.now = spec, edge.case
    call = make_call(spec, edge.case, spec.inputs_of(edge.case, edge.shapes), edge.shapes)
    return run_kernel(backend, replace(call, exact=settings))


def run_recorded(runner: Runner, backend: Backend, spec: KernelSpec, case: Case) -> Outcome:
    """What comes of a case on a backend that keeps its trace, without an exact run."""
    # No trace depends on random numbers, and to draw them takes longer than to compute with them.
    data = {name: Ones() if isinstance(one, Random) else one for name, one in case.data.items()}
    runner.now = spec, case
    call = make_call(spec, case, spec.inputs_of(replace(case, data=data)))
    return run_kernel(backend, replace(call, record=True))


def judge_edge(
    runner: Runner, spec: KernelSpec, edge: Edge, backend: Backend, outcome: Outcome
) -> None:
    """Count an outcome that is a refusal, or correct."""
    __tracebackhide__ = True
    runner.tally.homes[spec.name] = home_of(spec.kernel)
    if isinstance(outcome, Rejected) and not edge.inside:
        runner.tally.count_rejection(spec.name, backend.name)
    elif not isinstance(outcome, Unsupported):
        verdict = _verdict(runner, spec, edge, outcome)
        runner.tally.count(spec.name, backend.name, verdict)
        if is_failure(verdict):
            raise EdgeFailure(spec, edge, (backend.name, verdict), runner.again)


def _verdict(runner: Runner, spec: KernelSpec, edge: Edge, outcome: Outcome) -> Verdict:
    if isinstance(outcome, Ran):
        own = {np.dtype(edge.case.dtype_of(name)) for name in spec.inputs}
        if spec.output_dtype is None and not spec.outputs:  # that of any operand will do
            dtypes = (one.dtype.name if one.dtype in own else None for one in outcome.outputs)
            spec = replace(spec, output_dtype=tuple(dtypes))
    elif not edge.inside:
        return judge((), outcome)
    inputs = spec.inputs_of(edge.case, edge.shapes)
    try:
        return verdict_on(reference_of(spec, edge.case, inputs), outcome)
    except ReferenceRefusal as refusal:
        if spec.rejects or edge.inside:
            return verdict_on(refusal.error, outcome)
        reason = f"its reference refuses it: {refusal.error}"
    except ReferenceDefect as defect:
        is_slow = edge.fills and isinstance(defect.__cause__, CaseLimitError)
        if (spec.rejects or edge.inside) and not is_slow:
            raise BrokenReferenceError(spec, edge.case, defect, runner.again) from defect.__cause__
        reason = str(defect).splitlines()[0]
    return Inconclusive(f"{edge.why}, is beyond what is drawn: {reason}")
