"""The table of docs/reference/advice.md: `python -m benchmarks.ladder_advice`.

All times are predicted, for trn2 and the toolchain of `nki.benchmark`.
"""

import numpy as np

from difftest.simulator import MACHINES, launch
from difftest.simulator.entry.install import embedded
from difftest.timing import predict
from difftest.timing.advice import advise

SHAPES = ((1, 256, 34, 224), (256, 256, 3, 3), (256,))


def rungs():
    """Return the kernels of the ladder whose traces are not too long, the slowest first."""
    from kernels.classic.conv2d import fused_conv2d_maxpool
    from kernels.classic.conv2d_ladder.broadcast_bias import conv2d_broadcast_bias
    from kernels.classic.conv2d_ladder.cached_weights import conv2d_cached_weights
    from kernels.classic.conv2d_ladder.flat_weights import conv2d_flat_weights
    from kernels.classic.conv2d_ladder.halo_tiles import conv2d_halo_tiles
    from kernels.classic.conv2d_ladder.row_tiles import conv2d_row_tiles
    from kernels.classic.conv2d_ladder.without_copies import conv2d_without_copies

    return (
        conv2d_halo_tiles,
        conv2d_cached_weights,
        conv2d_flat_weights,
        conv2d_without_copies,
        conv2d_broadcast_bias,
        conv2d_row_tiles,
        fused_conv2d_maxpool,
    )


def main():
    """Print each rung's own part in microseconds, its first finding, and the savings."""
    machine = MACHINES["trn2"]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) for shape in SHAPES]
    with embedded():
        print("rung | own part us | its first finding | estimated savings us")
        for kernel in rungs():
            trace = launch(kernel, arrays, machine=machine).trace
            prediction = predict(trace, machine, dge=True)
            first = [(one.id, f"{one.lost:.1f}") for one in advise(prediction.schedule)]
            finding, savings = (first or [("nothing found", "")])[0]
            name = getattr(kernel, "__name__", str(kernel))
            print(
                f"{name} | {prediction.middle:,.0f} | {finding} | {savings}", flush=True
            )


if __name__ == "__main__":
    main()
