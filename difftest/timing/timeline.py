"""When the instructions of a program ran: a column for each thing that is known of one."""

from __future__ import annotations

from difftest.simulator.trace import Engine


class Timeline:
    """Times in ns from the start of the kernel's own part; each list is by instruction.

    :class:`~difftest.timing.schedule.Span` has the same of one instruction.
    """

    __slots__ = (
        "buffer",
        "busy",
        "cold_time",
        "end",
        "engine",
        "finish",
        "held",
        "overtaken",
        "ready",
        "released_by",
        "residence",
        "spilled",
        "start",
        "table_loads",
        "transfer_end",
        "transfer_start",
        "waited_for",
    )

    def __init__(self, count: int) -> None:
        self.engine = [Engine.UNKNOWN] * count
        """Where it ran; for a DMA the engine that triggered it."""
        self.start = [0.0] * count
        self.end = [0.0] * count
        """When its result stands; for a DMA its completion semaphore."""
        self.busy = [0.0] * count
        """How long it kept its engine from the next instruction."""
        self.ready = [0.0] * count
        """When its operands were ready; it may have waited for its engine until ``start``."""
        self.waited_for = [-1] * count
        """The instruction that made it ready; -1 if it could start at once."""
        self.buffer = [False] * count
        """Whether it was a buffer that it waited for."""
        self.transfer_start = [0.0] * count
        """For a DMA: when the DMA engine that ends last begins with it."""
        self.transfer_end = [0.0] * count
        self.released_by = [-1] * count
        """The instruction before it on its engine."""
        self.finish = 0.0
        """The last store's semaphore has been waited for."""
        self.cold_time = 0.0
        """Time that the Tensor Engine streamed at half speed."""
        self.overtaken = 0
        """The most instructions that one of the Tensor Engine has overtaken."""
        self.held = False
        """Whether one of them had to wait because it would have overtaken too many."""
        self.table_loads = 0
        self.spilled = 0
        """Bytes a partition by which the live tensors exceed SBUF: spilling is not modelled."""
        self.residence: dict[int, tuple[float, float]] = {}
        """On-chip allocation -> when its first instruction began and its last one ended."""
