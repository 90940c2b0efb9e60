"""Arguments that a kernel of the current dialect writes and does not return.

Source: the integration of NKI kernels into XLA's graphs, ``aliasing_output_rewrite_pass.md`` in the
documents of vLLM Neuron at v2.32.0. Each input and each output of a graph has its own buffer. A
write to an input is a result of the graph only if an output is declared to be its alias
(``operand_output_aliases``). Kernels of AWS's library return each argument that they update
(``scatter_add``, ``swa_fused_cte``).
"""

from __future__ import annotations

from collections.abc import Iterator

from difftest.analysis.finding import WARNING, Finding, Hazard
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Event, Trace

NOT_RETURNED = Hazard(
    "argument-not-returned",
    WARNING,
    "the kernel writes an argument and does not return it",
)


def find_unreturned_arguments(trace: Trace, machine: Machine) -> Iterator[Finding]:
    """Yield a finding for each argument that is written and not returned."""
    if trace.dialect != "nki":
        return  # the linter's NKT204 has the rule of the classic compiler
    written = [
        tensor
        for tensor in trace.allocations
        if tensor.output is not None and not tensor.output.returned
    ]
    if not written:
        return
    firsts: dict[int, Event] = {}
    for event in trace.events:
        for region in event.writes:
            firsts.setdefault(region.allocation.id, event)
    for tensor in written:
        events = [firsts[tensor.id]] if tensor.id in firsts else []
        yield NOT_RETURNED.finding(
            f"the kernel writes to its argument {tensor.name} and does not return it",
            "a graph of XLA gets the results of a kernel from its returned tensors. An output that "
            "is declared as the alias of an input has the data that were written there. AWS's "
            "simulator updates the array in any case",
            f"return {tensor.name} too; a kernel test counts an argument that outputs= names and "
            "the kernel returns once",
            *events,
        )
