"""The module that kernels import as ``nki.collectives`` (usually ``ncc``): ranks and their talk.

The ranks are those of :func:`difftest.simulator.launch_ranks`, each with HBM of its own.
"""

from __future__ import annotations

import sys

from difftest.simulator.errors import missing_name
from difftest.simulator.frontend.nki.binding import api_of
from difftest.simulator.frontend.nki.collectives.exchange import ReplicaGroup
from difftest.simulator.frontend.nki.levels import ending

NAMES = {"ReplicaGroup": ReplicaGroup, **api_of(sys.modules[__name__], "ncc")}
"""All that kernels find in ``nki.collectives``."""
globals().update(NAMES)
__all__ = sorted(NAMES)


def __getattr__(name):
    raise missing_name("nki.collectives", name, __all__, ended=ending(f"ncc.{name}"))
