"""What can come of a kernel, how far it got, and the exit code of each outcome."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """The one word at the top of a verdict."""

    AGREES = "agrees"
    """Each case agrees with the reference, and nothing is wrong on a device."""
    OUTSIDE_LANGUAGE = "outside_language"
    """Its files are not written in what a candidate may be written in; nothing of it ran."""
    WRONG_ALGORITHM = "wrong_algorithm"
    """It computes something else, without rounding too."""
    COARSE_ARITHMETIC = "coarse_arithmetic"
    """It computes the right thing, and loses more digits than its instructions must."""
    REFUSED = "refused"
    """The machine or the compiler refuses what it does in a case that the contract has."""
    REFUSES_PROMISED = "refuses_promised"
    """It refuses a case that the contract has, by an assertion of its own."""
    NOT_REFUSED = "not_refused"
    """It computes what the contract says that it has to refuse, or breaks down there."""
    HAZARD = "hazard"
    """It agrees here, and can be wrong on a device."""
    CHEATS = "cheats"
    """What it gives back does not come from its instructions and the data of the case."""
    CRASHED = "crashed"
    """Its Python, or the process that runs it, broke down."""
    TIMEOUT = "timeout"
    """It did not come to an end in the time that it was given."""
    OUT_OF_MEMORY = "out_of_memory"
    """It took more memory than it was given."""
    OWN_CONSTANTS = "own_constants"
    """It agrees, and the test reads constants of its file that no original has."""
    INCONCLUSIVE = "inconclusive"
    """It can be told neither way: the simulator or the reference cannot run a case."""
    WEAK_SPEC = "weak_spec"
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


EXIT_CODES = {
    Outcome.OUTSIDE_LANGUAGE: 9,
    Outcome.AGREES: 0,
    Outcome.WRONG_ALGORITHM: 1,
    Outcome.COARSE_ARITHMETIC: 1,
    Outcome.REFUSED: 3,
    Outcome.REFUSES_PROMISED: 3,
    Outcome.NOT_REFUSED: 3,
    Outcome.HAZARD: 4,
    Outcome.CHEATS: 5,
    Outcome.CRASHED: 6,
    Outcome.TIMEOUT: 6,
    Outcome.OUT_OF_MEMORY: 6,
    Outcome.OWN_CONSTANTS: 7,
    Outcome.INCONCLUSIVE: 7,
    Outcome.WEAK_SPEC: 7,
}
"""2 is a mistake in the command line, as of every command."""
