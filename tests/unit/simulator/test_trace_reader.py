"""Text other than a trace gives one error with the place and the accepted form."""

import json
from pathlib import Path

import pytest

from difftest.simulator import TraceFormatError, trace_from_json, trace_to_json
from difftest.simulator.trace import Output
from tests.every import every
from tests.unit.simulator.test_trace_json import every_field

GONE = object()


def refusal(text):
    with pytest.raises(TraceFormatError) as caught:
        trace_from_json(text)
    message = str(caught.value)
    assert message.startswith("not a trace: ")
    assert "\n" not in message
    return message.removeprefix("not a trace: ")


def changed(path, value):
    """A good trace's text with one thing changed, or left out."""
    document = json.loads(trace_to_json(every_field()))
    place = document
    for step in path[:-1]:
        place = place[step]
    if value is GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(document)


def test_the_good_trace_is_one():
    assert len(trace_from_json(changed(("kernel",), "another"))) == 8


@every(
    "text, message",
    [
        ("", "not JSON (Expecting value"),
        ("{", "not JSON (Expecting property name"),
        ("[" * 100_000, "not JSON ("),
        ('{"format": NaN}', "not JSON (NaN is not a number of JSON)"),
        ("[]", "the document: received []; accepted: an object"),
        ("{}", 'format: received null; accepted: "difftest trace"'),
        (
            '{"format": "difftest trace"}',
            "version: received null; accepted: 5 or 6; record the kernel",
        ),
    ],
)
def test_a_document_that_is_no_trace_is_rejected(text, message):
    assert refusal(text).startswith(message)


@every("version", [0, 1, 4, 7, "5", True, 5.0, 6.0, None])
def test_a_trace_of_another_version_is_rejected(version):
    message = refusal(json.dumps({"format": "difftest trace", "version": version}))
    assert message == (
        f"version: received {json.dumps(version)}; accepted: 5 or 6; "
        "record the kernel again with this difftest"
    )


EVENT = ("events", 1)
ALLOCATION = ("allocations", 0)
WRITTEN = (*EVENT, "writes", 0)
KIND = ("kinds", 0)
TOLD = (*KIND, "attributes")
SEEN = (*EVENT, "seen", 0)


