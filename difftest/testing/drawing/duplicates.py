"""Replace cases that were drawn before by new ones."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis.control import current_build_context
from hypothesis.errors import UnsatisfiedAssumption

from difftest.testing.contract.case import Case
from difftest.testing.contract.sources import EDGES, RANGE
from difftest.testing.contract.spec import KernelSpec

_IN_A_ROW = (
    4  # repeats that are replaced, one after the other: a small domain has no others
)
_TRIES = 8  # sizes that are looked at for one that is new


class PassedCases:
    """The drawn cases of a test that agreed.

    Many choices of Hypothesis make one case. It is told of one that agreed before that it is not
    valid, and draws another; and of the same choices the same again, for it plays them once more
    while it shrinks. Once a case has failed nothing is replaced, and it is never a repeat.
    """

    def __init__(self) -> None:
        self._agreed = set[int]()
        self._replaced = dict[int, bool]()
        self._in_a_row = 0
        self.has_failed = False
        self.over: tuple[Case, BaseException] | None = None
        """The case whose time was over, and its failure: each smaller one would take as long."""

    def is_duplicate(self, spec: KernelSpec, case: Case) -> bool:
        """Return whether the case agreed before and was not replaced: it need not run again.

        Raises
        ------
        UnsatisfiedAssumption : it agreed before, and another is to be drawn.
        """
        if self.over is not None:
            last, error = self.over
            is_it = repr(case) == repr(last)
            raise error if is_it else UnsatisfiedAssumption("not made smaller")
        choices = hash(repr(current_build_context().data.choices))
        agreed = _mark(spec, case) in self._agreed
        if choices not in self._replaced:
            self._in_a_row = self._in_a_row + 1 if agreed else 0
            self._replaced[choices] = (
                0 < self._in_a_row <= _IN_A_ROW and not self.has_failed
            )
        if self._replaced[choices]:
            raise UnsatisfiedAssumption("the case was drawn before, and agreed")
        return agreed

    def add(self, spec: KernelSpec, case: Case) -> None:
        self._agreed.add(_mark(spec, case))

    @property
    def is_last(self) -> bool:
        """True if the failing case is the result of Hypothesis's shrinking, not an explicit one."""
        context = current_build_context()
        is_drawn = len(context.data.choices) > 0
        return self.over is None and context.is_final and is_drawn


def _mark(spec: KernelSpec, case: Case) -> int:
    """Of 64 bits: no two cases of a test share one, and a night's cases have room."""
    return hash((spec, repr(case)))


def begin_case(data: Any) -> bool | None:
    """Whether Hypothesis is free in all that it chooses for a case but the first choice.

    Else it plays choices again, as to shrink; None where it adds the plainest to a first choice.
    No two draws have one label: it would copy one to another in four cases of five.
    """
    begin, labels = getattr(data, "start_span", None), itertools.count()
    if begin is not None:
        data.start_span = lambda label: begin(next(labels))
    choices = tuple(getattr(data, "prefix", None) or ())
    if len(choices) == 2 and not isinstance(choices[1], int):
        return None
    return len(choices) <= 1 and all(isinstance(choice, int) for choice in choices)


def choose(source: Any, wanted: int) -> None:
    """Let Hypothesis choose this next of a strategy of sizes, or of a sequence, of its own accord.

    Of a strategy the size next to it; nothing of what is neither, or has it not.
    """
    data: Any = current_build_context().data
    if len(values := getattr(source, RANGE, range(0))) > 1:
        data.prefix = (0, min(max(values[0], wanted), values[-1]) // values.step)
        data.index = 0
    elif isinstance(source, Sequence) and wanted in source:
        data.prefix = (source.index(wanted),)
        data.index = 0


def draw_points() -> Counter[int]:
    """How often the run of a test was where: each run has random numbers of its own."""
    run = getattr(current_build_context().data, "_random", None)
    points: Counter[int] = getattr(run, "__dict__", {}).setdefault(
        "difftest_points", Counter()
    )
    return points


def new_size(
    source: Any, size: int | None, is_new: Callable[[int], bool]
) -> int | None:
    """The size, or another one that is new: of a strategy of sizes, every second an edge."""
    chance: Any = getattr(current_build_context().data, "_random", None)
    own = getattr(source, RANGE, ()), getattr(source, EDGES, ())
    tries = range(_TRIES if chance and all(own) else 0)
    sizes = (
        [size] * (size is not None),
        (chance.choice(chance.choice(own)) for _ in tries),
    )
    return next(filter(is_new, itertools.chain(*sizes)), size)
