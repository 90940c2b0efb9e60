"""A trace is written and read back without loss."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from difftest.simulator import Engine, Space, launch, trace_from_json, trace_to_json
from difftest.simulator.core import current
from difftest.simulator.dtypes import BFLOAT16, DTYPES, FLOAT32
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.classic import compiler as ncc
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.pattern import Pattern
from difftest.simulator.recording import InstructionAccesses
from difftest.simulator.trace import (
    Allocation,
    Anomaly,
    AnomalyKind,
    Attributes,
    Event,
    EventKind,
    Origin,
    Output,
    Trace,
)
from difftest.simulator.trace_json import VERSION, TraceFormatError
from tests.every import every
from tests.unit.simulator.small_runs import RUNS, in_turn, kernels_of_the_tree, trace_of

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "trace-json.md"
KERNELS = kernels_of_the_tree()


def plain(trace):
    """All that a trace says, in values that compare."""

    def allocation(one):
        return tuple(getattr(one, field.name) for field in fields(one))

    def event(one):
        values = {field.name: getattr(one, field.name) for field in fields(one)}
        values["kind"] = tuple(one.kind)
        for side in ("writes", "reads"):
            values[side] = [(r.allocation.id, *r[1:]) for r in values[side]]
        values["seen"] = [
            (*s[:-1], s.origin and (s.origin.allocation.id, *s.origin[1:]))
            for s in one.seen
        ]
        return values

    return (
        (trace.kernel, trace.machine, trace.grid),
        [allocation(one) for one in trace.allocations],
        [event(one) for one in trace.events],
    )


def read_back(trace):
    text = trace_to_json(trace)
    again = trace_from_json(text)
    assert trace_to_json(again) == text
    return again


def test_each_kernel_has_a_run():
    assert set(RUNS) == {kernel.__name__ for kernel in KERNELS.values()}


@every("name", in_turn(KERNELS))
def test_the_trace_of_each_kernel_comes_back(name):
    trace = trace_of(KERNELS[name])
    assert len(trace) > 2
    again = read_back(trace)
    assert plain(again) == plain(trace)
    held = {id(one) for one in again.allocations}
    regions = [region for event in again for region in event.writes + event.reads]
    assert all(id(region.allocation) in held for region in regions)


NUMBERS = ("operand0", "pred")


def every_field():
    """A trace of two programs that says all that a trace can."""

    def kernel(x):
        tile = nl.ndarray((4, 6), nl.float32, buffer=nl.sbuf, name="tile")
        for _ in nl.affine_range(2):
            for _ in nl.sequential_range(9, 0, -5):
                anomalies = current().followers.observer.anomalies
                anomalies.append(
                    Anomaly(AnomalyKind.INFINITY_MADE, "dst", 2, 12, (0, 1), math.inf)
                )
                made = tile._storage.allocation
                origin = Origin(made, (0, 1), (2, 3), "read by add", made.location)
                anomalies.append(
                    Anomaly(AnomalyKind.NAN_STORED, "data", 1, 24, (3, 5), None, origin)
                )
                touched = InstructionAccesses(
                    EventKind(
                        "anything",
                        Engine.UNKNOWN,
                        Attributes("add+max", True),
                        {"op0": "add", "shuffle_mask": (3, -1), "reverse0": True},
                        NUMBERS,
                    ),
                    [tile[:, 1:6:2]],
                    [x],
                    ("dst", "data"),
                    (-0.25, Pattern(2, (4, 6), (-1, 0))),
                    parts=[(x, None)],
                )
                current().count(touched)

    return launch(kernel, [np.ones((4, 6), np.float32)], grid=(2, 1)).trace


def test_all_that_an_event_says_comes_back():
    trace = every_field()
    again = read_back(trace)
    assert plain(again) == plain(trace)
    last = again.events[-1]
    assert (last.program, [turn.value for turn in last.loops]) == ((1, 0), [1, 4])
    assert [(r.role, r.whole) for r in last.writes + last.reads] == [
        ("dst", True),
        ("data", False),
    ]
    assert last.stack == trace.events[-1].stack
    assert None not in last.attributes
    assert [anomaly.value for anomaly in last.seen] == [math.inf, None]


@every("value", [0.0, -0.0, 1e-30, 3.0, math.inf, -math.inf, math.nan])
def test_a_value_comes_back_to_the_bit(value):
    trace = Trace()
    kind = EventKind("memset", Engine.VECTOR, numbers=("value",))
    trace.events.append(Event(0, kind, (), (), numbers=(value,)))
    (event,) = read_back(trace).events
    assert np.float64(event.arguments["value"]).tobytes() == np.float64(value).tobytes()


@every("dtype", DTYPES)
@every("space", Space)
def test_allocations_of_each_memory_and_dtype(space, dtype):
    trace = Trace()
    one = Allocation(7, space, (2, 3, 4), dtype, 1, None, "t", first=0, last=5, reads=2)
    trace.allocations.append(one)
    again = read_back(trace)
    assert plain(again) == plain(trace)
    assert again.allocations[0].partition_bytes == one.partition_bytes


def test_addresses_and_views_come_back():
    def kernel(x):
        storage = current().allocate((4, 8), FLOAT32, Space.SBUF, address=(32, 64))
        tile = Tensor._whole(storage)
        nisa.dma_copy(dst=tile, src=x)
        blocks = nl.ndarray(
            (2, nl.par_dim(4), 4), nl.bfloat16, buffer=ncc.sbuf.mod_alloc(base_addr=512)
        )
        half = blocks[1]
        half[...] = nisa.tensor_copy(tile[:, 2:4].view(nl.bfloat16))
        out = nl.ndarray((4, 4), nl.bfloat16, buffer=nl.shared_hbm)
        nl.store(out, half)
        return out

    trace = launch(kernel, [np.zeros((4, 8), np.float32)]).trace
    again = read_back(trace)
    assert plain(again) == plain(trace)
    read = again.events[1].operand("src")
    assert (read.view, read.dtype, read.pattern) == (
        BFLOAT16,
        BFLOAT16,
        (4, (4, 4), (16, 1)),
    )
    assert read.allocation.address == (32, 64)
    assert [one.places for one in again.allocations if one.places] == [
        ((0, 512), (0, 512))
    ]
    assert read.allocation.viewed
    assert again.events[0].operand("dst").view is None


def test_each_place_is_written_once():
    document = json.loads(trace_to_json(trace_of(KERNELS["classic.vector_add_tiled"])))
    assert document["version"] == VERSION
    for table in ("locations", "stacks", "loops"):
        entries = [json.dumps(entry) for entry in document[table]]
        assert len(entries) == len(set(entries)) > 0
    assert len(document["stacks"]) < len(document["events"])
    assert len(document["kinds"]) < len(document["events"])


def blocks(language):
    """The code of one language on the page of the form, in order."""
    page = PAGE.read_text(encoding="utf-8")
    return re.findall(
        rf"^```{language}\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE
    )


def test_the_example_of_the_documentation():
    source = blocks("python")[-1]
    names = {}
    with embedded():
        exec(compile(source, "double.py", "exec"), names)
    trace = launch(names["double"], [np.ones((4, 8), np.float32)]).trace
    (example,) = blocks("json")
    assert trace_to_json(trace) == example
    assert plain(trace_from_json(example)) == plain(trace)
    with pytest.raises(TraceFormatError) as broken:
        trace_from_json(example.replace('"engine":"vector"', '"engine":"pe"'))
    assert blocks("")[0] == f"{broken.value}\n"


def test_the_documentation_lists_each_member():
    page = PAGE.read_text(encoding="utf-8") + PAGE.with_name("trace.md").read_text(
        encoding="utf-8"
    )
    document = json.loads(trace_to_json(every_field()))
    event = document["events"][-1]
    allocation = document["allocations"][-1]
    regions = [region for side in ("writes", "reads") for region in event[side]]
    named = [
        *document,
        *document["loops"][0],
        *allocation,
        *event,
        *document["kinds"][0],
    ]
    named += document["kinds"][0]["attributes"]
    named += [*event["seen"][0], *event["seen"][1], *event["seen"][1]["origin"]]
    for name in [*named, *(name for region in regions for name in region)]:
        assert f"`{name}`" in page, name


def test_unwritten_parts_of_an_output_come_back():
    def kernel(x):
        out = nl.ndarray((4, 6), nl.float32, buffer=nl.shared_hbm)
        nl.store(out[0:3], nl.load(x[0:3]))
        return out, whole(x)

    def whole(x):
        out = nl.ndarray((4, 6), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    trace = launch(kernel, [np.ones((4, 6), np.float32)]).trace
    outputs = [
        one.output for one in read_back(trace).allocations if one.output is not None
    ]
    assert outputs == [Output(6, (3, 0)), Output()]
