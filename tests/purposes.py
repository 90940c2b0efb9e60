"""What an instruction does to data, by its name: for events that a test makes by hand."""

from difftest.simulator.instructions import every_record
from difftest.simulator.trace import Purpose

OF_DMA_COPY = {"dma_gather": Purpose.GATHER, "dma_scatter": Purpose.SCATTER}


def purpose_of(opcode):
    """That of the record of this name; of a name that none has, it only computes."""
    record = every_record().get(opcode)
    return record.purpose if record else OF_DMA_COPY.get(opcode, Purpose.COMPUTE)
