"""Exact values that are in files are those that are in memory."""

import mmap

import numpy as np

from difftest.simulator import launch
from difftest.simulator.entry.install import embedded
from difftest.support import file_arrays

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl


@nki.jit
def in_two_passes(x):
    """out = exp(x) / 3 in tiles of 16 rows, through a tensor in HBM."""
    middle = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for first in range(0, 64, 16):
        part = slice(first, first + 16)
        nl.store(middle[part, :], nl.exp(nl.load(x[part, :])))
    for first in range(0, 64, 16):
        part = slice(first, first + 16)
        nl.store(out[part, :], nl.load(middle[part, :]) / 3)
    return out


def test_exact_values_in_files_are_those_in_memory(monkeypatch):
    x = np.random.default_rng(0).random((64, 24), np.float32)
    (in_memory,) = launch(in_two_passes, (x,), exact=True).exact.outputs
    monkeypatch.setattr(file_arrays, "LARGE", 1)
    monkeypatch.setattr(file_arrays, "_KEPT", 1)
    (in_file,) = launch(in_two_passes, (x,), exact=True).exact.outputs
    for plane, other in zip(in_memory, in_file, strict=True):
        assert isinstance(other.base.base, mmap.mmap)
        assert plane.tobytes() == other.tobytes()
