"""Rules that instructions share, as functions of a call, with their wording.

A rule raises an :class:`~difftest.simulator.errors.NkiError` where the call breaks it. Those that
take roles are made: ``same_partitions("data1", "data2")``.
"""

from __future__ import annotations

from collections.abc import Callable

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import is_float, is_integer, name_of
from difftest.simulator.errors import BufferError, DtypeError, KernelError, LimitError, ShapeError
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.record import Call, DType, Rule
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Space


def _tiles(call: Call, roles: tuple[str, ...]) -> dict[str, Descriptor]:
    given = {**call.operands, **call.destinations}
    return {role: given[role] for role in roles if isinstance(given.get(role), Descriptor)}


def _shapes(tiles: dict[str, Descriptor]) -> str:
    return ", ".join(f"{role} {list(tile.shape)}" for role, tile in tiles.items())


_PRODUCTS = {2: "trn1 and later", 3: "trn2 and later", 4: "trn3 and later"}


def needs_generation(version: int) -> Rule:
    """The instruction came with a generation of the NeuronCore."""

    def rule(call: Call) -> None:
        if call.machine.nc_version < version:
            raise KernelError(
                f"{call.name} needs NeuronCore-v{version}",
                received=f"{call.machine.name} (NeuronCore-v{call.machine.nc_version})",
                limit=_PRODUCTS[version],
            )

    return rule


def same_partitions(*roles: str) -> Rule:
    """The operands have the same number of partitions."""

    def rule(call: Call) -> None:
        tiles = _tiles(call, roles)
        if len({tile.partitions for tile in tiles.values()}) > 1:
            raise ShapeError(
                f"{call.name} takes operands with the same number of partitions",
                received=_shapes(tiles),
                remedy="broadcast along partitions first: tile.broadcast_to(shape)",
            )

    return rule


def same_elements(*roles: str) -> Rule:
    """The operands have the same partitions, and the same number of elements in each."""
    partitions = same_partitions(*roles)

    def rule(call: Call) -> None:
        partitions(call)
        tiles = _tiles(call, roles)
        if len({tile.free_size for tile in tiles.values()}) > 1:
            raise ShapeError(
                f"{call.name} takes operands with the same number of elements a partition",
                received=_shapes(tiles),
            )

    return rule


def same_rank(*roles: str) -> Rule:
    """The operands have the same number of dimensions.

    NumPy would align the last dimensions, and so the partitions of one with free elements of the
    other, which no engine does.
    """

    def rule(call: Call) -> None:
        tiles = _tiles(call, roles)
        if len({len(tile.shape) for tile in tiles.values()}) > 1:
            raise ShapeError(
                f"{call.name} takes operands with the same number of dimensions",
                received=_shapes(tiles),
                remedy="insert dimensions of size 1 behind the partitions: tile[:, None, :]",
            )

    return rule


def same_shape(*roles: str) -> Rule:
    """The operands have one shape."""

    def rule(call: Call) -> None:
        tiles = _tiles(call, roles)
        if len({tile.shape for tile in tiles.values()}) > 1:
            raise ShapeError(f"{call.name} takes operands of one shape", received=_shapes(tiles))

    return rule


def not_both_in_psum(*roles: str) -> Rule:
    """At most one of two inputs lies in PSUM, which has one read port for them."""

    def rule(call: Call) -> None:
        tiles = _tiles(call, roles)
        if sum(tile.space is Space.PSUM for tile in tiles.values()) > 1:
            raise BufferError(
                f"{call.name}: the two inputs are not both in PSUM",
                received=", ".join(f"{role} = {tile!r}" for role, tile in tiles.items()),
                limit="at most one of them in psum",
                remedy="copy one of them to SBUF first (nisa.tensor_copy)",
            )

    return rule


def no_gpsimd_in_psum(call: Call) -> None:
    """The GpSimd Engine cannot access PSUM."""
    if call.engine is not Engine.GPSIMD:
        return
    for role, tile in {**call.tiles, **call.destinations}.items():
        if tile.space is Space.PSUM:
            raise BufferError(
                "the GpSimd Engine cannot access PSUM",
                received=f"{call.title} with {role} = {tile!r}",
                limit="sbuf",
                remedy="copy it to SBUF first (nisa.tensor_copy)",
            )


def need_integers(call: Call, **dtypes: DType) -> None:
    """Raise :class:`DtypeError` unless all dtypes are integers (bitvec operators)."""
    for role, dtype in dtypes.items():
        if not is_integer(dtype):
            raise DtypeError(
                f"{call.title}: bitvec operators work on integers",
                received=f"{role} of {name_of(dtype)}",
                limit="int8, uint8, int16, uint16, int32, uint32",
                remedy="give the result an integer dtype (a Python integer counts as int32, and "
                "uint32 with int32 as float32): dtype=nl.uint32",
            )


def floats(*roles: str) -> Rule:
    """The operands hold floats."""

    def rule(call: Call) -> None:
        for role, tile in _tiles(call, roles).items():
            if not is_float(tile.dtype):
                raise DtypeError(f"{call.name} takes {role} of a float dtype", received=f"{tile!r}")

    return rule


def at_most(
    role: str, quantity: Callable[[Descriptor], int], limit: Callable[[Machine], int], text: str
) -> Rule:
    """A size of an operand has a limit of the machine; ``text`` names the size and the constant."""

    def rule(call: Call) -> None:
        tile: Descriptor = call[role]
        most = limit(call.machine)
        if quantity(tile) > most:
            raise LimitError(
                f"{call.name} takes at most {most} {text.split(' (')[0]}",
                received=f"{role} {list(tile.shape)}: {quantity(tile)}",
                limit=f"{most} ({text.split(' (')[1]}" if " (" in text else f"{most}",
                remedy=f"loop over tiles of {most}",
            )

    return rule


def same_kind(call: Call, *ops: AluOp) -> None:
    """Raise :class:`KernelError` if bitvec and arithmetic operators meet in one instruction."""
    if len({op.bitvec for op in ops}) > 1:
        raise KernelError(
            f"{call.name}'s two operators are both bitvec or both arithmetic",
            received=" and ".join(op.name for op in ops),
            remedy="use two instructions",
        )


def need_vector_ops(call: Call, *ops: AluOp) -> None:
    """Raise :class:`KernelError` if an operator is not the Vector Engine's."""
    for op in ops:
        if Engine.VECTOR not in op.engines:
            raise KernelError(
                f"{call.name} runs on the Vector Engine",
                received=f"op={op.name}",
                limit=f"{op.name} runs on {', '.join(engine.value for engine in op.engines)}",
                remedy="use nisa.tensor_scalar or nisa.activation for it",
            )
