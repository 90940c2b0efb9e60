"""Run the calls near a contract's edge and near a memory's limit, and judge what comes of them."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from difftest.backends.base import Backend, Outcome, Ran, Rejected, Unsupported
from difftest.harness.case import Case
from difftest.harness.edges import Edge, edges_of
from difftest.harness.failures import NotRejectedError
from difftest.harness.filling import fillings_of, keeps_traces
from difftest.harness.kernel_calls import run_kernel
from difftest.harness.questions import reference_of
from difftest.harness.reference import ReferenceDefect, ReferenceRefusal
from difftest.harness.report import edge_text
from difftest.harness.runner import Runner, judge, make_call, verdict_on
from difftest.harness.signature import home_of
from difftest.harness.spec import KernelSpec
from difftest.harness.verdict import OneSided, Verdict, is_failure


def check_edges(runner: Runner, spec: KernelSpec) -> None:
    """Calls near the contract's edge and near a memory's limit are refused or correct.

    They run on each simulator of the runner; those near a memory's limit only where there are
    traces.

    Raises
    ------
    NotRejectedError : one is accepted, and wrong.
    """
    __tracebackhide__ = True
    for backend in runner.backends:
        if backend.name == "device":
            continue
        for edge in edges_of(spec):
            judge_edge(runner, spec, edge, backend, _run(runner, backend, spec, edge))
        if keeps_traces(backend):
            for filling in fillings_of(spec, functools.partial(run_recorded, runner, backend)):
                edge, outcome = Edge(filling.case, filling.why), filling.outcome
                if isinstance(outcome, Ran):  # once more, to be judged
                    outcome = _run(runner, backend, spec, edge)
                judge_edge(runner, spec, edge, backend, outcome)


def _run(runner: Runner, backend: Backend, spec: KernelSpec, edge: Edge) -> Outcome:
    settings = runner.settings_of(spec, edge.case) if spec.reduction is None else None
    call = make_call(spec, edge.case, spec.inputs_of(edge.case, edge.shapes), edge.shapes)
    return run_kernel(backend, replace(call, exact=settings))


def run_recorded(runner: Runner, backend: Backend, spec: KernelSpec, case: Case) -> Outcome:
    """What comes of a case on a backend that keeps its trace, without an exact run."""
    call = make_call(spec, case, spec.inputs_of(case))
    return run_kernel(backend, replace(call, record=True))


def judge_edge(
    runner: Runner, spec: KernelSpec, edge: Edge, backend: Backend, outcome: Outcome
) -> None:
    """Count an outcome that is a refusal, or correct.

    Raises
    ------
    NotRejectedError : it is neither, or the refusal of what the domain has.
    """
    __tracebackhide__ = True
    runner.tally.homes[spec.name] = home_of(spec.kernel)
    if isinstance(outcome, Rejected) and not edge.inside:
        runner.tally.count_rejection(spec.name, backend.name)
    elif not isinstance(outcome, Unsupported):
        verdict = _verdict(spec, edge, outcome)
        runner.tally.count(spec.name, backend.name, verdict)
        if is_failure(verdict):
            raise NotRejectedError(edge_text(spec, edge, backend.name, verdict))


def _verdict(spec: KernelSpec, edge: Edge, outcome: Outcome) -> Verdict:
    if not isinstance(outcome, Ran):
        return judge((), outcome)
    own = {np.dtype(edge.case.dtype_of(name)) for name in spec.inputs}
    if spec.output_dtype is None and not spec.outputs:  # that of any operand will do
        dtypes = (one.dtype.name if one.dtype in own else None for one in outcome.outputs)
        spec = replace(spec, output_dtype=tuple(dtypes))
    try:
        inputs = spec.inputs_of(edge.case, edge.shapes)
        return verdict_on(reference_of(spec, edge.case, inputs), outcome)
    except (ReferenceDefect, ReferenceRefusal) as refusal:
        return OneSided("reference", refusal)
