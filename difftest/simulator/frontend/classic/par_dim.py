"""``nl.par_dim``: which dimension of a new tensor runs over the partitions."""

from __future__ import annotations


class ParDim(int):
    """A dimension marked as the partition dimension by ``nl.par_dim``."""

    def __repr__(self) -> str:
        return f"par_dim({int(self)})"
