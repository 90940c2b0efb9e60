"""How this dialect issues an instruction: an existing ``dst``, and views that move at run time."""

from __future__ import annotations

from typing import Any

from difftest.simulator.descriptor import taped
from difftest.simulator.frontend.misuses import OFFSETS_FOR_AN_ENGINE
from difftest.simulator.frontend.nki.dynamic import MOVING, DynamicView
from difftest.simulator.frontend.nki.indirection import check_use
from difftest.simulator.frontend.nki.objects import ISSUED, NkiInstruction
from difftest.simulator.frontend.nki.tensor import IndirectTensor
from difftest.simulator.frontend.nki.virtual_registers import DeviceValue
from difftest.simulator.instructions import effects, gate
from difftest.simulator.instructions.operands import need_tile, wrong_buffer
from difftest.simulator.instructions.record import ON_CHIP, DType, Instruction, Role, Takes
from difftest.simulator.trace import Engine


def issue(
    instruction: Instruction,
    dst: Any,
    operands: tuple[Any, ...],
    options: tuple[Any, ...] = (),
    *,
    others: tuple[Any, ...] = (),
    engine: Engine = Engine.UNKNOWN,
) -> NkiInstruction:
    """Issue an instruction that writes ``dst``, as :func:`gate.issue` does."""
    if dst is None:
        need_tile(dst, "dst", instruction.name)
    issue_new(instruction, operands, options, dst=dst, others=others, engine=engine)
    return ISSUED


def perform(
    effect: Instruction,
    dst: Any,
    operands: tuple[Any, ...],
    options: tuple[Any, ...] = (),
    *,
    others: tuple[Any, ...] = (),
    engine: Engine = Engine.UNKNOWN,
) -> NkiInstruction:
    """Issue an effect on one tensor at each role; parameters as :func:`issue` has them."""
    targets = (dst, *others) if effect.destinations else ()
    effects.issue(effect, [(operands, targets)], options, engine)
    return ISSUED


@taped("placed")
def issue_new(
    instruction: Instruction,
    operands: tuple[Any, ...],
    options: tuple[Any, ...] = (),
    *,
    dst: Any = None,
    others: tuple[Any, ...] = (),
    dtype: DType | None = None,
    engine: Engine = Engine.UNKNOWN,
) -> Any:
    """As :func:`issue`; without ``dst`` into a new tile, which it returns.

    A view with one dynamic offset is accessed where that puts it.
    """
    indices: list[Any] = []
    if not MOVING.isdisjoint(map(type, (dst, *operands, *others))):
        roles = (*instruction.operands, *instruction.destinations)
        given = [
            _placed(instruction.name, role, one, indices)
            for role, one in zip(roles, (*operands, dst, *others), strict=False)
        ]
        count = len(operands)
        operands, dst, others = tuple(given[:count]), given[count], tuple(given[count + 1 :])
    return gate.issue(
        instruction,
        operands,
        options,
        dst=dst,
        others=others,
        dtype=dtype,
        engine=engine,
        indices=tuple(indices),
    )


def _placed(name: str, role: Role, given: Any, indices: list[Any]) -> Any:
    """What stands at a role, where its offset puts it.

    A role that takes indices gets the view, if it has one for each row or may be skipped. To
    ``indices`` comes what holds an offset or an index otherwise, and each register.
    """
    if isinstance(given, IndirectTensor):
        check_use(name, role.name, given._group, given, given._index)
        indices.append(given._index)
    elif isinstance(given, DynamicView):
        if isinstance(given._index, DeviceValue):
            indices.append((role.name, given._index.label))
        if role.takes is Takes.TILE_OR_INDIRECT and given._settled() is None:
            return given
        indices += given._index_tiles
        return settle(given)
    return given


def need_operand(value: object, name: str, where: str) -> Any:
    """``value`` as a tile on chip, or as a view of one that an offset moves."""
    if not isinstance(value, DynamicView):
        return need_tile(value, name, where)
    if value._in_hbm:
        raise wrong_buffer(value, name, where, ON_CHIP)
    return value


def settle(view: DynamicView) -> Any:
    """The view where its one offset puts it."""
    if not view._whole:
        raise OFFSETS_FOR_AN_ENGINE(repr(view))
    settled = view._settled()
    if settled is None:
        view._resolve(skip=False)
    return settled
