"""Rules that instructions share, as functions of a call, with their wording.

A rule raises an :class:`~difftest.simulator.errors.NkiError` if the call breaks it. Factories make
rules for roles: ``same_partitions("data1", "data2")``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any, Concatenate, ParamSpec

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import FLOAT32, dtype_name, is_integer
from difftest.simulator.errors import (
    BufferError,
    DtypeError,
    KernelError,
    LimitError,
    NkiError,
    ShapeError,
)
from difftest.simulator.instructions.alu import ALU_OPS, AluOp
from difftest.simulator.instructions.record import CheckedCall, Rule
from difftest.simulator.trace import Engine, Space

P = ParamSpec("P")
_MLIR_NAMES = {
    "int32": "i32",
    "uint32": "ui32",
    "int16": "i16",
    "uint16": "ui16",
    "int8": "i8",
}


def _tiles(call: CheckedCall, roles: tuple[str, ...]) -> dict[str, Descriptor]:
    operands = {**call.operands, **call.destinations}
    return {
        role: operands[role]
        for role in roles
        if isinstance(operands.get(role), Descriptor)
    }


def name_rule(rule: Rule, name: str, roles: tuple[str, ...]) -> Rule:
    """Give a made rule a name of its own, such as ``same_partitions(data1, data2)``."""
    assert isinstance(rule, FunctionType)
    rule.__name__ = rule.__qualname__ = f"{name}({', '.join(roles)})"
    return rule


def rule_factory(
    rule: Callable[Concatenate[CheckedCall, P], None],
) -> Callable[P, Rule]:
    """Turn a rule with arguments into a factory of rules that are named by their arguments."""

    def make(*args: P.args, **how: P.kwargs) -> Rule:
        shown = [
            f"{value}"
            for value in (*args, *how.values())
            if not isinstance(value, bool)
        ]
        return name_rule(
            lambda call: rule(call, *args, **how), rule.__name__, tuple(shown)
        )

    return make


_PRODUCTS = {3: "trn2 and later", 4: "trn3 and later"}


@rule_factory
def needs_generation(call: CheckedCall, version: int) -> None:
    """Require a generation of the NeuronCore."""
    if call.machine.nc_version < version:
        raise call.refused(
            f"needs NeuronCore-v{version}",
            f"was called on {call.machine.name}",
            f"{call.machine.name} (NeuronCore-v{call.machine.nc_version})",
            limit=_PRODUCTS[version],
        )


def _partition_remedy(tiles: Mapping[str, Any]) -> str:
    """Return the remedy for tiles of different partitions."""
    rows = {name: tile.shape[0] for name, tile in tiles.items()}
    larger = max(rows, key=lambda name: rows[name])
    fewest = min(rows.values())
    if fewest == 1:
        return (
            "repeat the tile of one partition first: nl.broadcast_to(tile, shape=...)"
        )
    return f"take as many partitions of {larger}: {larger}[0:{fewest}]"


def _equal_property(
    name: str,
    rule_text: str,
    of: Callable[[Descriptor], object],
    noun: str = "{}",
    error: type[NkiError] = ShapeError,
    remedy: str | Callable[[Mapping[str, Any]], str] | None = None,
) -> Callable[..., Rule]:
    """Return a factory of rules: all operands have the same ``of``, which ``noun`` names."""

    def rule(call: CheckedCall, *roles: str) -> None:
        tiles = _tiles(call, roles)
        values = [of(tile) for tile in tiles.values()]
        if any(value != values[0] for value in values):
            these = noun.format(" and ".join(map(str, values)))
            raise error(
                f"{call.name} takes {rule_text.format(roles=' and '.join(roles))}",
                happened=f"{call.name} got {' and '.join(tiles)} of {these}",
                received=", ".join(
                    f"{role} {list(tile.shape)} {dtype_name(tile.dtype)}"
                    for role, tile in tiles.items()
                ),
                remedy=remedy(tiles) if callable(remedy) else remedy,
            )

    rule.__name__ = name
    return rule_factory(rule)


same_partitions = _equal_property(
    "same_partitions",
    "operands with the same number of partitions",
    lambda tile: tile.partitions,
    "{} partitions",
    remedy=_partition_remedy,
)
same_free_size = _equal_property(
    "same_free_size",
    "operands with the same number of elements a partition",
    lambda tile: tile.free_size,
    "{} elements a partition",
)


@rule_factory
def same_partitions_and_free_size(call: CheckedCall, *roles: str) -> None:
    """Require the same partitions, and the same number of elements in each; shapes may differ."""
    same_partitions(*roles)(call)
    same_free_size(*roles)(call)


def other_sizes(where: str, tiles: Mapping[str, Any]) -> ShapeError:
    """Return the error for unequal tile sizes (stub of ``nisa.tensor_tensor``, v2.32.0)."""
    return ShapeError(
        f"{where} takes tiles of the same partitions and elements in each",
        happened=f"{where} got tiles of different sizes",
        received=", ".join(
            f"{name} {list(tile.shape)}" for name, tile in tiles.items()
        ),
        remedy="repeat a dimension of size 1 with tensor.broadcast(dim, size), or use "
        "nisa.tensor_scalar for one value in each partition"
        if len({tile.shape[0] for tile in tiles.values()}) == 1
        else _partition_remedy(tiles),
    )


@rule_factory
def no_broadcast(call: CheckedCall, *roles: str) -> None:
    """Require two tiles of one size; the error says how to repeat the smaller one."""
    tiles = _tiles(call, roles)
    if len({(tile.partitions, tile.size) for tile in tiles.values()}) > 1:
        raise other_sizes(call.name, tiles)


@rule_factory
def arithmetic_in_float32(call: CheckedCall, /, **operands: str) -> None:
    """Require float32 tiles for arithmetic operators with an existing dst.

    AWS's compiler requires this, its simulator does not. Each of ``operands`` has
    the name of its operator's option.
    """
    for option, name in operands.items():
        op = call[option]
        operand = call[name]
        if not isinstance(operand, Descriptor) or op.bitvec or operand.dtype == FLOAT32:
            continue
        if "dst" in call.destinations:
            spelled = _MLIR_NAMES.get(str(operand.dtype), str(operand.dtype))
            raise DtypeError(
                f"'nisa.{call.name}_arith' op '{name}' must be float32, got '{spelled}'",
                happened=f"{call.name}({op.name}) got {name} of {dtype_name(operand.dtype)}",
                received=f"{name} = {operand!r} with op={op.name}",
                limit="float32",
                remedy="copy it into a float32 tile first (nisa.tensor_copy)",
            )


def float32_operands(rules: Iterable[Rule]) -> set[str]:
    """Return the operands that an instruction's :func:`arithmetic_in_float32` checks."""
    names = (rule.__name__.rstrip(")").partition("(") for rule in rules)
    kind = arithmetic_in_float32().__name__.partition("(")[0]
    return {
        name for own, _, listed in names if own == kind for name in listed.split(", ")
    }


