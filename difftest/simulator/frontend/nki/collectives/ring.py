"""Collectives around a ring: each rank sends to its successor and receives from its predecessor.

Which rank follows which, on each channel, the runtime determines; here it is the order of the
group, on all channels. Source: the stubs of ``nki.collectives`` at v2.32.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.collectives.exchange import (
    REDUCTIONS,
    Exchange,
    members_of,
    rank_of,
    reduction_of,
    tensors_of,
)
from difftest.simulator.frontend.nki.virtual_registers import DeviceValue, VirtualRegister
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions.effects import Sent, combined, sent

MOST_CHANNELS = 4
"""Of a replica group with all devices of a node; other groups have 2."""


@public
def collective_permute_implicit(
    srcs_by_channel, dsts_by_channel, replica_group, channel_ids=(0,), priority=None, name=None
):
    """Each channel's ``dst`` is the ``src`` of the rank before this one in the ring."""
    where = "collective_permute_implicit"
    exchange = _ring(where, [srcs_by_channel], dsts_by_channel, replica_group, priority)
    channels = _channels(channel_ids, len(exchange.dsts), where)
    me = f"rank {exchange.rank.number}"
    _pass_on(exchange, [sent(src, me) for src in exchange.srcs], channels)


@public
def collective_permute_implicit_reduce(
    srcs0_by_channel,
    srcs1_by_channel,
    dsts_by_channel,
    replica_group,
    op,
    channel_ids=(0,),
    priority=None,
    name=None,
):
    """Each channel's ``dst`` is ``op(src0, src1)`` of the rank before this one in the ring."""
    where = "collective_permute_implicit_reduce"
    sides = [srcs0_by_channel, srcs1_by_channel]
    exchange = _ring(where, sides, dsts_by_channel, replica_group, priority)
    channels = _channels(channel_ids, len(exchange.dsts), where)
    operator = reduction_of(op, where)
    count = len(exchange.dsts)
    for left, right in zip(exchange.srcs[:count], exchange.srcs[count:], strict=True):
        if left.shape != right.shape:
            raise ShapeError(
                f"{where} takes both sources in one shape",
                happened=f"{where} got sources {list(left.shape)} and {list(right.shape)}",
                received=f"{left!r} and {right!r}",
            )
    held = [sent(src, f"rank {exchange.rank.number}") for src in exchange.srcs]
    pairs = zip(held[:count], held[count:], strict=True)
    given = [combined(pair, lambda two, op: op(*two), REDUCTIONS[operator]) for pair in pairs]
    _pass_on(exchange, given, (*channels, operator))


@public
def collective_permute_implicit_current_processing_rank_id(
    iteration_id, replica_group, channel_id=0, name=None
):
    """The rank whose data came here in a step of the ring, in a register: at 0 this one's own."""
    where = "collective_permute_implicit_current_processing_rank_id"
    rank = rank_of(where)
    members = members_of(replica_group, rank, where)
    device = isinstance(iteration_id, DeviceValue)
    step = iteration_id.device_value() if device else as_integer(iteration_id, where)
    if not 0 <= as_integer(channel_id, f"{where} with channel_id") < MOST_CHANNELS:
        raise KernelError(
            f"{where} takes channel_id as the number of a channel",
            happened=f"{where} got the channel {channel_id}",
            received=f"channel_id={channel_id}",
            limit=f"0 to {MOST_CHANNELS - 1}",
        )
    place = members.index(rank.number)
    return VirtualRegister(members[(place - step) % len(members)], frozen=True)


def _ring(
    where: str, sides: Sequence[Any], dsts_by_channel: Any, group: Any, priority: Any
) -> Exchange:
    """The exchange, with the tensors of all channels, and of each side after the other."""
    rank = rank_of(where)
    members = members_of(group, rank, where)
    dsts = _one_each(dsts_by_channel, "dsts_by_channel", where)
    srcs = []
    for side in sides:
        given = _one_each(side, "srcs_by_channel", where)
        sources, targets = tensors_of(given, dsts, where, priority, hbm_only=False)
        srcs += sources
    return Exchange(where, rank, members, srcs, targets)


def _one_each(given: Any, role: str, where: str) -> list[Any]:
    """The tensors of the channels, of which each has one."""
    channels = given if isinstance(given, (list, tuple)) else ()
    single = [isinstance(one, (list, tuple)) and len(one) == 1 for one in channels]
    if not single or not all(single):
        raise KernelError(
            f"{where} takes {role} as a list of channels, each a list of one tensor",
            happened=f"{where} got {role} that is not a list of lists of one tensor",
            received=f"{role}={given!r:.80}",
        )
    return [one[0] for one in given]


def _channels(value: Any, count: int, where: str) -> tuple[int, ...]:
    ids = as_integers(value, f"{where} with channel_ids")
    if ids != tuple(range(count)) or count > MOST_CHANNELS:
        raise KernelError(
            f"{where} takes channel_ids as consecutive integers from 0, one for each channel",
            happened=f"{where} got the channels {list(ids)} for {count}",
            received=f"channel_ids={list(ids)} for {count} channels",
            limit=f"{MOST_CHANNELS} channels",
        )
    return ids


def _pass_on(exchange: Exchange, given: list[Sent], agreed: tuple[Any, ...]) -> None:
    """Give to the next rank, and write what the one before gave."""
    met = exchange.meet(given, *agreed)
    place = exchange.members.index(exchange.rank.number)
    before = exchange.members[place - 1]
    exchange.finish(met[before])
