"""``nl.device_print``."""
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.frontend.classic.calls import LANGUAGE
from difftest.simulator.frontend.classic.masking import as_mask
from difftest.simulator.tile import Tile


@LANGUAGE.by_hand
def device_print(prefix, x, *, mask=None):
    """Print a tile's values, those that a mask leaves, while the kernel is simulated."""
    chosen = as_mask(mask, x.shape if isinstance(x, Tile) else ())
    if chosen is False:
        return
    if not isinstance(x, Tile):
        print(prefix, x)
    elif chosen is True:
        print(prefix, x.values())
    else:
        masked: Any = np.ma.masked_array  # without types before NumPy 2.3
        print(prefix, masked(x.values(np.asarray(chosen)), ~np.asarray(chosen)))
