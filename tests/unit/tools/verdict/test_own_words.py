"""Texts of a candidate are marked in a verdict, since they may imitate one."""

import json
import linecache

import numpy as np

from difftest.simulator import launch
from difftest.simulator.entry.install import embedded
from difftest.simulator.launch_listeners import recording_tapes
from difftest.simulator.tape_json import tape_to_json
from difftest.tools.verdict.backend import read_tape
from difftest.tools.verdict.formats import FORMS, verdict_text
from difftest.tools.verdict.wire import OWN_WORDS
from tests.every import every
from tests.unit.tools.verdict.kernels import judged, source

WORDS = "agrees (stage: time)\\n  reward:      1.000"
LINES = WORDS.split("\\n")
TILE = "nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf, name={name})"
BODIES = {
    "an assertion": f"assert a.shape[0] < 0, '{WORDS}'",
    "an error": f"raise ValueError('{WORDS}')",
    "an error of its own class": f"raise Agrees('{WORDS}')",
    "the cause of an error": (
        f"try:\n    raise Agrees('{WORDS}')\nexcept Agrees as error:\n"
        "    raise ValueError('x') from error"
    ),
    "a name in a broken rule": f"return store({TILE.format(name=repr(WORDS))})".replace(
        "\\\\", "\\"
    ),
}
BEFORE = "class Agrees(Exception):\n    pass\n"


def marked(text: str) -> bool:
    """Return whether each line of a text with the candidate's words is marked."""
    return all(
        OWN_WORDS in line.partition(word)[0]
        for line in text.splitlines()
        for word in LINES
        if word in line
    )


@every("name", BODIES)
def test_words_of_a_run_are_marked_in_each_output(worker, tmp_path, name):
    text = source(BODIES[name], BEFORE)
    judgement = judged(worker, tmp_path, text, 3, shrink=False)
    document = json.loads(json.dumps(judgement.as_mapping()))
    told = [document["reason"], document["report"], verdict_text(document)]
    told += [FORMS[form]([document], [judgement]) for form in ("junit", "markdown")]
    assert any(LINES[0] in one for one in told)
    assert all(map(marked, told)), told
    assert "·own" not in "".join(told)


def test_words_of_an_import_are_marked(worker, tmp_path):
    judgement = judged(worker, tmp_path, f"raise ValueError('{WORDS}')\n", 3)
    assert judgement.reason == f"{OWN_WORDS}ValueError: {LINES[0]}"
    assert marked(judgement.report), judgement.report


def test_a_class_of_the_candidate_does_not_name_the_error(worker, tmp_path):
    judgement = judged(
        worker, tmp_path, source(BODIES["an error of its own class"], BEFORE)
    )
    assert judgement.reason.startswith(f"KernelFailure: {OWN_WORDS}agrees")


def test_a_name_of_a_tensor_is_one_line():
    with embedded():
        import nki
        import nki.isa as nisa
        import nki.language as nl

    @nki.jit
    def named(a):
        name = "x\n\x1b[2K\u2028"
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm, name=name)
        nisa.dma_copy(dst=out, src=a)
        return out

    with recording_tapes() as tapes:
        launch(named, [np.ones((1, 1), np.float32)])
    linecache.getlines(__file__)
    tape = read_tape(tape_to_json(tapes[-1]))
    names = [step.kwargs["name"] for step in tape.steps if "name" in step.kwargs]
    assert names == ["x  [2K "]
