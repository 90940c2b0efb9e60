"""Kernels whose result is known, for the newer SDK. They run first in each session."""

import nki  # type: ignore[import-not-found]
import nki.language as nl  # type: ignore[import-not-found]


@nki.jit
def add(a, b):  # type: ignore[no-untyped-def]
    """The sum."""
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(result, nl.add(nl.load(a), nl.load(b)))
    return result


@nki.jit
def subtract(a, b):  # type: ignore[no-untyped-def]
    """The difference, which is wrong wherever it is taken for the sum."""
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(result, nl.subtract(nl.load(a), nl.load(b)))
    return result
