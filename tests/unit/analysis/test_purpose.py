"""The purpose of an instruction is in its record, and in each of its events."""

import ast
from pathlib import Path

import numpy as np

import difftest
from difftest.simulator import launch
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import every_record
from difftest.simulator.trace import Purpose
from tests.purposes import OF_DMA_COPY, purpose_of


def gathered(x, places):
    """The rows of ``x`` that ``places`` names, scattered to them."""
    out = nl.ndarray((8, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    rows, columns = nl.mgrid[0:8, 0:16]
    index = nl.load(places)
    nl.store(out[index[rows, 0], columns], nl.load(x[index[rows, 0], columns]))
    return out


def test_an_event_has_the_purpose_of_its_record():
    """A DMA's purpose depends on the side that indices address."""
    places = np.arange(8, dtype=np.int32)[:, None]
    events = launch(gathered, [np.ones((8, 16), np.float32), places]).trace.events
    assert {event.opcode: event.purpose for event in events} == {
        "dma_copy": Purpose.COPY,
        **OF_DMA_COPY,
    }


def test_each_purpose_is_a_records():
    """A purpose without an instruction would never match."""
    assert set(map(purpose_of, [*every_record(), *OF_DMA_COPY])) == set(Purpose)


def test_no_member_of_an_enumeration_is_an_empty_tuple():
    """Its value is ``object()`` on Python 3.11.0 to 3.11.2: the module could not be imported."""
    members = [
        (file.name, statement.lineno, ast.unparse(statement))
        for file in sorted(Path(difftest.__file__).parent.rglob("*.py"))
        if "Enum" in (text := file.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        if {"Enum", "IntEnum", "Quick"} & {ast.unparse(base) for base in node.bases}
        for statement in node.body
        if isinstance(statement, ast.Assign)
    ]
    assert len(members) > 50
    assert [member for member in members if member[2].endswith(" = ()")] == []
