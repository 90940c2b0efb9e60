"""The module that kernels import as ``nki.collectives`` (usually ``ncc``): communicating ranks.

The ranks are those of :func:`difftest.simulator.launch_ranks`, each with HBM of its own. Signatures
have no body. Their arguments go to the options of a record
(:mod:`difftest.simulator.instructions.exchanges`), and their tensors to its uses.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from difftest.simulator.core import current
from difftest.simulator.errors import missing_name
from difftest.simulator.frontend.dispatch import declare
from difftest.simulator.frontend.levels import API, ending, public
from difftest.simulator.frontend.nki.calls import call
from difftest.simulator.frontend.nki.constants import NKIObject
from difftest.simulator.frontend.nki.isa.moves import check_priority
from difftest.simulator.frontend.nki.virtual_registers import (
    DeviceValue,
    VirtualRegister,
)
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions import effects
from difftest.simulator.instructions.checks import need_tile, wrong_kind
from difftest.simulator.instructions.exchanges import rank_of
from difftest.simulator.instructions.record import HBM, Instruction

MOST_CHANNELS = 4
"""The limit for a replica group with all devices of a node; other groups have 2."""


class ReplicaGroup(NKIObject):
    """Groups of ranks that communicate: lists of ranks that do not overlap."""

    __slots__ = ("groups",)

    def __init__(self, groups: Sequence[Sequence[int]]) -> None:
        self.groups = tuple(as_integers(group, "a ReplicaGroup of") for group in groups)
        ranks = [rank for group in self.groups for rank in group]
        if len(set(ranks)) < len(ranks):
            raise wrong_kind(groups, "groups that do not overlap", "ReplicaGroup")

    def __repr__(self) -> str:
        return f"ReplicaGroup({[list(group) for group in self.groups]})"


# -- arguments ------------------------------------------------------------------------------------


def _members(group: Any, where: str) -> tuple[int, ...]:
    """Return the ranks of the group that contains the running one."""
    rank = current().seat.rank
    if not isinstance(group, ReplicaGroup) or rank is None:
        raise wrong_kind(group, "an ncc.ReplicaGroup", where, "replica_group")
    members = next((m for m in group.groups if rank.number in m), ())
    if not members:
        raise wrong_kind(
            group, f"groups of which one has rank {rank.number}", where, "replica_group"
        )
    return members


def _pairs(value: Any, where: str) -> tuple[tuple[int, ...], ...]:
    """Return pairs of a source and a target."""
    if not isinstance(value, (list, tuple)):
        raise wrong_kind(value, "a list of pairs", where, "source_target_pairs")
    pairs = tuple(as_integers(pair, f"{where} with a pair of") for pair in value)
    sides = ({pair[0] for pair in pairs}, {pair[-1] for pair in pairs})
    if any(len(side) < len(pairs) for side in sides) or any(
        len(pair) != 2 for pair in pairs
    ):
        raise wrong_kind(
            value,
            "pairs (source, target), each rank once as either",
            where,
            "source_target_pairs",
        )
    return pairs


_OF_ONE = ("collective_permute", "all_gather_v", "all_to_all_v")
"""Collectives whose lists contain one tensor."""


def _tensors(role: str, tensors: Any, where: str) -> list[Any]:
    """Return the tensors of one side; each channel has one tensor."""
    by_channel = role.endswith("_by_channel")
    takes = "a list of tensors"
    right = isinstance(tensors, (list, tuple)) and bool(tensors)
    if by_channel:
        takes = "a list of channels, each a list of one tensor"
        right = right and all(map(_is_channel, tensors))
    if not right:
        raise wrong_kind(tensors, takes, where, role)
    if len(tensors) > 1 and where in _OF_ONE:
        raise wrong_kind(tensors, "one tensor", where, role)
    if by_channel:
        return [channel[0] for channel in tensors]
    return list(tensors)


def _is_channel(channel: Any) -> bool:
    """Return whether a value is a list of one item."""
    return isinstance(channel, (list, tuple)) and len(channel) == 1


# -- calls -----------------------------------------------------------------------------------------


def _collective(
    record: Instruction, **settings: Any
) -> Callable[[Callable[..., None]], Any]:
    """Make a call of a collective from a signature; its lists of tensors are the record's roles."""

    def make(signature: Callable[..., None]) -> Any:
        names = inspect.signature(signature).parameters
        sides = [name for name in names if name.startswith(("srcs", "dsts"))]
        roles = [role.name for role in record.operands + record.destinations]
        roles = [role for role in roles if role != "metadata_tensor"]
        prepare = functools.partial(_prepare, dict(zip(roles, sides, strict=True)))
        fields = {**dict.fromkeys(roles), **settings}
        return call(record, prepare=prepare, run=_exchange, **fields)(signature)

    return make


