"""The outcomes of a verdict, and the stages that a kernel passes."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """The outcome of a verdict, and the exit code of the command.

    As in every command, the exit code 2 reports a mistake in the command line.
    """

    exit_code: int

    def __new__(cls, word: str, exit_code: int) -> Outcome:
        member = object.__new__(cls)
        member._value_ = word
        member.exit_code = exit_code
        return member

    AGREES = "agrees", 0
    """Each case agrees with the reference, and no hazard is found."""
    OUTSIDE_LANGUAGE = "outside_language", 9
    """It reached something that a candidate's world does not have."""
    WRONG_ALGORITHM = "wrong_algorithm", 1
    """It computes other values than the reference, even in exact arithmetic."""
    COARSE_ARITHMETIC = "coarse_arithmetic", 1
    """It computes the right function, but loses more digits than its instructions require."""
    REFUSED = "refused", 3
    """The machine or the compiler rejects it in a case that the contract includes."""
    REFUSES_PROMISED = "refuses_promised", 3
    """Its own assertion rejects a case that the contract includes."""
    NOT_REFUSED = "not_refused", 3
    """It accepts a case that the contract requires it to reject, or crashes in that case."""
    HAZARD = "hazard", 4
    """It agrees on the simulator, but can be wrong on a device."""
    CHEATS = "cheats", 5
    """Its outputs do not come from its instructions and the data of the case."""
    CRASHED = "crashed", 6
    """Its Python raised an error, or its process crashed."""
    TIMEOUT = "timeout", 6
    """It exceeded its time limit."""
    OUT_OF_MEMORY = "out_of_memory", 6
    """It exceeded its memory limit."""
    OWN_CONSTANTS = "own_constants", 7
    """It agrees, but the test reads constants from its file that the original file lacks."""
    IMPORTS_CANDIDATE = "imports_candidate", 7
    """It agrees, but it imports the file of another candidate of its batch."""
    INCONCLUSIVE = "inconclusive", 7
    """The simulator or the reference cannot run a case, so neither result is proven."""
    WEAK_SPEC = "weak_spec", 7
    """No case failed, but no case had an element that decides, so the test proves nothing."""


class Stage(Enum):
    """The stages that a kernel passes, in order."""

    IMPORT = "import"
    LINT = "lint"
    TRACE = "trace"
    RUN = "run"
    COMPARE = "compare"
    HAZARDS = "hazards"
    TIME = "time"
