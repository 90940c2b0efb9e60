"""Kernels of the current dialect that update their arguments: sums, caches, states, optimizers."""

import nki
import nki.isa as nisa
import nki.language as nl


def loaded(array):
    """Return an array in SBUF."""
    tile = nl.ndarray(array.shape, dtype=array.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=array)
    return tile


@nki.jit
def running_sum(total, x):
    """Add x to total."""
    rows = x.shape[0]
    for first in range(0, rows, 8):
        old = loaded(total[first : first + 8, :])
        more = loaded(x[first : first + 8, :])
        nisa.tensor_tensor(dst=old, data1=old, data2=more, op=nl.add)
        nisa.dma_copy(dst=total[first : first + 8, :], src=old)


@nki.jit
def cache_update(cache, new, position):
    """Write the rows of new into cache from position on, and return cache."""
    count = new.shape[0]
    tile = loaded(new)
    nisa.dma_copy(dst=cache[position : position + count, :], src=tile)
    return cache


@nki.jit
def recurrence(state, x):
    """Set state to state / 2 + x, and return twice the new state."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    updated = loaded(state)
    more = loaded(x)
    nisa.tensor_scalar(dst=updated, data=updated, op0=nl.multiply, operand0=0.5)
    nisa.tensor_tensor(dst=updated, data1=updated, data2=more, op=nl.add)
    nisa.dma_copy(dst=state, src=updated)
    nisa.tensor_scalar(dst=more, data=updated, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=y, src=more)
    return y


@nki.jit
def momentum_step(param, grad, velocity, rate):
    """Set velocity to 0.75 * velocity + grad, and param to param - rate * velocity."""
    updated = loaded(velocity)
    more = loaded(grad)
    old = loaded(param)
    nisa.tensor_scalar(dst=updated, data=updated, op0=nl.multiply, operand0=0.75)
    nisa.tensor_tensor(dst=updated, data1=updated, data2=more, op=nl.add)
    nisa.dma_copy(dst=velocity, src=updated)
    nisa.tensor_scalar(dst=more, data=updated, op0=nl.multiply, operand0=rate)
    nisa.tensor_tensor(dst=old, data1=old, data2=more, op=nl.subtract)
    nisa.dma_copy(dst=param, src=old)


@nki.jit
def scatter(cache, new, rows):
    """Write row i of new to row rows[i] of cache."""
    count, width = new.shape
    at = loaded(rows)
    tile = loaded(new)
    place = cache.ap([[width, count], [1, width]], vector_offset=at, indirect_dim=0)
    nisa.dma_copy(dst=place, src=tile)


@nki.jit
def grid_sum(total, x):
    """Add x to total, each program 8 rows."""
    first = nl.program_id(0) * 8
    old = loaded(total[first : first + 8, :])
    more = loaded(x[first : first + 8, :])
    nisa.tensor_tensor(dst=old, data1=old, data2=more, op=nl.add)
    nisa.dma_copy(dst=total[first : first + 8, :], src=old)
