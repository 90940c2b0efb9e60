"""``nl.device_print``."""

from __future__ import annotations

from typing import Any

from difftest.simulator.frontend.arguments import no_extras
from difftest.simulator.frontend.classic.masking import no_mask
from difftest.simulator.tile import Tile


def device_print(prefix: str, x: Any, *, mask: object = None, **kwargs: object) -> None:
    """Print a tile's values while the kernel is simulated."""
    no_extras("nl.device_print", kwargs)
    no_mask(mask, "nl.device_print")
    print(prefix, x.values() if isinstance(x, Tile) else x)
