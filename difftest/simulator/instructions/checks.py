"""The checks that all instructions share, by their records: roles, buffers, dtypes, shapes.

They run once for each signature. Only the gate calls :func:`check_call`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import compress
from operator import itemgetter
from typing import Any, TypeGuard

import numpy as np

from difftest.simulator.core import Core
from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import DTYPES, dtype_name
from difftest.simulator.errors import (
    BufferError,
    DtypeError,
    KernelError,
    NkiError,
    ShapeError,
    call_error,
)
from difftest.simulator.index import Index
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.alu import AluOp, check_generation
from difftest.simulator.instructions.record import (
    ON_CHIP,
    CallCache,
    CheckedCall,
    DestinationFit,
    Instruction,
    InstructionUse,
    Number,
    OperandKind,
    Role,
)
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.pattern import Pattern, Shape
from difftest.simulator.strictness import report_undefined
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Attributes, EventKind, Space


def _names(spaces: tuple[Space, ...]) -> str:
    return " or ".join(space.value for space in spaces).replace(
        "shared_hbm or private_hbm", "hbm"
    )


def is_number(value: object) -> TypeGuard[Number]:
    """Return whether ``value`` is a real number: Python's, NumPy's or ml_dtypes'."""
    if isinstance(value, np.generic):
        return value.dtype.kind in "biuf" or value.dtype in DTYPES
    return isinstance(value, (bool, int, float))


def wrong_kind(
    value: object, takes: str, where: str, name: str = "", remedy: str | None = None
) -> KernelError:
    """Return the error for a value of the wrong kind in a call, or in its argument ``name``."""
    kind = type(value).__name__
    return KernelError(
        f"{where} takes {name} as {takes}" if name else f"{where} takes {takes}",
        happened=f"{where} got a {kind}" + (f" as {name}" if name else ""),
        received=f"{kind} {value!r:.80}",
        remedy=remedy,
    )


def need_number(value: object, name: str, where: str) -> Number:
    """Return ``value`` if it is a real number; otherwise raise :class:`KernelError`."""
    if not is_number(value):
        raise wrong_kind(value, "a number", where, name)
    return value


def need_tile(
    value: object, name: str, where: str, spaces: tuple[Space, ...] = ON_CHIP
) -> Tile:
    """Return ``value`` if it is a tile in one of ``spaces``.

    Raises
    ------
    KernelError : it is not a tensor.
    BufferError : it is in another memory.
    """
    if not isinstance(value, Tile):
        raise call_error(
            where,
            f"takes a tile as {name}",
            f"got {name} that is not a tile",
            f"{type(value).__name__} {value!r:.80}",
        )
    if value._space not in spaces:
        raise wrong_buffer(value, name, where, spaces)
    return value


def check_indices(tile: Tile, what: str) -> None:
    """Raise :class:`DtypeError` unless a tile holds integers; ``what`` names it."""
    if tile.dtype.kind not in "iu":
        raise call_error(
            what,
            "holds integers",
            f"holds {dtype_name(tile.dtype)}",
            repr(tile),
            error=DtypeError,
            limit="int32, uint32 and smaller integers",
        )


def wrong_buffer(
    tile: Tile | IndirectTile | Descriptor,
    name: str,
    where: str,
    spaces: tuple[Space, ...],
) -> BufferError:
    """Return the error for a tile in the wrong memory."""
    space = tile.space if isinstance(tile, Descriptor) else tile._space
    if space.is_hbm:
        remedy = "load it into SBUF first (nisa.dma_copy or nl.load)"
    elif space is Space.PSUM:
        remedy = "copy it to SBUF first (nisa.tensor_copy or nl.copy)"
    else:
        remedy = f"put it into {_names(spaces)}"
    return BufferError(
        f"{where} takes {name} in {_names(spaces)}",
        happened=f"{where} got {name} in {'hbm' if space.is_hbm else space.value}",
        received=f"{name} = {tile!r}",
        limit=_names(spaces),
        remedy=remedy,
    )


