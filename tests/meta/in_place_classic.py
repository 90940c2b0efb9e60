"""Kernels of the classic dialect that update their arguments; see ``in_place_kernels.py``."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt


@nki.jit
def running_sum(total: nt.mutable_tensor, x):
    """Add x to total."""
    rows = x.shape[0]
    for first in nl.affine_range(rows // 8):
        part = nl.ds(first * 8, 8)
        old = nl.load(total[part, :])
        nl.store(total[part, :], nl.add(old, nl.load(x[part, :])))


@nki.jit
def cache_update(cache: nt.mutable_tensor, new, position):
    """Write the rows of new into cache from position on, and return cache."""
    count = new.shape[0]
    nl.store(cache[position : position + count, :], nl.load(new))
    return cache


@nki.jit
def recurrence(state: nt.mutable_tensor, x):
    """Set state to state / 2 + x, and return twice the new state."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    updated = nl.add(nl.multiply(nl.load(state), 0.5), nl.load(x))
    nl.store(state, updated)
    nl.store(y, nl.multiply(updated, 2.0))
    return y


@nki.jit
def momentum_step(param: nt.mutable_tensor, grad, velocity: nt.mutable_tensor, rate):
    """Set velocity to 0.75 * velocity + grad, and param to param - rate * velocity."""
    updated = nl.add(nl.multiply(nl.load(velocity), 0.75), nl.load(grad))
    nl.store(velocity, updated)
    nl.store(param, nl.subtract(nl.load(param), nl.multiply(updated, rate)))


@nki.jit
def scatter(cache: nt.mutable_tensor, new, rows):
    """Write row i of new to row rows[i] of cache."""
    at = nl.load(rows)
    column = nl.arange(new.shape[1])[None, :]
    place = nl.arange(new.shape[0])[:, None]
    nisa.dma_copy(dst=cache[at[place, 0], column], src=nl.load(new))


@nki.jit
def grid_sum(total: nt.mutable_tensor, x):
    """Add x to total, each program 8 rows."""
    part = nl.ds(nl.program_id(0) * 8, 8)
    old = nl.load(total[part, :])
    nl.store(total[part, :], nl.add(old, nl.load(x[part, :])))
