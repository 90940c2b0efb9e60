"""The budget of the kernels' tests, by the profile of Hypothesis: see tests/README.md."""

import itertools
import sys

from hypothesis import settings

from difftest import Case, Random

CASES = settings.default.max_examples
IN_CI = CASES >= 50
"""True if tests that take a second run: in ``ci`` and ``nightly``."""
NIGHTLY = CASES >= 1000
"""True if tests run that take minutes, or that repeat their neighbours' checks."""

large_cases = settings(
    max_examples=CASES // 10 if NIGHTLY else 3 if IN_CI else min(CASES, 10)
)
"""For a kernel whose drawn cases take a tenth of a second each."""
middling_cases = settings(max_examples=CASES // 4 if NIGHTLY else min(CASES, 12))
"""For a test whose cases take some hundredths of a second."""


def half(values):
    """Every other one; every night all. The next Python has the others, and the next commit it."""
    return list(values) if NIGHTLY else list(values)[sys.version_info.minor % 2 :: 2]


def in_turn(dtypes, inputs, *examples):
    """Each example in the next dtype; every night in all of them. What is drawn is in any."""
    if NIGHTLY:
        return examples
    data = {name: Random(seed) for seed, name in enumerate(inputs)}
    return [
        Case(*one, data) for one in zip(examples, itertools.cycle(dtypes), strict=False)
    ]
