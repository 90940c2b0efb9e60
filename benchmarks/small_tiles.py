"""Kernels of many instructions on [128, 1], in both dialects: functions of nl, and nisa's."""

import neuronxcc.nki as classic
import neuronxcc.nki.language as cl
import nki
import nki.isa as nisa
import nki.language as nl

COUNT = 1000


@classic.jit
def additions(x):
    """Add a tile to itself by nl.add."""
    out = cl.ndarray(x.shape, dtype=x.dtype, buffer=cl.shared_hbm)
    tile = cl.load(x)
    for _ in range(COUNT):
        total = cl.add(tile, tile)
    cl.store(out, total)
    return out


@classic.jit
def scalings(x):
    """Multiply a tile by a number by nl.multiply, which computes in float32."""
    out = cl.ndarray(x.shape, dtype=x.dtype, buffer=cl.shared_hbm)
    tile = cl.load(x)
    for _ in range(COUNT):
        product = cl.multiply(tile, 3)
    cl.store(out, product)
    return out


@classic.jit
def sums(x):
    """Add the elements of each row by nl.sum."""
    out = cl.ndarray(x.shape, dtype=x.dtype, buffer=cl.shared_hbm)
    tile = cl.load(x)
    for _ in range(COUNT):
        total = cl.sum(tile, axis=1, keepdims=True)
    cl.store(out, total)
    return out


@nki.jit
def todays_additions(x):
    """Add a tile to itself by nl.add, in the current dialect."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for _ in range(COUNT):
        total = nl.add(tile, tile)
    nl.store(out, total)
    return out


@nki.jit
def instructions(x):
    """Add a tile to itself by nisa.tensor_tensor, into one tile."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    for _ in range(COUNT):
        nisa.tensor_tensor(total, tile, tile, nl.add)
    nl.store(out, total)
    return out
