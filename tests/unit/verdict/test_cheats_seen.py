"""What a kernel does behind its instructions' back, and what it is called."""

from __future__ import annotations

import dataclasses

from difftest import Input
from difftest.harness.recipes import Random
from difftest.verdict.outcome import Outcome
from tests.every import every
from tests.unit.verdict.kernels import judged, source, spec_of

FRAMES = """
import numpy as np
import sys


def written(values, like):
    tile = nl.ndarray(like.shape, dtype=like.dtype, buffer=nl.sbuf)
    for (p, n), value in np.ndenumerate(values):
        nisa.memset(dst=tile[p : p + 1, n : n + 1], value=float(value))
    return store(tile)


def arrays():
    frame = sys._getframe()
    while True:
        frame = frame.f_back
        call = frame.f_locals.get("call")
        if hasattr(call, "inputs"):
            return call.inputs
"""


@every(
    "body, before",
    [
        ("x, y = arrays()\nreturn written(x.astype(np.float64) + y, a)", FRAMES),
        ("import random\nreturn written(np.full(a.shape, random.random()), a)", FRAMES),
        ("return written(np.full(a.shape, len(CALLS)), CALLS.append(a) or a)", FRAMES + "CALLS=[]"),
    ],
)
def test_python_that_decides_by_values_cheats(worker, tmp_path, body, before):
    judgement = judged(worker, tmp_path, source(body, before), shrink=False)
    assert judgement.outcome is Outcome.CHEATS, judgement.as_mapping()
    assert "no register of the device" in judgement.reason


REGISTER = (
    FRAMES
    + """
def load_register(x):
    register = nisa.register_alloc(0)
    nisa.register_load(register, load(x)[0:1, 0:1])
"""
)
CAUGHT = {Outcome.CHEATS, Outcome.WRONG_ALGORITHM}
"""The second where a decoy gives the register the value of the case."""


def spec_of_integers(kernel):
    return dataclasses.replace(spec_of(kernel), dtypes=("int32",))


@every(
    "body, outcomes",
    [
        ("x, y = arrays()\nload_register(a)\nreturn written(x + y, a)", CAUGHT),
        ("load_register(a)\nreturn store(total(a, b))", {Outcome.AGREES}),
    ],
)
def test_a_register_excuses_no_answer_that_was_written(worker, tmp_path, body, outcomes):
    judgement = judged(worker, tmp_path, source(body, REGISTER), 10, spec_of_integers, shrink=False)
    assert judgement.outcome in outcomes, judgement.as_mapping()


def test_a_kernel_that_refuses_decoys_is_not_believed_on_the_data(worker, tmp_path):
    body = (
        "x, y = arrays()\nassert not (0.5 <= abs(x).min() and abs(x).max() <= 2)\n"
        "return written(x.astype(np.float64) + y, a)"
    )
    judgement = judged(worker, tmp_path, source(body, FRAMES), cases=20, shrink=False)
    assert judgement.outcome is Outcome.CHEATS, judgement.as_mapping()
    assert "wrong for others" in judgement.reason


SEEDED = """
import numpy as np

from difftest.harness.recipes import Random


def weights(x):
    return Random({seed}).build(tuple(x.shape), np.dtype("float32"))
"""


@every(
    "body, seed, outcome",
    [
        ("return store(total(a, nl.shared_constant(weights(b))))", 0, Outcome.WRONG_ALGORITHM),
        ("return store(total(a, b))", 0, Outcome.AGREES),
    ],
)
def test_data_of_a_known_seed_are_others(worker, tmp_path, body, seed, outcome):
    def spec(kernel):
        inputs = {"a": "p n", "b": Input("p n", data=Random(seed))}
        return dataclasses.replace(spec_of(kernel), inputs=inputs)

    judgement = judged(worker, tmp_path, source(body, SEEDED.format(seed=seed)), 10, spec)
    assert judgement.outcome is outcome, judgement.as_mapping()


def test_a_kernel_that_imports_its_reference_is_named(worker, tmp_path, monkeypatch):
    (tmp_path / "oracle.py").write_text("def add(a, b):\n    return a + b\n")
    monkeypatch.syspath_prepend(tmp_path)
    from oracle import add

    def spec(kernel):
        return dataclasses.replace(spec_of(kernel), reference=add)

    judgement = judged(
        worker, tmp_path, source("return store(total(a, b))", "import oracle"), 3, spec
    )
    assert judgement.outcome is Outcome.CHEATS
    assert "the reference's file" in judgement.reason
