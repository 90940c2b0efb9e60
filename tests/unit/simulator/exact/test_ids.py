"""The largest number of a row less itself is 0, however large its error: ids of numbers."""

import ml_dtypes
import numpy as np

from difftest.simulator import launch
from difftest.simulator.exact.run import ExactSettings
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every

LARGE = np.random.default_rng(2).uniform(-1e6, 1e6, (16, 24)).astype(np.float32)
"""Scores so large that float32 holds no fractional digits; their powers lose all digits."""
TOP = LARGE.argmax(axis=1)
ROWS = np.arange(16)


def exact_of(compute, x=LARGE, dtype=np.float32):
    """Return the output of an exact run of ``compute`` on a third of the data."""

    def kernel(x):
        made = compute(nl.multiply(nl.load(x), 1 / 3))
        out = nl.ndarray(made.shape, dtype, buffer=nl.shared_hbm)
        nl.store(out, made)
        return out

    result = launch(kernel, [x], exact=ExactSettings(dtypes=("bfloat16",)))
    (output,) = result.exact.outputs
    assert (np.abs(result.outputs[0] - output.value) <= output.error + 1e-30).all()
    return output


def largest(tile):
    return nl.max(tile, axis=1, keepdims=True)


def by_subtraction(third):
    return nl.subtract(third, largest(third))


def by_bias(third):
    return nisa.activation(nl.copy, third, bias=nl.negative(largest(third)))


def by_max8(third):
    return nl.subtract(third, nisa.max8(src=third)[:, 0:1])


def by_running_maximum(third):
    """As blocks of attention scores do it."""
    top = nl.maximum(largest(third[:, 0:12]), largest(third[:, 12:24]))
    return nl.subtract(third, top)


def by_smallest(third):
    return nl.add(third, nl.negative(nl.min(third, axis=1, keepdims=True)))


def by_a_column_of_several(third):
    """A tile of statistics; another of its columns is written afterwards."""
    both = nl.ndarray((16, 2), nl.float32)
    both[:, 0:1] = largest(third)
    both[:, 1:2] = nl.multiply(third[:, 0:1], 1 / 7)
    return nl.subtract(third, both[:, 0:1])


WAYS = (
    by_subtraction,
    by_bias,
    by_max8,
    by_running_maximum,
    by_smallest,
    by_a_column_of_several,
)


@every("way", WAYS)
def test_the_largest_less_itself_is_0(way):
    output = exact_of(way)
    top = LARGE.argmin(axis=1) if way is by_smallest else TOP
    assert (output.value[ROWS, top] == 0).all()
    assert (output.error[ROWS, top] < 1e-30).all()
    others = np.ones(LARGE.shape, bool)
    others[ROWS, top] = False
    assert (output.error[others] > 1e-3).all()


def of_another_row(third):
    return nl.subtract(third[1:16, :], largest(third)[0:15, :])


def overwritten(third):
    """The tile has other numbers since its largest ones were taken."""
    top = largest(third)
    third[...] = nl.multiply(third, 1 + 2.0**-20)
    return nl.subtract(third, top)


def overwritten_in_part(third):
    top = largest(third)
    third[:, 0:20] = nl.multiply(third[:, 0:20], 1 + 2.0**-20)
    third[:, 20:24] = nl.multiply(third[:, 20:24], 1 + 2.0**-20)
    return nl.subtract(third, top)


def statistics_overwritten(third):
    top = nl.ndarray((16, 2), nl.float32)
    top[:, 0:1] = largest(third)
    top[:, 0:1] = nl.multiply(top[:, 0:1], 1 + 2.0**-20)
    return nl.subtract(third, top[:, 0:1])


def rounded(third):
    return nl.subtract(third, nl.copy(largest(third), dtype=nl.bfloat16))


def added(third):
    return nl.add(third, largest(third))


def computed_twice(third):
    """Equal numbers, but a machine may round each in its own way."""
    return nl.subtract(nl.multiply(third, 1 / 7), largest(nl.multiply(third, 1 / 7)))


@every(
    "way",
    [
        of_another_row,
        overwritten,
        overwritten_in_part,
        statistics_overwritten,
        rounded,
        added,
        computed_twice,
    ],
)
def test_other_numbers_keep_their_errors(way):
    assert (exact_of(way).error > 1e-3).all()


def test_two_candidates_for_the_largest_leave_it_open():
    equal = LARGE.copy()
    equal[:, 3] = equal[:, 5] = 2e6
    equal[:, 14] = equal[:, 15] = -2e6
    for way in WAYS:
        assert (exact_of(way, equal).error > 1e-3).all()


def test_a_narrow_operand_has_ids_too():
    output = exact_of(by_subtraction, LARGE.astype(ml_dtypes.bfloat16))
    assert (output.value <= 0).all()
    assert ((output.error < 1e-30) == (output.value == 0)).mean() > 0.9
