"""What a kernel prints."""

from __future__ import annotations

import numpy as np

from difftest.simulator import launch
from difftest.simulator.frontend.classic import language as nl


def test_device_print_shows_the_values(capsys):
    def kernel(x):
        nl.device_print("tile:", nl.load(x))
        nl.device_print("number:", 3)

    launch(kernel, [np.array([[1, 2.5]], np.float32)])
    assert capsys.readouterr().out == "tile: [[1.  2.5]]\nnumber: 3\n"
