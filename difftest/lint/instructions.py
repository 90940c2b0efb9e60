"""Rules of traces: engines, operators and dtypes that a generation's instructions do not have.

Sources: records of the compiler's answers, named with each rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from difftest.lint.rule import Breach, Group, trace_rule
from difftest.lint.sdk import Frontend
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Event, Region, Space, Trace

TODAYS = frozenset({Frontend.PARSER, Frontend.TRACER})
RECORDED: dict[str, Any] = {
    "group": Group.PORTABILITY,
    "frontends": TODAYS,
}
"""What the compiler of today's dialect has answered to somebody."""
TRN1: dict[str, Any] = {**RECORDED, "targets": frozenset({"trn1"})}
_ARITHMETIC = ("tensor_tensor", "tensor_scalar", "scalar_tensor_tensor")
_FLOAT8 = {"float8_e4m3", "float8_e4m3fn"}


def free_elements(region: Region) -> int:
    """Elements of a region in each partition."""
    return region.elements // max(region.partitions, 1)


@trace_rule("NKI501", **TRN1)
def _gpsimd(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        if event.engine is Engine.GPSIMD and event.opcode in _ARITHMETIC:
            is_chosen = "power" in (event.attributes.op or "")
            are_integers = all(one.dtype.kind in "iu" for one in event.writes + event.reads)
            if not is_chosen and not are_integers:  # which GpSimd has without being asked
                yield event, f"{event.opcode} is to run on the GpSimd Engine of trn1"


@trace_rule("NKI502", **{**RECORDED, "group": Group.CORRECTNESS})
def _copy_bias(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        is_copy = event.attributes.op == "copy" and event.opcode.startswith("activation")
        if is_copy and event.operand("bias") is not None:
            yield event, f"{event.opcode} of copy got a tile as bias"


@trace_rule("NKI503", **TRN1)
def _mod(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        if "mod" in (event.attributes.op or "").split("+"):
            yield event, f"{event.opcode} got the operator mod"


@trace_rule("NKI504", **TRN1)
def _match_indices(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        if event.opcode == "nc_match_replace8" and event.operand("dst_idx") is not None:
            yield event, "nc_match_replace8 got dst_idx"


@trace_rule("NKI505", **TRN1)
def _transposed(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        is_transpose = event.opcode == "nc_transpose" or event.arguments.get("is_transpose")
        dst = event.operand("dst")
        written = dst.dtype.name if dst is not None else "float32"
        if is_transpose and event.engine is Engine.TENSOR and written != "float32":
            yield event, f"{event.opcode} writes {written} to PSUM"


@trace_rule("NKI506", **{**RECORDED, "targets": frozenset({"trn1", "trn2"})})
def _float8(trace: Trace, machine: Machine) -> Iterator[Breach]:
    dtypes = {one.dtype.name for one in trace.allocations}
    for one in trace.allocations:
        if one.dtype.name == "float8_e4m3fn" and (one.space.is_hbm or dtypes >= _FLOAT8):
            beside = " beside float8_e4m3" if dtypes >= _FLOAT8 else ""
            yield _place(trace, one), f"{one} is float8_e4m3fn{beside}"


def _place(trace: Trace, allocation: Any) -> Any:
    """What tells the tensor's line: itself, or the first event that touches an argument."""
    if allocation.location is not None:
        return allocation
    events = (event for event in trace if _touches(event, allocation))
    return next(events, allocation)


def _touches(event: Event, allocation: Any) -> bool:
    return any(one.allocation is allocation for one in event.writes + event.reads)


@trace_rule("NKI507", **TRN1)
def _register_store(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        if event.opcode == "register_store":
            for one in event.writes:
                if not one.allocation.space.is_hbm:
                    yield event, f"register_store writes to {one.allocation.space.value}"


@trace_rule("NKI508", **{**RECORDED, "targets": frozenset({"trn2"})})
def _affine_select(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        for one in event.writes if event.opcode == "affine_select" else ():
            if len(one.shape) > 3:
                yield event, f"affine_select writes {list(one.shape)}"


@trace_rule("NKI509", **{**RECORDED, "targets": frozenset({"trn2"})})
def _long_row(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        data, total = event.operand("data"), event.operand("reduce_res")
        if event.engine is Engine.SCALAR and data is not None and total is not None:
            length = free_elements(data)
            if length > 16384:
                yield event, f"{event.opcode} reduces {length:,} elements a partition"


@trace_rule("NKI510", **RECORDED)
def _slot(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        for one in event.writes:
            step = one.allocation.partition_step
            if one.allocation.space is Space.PSUM and one.view is None and step:
                byte = one.offset % step * one.dtype.itemsize
                if byte % machine.psum_min_align:
                    yield event, f"{event.opcode} writes {one.dtype.name} at byte {byte} of PSUM"


@trace_rule("NKI511", **TRN1)
def _collective_on_chip(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in collectives(trace):
        if any(not one.allocation.space.is_hbm for one in event.reads + event.writes):
            yield event, f"{event.opcode} has a tensor in SBUF"


@trace_rule("NKI512", **TRN1)
def _collective_of_argument(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in collectives(trace):
        for one in event.reads + event.writes:
            if one.allocation.location is None:
                yield event, f"{event.opcode} has {one.allocation}, an argument of the kernel"


def collectives(trace: Trace) -> Iterator[Event]:
    """The events in which ranks talk to each other."""
    return (event for event in trace if event.arguments.get("replica_group") is not None)
