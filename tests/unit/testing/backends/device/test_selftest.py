import numpy as np

from difftest.testing.backends.device.selftest import ALL_ZERO, STALE, Guard
from tests.every import every

SHAPE = (2, 3)


def array(value, dtype="float32"):
    return np.full(SHAPE, value, dtype)


def suspect(guard, output, expected):
    return guard.suspect("kernel", (output,), (np.asarray(expected, np.float64),))


@every(
    "runs, told",
    [
        ([(1, 1), (2, 2), (2, 2), (3, 3)], None),
        ([(0, 1)], ALL_ZERO),
        ([(0, 0)], None),
        ([(1, 1), (1, 2)], STALE),
        ([(1, 1), (1, 1)], None),
    ],
)
def test_zeros_and_the_same_output_for_other_inputs_are_suspicious(runs, told):
    """Unless the reference has them: the outputs and the right values of each run."""
    guard = Guard()
    said = [suspect(guard, array(got), array(right)) for got, right in runs]
    assert said == [None] * (len(runs) - 1) + [told]


def test_one_value_that_is_not_zero_is_enough():
    output = array(0)
    output[1, 2] = 1
    assert suspect(Guard(), output, array(1)) is None


def test_an_empty_output_is_not_suspicious():
    assert Guard().suspect("kernel", (np.zeros((0, 3)),), (np.zeros((0, 3)),)) is None


def test_right_answers_that_round_to_the_same_are_the_same():
    guard = Guard()
    suspect(guard, array(1, "bfloat16"), array(1, "float64"))
    assert suspect(guard, array(1, "bfloat16"), array(1 + 1e-9, "float64")) is None


def test_another_kernel_or_shape_is_not_compared_with():
    guard = Guard()
    suspect(guard, array(1), array(1))
    assert guard.suspect("other", (array(1),), (array(2),)) is None
    assert suspect(guard, np.ones((3, 2)), np.full((3, 2), 2)) is None
