"""Collectives whose sizes the kernel knows.

Source: the stubs of ``nki.collectives`` at v2.32.0. Tensors are reduced in the order of their
group, floats in float32; the order on a device is not documented.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.collectives.exchange import (
    REDUCTIONS,
    Exchange,
    check_divides,
    dimension,
    exchange_of,
    present,
    rank_of,
    reduction_of,
    tensors_of,
)
from difftest.simulator.frontend.nki.virtual_registers import VirtualRegister
from difftest.simulator.index import as_integers
from difftest.simulator.instructions.effects import combined


@public
def rank_id(name=None):
    """The rank that runs, in a register; 0 where a kernel is launched alone."""
    rank = current().rank
    return VirtualRegister(0 if rank is None else rank.number, frozen=True)


def _reduced(given, op):
    return reduce(op, given)


def _finish(exchange, make, **options):
    """Write what ``make`` makes of what the members have sent of each tensor."""
    op = REDUCTIONS.get(options.get("op", ""))
    sent = exchange.gather(*options.values())
    exchange.finish([combined(given, make, op) for given in sent], **options)


@public
def all_reduce(srcs, dsts, replica_group, op, priority=None, name=None):
    """Each ``dst`` is the reduction of the group's ``src`` by ``op``: add, minimum or maximum."""
    exchange = exchange_of("all_reduce", srcs, dsts, replica_group, priority)
    operator = reduction_of(op, "all_reduce")
    _finish(exchange, _reduced, op=operator)


@public
def all_gather(srcs, dsts, replica_group, collective_dim, priority=None, name=None):
    """Each ``dst`` is the group's ``src`` side by side along a dimension, in the group's order."""
    exchange = exchange_of("all_gather", srcs, dsts, replica_group, priority)
    on_chip = not exchange.srcs[0].in_hbm
    dim = dimension(collective_dim, "all_gather", (0, 1) if on_chip else (0,))
    _finish(exchange, lambda given, op: np.concatenate(given, axis=dim), collective_dim=dim)


@public
def reduce_scatter(srcs, dsts, replica_group, collective_dim, op, priority=None, name=None):
    """Each ``dst`` is this rank's part of the reduction of the group's ``src``."""
    exchange = exchange_of("reduce_scatter", srcs, dsts, replica_group, priority)
    dim = dimension(collective_dim, "reduce_scatter", (0,))
    operator = reduction_of(op, "reduce_scatter")
    place = exchange.members.index(exchange.rank.number)
    check_divides(exchange, dim)

    def part(given, op):
        return np.split(_reduced(given, op), len(given), axis=dim)[place]

    _finish(exchange, part, collective_dim=dim, op=operator)


@public
def all_to_all(srcs, dsts, replica_group, collective_dim, priority=None, name=None):
    """Each ``dst`` is this rank's part of each of the group's ``src``, side by side."""
    exchange = exchange_of("all_to_all", srcs, dsts, replica_group, priority, hbm_only=True)
    dim = dimension(collective_dim, "all_to_all", (0,))
    place = exchange.members.index(exchange.rank.number)
    check_divides(exchange, dim)

    def parts(given, op):
        return np.concatenate(
            [np.split(one, len(given), axis=dim)[place] for one in given], axis=dim
        )

    _finish(exchange, parts, collective_dim=dim)


@public
def collective_permute(srcs, dsts, source_target_pairs, priority=None, name=None):
    """``dst`` of each pair's target is ``src`` of its source; a rank in no pair does nothing."""
    if not isinstance(source_target_pairs, (list, tuple)):
        raise KernelError(
            "collective_permute takes source_target_pairs as a list of pairs",
            happened="collective_permute got source_target_pairs that are no list",
            received=f"source_target_pairs={source_target_pairs!r:.80}",
        )
    pairs = tuple(
        as_integers(pair, "collective_permute with a pair of") for pair in source_target_pairs
    )
    sources, targets = [pair[0] for pair in pairs], [pair[-1] for pair in pairs]
    twice = len(set(sources)) < len(sources) or len(set(targets)) < len(targets)
    if twice or any(len(pair) != 2 for pair in pairs):
        raise KernelError(
            "collective_permute takes pairs (source, target), each rank once as either",
            happened="collective_permute got a rank twice, or what is no pair",
            received=f"source_target_pairs={source_target_pairs!r:.80}",
        )
    rank = rank_of("collective_permute")
    members = present(tuple(sorted({*sources, *targets})), rank, "collective_permute")
    given = tensors_of(srcs, dsts, "collective_permute", priority, hbm_only=True)
    if len(given[0]) != 1:
        raise KernelError(
            "collective_permute takes one tensor",
            happened=f"collective_permute got {len(given[0])} tensors",
            received=f"{len(given[0])} tensors in srcs",
        )
    if rank.number not in members:
        return
    exchange = Exchange("collective_permute", rank, members, *given)
    ((*values,),) = exchange.gather(pairs)
    if rank.number in targets:
        source = sources[targets.index(rank.number)]
        chosen = values[members.index(source)]
        exchange.finish([chosen], source_target_pairs=pairs)
