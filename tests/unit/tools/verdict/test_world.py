"""A candidate's world: each way out of it is refused, where it is reached."""

import ast
import random

import numpy as np
import pytest

from difftest.simulator import launch
from difftest.simulator.entry.install import embedded
from difftest.simulator.errors import recording_errors
from difftest.tools.verdict.sources import SourceFile
from difftest.tools.verdict.worker import swallowed_error
from difftest.tools.verdict.world.blocks import enter
from difftest.tools.verdict.world.loader import CandidateModules
from difftest.tools.verdict.world.refusal import STATE, OutsideLanguageError
from tests.every import every
from tests.unit.tools.verdict.cheats.channels import CHANNELS
from tests.unit.tools.verdict.cheats.escapes import ESCAPES
from tests.unit.tools.verdict.cheats.unguarded import UNGUARDED
from tests.unit.tools.verdict.kernels import RIGHT, source

ONES = np.ones((2, 4), np.float32)


def run(text, allowed=()):
    """Run the kernel ``add`` of a source in its world; return what it raised, as a text."""
    STATE.refused = None
    file = SourceFile("candidate", "candidate.py", False, text.encode())
    with embedded():
        world = CandidateModules([file], allowed, lambda _: None, as_it_is, {})
        kernel = vars(world.first())["add"]
        with recording_errors() as errors:
            try:
                launch(kernel, [ONES, ONES])
            except BaseException as error:
                return str(STATE.refused or error) or type(error).__name__
    return str(STATE.refused or swallowed_error(errors) or "")


def as_it_is(tree: ast.Module, file: str) -> ast.Module:
    return tree


WAYS = ESCAPES | UNGUARDED | CHANNELS


@every("name", WAYS)
def test_a_way_out_is_refused(name):
    text, said = WAYS[name]
    before, _, body = f"{text}\nreturn store(total(a, b))".rpartition("---\n")
    happened = run(source(body, before))
    assert happened, "it runs"
    assert said in happened, happened


def test_many_ways_are_tried():
    assert len(WAYS) >= 290
    assert run(RIGHT) == ""


AT_IMPORT = {
    "a text, and a list that a skipped line would leave empty": (
        "SEEN = []\nif 'nki' in str(nl.add):\n    SEEN.append(1)\n"
    ),
    "a text, and a name that a skipped line would leave": (
        "IS_HERE = True\nIS_HERE = len(str(nl.add))\n"
    ),
}


@every("name", AT_IMPORT)
def test_a_question_where_it_runs_is_refused_at_import_too(name):
    with pytest.raises(OutsideLanguageError, match="the text of an object"):
        run(source("return store(total(a, b))", AT_IMPORT[name]))


def test_a_skipped_statement_leaves_no_earlier_value():
    before = "import torch\nIS_HERE = True\nIS_HERE = bool(torch.cuda)\n"
    happened = run(source("assert IS_HERE\nreturn store(total(a, b))", before))
    assert "IS_HERE, which needs torch.cuda" in happened
    assert "torch.cuda" in STATE.asked


def test_marks_of_typing_change_no_object_of_nki():
    before = "import typing\n"
    assert run(source("typing.final(nl.add)\nreturn store(total(a, b))", before)) == ""
    with embedded():
        import nki.language as nl
    assert not hasattr(nl.add, "__final__")


def test_a_class_that_c_code_passes_is_refused():
    with pytest.raises(OutsideLanguageError, match="as an argument"):
        enter(type)
    enter(int, 1, "x")


def test_objects_of_nki_are_asked_for_classes_that_have_no_protocol():
    body = "assert not isinstance(a, (int, dict, collections.abc.Sequence))\n"
    before = "import collections.abc\n"
    assert run(source(f"{body}return store(total(a, b))", before)) == ""


def runs_twice(before, body):
    """Run a kernel in two worlds of one process; return what the second one raised."""
    text = source(f"{body}\nreturn store(total(a, b))", before)
    assert run(text) == ""
    return run(text)


SHARED = {
    "tables of Enum": (
        "from enum import Enum\n",
        "assert 'x' not in Enum._member_map_\nEnum._member_map_['x'] = 1",
    ),
    "names of Flag": (
        "from enum import Flag\n",
        "assert 1 not in Flag._member_names_\nFlag._member_names_.append(1)",
    ),
    "an enumeration's own table": (
        "from enum import IntEnum\nclass E(IntEnum):\n    A = 1\n",
        "assert 7 not in IntEnum._value2member_map_\nIntEnum._value2member_map_[7] = E.A",
    ),
}
"""State that a run would leave to the next one."""


@every("name", SHARED)
def test_a_run_leaves_no_state_to_the_next(name):
    assert runs_twice(*SHARED[name]) == ""


def test_random_numbers_count_no_runs():
    before = "import random\n"
    body = "x = random.random()\nrandom.seed(3)\nassert x != FIRST, 'a second run'"
    first = random.Random(3).random()
    assert runs_twice(f"{before}FIRST = {first!r}\n", body) == ""