# -- checking a call -------------------------------------------------------------------------------

_NUMBERS = (
    OperandKind.NUMBER,
    OperandKind.VECTOR_OR_NUMBER,
    OperandKind.TILE_OR_NUMBER,
)
_KINDS: dict[OperandKind, Any] = {
    OperandKind.NUMBER: (),
    OperandKind.INDEX: Index,
    OperandKind.INDIRECT: IndirectTile,
    OperandKind.TILE_OR_INDIRECT: (Tile, IndirectTile),
}
_VECTORS = (OperandKind.VECTOR, OperandKind.VECTOR_OR_NUMBER)


def check_call(
    core: Core, issued: InstructionUse, alike: CheckedCall | None = None
) -> CheckedCall:
    """Return the checked call for these operands.

    If a call that differs only in shapes passed before (``alike``), only the shapes are checked.

    Raises
    ------
    NkiError : it breaks a rule of the record.
    """
    instruction = issued.instruction
    operands = list(zip(instruction.operands, issued.operands, strict=True))
    dsts = zip(instruction.destinations, (issued.dst, *issued.others), strict=False)
    targets = [(role, tile) for role, tile in dsts if tile is not None]
    # a call that differs in shapes may have read from HBM
    is_new = alike is None or alike.from_hbm
    from_hbm = _roles_from_hbm(core, instruction, operands, is_new=is_new)
    if alike is None:
        for role, tile in targets:
            _check_operand(instruction, role, tile)
        call = _new_call(core, issued, _descriptors(operands), _descriptors(targets))
    else:
        call = alike.alike(_descriptors(operands), _descriptors(targets))
    call.from_hbm = bool(from_hbm)
    for role in from_hbm:
        call.remark(functools.partial(_from_hbm, call, role), report_undefined)
    _check_vectors(call)
    for rule in instruction.only.get(call.dialect, ()) + instruction.rules:
        rule(call)
    _set_result(call)
    if alike is None:
        call.reads_dst = instruction.reads_dst(call)
        call.reduces = _may_reduce(call)
        call.cache = _cache_of(call, issued)
    return call


def _roles_from_hbm(
    core: Core,
    instruction: Instruction,
    operands: Sequence[tuple[Role, Any]],
    *,
    is_new: bool,
) -> list[Role]:
    """Return the roles of operands in HBM; check the other operands if the call is new."""
    from_hbm = []
    for role, tile in operands:
        if _is_taken_from_hbm(core, role, tile):
            from_hbm.append(role)
        elif is_new:
            _check_operand(instruction, role, tile)
    return from_hbm


def _set_result(call: CheckedCall) -> None:
    """Set the call's result, and check the shapes of operands and destinations."""
    instruction = call.instruction
    for role in instruction.operands:
        if role.shape is not None:
            _check_shape(call, role, call.operands[role.name], "takes")
    call.result = instruction.result(call)
    _check_result(call)
    for role in instruction.destinations:
        _check_shape(call, role, call.destinations.get(role.name), "writes")


def _may_reduce(call: CheckedCall) -> bool:
    """Return whether the engine's registers may take part."""
    command = call.options.get("reduce_cmd")
    takes_part = command is not Accumulate.IDLE or "reduce_res" in call.destinations
    return command is not None and takes_part


def _is_taken_from_hbm(core: Core, role: Role, operand: Any) -> bool:
    """Return whether an operand is in HBM, which AWS's simulator accepts and its compiler does not.

    This holds in the current dialect, unless a descriptor moves the operand. A tensor of one
    dimension lacks partitions, and a dtype outside the role's is rejected.
    """
    if (
        core.trace.dialect != "nki"
        or not isinstance(operand, Tile)
        or not operand._in_hbm
    ):
        return False
    takes_dtype = role.dtypes is None or operand.dtype in role.dtypes
    return operand._space not in role.buffers and operand.ndim > 1 and takes_dtype


def _from_hbm(call: CheckedCall, role: Role) -> BufferError:
    """Return the error for an engine's operand in HBM."""
    return wrong_buffer(call.operands[role.name], role.name, call.name, role.buffers)


