"""The purposes of instructions: what they do to data, as far as time and hazards depend on it.

It is the one place where an instruction is known by its name. What else there is to know of an
event stands in the event: its engine, its operator, its operands and their roles.
"""

from __future__ import annotations

from enum import Enum

from difftest.simulator.trace import Event


class Purpose(Enum):
    """What instructions do; the value names the opcodes of those that do it."""

    COMPUTE = frozenset[str]()  # any other; before Python 3.11.3 the value of () is object()
    PRODUCT = ("nc_matmul", "nc_matmul_mx")
    TRANSPOSE = ("nc_transpose", "dma_transpose")
    COPY = ("tensor_copy", "dma_copy")  # each element to its place
    GATHER = ("dma_gather",)  # of each index a run, side by side
    SCATTER = ("dma_scatter",)  # runs that lie side by side, to where indices say
    SUM = ("dma_compute",)  # of several sources, on their way
    SEND = ("sendrecv",)  # between cores, which wait for each other
    BARRIER = ("core_barrier",)
    EXCHANGE = ("all_to_all", "all_to_all_v")  # each rank writes to the others' buffers
    COMBINE = ("tensor_tensor", "scalar_tensor_tensor")  # two tiles, element by element
    SCALE = ("tensor_scalar",)  # by numbers, or one for each partition
    FUNCTION = ("activation",)  # the engine must have its table
    FILL = ("memset", "affine_select")  # a constant, everywhere or where a condition fails
    SELECT = ("range_select",)  # the same, of a constant that the kernel cannot choose
    PICK = ("tensor_copy_predicated", "select_reduce")  # one of two values, as a tile says
    BITS = ("rng",)  # random ones, which are no numbers yet
    DRAW = ("rand", "rand2", "dropout")
    REGISTER = ("register_load", "register_store", "scalar_load", "scalar_store")

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python


PURPOSES = {opcode: purpose for purpose in Purpose for opcode in purpose.value}


def purpose(event: Event) -> Purpose:
    """What the instruction of an event does."""
    return PURPOSES.get(event.kind.opcode, Purpose.COMPUTE)


def clears(event: Event) -> bool:
    """Whether it writes zeros, and nothing else."""
    return purpose(event) is Purpose.FILL and event.arguments.get("value") == 0
