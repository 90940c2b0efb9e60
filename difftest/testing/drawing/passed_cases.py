"""Replace cases that were drawn before by new ones."""

from __future__ import annotations

from hypothesis.errors import UnsatisfiedAssumption

from difftest.testing.contract.case import Case
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.provider import is_final_draw, planned_provider

_IN_A_ROW = 4
"""Cases that are replaced one after the other: a small domain has no others."""


class PassedCases:
    """The drawn cases of a test that agreed.

    Many choices of Hypothesis's make one case. A new case that agreed before is called invalid, so
    that another is drawn. A replayed one is passed over: Hypothesis must see the same again.

    Attributes
    ----------
    has_failed : whether a case has failed. Then nothing is replaced, and a failing case is new.
    over : the case whose time was over, and its failure: each smaller one would take as long.
    """

    def __init__(self) -> None:
        self._agreed = set[int]()
        self._marked: tuple[Case, int] | None = None
        """The last case and its mark, which is needed before and after the case runs."""
        self._in_a_row = 0
        self.has_failed = False
        self.over: tuple[Case, BaseException] | None = None

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
        if self._mark(spec, case) not in self._agreed:
            self._in_a_row = 0
            return False
        self._in_a_row += 1
        is_new = planned_provider() is not None and not self.has_failed
        if is_new and self._in_a_row <= _IN_A_ROW:
            raise UnsatisfiedAssumption("the case was drawn before, and agreed")
        return True

    def add(self, spec: KernelSpec, case: Case) -> None:
        """Add a case that agreed."""
        self._agreed.add(self._mark(spec, case))

    def _mark(self, spec: KernelSpec, case: Case) -> int:
        """Return 64 bits that no two cases of a test share, with room for a night's cases."""
        if self._marked is None or self._marked[0] is not case:
            self._marked = case, hash((spec, repr(case)))
        return self._marked[1]

    @property
    def is_last(self) -> bool:
        """True if the failing case is the result of Hypothesis's shrinking, not an explicit one."""
        return self.over is None and is_final_draw()
