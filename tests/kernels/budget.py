"""How much the kernels' tests draw and run, by the profile of Hypothesis: see tests/README.md."""

from hypothesis import settings

CASES = settings.default.max_examples
IN_CI = CASES >= 50
"""Whether what takes a second runs: ``ci`` and ``nightly``."""
NIGHTLY = CASES >= 1000
"""Whether what takes minutes runs, and what its neighbours test too."""

large_cases = settings(max_examples=CASES if NIGHTLY else 6 if IN_CI else min(CASES, 10))
"""For a kernel whose drawn cases take a tenth of a second each."""
