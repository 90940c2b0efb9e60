"""What a kernel does behind its instructions' back, and what it is called."""

from __future__ import annotations

import dataclasses

import numpy as np

from difftest import Input, sizes
from difftest.harness.recipes import Integers
from difftest.verdict.backend import Shown, decoys
from difftest.verdict.outcome import Outcome
from tests.every import every
from tests.unit.verdict.kernels import judged, source, spec_of

TURNS = """
import numpy as np


def written(values, like):
    tile = nl.ndarray(like.shape, dtype=like.dtype, buffer=nl.sbuf)
    for (p, n), value in np.ndenumerate(values):
        nisa.memset(dst=tile[p : p + 1, n : n + 1], value=float(value))
    return store(tile)


def number(x, p, n):
    bits = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=bits, src=x[p : p + 1, n : n + 1])
    register = nisa.register_alloc(0)
    nisa.register_load(register, bits)
    turns = []
    for _ in nl.dynamic_range(0, register):
        turns.append(1)
    return len(turns)


def numbers(x):
    return np.array([[number(x, p, n) for n in range(x.shape[1])] for p in range(x.shape[0])])
"""
"""Python that counts the turns of a loop knows the number in a register."""


def spec_of_integers(kernel):
    small = Input("p n", data=Integers(seed=0, bound=5))
    domain = {"p": sizes(1, 4), "n": sizes(1, 3)}
    inputs = {"a": small, "b": small}
    return dataclasses.replace(spec_of(kernel), dtypes=("int32",), inputs=inputs, domain=domain)


@every("number", [np.int32(0), np.int32(7), np.int8(127), np.bool_(True), np.bool_(False)])
def test_an_integer_of_one_value_is_not_what_is_shown(number):
    arrays = (np.full((1, 1), number),)
    shown = {decoys(arrays, Shown.NOTHING, seed)[0].item() for seed in range(30)}
    assert len(shown) > 1
    assert all(0 <= one <= number.item() + 3 for one in shown)
    assert decoys(arrays, Shown.INTEGERS, 0) == arrays


@every(
    "body, outcomes",
    [
        (
            "return written(numbers(a) + numbers(b), a)",
            {Outcome.INCONCLUSIVE, Outcome.CHEATS, Outcome.WRONG_ALGORITHM},
        ),
        ("number(a, 0, 0)\nreturn store(total(a, b))", {Outcome.AGREES}),
    ],
)
def test_a_register_excuses_no_answer_that_was_written(worker, tmp_path, body, outcomes):
    judgement = judged(worker, tmp_path, source(body, TURNS), 6, spec_of_integers, shrink=False)
    assert judgement.outcome in outcomes, judgement.as_mapping()


def test_a_refused_replay_takes_nothing_from_a_case_that_decides(worker, tmp_path, monkeypatch):
    def others(arrays, **how):
        return tuple(array + 1 for array in arrays)

    monkeypatch.setattr("difftest.verdict.judge.near", others)
    text = source("number(a, 0, 0)\nreturn store(total(a, b))", TURNS)
    judgement = judged(worker, tmp_path, text, 3, spec_of_integers, shrink=False)
    assert judgement.outcome is Outcome.INCONCLUSIVE, judgement.as_mapping()
    assert judgement.reason.startswith("registers follow the data")
    assert judgement.evidence.decided
