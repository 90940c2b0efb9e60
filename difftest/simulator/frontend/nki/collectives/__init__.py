"""The module that kernels import as ``nki.collectives`` (usually ``ncc``): ranks and their talk.

The ranks are those of :func:`difftest.simulator.launch_ranks`, each with HBM of its own.
"""

from __future__ import annotations

from typing import NoReturn

from difftest.simulator.errors import missing_name
from difftest.simulator.frontend.nki.collectives.exchange import ReplicaGroup
from difftest.simulator.frontend.nki.collectives.fixed import (
    all_gather,
    all_reduce,
    all_to_all,
    collective_permute,
    rank_id,
    reduce_scatter,
)
from difftest.simulator.frontend.nki.collectives.ring import (
    collective_permute_implicit,
    collective_permute_implicit_current_processing_rank_id,
    collective_permute_implicit_reduce,
)
from difftest.simulator.frontend.nki.collectives.variable import all_gather_v, all_to_all_v
from difftest.simulator.frontend.nki.levels import ending


def __getattr__(name: str) -> NoReturn:
    raise missing_name("nki.collectives", name, __all__, ended=ending(f"ncc.{name}"))


__all__ = [
    "ReplicaGroup",
    "all_gather",
    "all_gather_v",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_current_processing_rank_id",
    "collective_permute_implicit_reduce",
    "rank_id",
    "reduce_scatter",
]