same_rank = _equal_property(
    "same_rank",
    "operands with the same number of dimensions",
    lambda tile: len(tile.shape),
    "{} dimensions",
    remedy="insert dimensions of size 1 behind the partitions: tile[:, None, :]",
)
"""NumPy would align the last dimensions, and so one operand's partitions with the other's free
elements. No engine does this.
"""
same_shape = _equal_property(
    "same_shape",
    "operands of one shape",
    lambda tile: list(tile.shape),
    "the shapes {}",
)
one_dtype = _equal_property(
    "one_dtype",
    "{roles} of one dtype",
    lambda tile: dtype_name(tile.dtype),
    error=DtypeError,
    remedy="cast one of them by nisa.tensor_copy",
)
same_size = _equal_property(
    "same_size",
    "tensors of the same number of elements",
    lambda tile: tile.size,
    "{} elements",
    remedy="index all of them so that they cover the same elements",
)
one_memory = _equal_property(
    "one_memory",
    "all its tensors in hbm, or all of them on chip",
    lambda tile: "hbm" if tile.space.is_hbm else tile.space.value,
    "the memories {}",
    error=BufferError,
)


def one_of(
    option: str,
    *allowed: Any,
    says: str,
    do: str = "",
    error: type[NkiError] = KernelError,
) -> Rule:
    """Require an option, if given, to be one of the allowed values; an operator counts by its name.

    ``says`` is the rule in words. ``do`` is the action of an operator, for the error.
    """

    def rule(call: CheckedCall) -> None:
        value = getattr(call[option], "name", call[option])
        if value is not None and value not in allowed:
            limit = map(str, allowed)
            raise call.refused(
                says,
                f"was to {do} {value}" if do else f"got {option}={value}",
                f"{option}={value}",
                error=error,
                limit=", ".join(limit),
            )

    return name_rule(rule, "one_of", (option,))


