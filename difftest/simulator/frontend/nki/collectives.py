"""The module that kernels import as ``nki.collectives`` (usually ``ncc``): ranks and their talk.

The ranks are those of :func:`difftest.simulator.launch_ranks`, each with HBM of its own. Source:
the stubs of ``nki.collectives`` at v2.32.0. Tensors are reduced in the order of their group, floats
in float32; the order on a device is not documented.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.core import Rank, current
from difftest.simulator.dtypes import Array, name_of
from difftest.simulator.errors import (
    BufferError,
    DtypeError,
    KernelError,
    ShapeError,
    not_modelled,
)
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.isa.moves import check_priority
from difftest.simulator.frontend.nki.objects import NKIObject
from difftest.simulator.frontend.nki.unmodelled import unmodelled
from difftest.simulator.frontend.nki.virtual_registers import VirtualRegister
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.operands import need_tile
from difftest.simulator.instructions.record import DMA_SPACES, HBM
from difftest.simulator.instructions.writing import check_destination, write
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Attributes, Engine

_REDUCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "minimum": np.minimum,
    "maximum": np.maximum,
}
_UNMODELLED = unmodelled(
    "nki.collectives",
    [
        "all_gather_v",
        "all_to_all_v",
        "collective_permute_implicit",
        "collective_permute_implicit_current_processing_rank_id",
        "collective_permute_implicit_reduce",
    ],
)
"""What AWS documents at v2.32.0 (and 2.33) and the simulator does not have."""


def __getattr__(name: str) -> Any:
    if name in _UNMODELLED:
        return _UNMODELLED[name]
    raise AttributeError(f"module 'nki.collectives' has no attribute {name!r}")


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


class _Exchange(NamedTuple):
    """One collective as one rank calls it."""

    name: str
    rank: Rank
    members: tuple[int, ...]
    srcs: list[Tile]
    dsts: list[Tile]

    def gather(self, *agreed: Hashable) -> list[list[Array]]:
        """Wait for the other members; of each tensor the values of each member, in their order.

        ``agreed`` is what all of them have to say alike, beside the members.
        """
        given = [src.values().copy() for src in self.srcs]
        for dst in self.dsts:
            check_destination(dst)
        shapes = [src.shape for src in self.srcs]
        call = f"ncc.{self.name} among ranks {list(self.members)} of {shapes}"
        point = (self.name, self.members, *agreed)
        met = self.rank.baton.meet(self.rank.number, point, self.members, given, call)
        self._check_alike(met)
        return [[met[n][at] for n in self.members] for at in range(len(self.srcs))]

    def finish(self, results: Sequence[Array]) -> None:
        """Write the results, and tell the launch."""
        for dst, values in zip(self.dsts, results, strict=True):
            if values.shape != dst.shape:
                raise ShapeError(
                    f"{self.name} writes dst of its result's shape",
                    happened=f"{self.name}'s dst has the shape {list(dst.shape)}, not its result's",
                    received=f"dst {list(dst.shape)}",
                    limit=f"{list(values.shape)}",
                )
            write(dst, values)
        roles = ("dst",) * len(self.dsts) + ("src",) * len(self.srcs)
        current().emit(self.name, Engine.DMA, self.dsts, self.srcs, roles, Attributes())

    def _check_alike(self, met: Mapping[int, list[Array]]) -> None:
        seen = {n: [(values.shape, values.dtype) for values in met[n]] for n in self.members}
        if len(set(map(tuple, seen.values()))) > 1:
            raise ShapeError(
                f"{self.name} takes srcs of the same shapes and dtypes on all ranks",
                happened=f"{self.name} got srcs that differ between ranks",
                received="; ".join(
                    f"rank {n}: {', '.join(f'{list(s)} {d}' for s, d in given)}"
                    for n, given in seen.items()
                ),
            )


@public
def rank_id(name: str | None = None) -> VirtualRegister:
    """The rank that runs, in a register; 0 where a kernel is launched alone."""
    rank = current().rank
    return VirtualRegister(0 if rank is None else rank.number, frozen=True)


@public
def all_reduce(
    srcs: Any,
    dsts: Any,
    replica_group: Any,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Each ``dst`` is the reduction of the group's ``src`` by ``op``: add, minimum or maximum."""
    exchange = _exchange("all_reduce", srcs, dsts, replica_group, priority)
    operator = _reduction(op, "all_reduce")
    gathered = exchange.gather(operator)
    exchange.finish([reduce(_REDUCTIONS[operator], given) for given in gathered])


