"""The one place where instructions are known by their names names no other."""

from __future__ import annotations

from difftest.analysis.purpose import PURPOSES, Purpose
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.instructions.record import EFFECTS, INSTRUCTIONS


def test_each_name_is_an_instructions():
    assert nisa.rng  # those of today's dialect alone are there once it is imported
    of_dma_copy = {"dma_gather", "dma_scatter"}
    assert set(PURPOSES) - of_dma_copy <= {*INSTRUCTIONS, *EFFECTS}


def test_an_instruction_has_one_purpose():
    assert len(PURPOSES) == sum(len(purpose.value) for purpose in Purpose)