def _new_call(
    core: Core, issued: InstructionUse, operands: Any, destinations: Any
) -> CheckedCall:
    """Return a call with its options and the engine that runs it."""
    instruction = issued.instruction
    table = {
        **instruction.defaults,
        **dict(zip(instruction.options, issued.options, strict=False)),
    }
    options = {name: table[name] for name in instruction.options}
    call = CheckedCall(
        instruction, core.machine, operands, options, destinations, issued.dtype
    )
    call.dialect = core.trace.dialect
    call.into_existing = (issued.left_of or issued).dst is not None
    call.engine = instruction.engine(call, issued.engine)
    for option in call.options.values():
        if isinstance(option, AluOp):
            check_generation(option, instruction.name, core.machine)
    return call


def _cache_of(call: CheckedCall, issued: InstructionUse) -> CallCache:
    """Return the parts of a call's event that do not depend on a use."""
    operands = issued.operands
    is_indirect = any(
        isinstance(tile, IndirectTile) for tile in (issued.dst, *operands)
    )
    are_tiles = tuple(isinstance(operand, Tile) for operand in operands)
    roles = [role.name for role in call.instruction.operands]
    names = list(issued.sources or compress(roles, are_tiles))
    if call.reads_dst:
        names.append("dst")
    places = [k for k, value in enumerate(operands) if _is_event_number(value)]
    numbers = tuple(roles[place] for place in places)
    facts = {**call.instruction.facts(call), **dict(issued.said)}
    attributes = Attributes(**facts)
    (opcode, purpose) = call.instruction.event(call)
    kind = EventKind(
        opcode, call.engine, attributes, traced_options(call.options), numbers, purpose
    )
    return CallCache(
        kind=kind,
        numbers=_number_getter(places, operands),
        is_simple=not is_indirect and _writes_once(issued),
        is_indirect=is_indirect,
        are_tiles=are_tiles,
        roles=("dst", *names),
    )


def _writes_once(issued: InstructionUse) -> bool:
    """Return whether an instruction has ``dst`` as its only destination."""
    return all(other is None for other in issued.others)


def _is_event_number(operand: Any) -> bool:
    """Return whether an event names an operand's value: a number, or an index pattern."""
    return is_number(operand) or isinstance(operand, Index)


def _number_getter(
    places: Sequence[int], operands: Sequence[Any]
) -> Callable[[tuple[Any, ...]], tuple[Any, ...]] | None:
    """Return a function for the operands at these places; it runs for each event."""
    if any(type(operands[place]) not in (int, float) for place in places):
        return lambda values: tuple([plain_value(values[place]) for place in places])
    if not places:
        return None
    if places[1:]:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1))


def traced_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as the trace holds them, without None."""
    return {
        name: plain_value(value) for name, value in options.items() if value is not None
    }


def plain_value(value: Any) -> Any:
    """Return an argument as plain data: a number, a text, a pattern, or a tuple of such.

    Raises
    ------
    KernelError : it is anything else.
    """
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str, Pattern)):
        return value
    if isinstance(value, Index):
        return Pattern(value.start, value.shape, value.steps)
    if isinstance(value, (tuple, list)):
        return tuple(map(plain_value, value))
    if isinstance(value, (AluOp, Enum)):
        return value.name.lower()
    raise wrong_kind(
        value, "options that are numbers, names or tuples of them", "an instruction"
    )


def _check_operand(instruction: Instruction, role: Role, operand: Any) -> None:
    """Require an operand of the role's kind, memory and dtype."""
    where = instruction.name
    name = role.name
    if operand is None and role.optional:
        return
    if role.takes in _NUMBERS and is_number(operand):
        return
    if not isinstance(operand, _KINDS.get(role.takes, Tile)):
        raise _wrong_operand(where, role, operand)
    if role.takes is OperandKind.INDEX:
        return
    if operand._space not in role.buffers:
        raise wrong_buffer(operand, name, where, role.buffers)
    if role.dtypes is not None and operand.dtype not in role.dtypes:
        raise call_error(
            where,
            f"takes {name} of certain dtypes",
            f"got {name} of {dtype_name(operand.dtype)}",
            f"{name} = {operand!r}",
            error=DtypeError,
            limit=", ".join(map(dtype_name, role.dtypes)),
            remedy="cast it by nisa.tensor_copy",
        )


