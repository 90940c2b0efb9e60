"""Find the instruction that wrote an element of an output last, in the trace of a case."""

from __future__ import annotations

from collections.abc import Iterable

from difftest.simulator.launch import unfinished_trace
from difftest.simulator.pattern import Pattern
from difftest.simulator.trace import Allocation, Event, Region, Returned, Trace
from difftest.testing.backends.base import Backend, Completed
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.failures import CaseFailure, DifferentialFailure
from difftest.testing.harness.kernel_calls import make_call, run_kernel
from difftest.testing.harness.verdict import Mismatch


def locate_writers(failure: CaseFailure, backends: Iterable[Backend]) -> None:
    """Find the instructions that wrote the first wrong elements of a failure.

    The kernel runs once more on each wrong embedded simulator among the backends, because other
    backends have no trace. Specs with ranks are skipped, because a trace shows the first rank only.
    """
    if not isinstance(failure, DifferentialFailure) or failure.spec.ranks:
        return
    for backend in backends:
        wrong = failure.verdicts.get(backend.name)
        if isinstance(backend, EmbeddedSimulator) and _has_first(wrong):
            trace, _ = trace_of(failure.spec, failure.case, backend)
            name_writers(failure, backend.name, trace)


def name_writers(
    failure: DifferentialFailure, backend: str, trace: Trace | None
) -> None:
    """Store the writer of a backend's first wrong element, which is found in this trace."""
    wrong = failure.verdicts.get(backend)
    if trace is None or not isinstance(wrong, Mismatch):
        return
    event = last_writer(trace, failure.spec, wrong)
    if event is not None:
        failure.writers = {**failure.writers, backend: event}


def _has_first(verdict: object) -> bool:
    return isinstance(verdict, Mismatch) and verdict.first is not None


def trace_of(
    spec: KernelSpec, case: Case, backend: EmbeddedSimulator | None = None
) -> tuple[Trace | None, str]:
    """Return the trace of a case on the embedded simulator, and the name of the error it ended in.

    The trace is None if the launch did not begin, and the name is empty if there is no error.
    """
    outcome = run_kernel(
        backend or EmbeddedSimulator(), make_call(spec, case, record=True)
    )
    if isinstance(outcome, Completed):
        return outcome.trace, ""
    return unfinished_trace(outcome.error), type(outcome.error).__name__


def last_writer(trace: Trace, spec: KernelSpec, mismatch: Mismatch) -> Event | None:
    """Return the instruction that wrote the first wrong element of a mismatch last.

    None if no instruction wrote it, or if the trace does not tell.
    """
    first = mismatch.first
    if first is None or mismatch.output is None:
        return None
    tensor = _output(trace, spec, mismatch)
    if tensor is None or tensor.pattern.shape != mismatch.shape:
        return None
    element = tensor.pattern.offset
    for place, stride in zip(first.index, tensor.pattern.strides, strict=True):
        element += place * stride
    return writer_of(trace, tensor.allocation, element, tensor.dtype.itemsize)


def _output(trace: Trace, spec: KernelSpec, mismatch: Mismatch) -> Returned | None:
    """Return the tensor of a result: an argument, or another tensor that the kernel returned."""
    written = {
        tensor.name: tensor for tensor in trace.arguments if tensor.name in spec.outputs
    }
    if mismatch.argument:
        tensor = written.get(mismatch.argument)
        return None if tensor is None else _whole(tensor)
    wholes = [_whole(tensor) for tensor in written.values()]
    returned = [tensor for tensor in trace.returned if tensor not in wholes]
    number = mismatch.output or 0
    return returned[number] if number < len(returned) else None


def _whole(tensor: Allocation) -> Returned:
    """Return the record of a kernel that returns all of a tensor."""
    return Returned(tensor, Pattern.whole(tensor.shape), tensor.dtype)


def writer_of(
    trace: Trace, tensor: Allocation, element: int, width: int
) -> Event | None:
    """Return the last instruction that wrote an element of a tensor.

    The element is a number in row-major order, of elements of ``width`` bytes. None if no
    instruction wrote it, or if the tensor may share its bytes with another one.
    """
    if tensor.address is not None:
        return None
    first = element * width
    last = (element + 1) * width
    for event in reversed(trace.events):
        for region in event.writes:
            if region.allocation is tensor and _touches(region, first, last):
                return event if region.whole or region.places is not None else None
    return None


def _touches(region: Region, first: int, last: int) -> bool:
    """Return whether a region has a byte from ``first`` up to ``last``."""
    width = region.dtype.itemsize
    if region.places is None:
        low, high = region.pattern.extent()
        if (high + 1) * width <= first or low * width >= last:
            return False
    elements = (
        region.pattern.elements() if region.places is None else region.places.elements
    )
    return bool(((elements * width < last) & ((elements + 1) * width > first)).any())
