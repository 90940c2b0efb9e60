"""The one place where instructions are known by their names names no other."""

from __future__ import annotations

import ast
from pathlib import Path

import difftest
from difftest.analysis.purpose import PURPOSES, Purpose
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.instructions.record import EFFECTS, INSTRUCTIONS


def test_each_name_is_an_instructions():
    assert nisa.rng  # those of today's dialect alone are there once it is imported
    of_dma_copy = {"dma_gather", "dma_scatter"}
    assert set(PURPOSES) - of_dma_copy <= {*INSTRUCTIONS, *EFFECTS}


def test_an_instruction_has_one_purpose():
    assert len(PURPOSES) == sum(len(purpose.value) for purpose in Purpose)


def test_no_member_of_an_enumeration_is_an_empty_tuple():
    """Its value is ``object()`` on Python 3.11.0 to 3.11.2: the module could not be imported."""
    members = [
        (file.name, statement.lineno, ast.unparse(statement))
        for file in sorted(Path(difftest.__file__).parent.rglob("*.py"))
        if "Enum" in (text := file.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and any("Enum" in ast.unparse(e) for e in node.bases)
        for statement in node.body
        if isinstance(statement, ast.Assign)
    ]
    assert len(members) > 50
    assert [member for member in members if member[2].endswith(" = ()")] == []
