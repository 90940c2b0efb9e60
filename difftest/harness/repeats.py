"""Drawn cases that were drawn before: another one is drawn in their place."""

from __future__ import annotations

from hypothesis.control import current_build_context
from hypothesis.errors import UnsatisfiedAssumption

from difftest.harness.case import Case
from difftest.harness.spec import KernelSpec

_IN_A_ROW = 50
"""How many repeats are replaced, one after the other. A domain of few cases has no others."""
_IN_A_ROW_AT_FIRST, _FIRST = 4, 10
"""As many before the tenth case: Hypothesis's health check fails on 50 replaced before it."""


def choices_made() -> str:
    """What Hypothesis chose for the case that runs: other choices may make the same case."""
    return repr(current_build_context().data.choices)


class Repeats:
    """The drawn cases of a test that agreed.

    Hypothesis knows what it has drawn by its own choices, and many choices make the same case. It
    is told of a case that agreed before that it is not valid, and draws another. A case that failed
    is never a repeat, so that shrinking and replaying meet it again. Shrinking also makes choices
    that agreed or were replaced once more, and calls the test flaky if it hears something else of
    them then: so it hears the same.
    """

    def __init__(self) -> None:
        self._agreed: set[tuple[int, str]] = set()
        self._replaced: dict[str, bool] = {}
        self._in_a_row = 0

    def is_one(self, spec: KernelSpec, case: Case, choices: str) -> bool:
        """Whether the case agreed before, and there is no other to draw: it need not run again.

        Raises
        ------
        UnsatisfiedAssumption : it agreed before, and another is to be drawn.
        """
        if (id(spec), repr(case)) not in self._agreed:
            self._in_a_row = 0
            return False
        if choices not in self._replaced:
            self._in_a_row += 1
            most = _IN_A_ROW_AT_FIRST if len(self._agreed) < _FIRST else _IN_A_ROW
            self._replaced[choices] = self._in_a_row <= most
        if self._replaced[choices]:
            raise UnsatisfiedAssumption("the case was drawn before, and agreed")
        self._in_a_row = 0
        return True

    def add(self, spec: KernelSpec, case: Case, choices: str) -> None:
        """Remember a case that agreed."""
        self._agreed.add((id(spec), repr(case)))
        self._replaced[choices] = False
