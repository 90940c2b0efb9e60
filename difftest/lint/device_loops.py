"""Rules of traces: loops that run on the device, and programs that share a NeuronCore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from difftest.lint.instructions import RECORDED, TRN1, collectives
from difftest.lint.rule import Breach, Group, trace_rule
from difftest.lint.sdk import Frontend
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Event, Loop, LoopKind, Space, Trace

_PARSER = frozenset({Frontend.PARSER})


def device_loops(event: Event) -> list[Loop]:
    """The loops around an event that run on the device, outermost first."""
    return [one.loop for one in event.loops if one.loop.kind is LoopKind.DYNAMIC]


@trace_rule("NKI541", **TRN1)
def _psum(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        loops = device_loops(event)
        for one in event.writes + event.reads if loops else ():
            inside = {turn.loop.id for turn in one.allocation.loops}
            if one.allocation.space is Space.PSUM and loops[-1].id not in inside:
                yield event, f"{event.opcode} uses {one.allocation}, made outside of the loop"


@trace_rule("NKI542", **TRN1)
def _static(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        is_static = event.engine is Engine.DMA and event.arguments.get("dge_mode") == "none"
        if is_static and device_loops(event):
            for one in event.reads:
                if one.allocation.space.is_hbm and not one.allocation.writes:
                    yield event, f"{event.opcode} with dge_mode.none reads {one.allocation}"


@trace_rule("NKI543", **{**RECORDED, "frontends": _PARSER, "targets": frozenset({"trn1"})})
def _nested(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        loops = device_loops(event)
        if len(loops) > 1:
            outer = loops[0].location
            where = f" of line {outer.line}" if outer else ""
            yield event, f"{event.opcode} is inside of {len(loops)} device loops, the outer{where}"


@trace_rule(
    "NKI544", **{**RECORDED, "group": Group.CORRECTNESS, "targets": frozenset({"trn2", "trn3"})}
)
def _programs(trace: Trace, machine: Machine) -> Iterator[Breach]:
    turns: dict[tuple[int, ...], dict[int, tuple[Event, set[int]]]] = {}
    for event in trace:
        program = turns.setdefault(event.program, {})
        for one in event.loops:
            if one.loop.kind is LoopKind.DYNAMIC:
                program.setdefault(one.loop.id, (event, set()))[1].add(one.number)
    forms = {at: [len(numbers) for _, numbers in own.values()] for at, own in turns.items()}
    for at, own in turns.items():
        for other, form in forms.items():
            if forms[at] > form and own:
                event = next(iter(own.values()))[0]
                text = f"program {list(at)} has device loops of {forms[at]} turns"
                yield event, f"{text}, program {list(other)} of {form or 'none'}"


@trace_rule("NKI546", **{**RECORDED, "targets": frozenset({"trn2"})})
def _collective_of_one(trace: Trace, machine: Machine) -> Iterator[Breach]:
    programs = {event.program for event in trace}
    issued = {program: Counter[str]() for program in programs}
    for event in collectives(trace):
        issued[event.program][event.opcode] += 1
    for event in collectives(trace):
        other = next((at for at in issued if not issued[at][event.opcode]), None)
        if other is not None:
            yield event, f"{event.opcode} is called by program {event.program}, not by {other}"


@trace_rule("NKI545", **{**RECORDED, "frontends": _PARSER, "targets": frozenset({"trn1"})})
def _copied(trace: Trace, machine: Machine) -> Iterator[Breach]:
    written: dict[int, frozenset[int]] = {}
    for event in trace:
        static = frozenset(one.loop.id for one in event.loops if one.loop.kind is LoopKind.STATIC)
        is_inside = bool(device_loops(event))
        for one in event.reads if event.opcode == "tensor_copy" and not is_inside else ():
            if written.get(one.allocation.id, frozenset()) & static:
                yield event, f"tensor_copy reads {one.allocation}, which a device loop wrote"
        for one in event.writes:
            written[one.allocation.id] = static if is_inside else frozenset()
