"""What the compiler is taken to do to a kernel: inferred from measured kernels, documented nowhere.

Three of them: the one that a prediction is made with, and two that bound it. A kernel whose three
predictions agree does not depend on what is unknown here.

=====================  ===========================================================================
behaviour              from what it is inferred
=====================  ===========================================================================
renames                published convolutions with a tile that each turn fills again take as long
                       as with a tile of each turn (:mod:`difftest.timing.renaming`)
by_tensor              published probes on trn1: slices of one tensor, used in turn, serialise, and
                       separate tensors do not (today's dialect)
expected               TRACE: of 15,797 pairs of neighbours on one engine none started in another
                       order than the code's, and that is not the kernel's. Where each block
                       begins with transposes, their copies and the products that read those,
                       published kernels take twice what they would if the Tensor Engine took
                       whatever is ready; where transposes go through HBM, they do not
repeated_copies        TRACE: of 8,510 copies of one kernel both copy engines ran 5,629 at most; in
                       two others all 7,992 copies of operands ran. Copies of what the loops do not
                       change account for the one. A published kernel repeats 3,996 copies of
                       weights that an outer loop loads: without them it is nearer to its time
repeated_transposes    a published kernel on trn1 has 3,996 transposes of weights that its loops do
                       not change: they alone would take two thirds of its time
repeated_loads         version 2 of AWS's matmul and the course's first kernel take what all their
                       loads do; published kernels that load a few bytes for each product take a
                       half to a sixth
merged_loads           the same
=====================  ===========================================================================
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class RepeatRule(Enum):
    """Which instructions, of those that only do again what was done, are left out."""

    KEPT = "kept"
    INVARIANT = "invariant"
    """Those in a loop, of what was there before the innermost loop of several turns around them."""
    OLDER = "older"
    """The same on trn1 alone, whose published kernels went through the whole compiler."""
    REMOVED = "removed"


class Compiler(NamedTuple):
    """How a kernel is compiled."""

    renames: bool
    """Whether a tile that is filled again gets another place (classic dialect)."""
    by_tensor: bool
    """Whether users of one tensor wait for each other although they touch other elements of it
    (today's dialect)."""
    expected: float | None
    """How much of each latency it counts on when it orders the Tensor Engine's instructions
    (:mod:`difftest.timing.planner`); None: it knows when each will be ready."""
    repeated_copies: RepeatRule
    """Copies of unchanged tiles into tiles of the same form."""
    repeated_transposes: RepeatRule
    """Transposes on the Tensor Engine of what the loops around them do not change."""
    repeated_loads: RepeatRule
    """Loads of an input's bytes that lie in another tile of the same form."""
    merged_loads: bool
    """Whether loads one after the other, into one tile from one tensor, are triggered as one."""


LIKELY = Compiler(
    renames=True,
    by_tensor=True,
    expected=1.0,
    repeated_copies=RepeatRule.INVARIANT,
    repeated_transposes=RepeatRule.OLDER,
    repeated_loads=RepeatRule.KEPT,
    merged_loads=False,
)
"""What predictions are made with."""
FASTEST = Compiler(
    renames=True,
    by_tensor=False,
    expected=None,
    repeated_copies=RepeatRule.REMOVED,
    repeated_transposes=RepeatRule.INVARIANT,
    repeated_loads=RepeatRule.REMOVED,
    merged_loads=True,
)
SLOWEST = Compiler(
    renames=False,
    by_tensor=True,
    expected=0.5,
    repeated_copies=RepeatRule.KEPT,
    repeated_transposes=RepeatRule.KEPT,
    repeated_loads=RepeatRule.KEPT,
    merged_loads=False,
)
