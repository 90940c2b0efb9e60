"""Collectives whose sizes lie in a tensor: flat buffers, of which each rank sends some elements.

Which instances and groups the fabric supports (LNC=2, four ranks on a chip) is not checked. Source:
the stubs ``ncc.all_gather_v`` and ``ncc.all_to_all_v`` at v2.32.0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import Array, name_of
from difftest.simulator.errors import (
    DtypeError,
    KernelError,
    OutOfBoundsError,
    ShapeError,
)
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.collectives.exchange import Exchange, exchange_of
from difftest.simulator.instructions.effects import Sent, note, sent, take
from difftest.simulator.instructions.operands import need_tile
from difftest.simulator.instructions.record import DMA_SPACES
from difftest.simulator.instructions.writing import check_destination, write
from difftest.simulator.trace import Engine

_UINT32 = np.dtype(np.uint32)


@public
def all_gather_v(
    srcs,
    dsts,
    replica_group,
    metadata_tensor,
    recv_counts_known=False,
    has_rdispls=False,
    priority=None,
    name=None,
):
    """Each rank's ``dst`` gets one chunk of each rank's ``src``, in slots of equal size."""
    if has_rdispls:
        raise KernelError(
            "all_gather_v does not support has_rdispls=True (AWS: current limitations)",
            happened="all_gather_v got has_rdispls=True",
            received="has_rdispls=True",
        )
    call = _Call.of("all_gather_v", srcs, dsts, replica_group, priority, metadata_tensor, False)
    rows = call.rows()
    chunk = call.chunk(int(rows[0, 0]), int(rows[1, 0]))
    call.receive([chunk] * len(call.exchange.members), rows, known=bool(recv_counts_known))


@public
def all_to_all_v(
    srcs,
    dsts,
    replica_group,
    metadata_tensor,
    recv_counts_known=False,
    has_rdispls=False,
    priority=None,
    name=None,
):
    """Each rank's ``dst`` gets a chunk of each rank's ``src`` that is for this rank alone."""
    if has_rdispls and current().machine.nc_version < 4:
        raise KernelError(
            "all_to_all_v takes has_rdispls=True on NeuronSwitch-based instances (trn3)",
            happened=f"all_to_all_v got has_rdispls=True on {current().machine.name}",
            received=f"has_rdispls=True on {current().machine.name}",
        )
    displaced = bool(has_rdispls)
    call = _Call.of("all_to_all_v", srcs, dsts, replica_group, priority, metadata_tensor, displaced)
    rows = call.rows()
    ranks = range(len(call.exchange.members))
    chunks = [call.chunk(int(rows[0, n]), int(rows[1, n])) for n in ranks]
    call.receive(chunks, rows, known=bool(recv_counts_known))


class _Call(NamedTuple):
    """A call as one rank makes it: one flat tensor on each side, and the metadata."""

    exchange: Exchange
    src: Any
    dst: Any
    metadata: Any
    displaced: bool

    @classmethod
    def of(
        cls,
        where: str,
        srcs: Any,
        dsts: Any,
        group: Any,
        priority: Any,
        metadata: Any,
        displaced: bool,
    ) -> _Call:
        exchange = exchange_of(where, srcs, dsts, group, priority, hbm_only=True)
        if len(exchange.srcs) != 1:
            raise KernelError(
                f"{where} takes one tensor",
                happened=f"{where} got {len(exchange.srcs)} tensors",
                received=f"{len(exchange.srcs)} tensors in srcs",
            )
        sides: list[Any] = [exchange.srcs[0], exchange.dsts[0]]
        table: Any = need_tile(metadata, "metadata_tensor", where, DMA_SPACES)
        shape = (4 if displaced else 3, len(exchange.members))
        wanted = shape if table.in_hbm else (1, *shape)
        if table.shape != wanted:
            raise ShapeError(
                f"{where} takes metadata_tensor as rows of a column for each rank",
                happened=f"{where} got a metadata_tensor {list(table.shape)}",
                received=f"metadata_tensor {list(table.shape)}",
                limit=f"{list(wanted)}",
            )
        if table.dtype != _UINT32:
            raise DtypeError(
                f"{where} takes metadata_tensor in uint32",
                happened=f"{where} got a metadata_tensor of {name_of(table.dtype)}",
                received=repr(table),
            )
        src, dst = (side.reshape((side.size,)) for side in sides)
        return cls(exchange, src, dst, table, displaced)

    def rows(self) -> Array:
        """The metadata's values, [rows, ranks]; row 2 is never read."""
        columns = len(self.exchange.members)
        if self.metadata.in_hbm:
            inputs: list[Any] = [self.metadata[0:2, :]]
            inputs += [self.metadata[3:4, :]] if self.displaced else []
        else:
            inputs = [self.metadata[:, 0:2, :]]
            inputs += [self.metadata[:, 3:4, :]] if self.displaced else []
        values = [np.asarray(part.values()).reshape(-1, columns) for part in inputs]
        return np.concatenate(values)

    def chunk(self, count: int, displacement: int) -> Sent:
        """So many elements of ``src`` from a place on; none for a count of 0.

        Raises
        ------
        OutOfBoundsError : they leave it.
        """
        if count == 0:
            return Sent(np.empty(0, self.src.dtype))
        if displacement + count > self.src.size:
            raise OutOfBoundsError(
                f"{self.exchange.name} sends elements of src",
                happened=f"{self.exchange.name} was to send elements that src does not have",
                received=f"{count} elements from {displacement}",
                limit=f"the {self.src.size} of {self.src!r}",
            )
        part = self.src[displacement : displacement + count]
        return sent(part, f"rank {self.exchange.rank.number}")

    def receive(self, chunks: list[Sent], rows: Array, *, known: bool) -> None:
        """Give each rank its chunk, and write those that came."""
        exchange = self.exchange
        if not known:
            check_destination(self.metadata)
        met = exchange.meet(chunks, self.displaced, alike=False)
        place = exchange.members.index(exchange.rank.number)
        slot = self.dst.size // len(exchange.members)
        came = [met[number][place] for number in exchange.members]
        starts = [int(at) for at in rows[2]] if self.displaced else None
        counts = np.array([one.values.size for one in came], np.uint32)
        if starts is None:
            starts = [sender * slot for sender in range(len(came))]
        for sender, (start, count) in enumerate(zip(starts, counts.tolist(), strict=True)):
            self._check_fits(sender, start, count, None if self.displaced else slot)
        for start, one in zip(starts, came, strict=True):
            if one.values.size:
                take(self.dst[start : start + one.values.size], one)
        writes = [("dst", exchange.dsts[0])]
        if not known:
            row = self.metadata[2:3, :] if self.metadata.in_hbm else self.metadata[:, 2:3, :]
            write(row, counts.reshape(row.shape))
            writes.append(("metadata_tensor", row))
        reads = [("src", exchange.srcs[0]), ("metadata_tensor", self.metadata)]
        partial = [(tile, None) for _, tile in (writes[0], *reads)]
        group = {"replica_group": exchange.members}
        note(exchange.name, Engine.DMA, writes=writes, reads=reads, partial=partial, **group)

    def _check_fits(self, sender: int, start: int, count: int, slot: int | None) -> None:
        if start + count > self.dst.size or (slot is not None and count > slot):
            room = f"{slot} elements" if slot is not None else f"{self.dst.size} elements in all"
            raise OutOfBoundsError(
                f"{self.exchange.name} receives into dst",
                happened=f"{self.exchange.name} received more than dst has room for",
                received=f"{count} elements of rank {self.exchange.members[sender]} at {start} of "
                f"{self.dst!r}",
                limit=room,
                remedy="make dst larger, or send less",
            )