@public
def all_gather(
    srcs: Any,
    dsts: Any,
    replica_group: Any,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Each ``dst`` is the group's ``src`` side by side along a dimension, in the group's order."""
    exchange = _exchange("all_gather", srcs, dsts, replica_group, priority)
    on_chip = not exchange.srcs[0].in_hbm
    dim = _dimension(collective_dim, "all_gather", (0, 1) if on_chip else (0,))
    exchange.finish([np.concatenate(given, axis=dim) for given in exchange.gather(dim)])


@public
def reduce_scatter(
    srcs: Any,
    dsts: Any,
    replica_group: Any,
    collective_dim: int,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Each ``dst`` is this rank's part of the reduction of the group's ``src``."""
    exchange = _exchange("reduce_scatter", srcs, dsts, replica_group, priority)
    dim = _dimension(collective_dim, "reduce_scatter", (0,))
    operator = _reduction(op, "reduce_scatter")
    place = exchange.members.index(exchange.rank.number)
    _check_divides(exchange, dim)
    exchange.finish(
        [
            np.split(reduce(_REDUCTIONS[operator], given), len(given), axis=dim)[place]
            for given in exchange.gather(dim, operator)
        ]
    )


@public
def all_to_all(
    srcs: Any,
    dsts: Any,
    replica_group: Any,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Each ``dst`` is this rank's part of each of the group's ``src``, side by side."""
    exchange = _exchange("all_to_all", srcs, dsts, replica_group, priority, hbm_only=True)
    dim = _dimension(collective_dim, "all_to_all", (0,))
    place = exchange.members.index(exchange.rank.number)
    _check_divides(exchange, dim)
    exchange.finish(
        [
            np.concatenate([np.split(one, len(given), axis=dim)[place] for one in given], axis=dim)
            for given in exchange.gather(dim)
        ]
    )


@public
def collective_permute(
    srcs: Any,
    dsts: Any,
    source_target_pairs: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """``dst`` of each pair's target is ``src`` of its source; a rank in no pair does nothing."""
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
    rank = _rank("collective_permute")
    members = _present(tuple(sorted({*sources, *targets})), rank, "collective_permute")
    given = _tensors(srcs, dsts, "collective_permute", priority, hbm_only=True)
    if len(given[0]) != 1:
        raise KernelError(
            "collective_permute takes one tensor",
            happened=f"collective_permute got {len(given[0])} tensors",
            received=f"{len(given[0])} tensors in srcs",
        )
    if rank.number not in members:
        return
    exchange = _Exchange("collective_permute", rank, members, *given)
    ((*values,),) = exchange.gather(pairs)
    if rank.number in targets:
        source = sources[targets.index(rank.number)]
        exchange.finish([values[members.index(source)]])


# -- what all of them check ------------------------------------------------------------------------


def _rank(where: str) -> Rank:
    """The rank that runs.

    Raises
    ------
    KernelError : the kernel was launched alone.
    """
    core = current()
    if core.baton is not None:
        raise not_modelled(f"nki.collectives.{where} on two cores of a rank", "kernel[2]")
    if core.rank is None:
        raise KernelError(
            f"{where} is between ranks",
            happened=f"{where} was called with no other ranks",
            received="a kernel that was launched alone",
            remedy="difftest.simulator.launch_ranks(kernel, [arguments of each rank])",
        )
    return core.rank


def _exchange(
    where: str, srcs: Any, dsts: Any, group: Any, priority: Any, *, hbm_only: bool = False
) -> _Exchange:
    rank = _rank(where)
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
    _present(members, rank, where)
    return _Exchange(where, rank, members, *_tensors(srcs, dsts, where, priority, hbm_only))


def _present(members: tuple[int, ...], rank: Rank, where: str) -> tuple[int, ...]:
    if not all(0 <= member < rank.ranks for member in members):
        raise KernelError(
            f"{where} names ranks of the launch",
            happened=f"{where} names a rank that was not launched",
            received=f"ranks {list(members)}",
            limit=f"0 to {rank.ranks - 1}",
        )
    return members


def _tensors(
    srcs: Any, dsts: Any, where: str, priority: Any, hbm_only: bool
) -> tuple[list[Tile], list[Tile]]:
    """The tensors, checked: as many on both sides, in one memory, of one dtype."""
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


def _reduction(op: Any, where: str) -> str:
    operator = alu_op(op, where).name
    if operator not in _REDUCTIONS:
        raise KernelError(
            f"{where} reduces by one of three operators",
            happened=f"{where} was to reduce by {operator}",
            received=f"op={operator}",
            limit=", ".join(f"nl.{known}" for known in _REDUCTIONS),
        )
    return operator


def _dimension(value: Any, where: str, allowed: tuple[int, ...]) -> int:
    dim = as_integer(value, f"{where} with collective_dim")
    if dim not in allowed:
        raise KernelError(
            f"{where} works along few dimensions",
            happened=f"{where} was to work along dimension {dim}",
            received=f"collective_dim={dim}",
            limit=" or ".join(map(str, allowed)),
        )
    return dim


def _check_divides(exchange: _Exchange, dim: int) -> None:
    ranks = len(exchange.members)
    for src in exchange.srcs:
        if src.shape[dim] % ranks:
            raise ShapeError(
                f"{exchange.name} splits src evenly among the ranks of a group",
                happened=f"{exchange.name} was to split {src.shape[dim]} among {ranks} ranks",
                received=f"{src.shape[dim]} in dimension {dim} of {src!r}",
                limit=f"a multiple of {ranks}",
            )


__all__ = [
    "ReplicaGroup",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "collective_permute",
    "rank_id",
    "reduce_scatter",
]