def _wrong_operand(where: str, role: Role, operand: object) -> NkiError:
    """Return the error for an operand of another kind than the role's."""
    name = role.name
    return call_error(
        where,
        f"takes {role.takes.value} as {name}",
        f"got a {type(operand).__name__} as {name}",
        f"{type(operand).__name__} {operand!r:.80}",
        remedy="make it first, with nl.ndarray(shape, dtype)"
        if name == "dst"
        else None,
    )


def _descriptors(accesses: Sequence[tuple[Role, Any]]) -> dict[str, Any]:
    """Return the descriptors of operands or destinations by role."""
    return {role.name: _descriptor_of(role, operand) for role, operand in accesses}


def _descriptor_of(role: Role, operand: Any) -> Any:
    """Return a descriptor for a tile, the type for a number, None for an absent operand."""
    if isinstance(operand, (Tile, IndirectTile)):
        return operand._descriptor(role.name, blocks=role.blocks)
    if operand is None or isinstance(operand, Index):
        return operand
    return type(operand)


def _check_vectors(call: CheckedCall) -> None:
    """Require one element of each vector for each partition of the first operand, or of ``dst``."""
    roles = call.instruction.operands
    for role in roles:
        vector = call.operands[role.name]
        if role.takes not in _VECTORS or not isinstance(vector, Descriptor):
            continue
        first = call.operands[roles[0].name]
        data: Descriptor = (
            call.destinations["dst"] if roles[0].takes in _VECTORS else first
        )
        if vector.partitions != data.partitions or vector.size != data.partitions:
            raise call.refused(
                f"takes {role.name} as {role.takes.value}",
                f"got {role.name} of the shape {list(vector.shape)}",
                f"{role.name} {list(vector.shape)} for data {list(data.shape)}",
                error=ShapeError,
                limit=f"a number, or shape {[data.partitions, 1]}",
                remedy="use nisa.tensor_tensor for operands of the data's own shape",
            )


def _check_result(call: CheckedCall) -> None:
    """Require one of the first destination's dtypes for a new tile."""
    dtype = call.result.dtype
    allowed = next((role.dtypes for role in call.instruction.destinations), None)
    if allowed is not None and dtype not in allowed:
        raise call.refused(
            "takes the result of certain dtypes",
            f"was to make a result of {dtype_name(dtype)}",
            f"the result of {dtype_name(dtype)}",
            error=DtypeError,
            limit=", ".join(map(dtype_name, allowed)),
            remedy="cast it afterwards by nisa.tensor_copy",
        )


def _check_shape(
    call: CheckedCall, role: Role, tile: Descriptor | None, verb: str
) -> None:
    """Require the record's shape for the tile at a role, if there is one."""
    if tile is None:
        return
    wanted = call.result.shape if role.shape is None else role.shape(call)
    if not _fits(
        tile.shape,
        wanted,
        call.instruction.fit if role.shape is None else DestinationFit.EXACT,
    ):
        raise ShapeError(
            f"{call.name} {verb} {role.name} of shape {list(wanted)}",
            happened=f"{call.name}'s {role.name} has the shape {list(tile.shape)}",
            received=f"{role.name} = {tile!r}",
            remedy=f"give {role.name} that shape, or index the part of it that has it",
        )


def _fits(shape: Shape, wanted: Shape, fit: DestinationFit) -> bool:
    if shape == wanted or fit is DestinationFit.EXACT:
        return shape == wanted
    if fit is DestinationFit.ELEMENTS and shape[:1] != wanted[:1]:
        return False
    return math.prod(shape) == math.prod(wanted)
