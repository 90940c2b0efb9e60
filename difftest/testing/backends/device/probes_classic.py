"""A kernel whose result is known, for the classic SDK. It runs first in each session."""

import neuronxcc.nki as nki  # type: ignore[import-not-found]
import neuronxcc.nki.language as nl  # type: ignore[import-not-found]


@nki.jit
def add(a, b):  # type: ignore[no-untyped-def]
    """Return the sum."""
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(result, nl.load(a) + nl.load(b))
    return result
