"""A candidate's world: each way out of it is refused, where it is reached."""

import ast

import numpy as np

from difftest.simulator import launch
from difftest.simulator.entry.install import embedded
from difftest.tools.verdict.sources import SourceFile
from difftest.tools.verdict.world.loader import CandidateModules
from difftest.tools.verdict.world.refusal import STATE
from tests.every import every
from tests.unit.tools.verdict.cheats.escapes import ESCAPES
from tests.unit.tools.verdict.kernels import RIGHT, source

ONES = np.ones((2, 4), np.float32)


def run(text, allowed=()):
    """Run the kernel ``add`` of a source in its world; return what it raised, as a text."""
    STATE.refused = None
    file = SourceFile("candidate", "candidate.py", False, text.encode())
    with embedded():
        world = CandidateModules([file], allowed, lambda _: None, as_it_is, {})
        kernel = vars(world.first())["add"]
        try:
            launch(kernel, [ONES, ONES])
        except BaseException as error:
            return str(STATE.refused or error)
    return str(STATE.refused or "")


def as_it_is(tree: ast.Module, file: str) -> ast.Module:
    return tree


@every("name", ESCAPES)
def test_a_way_out_is_refused(name):
    text, said = ESCAPES[name]
    before, _, body = f"{text}\nreturn store(total(a, b))".rpartition("---\n")
    happened = run(source(body, before))
    assert happened, "it runs"
    assert said in happened, happened


def test_many_ways_are_tried():
    assert len(ESCAPES) >= 190
    assert run(RIGHT) == ""
