"""What calls of this dialect share: operators by name, and operands that must go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from difftest.simulator.core import current
from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.alu import NKI_OPS, AluOp, alu_op
from difftest.simulator.strictness import note
from difftest.simulator.tile import Tile


class OperatorName(NamedTuple):
    """An operator by name: a signature's default, or one of ``nl`` that is no function."""

    nki_name: str

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise KernelError(
            f"nl.{self.nki_name} is an operator for instructions, and no function",
            happened=f"nl.{self.nki_name} was called",
            received=", ".join(f"{value!r:.60}" for value in args),
            remedy=f"pass it to an instruction that takes it: op=nl.{self.nki_name}",
        )


def operator_of(op: object, where: str) -> AluOp:
    """The operator that an ``nl`` function (or NumPy's) stands for in today's dialect.

    Raises
    ------
    KernelError : it is no operator, or the machine does not have it.
    """
    found = alu_op(op, where, NKI_OPS)
    machine = current().machine
    if machine.nc_version < found.nc_version:
        raise KernelError(
            f"the operator {found.name} needs NeuronCore-v{found.nc_version}",
            happened=f"{where} got the operator {found.name} on {machine.name}",
            received=f"op={found.name} on {machine.name} (NeuronCore-v{machine.nc_version})",
            remedy="launch with machine=TRN3, or compute it of the operators that the machine has",
        )
    return found


def to_one_size(where: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Two tiles repeated along free dimensions of size 1, to the larger of each.

    The release notes have no broadcasting between tiles; AWS's simulator was seen to do it.

    Raises
    ------
    ShapeError : their partitions differ, or free dimensions of which neither is 1.
    """
    pair = (x, y)
    tiles = all(isinstance(tile, Tile) for tile in pair)
    if not tiles or x.shape[0] != y.shape[0] or x.size == y.size:
        same_elements(where, x=x, y=y)
        return pair
    rank, error = max(x.ndim, y.ndim), _unequal(where, {"x": x, "y": y})
    column = (x.shape[0], *(1,) * (rank - 1))
    x, y = (tile.reshape(column) if tile.size == tile.shape[0] else tile for tile in pair)
    shape = tuple(map(max, zip(x.shape, y.shape, strict=False)))
    for tile in (x, y):
        fits = (have in (1, size) for have, size in zip(tile.shape, shape, strict=False))
        if tile.ndim != rank or not all(fits):
            raise error
    note(error)
    return x.broadcast_to(shape), y.broadcast_to(shape)


def same_elements(where: str, **tiles: Any) -> None:
    """Raise :class:`ShapeError` unless the tiles have as many elements in each partition.

    Tiles do not broadcast in today's dialect (stub of ``nisa.tensor_tensor``, v2.32.0).
    """
    given = {name: tile for name, tile in tiles.items() if isinstance(tile, (Tile, IndirectTile))}
    sizes = {(tile.shape[:1], tile.size) for tile in given.values()}
    if len(sizes) > 1:
        raise _unequal(where, given)


def _unequal(where: str, tiles: Mapping[str, Any]) -> ShapeError:
    return ShapeError(
        f"{where} takes tiles of the same partitions and elements in each",
        happened=f"{where} got tiles of different sizes",
        received=", ".join(f"{name} {list(tile.shape)}" for name, tile in tiles.items()),
        remedy="repeat a dimension of size 1 with tensor.broadcast(dim, size), or use "
        "nisa.tensor_scalar for one value in each partition",
    )
