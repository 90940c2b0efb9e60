"""Instructions of ``nki.isa``: a signature, a record, and the converters of the arguments.

A signature has no body. Its arguments go to the record's roles and options by name. An issued
instruction has an existing ``dst``, and its dynamic views are resolved to their offsets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, cast

from difftest.simulator.core import Core, current, entry
from difftest.simulator.errors import KernelError, ShapeError, call_error, not_modelled
from difftest.simulator.frontend.arguments import (
    as_pairs,
    not_taken,
    note_registers,
    resets_registers,
)
from difftest.simulator.frontend.dispatch import Binder, Converter
from difftest.simulator.frontend.levels import public
from difftest.simulator.frontend.nki.constants import (
    ISSUED,
    NkiInstruction,
    engine_of,
    member_of,
    reduce_cmd,
)
from difftest.simulator.frontend.nki.dynamic import MOVING, DynamicView
from difftest.simulator.frontend.nki.tensor import IndirectTensor, check_use
from difftest.simulator.frontend.nki.virtual_registers import DeviceValue
from difftest.simulator.index import Index, as_integer
from difftest.simulator.instructions import effects, gate
from difftest.simulator.instructions.activation import PRELU
from difftest.simulator.instructions.alu import (
    NKI_OPS,
    AluOp,
    activation_name,
    alu_op,
    check_generation,
)
from difftest.simulator.instructions.checks import is_number, need_tile, wrong_buffer
from difftest.simulator.instructions.record import (
    EFFECTS,
    HBM,
    ON_CHIP,
    Instruction,
    InstructionUse,
    OperandKind,
    Role,
)
from difftest.simulator.instructions.reduce import AVERAGE
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.instructions.rules import other_sizes
from difftest.simulator.misuses import OFFSETS_FOR_AN_ENGINE
from difftest.simulator.strictness import report_undefined, report_violation
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

Prepare = Callable[[dict[str, Any], str], None]
_COMMANDS = {cmd: Accumulate[cmd.name.upper()] for cmd in reduce_cmd}


def operator(op: Any, where: str) -> Any:
    """Return an operator of the Vector Engine."""
    try:
        return NKI_OPS[op.nki_name]
    except (AttributeError, KeyError):
        return alu_op(op, where, NKI_OPS)


def stage(op: Any, where: str) -> Any:
    """Return an operator, or None for ``nl.bypass``."""
    if getattr(op, "nki_name", None) == "bypass":
        return None
    return operator(op, where)


def average(op: Any, where: str) -> Any:
    """Return an operator, including ``nl.average``."""
    if getattr(op, "nki_name", None) == AVERAGE.name:
        return AVERAGE
    return operator(op, where)


def function(op: Any, where: str) -> str:
    """Return a Scalar Engine function's name; ``nl.prelu`` needs a parameter for its slope."""
    if getattr(op, "nki_name", None) != PRELU:
        return activation_name(op, where)
    if where != "activate2":
        raise not_modelled(
            f"{where} of nl.prelu, whose slope no page says,",
            "op=nl.prelu",
            "use nisa.activate2, whose relu_param is the slope",
        )
    return PRELU


def command(value: Any, where: str) -> Accumulate:
    """Return the command for an engine's registers, from a ``reduce_cmd``."""
    return _COMMANDS[member_of(reduce_cmd, value, where)]


def commands(engine: str, *, infers: bool = False) -> Prepare:
    """Return a function that resolves ``reduce_cmd`` and ``reduce_res`` to a register command.

    A call that ``infers`` treats a ``reduce_op`` as a command: see :func:`resets_registers`.
    """

    def prepare(values: dict[str, Any], where: str) -> None:
        into = values["reduce_res"]
        cmd = command(values["reduce_cmd"], where)
        idle = cmd is Accumulate.IDLE
        if (
            idle
            and infers
            and resets_registers(where, engine, values["reduce_op"], into)
        ):
            cmd = Accumulate.RESET_REDUCE
        values["reduce_cmd"] = cmd
        note_registers(engine, cmd, into)
        if into is None or cmd is not Accumulate.IDLE:
            return
        if engine not in current().registers.accumulators:
            raise call_error(
                where,
                "reads the registers into reduce_res, and nothing was accumulated in them",
                "was to read registers in which nothing was accumulated",
                f"reduce_res = {into!r} with reduce_cmd.idle",
                remedy="pass reduce_cmd=nisa.reduce_cmd.reset_reduce",
            )
        values["reduce_cmd"] = Accumulate.READ

    return prepare


_CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("op", "op0", "op1", "reduce_op"), operator),
    **dict.fromkeys(("cmp_op", "comp_op0", "comp_op1"), alu_op),
    "engine": engine_of,
}


