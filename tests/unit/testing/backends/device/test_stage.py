import json
from dataclasses import replace

import pytest

from difftest.testing.backends.device.timers import measure_stage
from difftest.tools.course.assignment import TRANSPOSE
from tests.every import every


class Timer:
    """Returns the given measurements, the last one again and again."""

    metric = "device time"

    def __init__(self, *p99s):
        self.left = list(p99s)

    def p99(self, call, *, warmup, iterations):
        assert (warmup, iterations) == (5, 20), "the course's"
        assert [array.shape for array in call.inputs] == [(8, 4)]
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


def result_of(*p99s):
    return measure_stage(replace(TRANSPOSE, shapes=((8, 4),)), len, Timer(*p99s))


def test_three_rounds_that_agree_are_enough():
    result = result_of(100, 100.5, 100.2, 900)
    assert (result.p99_us, result.rounds) == (100.2, 3)
    assert result.spread == pytest.approx(0.5 / 100.2)
    assert result.lines() == [
        "4096x4096, float32, transpose: full",
        "  measured: p99 100.2 us (device time)",
        "  limits:   700 us relaxed, 700 us full (the course's assignment)",
        "  noise:    spread 0.5% over 3 rounds",
    ]
    assert json.loads(json.dumps(result.to_json()))["p99_us"] == 100.2


@every("third, rounds", [(100.9, 3), (101.1, 4)])
def test_one_per_cent_decides(third, rounds):
    assert result_of(100.0, 100.5, third, third, third).rounds == rounds


def test_noise_that_stays_is_reported():
    result = result_of(*[100.0, 200.0] * 9)
    assert result.rounds == 9
    assert "NOT under 1 %" in result.lines()[-1]
