"""What the collectives share: groups of ranks, their tensors, and how they meet.

The ranks are those of :func:`difftest.simulator.launch_ranks`, each with HBM of its own. Where a
rank is a logical NeuronCore with two cores, a program meets the programs of its number on the other
ranks: no page says so, but kernels of aws-neuron/nki-library (``allgather_sb2sb_tiled``) gather the
tiles of each core on their own. Source: the stubs of ``nki.collectives`` at v2.32.0.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.core import Rank, current
from difftest.simulator.dtypes import name_of
from difftest.simulator.errors import (
    BufferError,
    DtypeError,
    KernelError,
    ShapeError,
)
from difftest.simulator.frontend.nki.isa.moves import check_priority
from difftest.simulator.frontend.nki.objects import NKIObject
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.effects import Sent, note, sent, take
from difftest.simulator.instructions.operands import need_tile
from difftest.simulator.instructions.record import DMA_SPACES, HBM
from difftest.simulator.instructions.writing import check_destination
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

REDUCTIONS: dict[str, Any] = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}


class ReplicaGroup(NKIObject):
    """Groups of ranks that talk among themselves: lists of ranks, none of them in two."""

    __slots__ = ("groups",)

    def __init__(self, groups: Sequence[Sequence[int]]) -> None:
        self.groups = tuple(as_integers(group, "a ReplicaGroup of") for group in groups)
        ranks = [rank for group in self.groups for rank in group]
        if len(set(ranks)) < len(ranks):
            raise KernelError(
                "the groups of a ReplicaGroup do not overlap",
                happened="a rank is in two groups of a ReplicaGroup",
                received=f"ReplicaGroup({groups!r})",
            )

    def __repr__(self) -> str:
        return f"ReplicaGroup({[list(group) for group in self.groups]})"


class Exchange(NamedTuple):
    """One collective as one rank calls it."""

    name: str
    rank: Rank
    members: tuple[int, ...]
    srcs: list[Tile]
    dsts: list[Tile]

    def gather(self, *agreed: Hashable) -> list[list[Sent]]:
        """Wait for the other members; of each tensor what each member has sent, in their order.

        ``agreed`` is what all of them have to say alike, beside the members.
        """
        met = self.meet([sent(src, f"rank {self.rank.number}") for src in self.srcs], *agreed)
        return [[met[n][at] for n in self.members] for at in range(len(self.srcs))]

    def meet(
        self, given: list[Sent], *agreed: Hashable, alike: bool = True
    ) -> Mapping[int, list[Sent]]:
        """Wait for the other members; what each has given, by rank.

        Raises
        ------
        ShapeError : ``alike``, and they differ in shape or dtype.
        """
        for dst in self.dsts:
            check_destination(dst)
        shapes = [src.shape for src in self.srcs]
        program = current().program
        call = f"ncc.{self.name} among ranks {list(self.members)} of {shapes}"
        if program:
            call += f", by program {', '.join(map(str, program))} of each"
        point = (self.name, self.members, program, *agreed)
        met: Mapping[int, list[Sent]] = self.rank.baton.meet(
            self.rank.number, point, self.members, given, call
        )
        if alike:
            self._check_alike(met)
        return met

    def finish(self, results: Sequence[Sent], **options: Any) -> None:
        """Write the results, and tell the launch, with the options of the call."""
        for dst, result in zip(self.dsts, results, strict=True):
            shape = result.values.shape
            if shape != dst.shape:
                raise ShapeError(
                    f"{self.name} writes dst of its result's shape",
                    happened=f"{self.name}'s dst has the shape {list(dst.shape)}, not its result's",
                    received=f"dst {list(dst.shape)}",
                    limit=f"{list(shape)}",
                )
            take(dst, result)
        writes, reads = [("dst", dst) for dst in self.dsts], [("src", src) for src in self.srcs]
        options["replica_group"] = self.members
        note(self.name, Engine.DMA, writes=writes, reads=reads, **options)

    def _check_alike(self, met: Mapping[int, list[Sent]]) -> None:
        seen = {n: [(one.values.shape, one.values.dtype) for one in met[n]] for n in self.members}
        if len(set(map(tuple, seen.values()))) > 1:
            raise ShapeError(
                f"{self.name} takes srcs of the same shapes and dtypes on all ranks",
                happened=f"{self.name} got srcs that differ between ranks",
                received="; ".join(
                    f"rank {n}: {', '.join(f'{list(s)} {d}' for s, d in given)}"
                    for n, given in seen.items()
                ),
            )


# -- what all of them check ------------------------------------------------------------------------


def rank_of(where: str) -> Rank:
    """The rank that runs; of a rank with two cores, the program that has done less comes first.

    Raises
    ------
    KernelError : the kernel was launched alone.
    """
    core = current()
    if core.rank is None:
        raise KernelError(
            f"{where} is between ranks",
            happened=f"{where} was called with no other ranks",
            received="a kernel that was launched alone",
            remedy="difftest.simulator.launch_ranks(kernel, [arguments of each rank])",
        )
    if core.baton is not None:
        core.baton.check()
        core.baton.give_way(core.seat, core.steps)
    return core.rank


def exchange_of(
    where: str, srcs: Any, dsts: Any, group: Any, priority: Any, *, hbm_only: bool = False
) -> Exchange:
    """The call of a collective by the rank that runs, checked as far as one rank can."""
    rank = rank_of(where)
    members = members_of(group, rank, where)
    return Exchange(where, rank, members, *tensors_of(srcs, dsts, where, priority, hbm_only))


def members_of(group: Any, rank: Rank, where: str) -> tuple[int, ...]:
    """The ranks of the group that has this one.

    Raises
    ------
    KernelError : ``group`` is no ReplicaGroup of ranks of the launch, or this one is in none.
    """
    if not isinstance(group, ReplicaGroup):
        raise KernelError(
            f"{where} takes replica_group as an ncc.ReplicaGroup",
            happened=f"{where} got {group!r:.40} as replica_group",
            received=f"{group!r:.60}",
        )
    members = next((m for m in group.groups if rank.number in m), ())
    if not members:
        raise KernelError(
            f"{where} is called by ranks of its replica_group",
            happened=f"rank {rank.number} called {where} for a group that it is not in",
            received=f"rank {rank.number}, {group!r}",
        )
    return present(members, rank, where)


def present(members: tuple[int, ...], rank: Rank, where: str) -> tuple[int, ...]:
    """``members``, if they are ranks of the launch."""
    if not all(0 <= member < rank.ranks for member in members):
        raise KernelError(
            f"{where} names ranks of the launch",
            happened=f"{where} names a rank that was not launched",
            received=f"ranks {list(members)}",
            limit=f"0 to {rank.ranks - 1}",
        )
    return members


def tensors_of(
    srcs: Any, dsts: Any, where: str, priority: Any, hbm_only: bool
) -> tuple[list[Tile], list[Tile]]:
    """The tensors, checked: as many on both sides, on one memory, of one dtype."""
    check_priority(priority, where)
    spaces = HBM if hbm_only else DMA_SPACES
    for role, given in (("srcs", srcs), ("dsts", dsts)):
        if not isinstance(given, (list, tuple)) or not given:
            raise KernelError(
                f"{where} takes {role} as a list of tensors",
                happened=f"{where} got {role} that is not a list of tensors",
                received=f"{role}={given!r:.60}",
            )
    sources = [need_tile(tile, "srcs", where, spaces) for tile in srcs]
    targets = [need_tile(tile, "dsts", where, spaces) for tile in dsts]
    if len(sources) != len(targets):
        raise KernelError(
            f"{where} takes as many dsts as srcs",
            happened=f"{where} got {len(sources)} srcs and {len(targets)} dsts",
            received=f"{len(sources)} srcs, {len(targets)} dsts",
        )
    in_hbm = {tile.in_hbm for tile in (*sources, *targets)}
    if len(in_hbm) > 1 or (in_hbm == {False} and len(sources) > 1):
        raise BufferError(
            f"{where} takes any number of tensors in hbm, or one in sbuf with dst there too",
            happened=f"{where} got tensors in both memories, or several in sbuf",
            received=", ".join(map(repr, (*sources, *targets))),
        )
    for src, dst in zip(sources, targets, strict=True):
        if src.dtype != dst.dtype:
            raise DtypeError(
                f"{where} does not cast",
                happened=f"{where} got {name_of(src.dtype)} for a dst of {name_of(dst.dtype)}",
                received=f"src {src!r}, dst {dst!r}",
            )
    return sources, targets


def reduction_of(op: Any, where: str) -> str:
    """The name of one of :data:`REDUCTIONS`."""
    operator = alu_op(op, where).name
    if operator not in REDUCTIONS:
        raise KernelError(
            f"{where} reduces by one of three operators",
            happened=f"{where} was to reduce by {operator}",
            received=f"op={operator}",
            limit=", ".join(f"nl.{known}" for known in REDUCTIONS),
        )
    return operator


def dimension(value: Any, where: str, allowed: tuple[int, ...]) -> int:
    """The dimension along which a collective works, one of those allowed."""
    dim = as_integer(value, f"{where} with collective_dim")
    if dim not in allowed:
        raise KernelError(
            f"{where} works along few dimensions",
            happened=f"{where} was to work along dimension {dim}",
            received=f"collective_dim={dim}",
            limit=" or ".join(map(str, allowed)),
        )
    return dim


def check_divides(exchange: Exchange, dim: int) -> None:
    """Raise :class:`ShapeError` unless the members can share each ``src`` evenly."""
    ranks = len(exchange.members)
    for src in exchange.srcs:
        if src.shape[dim] % ranks:
            raise ShapeError(
                f"{exchange.name} splits src evenly among the ranks of a group",
                happened=f"{exchange.name} was to split {src.shape[dim]} among {ranks} ranks",
                received=f"{src.shape[dim]} in dimension {dim} of {src!r}",
                limit=f"a multiple of {ranks}",
            )