def _prepare(sides: Mapping[str, str], values: dict[str, Any], where: str) -> None:
    """Set a collective's roles from its lists of tensors; ``sides`` has each role's parameter."""
    rank_of(where)
    check_priority(values["priority"], where)
    for role, side in sides.items():
        values[role] = _tensors(side, values[side], where)
    if "metadata_tensor" in values:
        values["metadata_tensor"] = [values["metadata_tensor"]]
    if "source_target_pairs" in values:
        pairs = _pairs(values["source_target_pairs"], where)
        values["replica_group"] = tuple(sorted(set(chain(*pairs))))


def _exchange(
    record: Instruction, dsts: Any, operands: Any, options: Any, **_: Any
) -> Any:
    """Run a collective; each tensor of a list is a use."""
    where = record.name
    channels = dict(zip(record.options, options, strict=True))
    if any(len(side) != len(dsts) for side in operands):
        raise wrong_kind(dsts, "a list of as many as srcs", where, "dsts")
    ids = channels.get("channel_ids")
    # a channel has one tensor, so nothing is coalesced
    if len(dsts) > 1 and ids is None:
        for dst in dsts:
            need_tile(dst, "several dsts", where, HBM)
    if ids is not None and (ids != tuple(range(len(dsts))) or len(ids) > MOST_CHANNELS):
        raise wrong_kind(
            ids,
            f"consecutive integers from 0, one for each of up to {MOST_CHANNELS} channels",
            where,
            "channel_ids",
        )
    uses = [(srcs, (dst,)) for *srcs, dst in zip(*operands, dsts, strict=True)]
    effects.issue_effect(record, uses, options)


# fmt: off
class CollectiveCalls:
    """The signatures of collectives. Each tensor of a list is a use."""

    def all_reduce(srcs, dsts, replica_group, op, priority=None, name=None): ...
    def all_gather(srcs, dsts, replica_group, collective_dim, priority=None, name=None): ...
    def reduce_scatter(srcs, dsts, replica_group, collective_dim, op, priority=None, name=None): ...
    def all_to_all(srcs, dsts, replica_group, collective_dim, priority=None, name=None): ...
    def collective_permute(srcs, dsts, source_target_pairs, priority=None, name=None): ...
    def collective_permute_implicit(srcs_by_channel, dsts_by_channel, replica_group,
                                    channel_ids=(0,), priority=None, name=None): ...
    def collective_permute_implicit_reduce(srcs0_by_channel, srcs1_by_channel, dsts_by_channel,
                                           replica_group, op, channel_ids=(0,), priority=None,
                                           name=None): ...
    def all_gather_v(srcs, dsts, replica_group, metadata_tensor, recv_counts_known=False,
                     has_rdispls=False, priority=None, name=None): ...
    def all_to_all_v(srcs, dsts, replica_group, metadata_tensor, recv_counts_known=False,
                     has_rdispls=False, priority=None, name=None): ...
# fmt: on


declare(
    CollectiveCalls,
    functools.partial(_collective, replica_group=_members),
    collective_permute={"replica_group": None, "source_target_pairs": _pairs},
)


@public  # by hand: depends on the launch
def rank_id(name=None):
    """Return the running rank, in a register; 0 for a kernel launched alone."""
    rank = current().seat.rank
    return VirtualRegister(0 if rank is None else rank.number, frozen=True)


@public  # by hand: depends on the launch
def collective_permute_implicit_current_processing_rank_id(
    iteration_id, replica_group, channel_id=0, name=None
):
    """Return the rank whose data arrived in a step of the ring; step 0 gives this rank."""
    where = "collective_permute_implicit_current_processing_rank_id"
    rank = rank_of(where)
    members = _members(replica_group, where)
    device = isinstance(iteration_id, DeviceValue)
    step = iteration_id.device_value() if device else as_integer(iteration_id, where)
    if not 0 <= as_integer(channel_id, f"{where} with channel_id") < MOST_CHANNELS:
        raise wrong_kind(
            channel_id,
            f"the number of a channel, 0 to {MOST_CHANNELS - 1}",
            where,
            "channel_id",
        )
    place = members.index(rank.number)
    return VirtualRegister(members[(place - step) % len(members)], frozen=True)


NAMES = {"ReplicaGroup": ReplicaGroup, **API["ncc"]}
"""All names of ``nki.collectives``."""
globals().update(NAMES)
__all__ = sorted(NAMES)


def __getattr__(name):
    raise missing_name("nki.collectives", name, __all__, ended=ending(f"ncc.{name}"))
