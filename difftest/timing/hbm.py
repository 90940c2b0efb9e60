"""HBM that the two cores of a logical one read and write at the same time.

The DMA engines of one core cannot take all that HBM gives; those of two ask for more than it has.
Its bytes are counted in windows of time: a DMA gets what is left of each window that it runs in,
and what does not fit is moved later.
"""

from __future__ import annotations

from collections import defaultdict

WINDOW = 1000.0
"""Nanoseconds over which HBM's rate is held."""


class SharedHbm:
    """What of HBM's bandwidth is taken, window by window; ``rate`` is all cores', in bytes a ns."""

    def __init__(self, rate: float) -> None:
        self._room = rate * WINDOW
        self._taken: dict[int, float] = defaultdict(float)
        """Number of a window -> bytes."""

    def take(self, begin: float, end: float, count: float) -> float:
        """When ``count`` bytes have been moved that an idle HBM would have moved in this time.

        Parameters
        ----------
        begin, end : when the DMA begins, and when its engines alone would be done; ns.
        """
        if count <= 0 or end <= begin:
            return end
        rate = count / (end - begin)
        now = begin
        while count > 1e-9:
            window = int(now // WINDOW)
            edge = (window + 1) * WINDOW
            wanted = min(rate * (edge - now), count)
            got = max(0.0, min(wanted, self._room - self._taken[window]))
            self._taken[window] += got
            count -= got
            now = now + got / rate if count <= 1e-9 else edge
        return max(now, end)
