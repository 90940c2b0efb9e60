"""Natures of instructions: what they do to data, as far as time and hazards depend on it.

It is the one place where an instruction is known by its name. What else there is to know of an
event stands in the event: its engine, its operator, its operands and their roles.
"""

from __future__ import annotations

from enum import Enum

from difftest.simulator.trace import Event


class Nature(Enum):
    """What instructions do; the value names the opcodes of those that do it."""

    COMPUTE = ()
    """Any other."""
    PRODUCT = ("nc_matmul", "nc_matmul_mx")
    TRANSPOSE = ("nc_transpose", "dma_transpose")
    COPY = ("tensor_copy", "dma_copy")
    """Each element of the source goes to its place in the destination."""
    GATHER = ("dma_gather",)
    """Runs of the source that indices name go side by side."""
    SCATTER = ("dma_scatter",)
    """Runs that lie side by side go where indices say."""
    SUM = ("dma_compute",)
    """Several sources are added on their way."""
    SEND = ("sendrecv",)
    """From core to core; both wait for each other."""
    BARRIER = ("core_barrier",)
    """Cores wait for each other."""
    EXCHANGE = ("all_to_all", "all_to_all_v")
    """Each rank puts data into the others' buffers."""
    COMBINE = ("tensor_tensor", "scalar_tensor_tensor")
    """Two tiles, element by element."""
    SCALE = ("tensor_scalar",)
    """A tile with a number or one for each partition."""
    FUNCTION = ("activation",)
    """A function of which the engine must have the table."""
    FILL = ("memset", "affine_select")
    """A constant that the kernel names, everywhere or where a condition does not hold."""
    SELECT = ("range_select",)
    """A constant of its own where a comparison leaves an element out."""
    PICK = ("tensor_copy_predicated", "select_reduce")
    """One of two values, as a tile says."""
    BITS = ("rng",)
    """Random ones, which are no numbers yet."""
    DRAW = ("rand", "rand2", "dropout")
    """Random numbers."""
    REGISTER = ("register_load", "register_store", "scalar_load", "scalar_store")
    """One number goes between a memory and a register."""

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python


_NATURES = {opcode: nature for nature in Nature for opcode in nature.value}


def nature_of(opcode: str) -> Nature:
    """What an instruction does."""
    return _NATURES.get(opcode, Nature.COMPUTE)


def nature(event: Event) -> Nature:
    """What the instruction of an event does."""
    return _NATURES.get(event.kind.opcode, Nature.COMPUTE)


def clears(event: Event) -> bool:
    """Whether it writes zeros, and nothing else."""
    return nature(event) is Nature.FILL and event.arguments.get("value") == 0
