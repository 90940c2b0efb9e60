"""Arguments and results of a kernel: arguments that share memory."""

import numpy as np
import pytest

from difftest.simulator import launch
from difftest.simulator.arrays import SharedArgumentWarning
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic import typing as nt
from tests.every import every


def both_written(a: nt.mutable_tensor, b: nt.mutable_tensor, factor):
    tile = nl.load(a)
    nl.store(a, nl.add(tile, 1.0))
    nl.store(b, nl.add(nl.multiply(tile, factor), 1.0))


@every("parts", [(slice(4), slice(4)), (slice(4), slice(2, 6))])
def test_two_arguments_that_share_memory_and_get_different_values(parts):
    memory = np.arange(24, dtype=np.float32).reshape(6, 4)
    expected = memory.copy()
    expected[parts[0]] = memory[parts[0]] + 1
    expected[parts[1]] = memory[parts[0]] * 2 + 1
    with pytest.warns(
        SharedArgumentWarning, match="those of the last one stay"
    ) as caught:
        launch(both_written, [*(memory[part] for part in parts), 2.0])
    np.testing.assert_array_equal(memory, expected)
    assert caught[0].filename == __file__


@every("parts, factor", [((slice(4), slice(4)), 1.0), ((slice(2), slice(2, 4)), 2.0)])
def test_two_arguments_of_one_array_that_agree(parts, factor):
    memory = np.arange(16, dtype=np.float32).reshape(4, 4)
    expected = memory + 1
    expected[parts[1]] = memory[parts[0]] * factor + 1
    launch(both_written, [*(memory[part] for part in parts), factor])
    np.testing.assert_array_equal(memory, expected)
