"""Which elements of PSUM a matmul wrote: what ``nc_matmul(accumulate=...)`` goes by.

``accumulate=None`` overwrites where no matmul wrote since the tensor was made, or since another
instruction wrote there, and adds elsewhere; True and False say it outright (stub of
``nisa.nc_matmul``, v2.32.0, "Accumulation mode"). Adding where no matmul wrote is undefined.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.descriptor import taped
from difftest.simulator.dtypes import BOOL
from difftest.simulator.errors import kernel_location, warn
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.frontend.misuses import SUM_WITHOUT_START
from difftest.simulator.tile import Tile


class AccumulationWarning(UserWarning):
    """A matmul adds to what another instruction wrote, which is undefined on trn1 and trn2."""


def resolve(dst: Tile, accumulate: Any) -> bool | None:
    """Whether a matmul adds to ``dst``; None where it adds to some of its elements only."""
    oracle = current().oracle
    if oracle is not None:
        oracle.asked = accumulate
    if accumulate is not None and not isinstance(accumulate, (bool, np.bool_)):
        takes, got = "accumulate as True, False or None", f"accumulate={accumulate!r:.40}"
        raise not_taken("nc_matmul", takes, got, f"accumulate={accumulate!r:.60}")
    if accumulate is not None and not accumulate:
        return False
    products = dst._storage.products
    if products is None:
        if accumulate:
            _check_start(dst)
        return bool(accumulate)
    started = dst._gather(products)
    if started.all():
        return True
    if accumulate:
        _check_start(dst)
        return True
    return None if started.any() else False


def _check_start(dst: Tile) -> None:
    """Say what is wrong with adding where no matmul wrote."""
    if dst._fresh() is not None:
        raise SUM_WITHOUT_START(f"{dst!r}, of which elements were never written")
    if current().machine.nc_version < 4:
        warn(
            AccumulationWarning(
                f"nc_matmul adds to {dst!r}, which another instruction wrote: that is undefined "
                f"on NeuronCore-v2 and v3 ({kernel_location()}). Use accumulate=False for the "
                "first matmul, or leave accumulate out."
            )
        )


@taped("mark")
def mark(dst: Tile, accumulate: bool | None) -> None:
    """Note that a matmul wrote ``dst``, and whether the kernel said how."""
    if accumulate is None:
        core = current()
        core.amend(1, inferred=True)
    storage = dst._storage
    if storage.products is None:
        storage.products = np.zeros(storage.size, BOOL)
    dst._scatter(storage.products, True)
