"""The purpose of an instruction, by its name, for events that a test constructs."""

from difftest.simulator.instructions import every_record
from difftest.simulator.trace import Purpose

OF_DMA_COPY = {"dma_gather": Purpose.GATHER, "dma_scatter": Purpose.SCATTER}


def purpose_of(opcode):
    """Return the purpose in the record of this name; without a record, computing."""
    record = every_record().get(opcode)
    return record.purpose if record else OF_DMA_COPY.get(opcode, Purpose.COMPUTE)
