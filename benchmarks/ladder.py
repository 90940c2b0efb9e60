r"""A thousand candidates of the convolution's ladder, as ``difftest verdict --batch`` takes them.

    python -m benchmarks.ladder 1000 ladder.jsonl
    difftest verdict --batch ladder.jsonl --results out.jsonl \\\
        benchmarks/small_conv2d.py::test_conv2d

Rungs of both dialects are rewritten: bugs are planted in their own functions, and lines are added
that change nothing, so that a part does what another does.
"""

from __future__ import annotations

import importlib
import itertools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

from difftest.simulator.entry.install import embedded
from difftest.tools.mutants.generation import mutants_of

RUNGS = ("baseline", "broadcast_bias", "cached_weights", "flat_weights")
RUNGS += ("halo_tiles", "row_tiles", "whole_plane", "without_copies")
BUGS = 2
"""Planted for each rewriting that changes nothing."""


def candidates(
    dialects: tuple[str, ...] = ("nki", "classic"),
) -> Iterator[dict[str, str]]:
    """Lines of a batch, without an end: bugs of each rung in turn, and equivalent files."""
    turns = [
        _of_rung(f"kernels.{one}.conv2d_ladder.{rung}")
        for rung in RUNGS
        for one in dialects
    ]
    while True:
        for turn in turns:
            yield next(turn)


def _of_rung(module: str) -> Iterator[dict[str, str]]:
    loaded = importlib.import_module(module)
    text = Path(str(loaded.__file__)).read_text("utf-8")
    name = f"conv2d_{module.rpartition('.')[2]}"
    bodies = (getattr(one, "function", one) for one in vars(loaded).values())
    own = [
        one
        for one in bodies
        if isinstance(one, FunctionType) and one.__module__ == module
    ]
    planted = [one.change for one in mutants_of(own)]
    random.Random(module).shuffle(planted)
    left = iter(planted)
    for number in itertools.count():
        yield {"name": name, "source": f"{text}\n# Rewritten {number} times.\n"}
        for change in itertools.islice(left, BUGS):
            yield {
                "name": name,
                "source": text[: change.start] + change.text + text[change.end :],
            }


if __name__ == "__main__":
    count = int(sys.argv[1])
    file = Path(sys.argv[2])
    with embedded():
        lines = [json.dumps(one) for one in itertools.islice(candidates(), count)]
    file.write_text("\n".join(lines) + "\n", "utf-8")
