"""Rules of traces: loops that run on the device, and programs that share a NeuronCore."""

from __future__ import annotations

from collections.abc import Iterator

from difftest.lint.instructions import KILN, RECORDED, TRN1
from difftest.lint.rule import Breach, Group, trace_rule
from difftest.lint.sdk import Frontend
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Event, Loop, LoopKind, Space, Trace

_PARSER = frozenset({Frontend.PARSER})


def device_loops(event: Event) -> list[Loop]:
    """The loops around an event that run on the device, outermost first."""
    return [one.loop for one in event.loops if one.loop.kind is LoopKind.DYNAMIC]


@trace_rule(
    "NKI541",
    title="PSUM across a device loop's border on trn1",
    rule="on trn1 a tensor in PSUM that a device loop uses is made in its body",
    remedy="make it in the body, and keep what is carried in SBUF",
    compiler="[NCC_IBIR092] Live-in/Live-out MemoryLocation ... not allocated to ... DRAM",
    **TRN1,
)
def _psum(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        loops = device_loops(event)
        for one in event.writes + event.reads if loops else ():
            inside = {turn.loop.id for turn in one.allocation.loops}
            if one.allocation.space is Space.PSUM and loops[-1].id not in inside:
                yield event, f"{event.opcode} uses {one.allocation}, made outside of the loop"


@trace_rule(
    "NKI542",
    title="a static DMA of an input inside a device loop on trn1",
    rule="on trn1 a DMA of an input inside a device loop has descriptors that are made there",
    remedy="leave dge_mode out, or move it before the loop",
    compiler="NCC_ISQI001 Expect only Spill/Reload queues are used in loop body, but found qSPIO0",
    **TRN1,
)
def _static(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        is_static = event.engine is Engine.DMA and event.arguments.get("dge_mode") == "none"
        if is_static and device_loops(event):
            for one in event.reads:
                if one.allocation.space.is_hbm and not one.allocation.writes:
                    yield event, f"{event.opcode} with dge_mode.none reads {one.allocation}"


@trace_rule(
    "NKI543",
    title="device loops inside each other",
    rule="the parser's compiler has no device loop inside of another",
    remedy="unroll one of them: nl.static_range",
    compiler="operand #3 does not dominate this use",
    **{
        **RECORDED,
        "frontends": _PARSER,
        "targets": frozenset({"trn1"}),
        "sources": (KILN, "aws-neuron-sdk issues 1346 and 1354"),
    },
)
def _nested(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        loops = device_loops(event)
        if len(loops) > 1:
            outer = loops[0].location
            where = f" of line {outer.line}" if outer else ""
            yield event, f"{event.opcode} is inside of {len(loops)} device loops, the outer{where}"


@trace_rule(
    "NKI544",
    title="a device loop in some programs",
    rule="the programs of a grid have the same device loops, of as many turns",
    remedy="let all programs loop, with the work of those that have none masked or empty",
    compiler="[NCC_IXGM002] Expected function sg000N ... to have X basic blocks",
    **{
        **RECORDED,
        "group": Group.CORRECTNESS,
        "targets": frozenset({"trn2", "trn3"}),
        "sources": (KILN, "aws-neuron-sdk issue 1388"),
    },
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


@trace_rule(
    "NKI545",
    title="a tile of a device loop, copied in a static loop",
    rule="what a device loop inside of nl.static_range wrote is not copied behind it",
    remedy="unroll the inner loop too, or let the device run the outer one",
    compiler="an error without a text",
    **{
        **RECORDED,
        "frontends": _PARSER,
        "targets": frozenset({"trn1"}),
        "sources": ("aws-neuron-sdk issue 1354",),
    },
)
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
