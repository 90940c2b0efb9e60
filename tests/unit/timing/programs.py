"""Traces and programs made by hand."""

import numpy as np

from difftest.simulator.machine import TRN2
from difftest.simulator.trace import (
    Allocation,
    Attributes,
    Engine,
    Event,
    EventKind,
    Region,
    Space,
    Trace,
)
from difftest.timing.program import lower
from tests.purposes import purpose_of


class Builder:
    """Makes a trace one instruction at a time."""

    def __init__(self):
        self.trace = Trace()
        self.kinds = {}

    def tensor(self, shape, space=Space.SBUF, dtype="float32", name=""):
        allocation = Allocation(
            len(self.trace.allocations), space, shape, np.dtype(dtype), 0, None, name
        )
        self.trace.allocations.append(allocation)
        return allocation

    def hbm(self, shape, dtype="float32", name="x"):
        return self.tensor(shape, Space.SHARED_HBM, dtype, name)

    def psum(self, shape, dtype="float32"):
        return self.tensor(shape, Space.PSUM, dtype)

    def emit(self, opcode, engine, writes, reads=(), **told):
        number = len(self.trace.events)
        for region in writes:
            region.allocation.writes += 1
        for region in reads:
            region.allocation.reads += 1
        attributes = {
            name: told.pop(name) for name in Attributes._fields if name in told
        }
        kind = EventKind(
            opcode, engine, Attributes(**attributes), told, purpose=purpose_of(opcode)
        )
        # calls of one signature share it
        kind = self.kinds.setdefault(repr(kind), kind)
        self.trace.events.append(Event(number, kind, tuple(writes), tuple(reads)))
        return number

    def dma(self, target, source):
        return self.emit("dma_copy", Engine.DMA, [whole(target)], [whole(source)])

    def load(self, shape, dtype="float32"):
        """A new tile, loaded from a tensor of its own."""
        tile = self.tensor(shape, dtype=dtype)
        self.dma(tile, self.hbm(shape, dtype))
        return tile

    def store(self, tile):
        self.dma(self.hbm(tile.shape, tile.dtype.name, "out"), tile)

    def add(self, one, other):
        """A new tile, one + other, on the vector engine."""
        total = self.tensor(one.shape, dtype=one.dtype.name)
        reads = [whole(one), whole(other)]
        self.emit("tensor_tensor", Engine.VECTOR, [whole(total)], reads, op="add")
        return total

    def matmul(self, target, stationary, moving, accumulate=False):
        reads = [whole(stationary), whole(moving)] + (
            [whole(target)] if accumulate else []
        )
        extra = {"accumulate": True} if accumulate else {}
        return self.emit("nc_matmul", Engine.TENSOR, [whole(target)], reads, **extra)

    def program(self, machine=TRN2):
        return lower(self.trace, machine)


def whole(allocation):
    """The region that is all of a tensor."""
    strides = []
    step = 1
    for size in reversed(allocation.shape):
        strides.append(step)
        step *= size
    return Region(allocation, 0, allocation.shape, tuple(reversed(strides)))