@every(
    "path, value, message",
    [
        (("events",), GONE, "the document: received ["),
        (("events",), {}, "events: received {}; accepted: a list"),
        (("colour",), 1, 'the document: received "colour"; accepted: format, version'),
        (("kernel",), 3, "kernel: received 3; accepted: a text"),
        (("machine",), None, "machine: received null; accepted: a text"),
        (("grid",), [0], "grid[0]: received 0; accepted: a whole number from 1 on"),
        (
            ("grid",),
            [1, 1],
            "events[4].program: received [1, 0]; accepted: a place in the grid",
        ),
        (
            ("grid",),
            [],
            "events[0].program: received [0, 0]; accepted: a place in the grid []",
        ),
        (("locations", 0), [1, 1], "locations[0]: received 1; accepted: a text"),
        (("locations", 0), [0], "locations[0]: received [0]; accepted: a list of 2"),
        (
            ("locations", 0),
            ["a", None],
            "locations[0]: received null; accepted: a whole number",
        ),
        (
            ("stacks", 0),
            [-1],
            "stacks[0][0]: received -1; accepted: a place in a table of",
        ),
        (("stacks", 0), 0, "stacks[0]: received 0; accepted: a list"),
        (
            ("loops", 0, "kind"),
            "while",
            'loops[0].kind: received "while"; accepted: affine, ',
        ),
        (
            ("loops", 0, "id"),
            -1,
            "loops[0].id: received -1; accepted: a whole number from 0 on",
        ),
        (
            ("loops", 0, "location"),
            99,
            "loops[0].location: received 99; accepted: a place in",
        ),
        (
            (*ALLOCATION, "id"),
            1,
            "allocations[1].id: received 1; accepted: an id that no other",
        ),
        (
            (*ALLOCATION, "space"),
            "dram",
            'allocations[0].space: received "dram"; accepted: shared',
        ),
        (
            (*ALLOCATION, "dtype"),
            "float64",
            'allocations[0].dtype: received "float64"; accepted',
        ),
        (
            (*ALLOCATION, "dtype"),
            ["float32"],
            'allocations[0].dtype: received ["float32"]',
        ),
        (
            (*ALLOCATION, "shape"),
            [4, 0],
            "allocations[0].shape[1]: received 0; accepted: a whole",
        ),
        (
            (*ALLOCATION, "partition_axis"),
            2,
            "allocations[0].partition_axis: received 2",
        ),
        (
            (*ALLOCATION, "address"),
            [0],
            "allocations[0].address: received [0]; accepted: a list",
        ),
        (
            (*ALLOCATION, "address"),
            [0, -4],
            "allocations[0].address: received -4; accepted: a",
        ),
        (
            (*ALLOCATION, "places"),
            [[0, 0], [0, 0]],
            "allocations[0].places: received [[0, 0], [0, 0]]; accepted: a list of 1",
        ),
        (
            (*ALLOCATION, "places"),
            [[0]],
            "allocations[0].places[0]: received [0]; accepted: a list",
        ),
        (
            (*ALLOCATION, "output"),
            [],
            "allocations[0].output: received []; accepted: an object",
        ),
        (
            (*ALLOCATION, "output"),
            {"unwritten": -1, "first": [0]},
            "allocations[0].output.unwritten: received -1; accepted: a whole number from 0 on",
        ),
        ((*ALLOCATION, "reads"), -2, "allocations[0].reads: received -2; accepted"),
        ((*ALLOCATION, "space"), GONE, "allocations[0]: received ["),
        (EVENT, [], "events[1]: received []; accepted: an object"),
        (
            (*EVENT, "number"),
            0,
            "events[1].number: received 0; accepted: more than 0, the one",
        ),
        (
            (*EVENT, "number"),
            True,
            "events[1].number: received true; accepted: a whole number",
        ),
        (
            (*KIND, "engine"),
            "pe",
            'kinds[0].engine: received "pe"; accepted: tensor, vector',
        ),
        (
            (*EVENT, "stack"),
            7,
            "events[1].stack: received 7; accepted: a place in a table of 1",
        ),
        (
            (*EVENT, "program"),
            [2, 0],
            "events[1].program: received [2, 0]; accepted: a place in",
        ),
        (
            (*EVENT, "loops", 0),
            [0, 1],
            "events[1].loops[0]: received [0, 1]; accepted: a list of 3",
        ),
        (
            (*EVENT, "loops", 0),
            [0, -1, 1],
            "events[1].loops[0]: received -1; accepted: a whole",
        ),
        (
            (*EVENT, "loops", 0),
            [0, 1, 0.5],
            "events[1].loops[0]: received 0.5; accepted: a whole",
        ),
        (
            (*WRITTEN, "allocation"),
            9,
            "events[1].writes[0].allocation: received 9; accepted: a ",
        ),
        (
            (*WRITTEN, "offset"),
            "1",
            'events[1].writes[0].offset: received "1"; accepted: a whole',
        ),
        ((*WRITTEN, "offset"), 2, "events[1].writes[0]: received {"),
        ((*WRITTEN, "strides"), [6], "events[1].writes[0]: received {"),
        ((*WRITTEN, "strides"), [-6, 2], "events[1].writes[0]: received {"),
        (
            (*WRITTEN, "partition_axis"),
            2,
            "events[1].writes[0].partition_axis: received 2; accept",
        ),
        (
            (*WRITTEN, "partition_axis"),
            "0",
            "events[1].writes[0].partition_axis: received",
        ),
        (
            (*WRITTEN, "role"),
            None,
            "events[1].writes[0].role: received null; accepted: a text",
        ),
        (
            (*WRITTEN, "view"),
            "V4",
            'events[1].writes[0].view: received "V4"; accepted: bfloat16',
        ),
        (
            (*WRITTEN, "whole"),
            1,
            "events[1].writes[0].whole: received 1; accepted: true or false",
        ),
        (
            (*TOLD, "colour"),
            1,
            'kinds[0].attributes: received "colour"; accepted: op, accumulate',
        ),
        ((*TOLD, "op"), 1, "kinds[0].attributes.op: received 1; accepted: a text"),
        (
            (*TOLD, "accumulate"),
            1,
            "kinds[0].attributes.accumulate: received 1; accepted: true",
        ),
        (
            (*SEEN, "value"),
            "big",
            'events[1].seen[0].value: received "big"; accepted: a number',
        ),
        (
            (*EVENT, "numbers"),
            [0.5],
            "events[1].numbers: received [0.5]; accepted: a list of 2",
        ),
        ((*KIND, "options"), [], "kinds[0].options: received []; accepted: an object"),
        (
            (*SEEN, "what"),
            "odd",
            'events[1].seen[0].what: received "odd"; accepted: nan made, ',
        ),
        (
            (*SEEN, "elements"),
            0,
            "events[1].seen[0].elements: received 0; accepted: a whole",
        ),
        (
            (*SEEN, "first"),
            [-1],
            "events[1].seen[0].first[0]: received -1; accepted: a whole number",
        ),
        (
            (*SEEN, "colour"),
            1,
            'events[1].seen[0]: received "colour"; accepted: what, role',
        ),
        (
            (*SEEN, "origin"),
            1,
            "events[1].seen[0].origin: received 1; accepted: an object",
        ),
        (
            (*SEEN, "origin"),
            {"allocation": 9, "low": [0], "high": [1], "event": "read"},
            "events[1].seen[0].origin.allocation: received 9; accepted: a place",
        ),
        (("events", 1, "seen"), 3, "events[1].seen: received 3; accepted: a list"),
        (
            (*SEEN, "value"),
            True,
            "events[1].seen[0].value: received true; accepted: a number",
        ),
    ],
)
def test_one_thing_that_is_wrong(path, value, message):
    assert refusal(changed(path, value)).startswith(message)