def call(
    record: Instruction,
    *,
    prepare: Prepare | None = None,
    run: Callable[..., NkiInstruction] | None = None,
    **settings: Any,
) -> Callable[[Callable[..., None]], Callable[..., NkiInstruction]]:
    """Make a call of an instruction from a signature; see :class:`Binder`.

    ``run`` is called instead of the function that issues a record of this kind.
    """

    def make(signature: Callable[..., None]) -> Callable[..., NkiInstruction]:
        binder = Binder(signature, record, settings, _CONVERTERS, prepare)
        return cast(
            Callable[..., NkiInstruction],
            public(signature, binder.compiled(expression)),
        )

    def expression(binder: Binder) -> str:
        dst = binder.text(binder.dst) if record.destinations else None
        engine = binder.value("engine") if "engine" in binder.parameters else "_unknown"
        options = binder.each(record.options, binder.value)
        taken = f"_record, {dst}, {binder.each(binder.roles, binder.text)}, {options}"
        issues = run or (perform if record.name in EFFECTS else issue)
        binder.scope.update(_issue=issues, _unknown=Engine.UNKNOWN)
        others = binder.each(binder.further, binder.text)
        return f"_issue({taken}, others={others}, engine={engine})"

    return make


# -- issuing instructions in this dialect ----------------------------------------------------------


@entry("into")
def issue(
    core: Core,
    record: Instruction,
    dst: Any,
    operands: tuple[Any, ...],
    options: tuple[Any, ...] = (),
    others: tuple[Any, ...] = (),
    engine: Engine = Engine.UNKNOWN,
) -> NkiInstruction:
    """Issue an instruction that writes ``dst``; for the parameters, see :class:`InstructionUse`."""
    if dst is None:
        need_tile(dst, "dst", record.name)
    gate.run_instruction(
        core,
        placed(InstructionUse(record, operands, options, dst, None, others, engine)),
    )
    turns = core.loops.turns
    if turns:
        return NkiInstruction(turns)
    return ISSUED


def issued() -> NkiInstruction:
    """Return the handle of an instruction that was issued by hand."""
    return NkiInstruction(current().loops.turns)


def perform(
    effect: Instruction,
    dst: Any,
    operands: tuple[Any, ...],
    options: tuple[Any, ...],
    others: tuple[Any, ...] = (),
    engine: Engine = Engine.UNKNOWN,
) -> NkiInstruction:
    """Issue an effect on one tensor at each role."""
    targets = (dst, *others) if effect.destinations else ()
    effects.issue_effect(effect, [(operands, targets)], options, engine)
    return issued()


@entry("placed")
def issue_new(
    core: Core,
    instruction: Instruction,
    operands: tuple[Any, ...],
    options: tuple[Any, ...] = (),
    **how: Any,
) -> Any:
    """Issue an instruction as :func:`gate.issue` does, with dynamic views resolved."""
    return gate.run_instruction(
        core, placed(InstructionUse(instruction, operands, options, **how))
    )


def placed(issued: InstructionUse) -> InstructionUse:
    """Return a request with its dynamic views resolved to their offsets."""
    accesses = (*issued.operands, issued.dst, *issued.others)
    if MOVING.isdisjoint(map(type, accesses)):
        return issued
    record = issued.instruction
    count = len(issued.operands)
    indices = list[Any]()
    roles = record.operands + record.destinations
    tiles = [
        _placed(issued, role, access, indices)
        for role, access in zip(roles, accesses, strict=False)
    ]
    issued.operands = tuple(tiles[:count])
    issued.dst = tiles[count]
    issued.others = tuple(tiles[count + 1 :])
    issued.indices = tuple(indices)
    return issued


def _placed(
    issued: InstructionUse, role: Role, operand: Any, indices: list[Any]
) -> Any:
    """Return the operand of a role, resolved to its offset.

    A role that accepts indices gets the unresolved view if each row has an index, or if it may be
    skipped. All other holders of an offset or an index, and each register, are added to
    ``indices``.
    """
    if isinstance(operand, IndirectTensor):
        check_use(issued, role.name, operand)
        indices.append(operand._index)
    elif isinstance(operand, DynamicView):
        if isinstance(operand._index, DeviceValue):
            indices.append((role.name, operand._index.label))
        if role.takes is OperandKind.TILE_OR_INDIRECT and operand._settled() is None:
            return operand
        indices += operand._index_tiles
        return settle(operand)
    return operand


def need_operand(value: object, name: str, where: str) -> Any:
    """Return ``value`` as a tile on chip, or as a dynamic view of one.

    A tensor in HBM of several dimensions is a doubt: AWS's simulator computes with it.
    """
    if not isinstance(value, DynamicView):
        tile = need_tile(value, name, where, ON_CHIP + HBM)
        if tile._in_hbm:
            error = wrong_buffer(tile, name, where, ON_CHIP)
            if tile.ndim < 2:
                raise error
            report_undefined(error)
        return tile
    if value._in_hbm:
        raise wrong_buffer(value, name, where, ON_CHIP)
    return value


