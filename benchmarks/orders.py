"""The tables of docs/contributing/timing-order.md: `python -m benchmarks.orders`. All predicted."""

from collections.abc import Callable, Iterable

import numpy as np

from difftest.simulator import MACHINES, launch
from difftest.timing import predict
from difftest.timing.compiler import LIKELY, Compiler, RepeatRule
from tests.unit.timing import blocks, convolutions

BLOCKS = (8192, 512), (4, 128, 512)
IMAGE = (128, 66, 226)
WEIGHTS = (9, 128, 128)
ORDERS = {
    "as taken": LIKELY,
    "any that is ready": LIKELY._replace(expected=None),
    "half of each latency": LIKELY._replace(expected=0.5),
}
REPEATS = {
    "as taken": LIKELY,
    "each is made": LIKELY._replace(
        repeated_copies=RepeatRule.KEPT, repeated_transposes=RepeatRule.KEPT
    ),
}
Row = tuple[Callable[..., object], str, str, tuple[tuple[int, ...], ...]]
"""Kernel, dtype, machine, inputs."""
ORDERED: tuple[Row, ...] = (
    (blocks.turned_in_each_block, "float16", "trn2", BLOCKS),
    (blocks.turned_through_hbm, "float16", "trn2", BLOCKS),
    (blocks.turned_through_hbm, "float32", "trn2", BLOCKS),
    (blocks.turned_through_hbm, "float32", "trn1", BLOCKS),
)
REPEATED: tuple[Row, ...] = (
    (convolutions.copied_in_groups, "float16", "trn2", (IMAGE, (2, *WEIGHTS))),
    (convolutions.turned_weights, "float32", "trn1", (IMAGE, WEIGHTS)),
    (convolutions.turned_weights, "float16", "trn1", (IMAGE, WEIGHTS)),
)


def table(rows: Iterable[Row], compilers: dict[str, Compiler]) -> None:
    """Print the kernel's own part, microseconds, as each compiler would have it."""
    print("kernel, dtype, machine", *compilers, sep=" | ")
    for kernel, dtype, machine, shapes in rows:
        one = MACHINES[machine]
        trace = launch(
            kernel, [np.ones(each, dtype) for each in shapes], machine=one
        ).trace
        times = [
            predict(trace, one, dge=True, compiler=each).middle
            for each in compilers.values()
        ]
        print(
            f"{kernel.__name__}, {dtype}, {machine}",
            *(f"{t:,.1f}" for t in times),
            sep=" | ",
        )
    print()


if __name__ == "__main__":
    table(ORDERED, ORDERS)
    table(REPEATED, REPEATS)