@rule_factory
def not_both_in_psum(call: CheckedCall, *roles: str) -> None:
    """Allow at most one of two inputs in PSUM, which has one read port for them."""
    tiles = _tiles(call, roles)
    if sum(tile.space is Space.PSUM for tile in tiles.values()) > 1:
        raise call.refused(
            "takes two inputs that are not both in PSUM",
            "got both inputs in PSUM",
            ", ".join(f"{role} = {tile!r}" for role, tile in tiles.items()),
            error=BufferError,
            limit="at most one of them in psum",
            remedy="copy one of them to SBUF first (nisa.tensor_copy)",
        )


def no_gpsimd_in_psum(call: CheckedCall) -> None:
    """Reject tensors in PSUM, which the GpSimd Engine cannot access."""
    if call.engine is not Engine.GPSIMD:
        return
    for role, tile in {**call.tiles, **call.destinations}.items():
        if tile.space is Space.PSUM:
            raise BufferError(
                "the GpSimd Engine cannot access PSUM",
                happened="the GpSimd Engine was given a tensor in PSUM",
                received=f"{call.title} with {role} = {tile!r}",
                limit="sbuf",
                remedy="copy it to SBUF first (nisa.tensor_copy)",
            )


@rule_factory
def of_integers(call: CheckedCall, option: str) -> None:
    """Require integers as operands and result of a bitvec operator."""
    if not call[option].bitvec:
        return
    dtypes = {name: tile.dtype for name, tile in call.tiles.items()}
    for role, dtype in {
        **dtypes,
        "result": call.instruction.result(call).dtype,
    }.items():
        if not is_integer(dtype):
            raise DtypeError(
                f"{call.title}: bitvec operators work on integers",
                happened=f"{call.title} got {role} of {dtype_name(dtype)}",
                received=f"{role} of {dtype_name(dtype)}",
                limit="int8, uint8, int16, uint16, int32, uint32",
                remedy="give the result an integer dtype (a Python integer counts as int32, and "
                "uint32 with int32 as float32): dtype=nl.uint32",
            )


@rule_factory
def binary(call: CheckedCall, *options: str) -> None:
    """Require operators with two operands."""
    for name in options:
        if call[name].unary:
            raise call.refused(
                "takes a binary operator",
                f"got {call[name].name}, which takes one operand",
                f"{name}={call[name].name}",
                remedy="use nisa.tensor_scalar or nisa.activation",
            )


def can_reduce(option: str) -> Rule:
    """Require an operator, if given, that can reduce."""
    names = sorted(op.name for op in ALU_OPS.values() if op.reduction)
    return one_of(
        option, *names, says="takes an operator that can reduce", do="reduce with"
    )


def limits(call: CheckedCall, *cases: tuple[object, str, str]) -> None:
    """Raise LimitError for the first true case, with its rule and the received value."""
    for wrong, text, received in cases:
        if wrong:
            raise LimitError(
                f"{call.name}: {text}",
                happened=f"{call.name} got {received}",
                received=received,
            )


@rule_factory
def arithmetic(call: CheckedCall, *options: str) -> None:
    """Reject bitvec operators."""
    takes = "arithmetic operators" if len(options) > 1 else "an arithmetic operator"
    for name in options:
        op: AluOp | None = call[name]
        if op is not None and op.bitvec:
            raise call.refused(
                f"takes {takes}",
                f"got the bitvec operator {op.name}",
                f"{name}={op.name}",
            )


@rule_factory
def vector_ops(call: CheckedCall, *options: str) -> None:
    """Require operators of the Vector Engine."""
    for op in (call[name] for name in options):
        if Engine.VECTOR not in op.engines:
            raise call.refused(
                "runs on the Vector Engine",
                f"got the operator {op.name}",
                f"op={op.name}",
                limit=f"{op.name} runs on {', '.join(engine.value for engine in op.engines)}",
                remedy="use nisa.tensor_scalar or nisa.activation for it",
            )


@rule_factory
def one_kind(call: CheckedCall, *options: str) -> None:
    """Require that the operators of one instruction are all bitvec, or all arithmetic."""
    ops = [call[name] for name in options if call[name] is not None]
    if len({op.bitvec for op in ops}) > 1:
        names = [op.name for op in ops]
        raise call.refused(
            "takes operators both bitvec or both arithmetic",
            f"got the operators {' and '.join(names)}",
            " and ".join(names),
            remedy="use two instructions",
        )