def settle(view: DynamicView) -> Any:
    """Return the view at its one offset."""
    if not view._whole:
        raise OFFSETS_FOR_AN_ENGINE(repr(view))
    settled = view._settled()
    if settled is None:
        view._resolve(skip=False)
    return settled


# -- operands that depend on each other ------------------------------------------------------------


MOST_AXES = 4
"""The limit on dimensions of the pattern of iota and affine_select."""


class OperatorName(NamedTuple):
    """An operator by name: a signature's default, or an operator without a function in ``nl``."""

    nki_name: str

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise KernelError(
            f"nl.{self.nki_name} is an operator for instructions, and no function",
            happened=f"nl.{self.nki_name} was called",
            received=", ".join(f"{value!r:.60}" for value in args),
            remedy=f"pass it to an instruction that takes it: op=nl.{self.nki_name}",
        )


def operator_of(op: object, where: str) -> AluOp:
    """Return the operator of an ``nl`` function (or NumPy's) in the current dialect."""
    operator = alu_op(op, where, NKI_OPS)
    check_generation(operator, where, current().machine)
    return operator


def beside(**operands: str) -> Callable[[dict[str, Any], str], None]:
    """Return a function that replaces an omitted operand of ``tensor_scalar`` and others by 0.

    A unary operator takes None or 0 (v2.32.0). ``operands`` maps the parameter of an operator to
    its operand.
    """
    pairs = tuple(operands.items())

    def prepare(values: dict[str, Any], where: str) -> None:
        for parameter, name in pairs:
            operand = values[name]
            function = values[parameter]
            known = NKI_OPS.get(getattr(function, "nki_name", ""))
            if function is not None and (operand is None or (known and known.unary)):
                _check_omitted(operator_of(function, where), name, operand, where)
                values[name] = 0

    return prepare


def _check_omitted(op: AluOp, name: str, operand: Any, where: str) -> None:
    """Require None or 0 next to a unary operator, and nothing else there."""
    is_empty = operand is None or (is_number(operand) and operand == 0)
    if op.unary is is_empty:
        return
    takes = f"{name} beside op={op.name}"
    if op.unary:
        takes = f"None or 0 as {takes}"
    raise not_taken(
        where,
        takes,
        f"{name}={operand!r:.60} for op={op.name}",
        f"{name}={operand!r:.60}",
    )


def affine(values: Mapping[str, Any], where: str) -> Index:
    """Return ``offset + channel * channel_multiplier + sum(step * i)`` over dst's partitions.

    The steps are the pattern's. The offset is an integer, or a register, which is read immediately.
    """
    dst, pattern, offset, multiplier = (
        values[name] for name in ("dst", "pattern", "offset", "channel_multiplier")
    )
    need_tile(dst, "dst", where)
    pairs = as_pairs(pattern, where, "step", "num")
    shape = (dst._tile_shape()[0], *(n for _, n in pairs))
    if not 1 <= len(pairs) <= MOST_AXES or math.prod(shape) != dst.size:
        raise ShapeError(
            f"{where}'s pattern has up to {MOST_AXES} dimensions, and dst's elements in each "
            "partition",
            happened=f"{where} got a pattern of {len(pairs)} dimensions and "
            f"{math.prod(shape[1:])} elements",
            received=f"pattern={[list(pair) for pair in pairs]} for {dst!r}",
            limit=f"{dst.size // max(shape[0], 1)} elements",
        )
    steps = (as_integer(multiplier, "channel_multiplier"), *(s for s, _ in pairs))
    start = offset.device_value() if isinstance(offset, DeviceValue) else offset
    return Index(shape, as_integer(start, "offset"), steps)


def _repeats(tile: Tile, shape: tuple[int, ...]) -> bool:
    """Return whether a tile fills a shape of its rank, repeated along dimensions of size 1."""
    return all(have in (1, size) for have, size in zip(tile.shape, shape, strict=True))


def to_one_size(where: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Return two tiles repeated along dimensions of size 1, to the larger of each.

    The release notes exclude broadcasting between tiles, but AWS's simulator does it. Its
    compiler's verifier rejects different numbers of partitions, which the simulator repeats, too.
    """
    pair = (x, y)
    if not (isinstance(x, Tile) and isinstance(y, Tile)) or x.shape == y.shape:
        return pair
    if (x.shape[0], x.size) == (y.shape[0], y.size):
        return pair
    rank = max(x.ndim, y.ndim)
    error = other_sizes(where, {"x": x, "y": y})
    ones = (1,) * (rank - 1)
    x, y = (t.reshape((t.shape[0], *ones)) if t.size == t.shape[0] else t for t in pair)
    if not x.ndim == y.ndim == rank:
        raise error
    shape = tuple(map(max, zip(x.shape, y.shape, strict=True)))
    if not (_repeats(x, shape) and _repeats(y, shape)):
        raise error
    if x.shape[0] == y.shape[0]:
        report_violation(error)
    else:
        report_undefined(error)
    return x._broadcast_to(shape), y._broadcast_to(shape)
