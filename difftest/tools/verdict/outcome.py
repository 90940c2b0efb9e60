"""What can come of a kernel, how far it got."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """The one word at the top of a verdict, and the exit code of the command.

    2 is a mistake in the command line, as of every command.
    """

    exit_code: int

    def __new__(cls, word: str, exit_code: int) -> Outcome:
        member = object.__new__(cls)
        member._value_ = word
        member.exit_code = exit_code
        return member

    AGREES = "agrees", 0
    """Each case agrees with the reference, and nothing is wrong on a device."""
    OUTSIDE_LANGUAGE = "outside_language", 9
    """Its files are not written in what a candidate may be written in; nothing of it ran."""
    WRONG_ALGORITHM = "wrong_algorithm", 1
    """It computes something else, without rounding too."""
    COARSE_ARITHMETIC = "coarse_arithmetic", 1
    """It computes the right thing, and loses more digits than its instructions must."""
    REFUSED = "refused", 3
    """The machine or the compiler refuses what it does in a case that the contract has."""
    REFUSES_PROMISED = "refuses_promised", 3
    """It refuses a case that the contract has, by an assertion of its own."""
    NOT_REFUSED = "not_refused", 3
    """It computes what the contract says that it has to refuse, or breaks down there."""
    HAZARD = "hazard", 4
    """It agrees here, and can be wrong on a device."""
    CHEATS = "cheats", 5
    """What it gives back does not come from its instructions and the data of the case."""
    CRASHED = "crashed", 6
    """Its Python, or the process that runs it, broke down."""
    TIMEOUT = "timeout", 6
    """It did not come to an end in the time that it was given."""
    OUT_OF_MEMORY = "out_of_memory", 6
    """It took more memory than it was given."""
    OWN_CONSTANTS = "own_constants", 7
    """It agrees, and the test reads constants of its file that no original has."""
    INCONCLUSIVE = "inconclusive", 7
    """It can be told neither way: the simulator or the reference cannot run a case."""
    WEAK_SPEC = "weak_spec", 7
    """Nothing was wrong, and no case had an element that decides: the test proves nothing."""


class Stage(Enum):
    """How far a kernel got, in order."""

    IMPORT = "import"
    LINT = "lint"
    TRACE = "trace"
    RUN = "run"
    COMPARE = "compare"
    HAZARDS = "hazards"
    TIME = "time"
