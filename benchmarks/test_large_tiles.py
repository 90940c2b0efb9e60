"""Elementwise kernels of large tiles on the simulator, against the same steps on bare arrays.

Where triton-viz is installed, its interpreter of NKI runs the same functions. It copies slices of
arrays and calls NumPy, and checks and records nothing. The ratios compare runs in turn, in CPU
time.
"""

import importlib.util
import statistics
import time

import numpy as np
import pytest

from difftest.simulator import launch

SHAPE = (8192, 1024)
PAIRS = 11


def interpreted(function):
    """Return a run of a function by triton-viz's interpreter of NKI."""
    from triton_viz.core import nki as interpreter
    from triton_viz.core.patch import _LangPatchScope

    class Client:
        """A client of the interpreter that asks for nothing."""

        def __getattr__(self, name):
            return lambda *args, **kwargs: True

    def run(*arrays):
        scope = _LangPatchScope()
        interpreter.nki_patch_lang(scope)
        try:
            kernel = interpreter.NKIInterpretedFunction(function)
            kernel.run(*arrays, client_manager=Client())
        finally:
            scope.restore()

    return run


def seconds(run, arrays):
    start = time.process_time()
    run(*arrays)
    return time.process_time() - start


@pytest.mark.parametrize("name", ["add", "softmax"])
def test_large_tiles(name, capsys):
    import neuronxcc.nki as nki

    from benchmarks import large_tiles

    function = getattr(large_tiles, name)
    kernel = nki.jit(mode="trace")(function)
    peers = {"bare arrays": getattr(large_tiles, f"bare_{name}")}
    if name == "softmax":
        peers["bare arrays, sums in order"] = large_tiles.bare_softmax_in_order
    if importlib.util.find_spec("triton_viz"):
        peers["triton-viz"] = interpreted(function)
    random = np.random.default_rng(0)
    count = function.__code__.co_argcount - 1
    arrays = [random.random(SHAPE, dtype=np.float32) for _ in range(count)]
    arrays.append(np.zeros(SHAPE, np.float32))

    def simulated(*arrays):
        launch(kernel, arrays)

    for peer, run in peers.items():
        ratios = []
        for _ in range(PAIRS + 1):  # the first warms up
            ours = seconds(simulated, arrays)
            ratios.append(ours / seconds(run, arrays))
        with capsys.disabled():
            print(f"\n{name}: {statistics.median(ratios[1:]):.2f} times {peer}")


def test_an_update_of_a_row_takes_as_long_in_a_large_argument(capsys):
    """The old values of the row alone are kept, and nothing else is copied."""
    import neuronxcc.nki as nki

    from benchmarks import large_tiles

    kernel = nki.jit(mode="trace")(large_tiles.update)
    columns = SHAPE[1]
    row = np.ones((1, columns), np.float32)
    small, large = (np.zeros((rows, columns), np.float32) for rows in (4, 65536))
    ratios = []
    for _ in range(PAIRS + 1):  # the first warms up
        bare = seconds(launch, (kernel, (row, small)))
        ratios.append(seconds(launch, (kernel, (row, large))) / bare)
    with capsys.disabled():
        print(f"\nupdate: {statistics.median(ratios[1:]):.2f} times a small argument")
