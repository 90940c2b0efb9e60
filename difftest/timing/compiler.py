"""What the compiler is taken to do to a kernel: inferred from measured kernels, documented nowhere.

Three of them: the one that a prediction is made with, and two that bound it. A kernel whose three
predictions agree does not depend on what is unknown here. From what each is inferred is in
docs/explanation/compiler.md.
"""

from __future__ import annotations

import itertools
from enum import Enum
from typing import NamedTuple

from difftest.simulator.trace import Trace
from difftest.timing.descriptors import Toolchain


class RepeatRule(Enum):
    """Which instructions, of those that only do again what was done, are left out."""

    KEPT = "kept"
    INVARIANT = "invariant"
    """Those in a loop, of what was there before the innermost loop of several turns around them."""
    OLDER = "older"
    """The same on trn1 alone, whose published kernels went through the whole compiler."""
    REMOVED = "removed"


QUESTIONS = {
    "renames": "does a tile that is filled again get another place",
    "by_tensor": "do users of one tensor wait for each other",
    "expected": "how much of each latency does it expect when it orders",
    "repeated_copies": "which repeated copies does it leave out",
    "repeated_transposes": "which repeated transposes does it leave out",
    "repeated_loads": "which repeated loads does it leave out",
    "merged_loads": "does it trigger loads into one tile as one",
    "toolchain": "who makes the descriptors of DMAs",
    "one_table": "are all activation functions in one table",
}
"""What each field of a compiler answers; docs/explanation/compiler.md says more of each."""


def answer(value: bool | float | RepeatRule | Toolchain | None) -> str:
    """What a compiler's field says to its question."""
    if isinstance(value, Toolchain):
        return value.words
    if isinstance(value, RepeatRule):
        parts = {RepeatRule.KEPT: "none", RepeatRule.REMOVED: "all"}
        return parts.get(value, "what no loop changes")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "all" if value is None else f"{value:.0%}"


class Compiler(NamedTuple):
    """How a kernel is compiled: the answers to ``QUESTIONS``."""

    renames: bool
    by_tensor: bool
    expected: float | None
    """None: it knows when each will be ready (:mod:`difftest.timing.schedule`)."""
    repeated_copies: RepeatRule
    repeated_transposes: RepeatRule
    repeated_loads: RepeatRule
    merged_loads: bool
    toolchain: Toolchain | None
    """None: the one that the prediction is asked for."""
    one_table: bool


LIKELY = Compiler(
    renames=True,
    by_tensor=True,
    expected=1.0,
    repeated_copies=RepeatRule.INVARIANT,
    repeated_transposes=RepeatRule.OLDER,
    repeated_loads=RepeatRule.KEPT,
    merged_loads=False,
    toolchain=None,
    one_table=False,
)
"""What predictions are made with."""
FASTEST = LIKELY._replace(
    by_tensor=False,
    expected=None,
    repeated_copies=RepeatRule.REMOVED,
    repeated_transposes=RepeatRule.INVARIANT,
    repeated_loads=RepeatRule.REMOVED,
    merged_loads=True,
    toolchain=Toolchain.CLASSIC_PROFILE,
    one_table=True,
)
SLOWEST = LIKELY._replace(
    renames=False,
    expected=0.5,
    repeated_copies=RepeatRule.KEPT,
    repeated_transposes=RepeatRule.KEPT,
    toolchain=Toolchain.CLASSIC_BENCHMARK,
)


def cores_of(trace: Trace) -> dict[tuple[int, ...], int]:
    """Instance of the grid -> the physical core that runs it, where the launch says so.

    Each of today's dialect has a core of its own; those of a classic grid do that ``nl.nc``
    spreads. All others run one after the other on the first core.
    """
    instances = itertools.product(*map(range, trace.grid))
    return dict(zip(instances, trace.cores, strict=True)) if trace.cores else {}