def test_a_pattern_that_leaves_its_tensor_is_named_with_it():
    message = refusal(changed((*WRITTEN, "offset"), 2))
    assert message.endswith(
        "; accepted: a stride for each size, and elements of tile [4, 6] float32 in sbuf"
    )


OLDER = Path(__file__).with_name("trace_of_version_5.json")
"""Written by version 5's writer, of a kernel that updates ``state`` and returns a new tensor."""


def test_a_file_of_the_version_before_is_read():
    trace = trace_from_json(OLDER.read_text())
    outputs = {one.name or "out": one.output for one in trace.allocations if one.output}
    assert outputs == {"state": Output(), "out": Output(8, (3, 0))}
    assert [event.kind.opcode for event in trace.events] == ["dma_copy"] * 3
    again = json.loads(trace_to_json(trace))
    older = json.loads(OLDER.read_text())
    assert again.pop("version") == 6
    assert again.pop("middle_end") is False
    assert older.pop("version") == 5
    assert again == older


@every("dialect", ["nki", "classic"])
def test_the_middle_end_of_an_older_trace_follows_from_its_dialect(dialect):
    document = json.loads(OLDER.read_text()) | {"dialect": dialect}
    assert trace_from_json(json.dumps(document)).middle_end is (dialect == "classic")


def test_a_trace_says_which_outputs_were_returned():
    document = json.loads(OLDER.read_text()) | {"version": 6, "middle_end": False}
    document["allocations"][1]["output"] = {"returned": False}
    trace = trace_from_json(json.dumps(document))
    assert [one.output.returned for one in trace.allocations if one.output] == [
        False,
        True,
    ]
    assert json.loads(trace_to_json(trace)) == document
