"""Side effects of a kernel besides its instructions, and their names in a verdict."""

import numpy as np

from difftest.tools.verdict.backend import Disclosure, dummy_inputs
from difftest.tools.verdict.outcome import Outcome
from tests.every import every
from tests.unit.tools.verdict.cheats.known import HONEST, TURNS, spec_of_integers
from tests.unit.tools.verdict.kernels import judged, source


@every(
    "number", [np.int32(0), np.int32(7), np.int8(127), np.bool_(True), np.bool_(False)]
)
def test_an_integer_of_one_value_is_not_what_is_shown(number):
    arrays = (np.full((1, 1), number),)
    shown = {dummy_inputs(arrays, Disclosure.NOTHING)[0].item() for _ in range(30)}
    assert len(shown) > 1
    assert all(0 <= one <= number.item() + 3 for one in shown)
    assert dummy_inputs(arrays, Disclosure.INTEGERS) == arrays


def test_a_register_that_no_data_change_settles_nothing(worker, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "difftest.tools.verdict.backend.dummy_inputs", lambda arrays, *_: arrays
    )
    judgement = judged(worker, tmp_path, source(HONEST, TURNS), 3, spec_of_integers)
    assert judgement.outcome is Outcome.INCONCLUSIVE, judgement.as_mapping()
    assert judgement.reason.startswith("registers follow the data")
    assert judgement.evidence.decided
