"""When the instructions of a program ran: a column for each thing that is known of one."""

from __future__ import annotations

from typing import Any

from difftest.simulator.trace import Engine


class Timeline:
    """Times in ns from the start of the kernel's own part; each list is by instruction.

    :class:`~difftest.timing.schedule.Span` says what each is; ``finish`` is when the last store's
    semaphore has been waited for.
    """

    def __init__(self, count: int) -> None:
        self.engine = [Engine.UNKNOWN] * count
        self.start = [0.0] * count
        self.end = [0.0] * count
        self.busy = [0.0] * count
        self.ready = [0.0] * count
        self.waited_for = [-1] * count
        self.buffer = [False] * count
        self.transfer_start = [0.0] * count
        self.transfer_end = [0.0] * count
        self.released_by = [-1] * count
        self.columns: tuple[list[Any], ...] = tuple(vars(self).values())
        """All of these, in this order."""
        self.finish = 0.0
        self.cold_time = 0.0
        """Time that the Tensor Engine streamed at half speed."""
        self.held = False
        """Whether what was ready had to wait for its turn on the Tensor Engine."""
        self.stores_in_software = False
        self.table_loads = 0
        self.spilled = 0
        """Bytes a partition by which the live tensors exceed SBUF: spilling is not modelled."""
        self.last_use: dict[int, tuple[float, int]] = {}
        """On-chip allocation -> when the last instruction that uses it ended, and which that is."""
