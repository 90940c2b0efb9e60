"""The exact run of a launch: beside each tensor what it would hold if nothing rounded.

The gate tells a :class:`Shadow` of each instruction before the machine runs it, and the launch of
each event after. In between lies the instruction's error rule (:data:`RULES`), which computes the
exact values of what it writes and the bounds of their errors. A tensor has none of both until an
instruction has rounded something in it: then the machine's own values are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import (
    BOOL,
    FLOAT32,
    INTEGERS,
    TFLOAT32,
    Array,
    DType,
    is_float,
    name_of,
)
from difftest.simulator.errors import Location, kernel_location
from difftest.simulator.exact.bounded import (
    ROUNDINGS,
    UNIT,
    Bounded,
    added_at,
    as_bounded,
    gamma,
    into_integers,
    number,
)
from difftest.simulator.exact.contract import NO_CHAIN, Contract, chain_of
from difftest.simulator.exact.held import holding, raw_values
from difftest.simulator.exact.losses import Losses
from difftest.simulator.exact.owners import Owners
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.record import Call, Masked, Reach, Unboxed
from difftest.simulator.instructions.unboxed import NEUTRAL, first_to_front
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

ORDERS = "core_barrier"
"""The event that names a tensor as read and written, and leaves its values."""
EXCHANGES = ("all_gather", "all_to_all", "permute")
"""Events of no instruction that round nothing."""

Rule = Callable[..., Any]

RULES: dict[str, Rule] = {}
"""By instruction: ``rule(run, call, *operands)``, with a :class:`Bounded` for each tile. It returns
the numbers of ``dst``, or those of all destinations, or None where the machine's are exact. Each
record has one, or :mod:`.table` cannot be imported."""
COPIES: set[str] = set()
"""Instructions that put the numbers of their first operand elsewhere, and compute nothing."""
OF_TILES: set[str] = set()
"""Instructions whose rule takes the tiles as they are."""


def rule(*names: str, copies: bool = False, of_tiles: bool = False) -> Callable[[Rule], Rule]:
    """Make a function the error rule of instructions."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        if copies:
            COPIES.update(names)
        if of_tiles:
            OF_TILES.update(names)
        return function

    return register


class Doubt(NamedTuple):
    """Where the exact run says less than it seems, or nothing.

    Attributes
    ----------
    reason : what happened, as a clause.
    location : the kernel's line.
    lost : whether the exact run has no meaning from here on; else the machine's decision was taken
        over, and values are right for it.
    """

    reason: str
    location: Location | None
    lost: bool


class Pending(NamedTuple):
    """What an instruction is about to write: to all of a tile, or where bools over it are true.

    ``made`` is None where the machine's values are exact.
    """

    tile: Tile
    made: Bounded | None
    where: Array | None = None


class Shadow:
    """What the exact run of one launch knows.

    Parameters
    ----------
    dtypes : dtypes that the kernel may round into besides those of its arguments and outputs.
    results : dtypes of the outputs, if they are known.
    random : whether rounding errors may be taken as independent of each other.
    losses : whether to note which instruction lost how much.
    """

    def __init__(
        self,
        *,
        dtypes: Sequence[DType] = (),
        results: Sequence[DType] = (),
        random: bool = False,
        losses: bool = False,
    ) -> None:
        self.random = random
        self.contract = Contract(dtypes, results)
        self.doubts: dict[tuple[str, Location | None], Doubt] = {}
        self._registers: dict[int, dict[str, Bounded]] = {}
        self.losses = Losses() if losses else None
        self.owners = Owners()
        self._pending: list[Pending] | None = None
        self._chain = NO_CHAIN
        self._name = ""

    @property
    def accumulators(self) -> dict[str, Bounded]:
        """The reduction registers of the core that runs, by engine."""
        return self._registers.setdefault(current().seat, {})

    # -- between the gate and the machine ---------------------------------------------------------

    def foresee(
        self,
        call: Call,
        dst: Any,
        operands: Sequence[Any],
        others: Sequence[Tile | None],
        where: Array | None,
        unboxed: Unboxed | None = None,
    ) -> None:
        """Compute what an instruction will write, before the machine overwrites its operands.

        ``unboxed`` is there if a mask which is no box lets it read some elements only.
        """
        self._begin(call.title)
        record = call.instruction
        for tile in (dst, *operands):
            if isinstance(tile, Tile):
                tile.check_bounds()
        self._pending = []
        if call.name in COPIES and not call.reads_dst and _is_plain(call, operands[0], dst):
            return
        reach = Reach.ELEMENT if unboxed is None else record.reach(call)
        if unboxed is not None and any(one is not None for one in others):
            reach = Reach.ROW
        if reach not in (Reach.ELEMENT, Reach.AXES):
            self._unruled(f"under a mask that is no box, {call.name}", (dst, *others), operands)
            return
        values, there = self._read(call, dst, operands, where)
        if not record.in_place:
            if self.losses is not None:
                self.losses.take([one for one in values if isinstance(one, Bounded)])
            op = call.options.get("op") if call.name == "tensor_tensor" else None
            multiplies = getattr(op, "name", None) == "multiply"
            self._chain = chain_of((*operands, dst) if call.reads_dst else operands, multiplies)
        if reach is Reach.AXES:
            assert unboxed is not None
            values[0] = _left_by_mask(call, values[0], unboxed.inner)
        compute = RULES[call.name]
        if any(type(op) is AluOp and op.bitvec for op in call.options.values()):
            self.sure(*[one for one in values if isinstance(one, Bounded)])
            made = None  # patterns of bits, which no machine rounds
        else:
            made = compute(self, call, *values)
        first, *rest = made if type(made) is tuple else (made,)
        if isinstance(dst, IndirectTile):
            self._pending.append(self._scattered(call, dst, first, where, there))
            return
        if there is not None:  # it lies in the result where its numbers do
            chosen = compute(self, call, Bounded(there)).value.reshape(dst.shape)
            where = chosen if where is None or record.walk is None else chosen & where
        if call.engine is Engine.DMA:
            first = first.shaped(lambda array: array.reshape(dst.shape))
        self._pending = [
            _pending(tile, one, where if number == 0 else None)
            for number, (tile, one) in enumerate(zip_longest((dst, *others), (first, *rest)))
            if tile is not None
        ]

    def _read(
        self, call: Call, dst: Any, operands: Sequence[Any], where: Array | None
    ) -> tuple[list[Any], Array | None]:
        """The operands' numbers, and which elements of an indirect one are there, if not all."""
        by_dma, of_tiles, there = call.engine is Engine.DMA, call.name in OF_TILES, None
        computed = is_float(dst.dtype) and not call.instruction.in_place
        values: list[Any] = []
        for operand in operands:
            if isinstance(operand, IndirectTile):
                kept = where if call.instruction.walk is None else None
                picked, inside = self._gathered(operand, _skips(call), kept)
                there = None if inside.all() else inside
                values.append(picked)
            elif isinstance(operand, Tile) and not of_tiles:
                read = self.stored(operand) if by_dma else self.take(operand, computed=computed)
                values.append(read)
            else:
                values.append(operand)
        if call.reads_dst and isinstance(dst, Tile):
            if "accumulate" in call.options:
                values.append(dst)  # the rule knows whether it adds
            else:
                values.append(self.stored(dst) if by_dma else self.take(dst))
        return values, there

    def _gathered(
        self, access: IndirectTile, skip: bool, where: Array | None
    ) -> tuple[Bounded, Array]:
        """The numbers that indices name, and which of them are there."""
        self.sure(*map(self.take, access.index_tiles))
        _, inside = access.resolve(skip=skip, where=where)
        return self.stored(access.base).shaped(access.take), inside

    def _scattered(
        self, call: Call, dst: IndirectTile, made: Bounded, where: Any, there: Array | None
    ) -> Pending:
        """Put numbers where indices say, or add them to what is there."""
        arrays, inside = dst.resolve(skip=_skips(call), where=where)
        if there is not None:
            inside = inside & there.reshape(dst.shape)
        places = tuple(array[inside] for array in arrays)
        made = made.shaped(lambda array: array.reshape(dst.shape)[inside])
        if call.reads_dst:
            made = added_at(self.stored(dst.base), made, places, self.gamma)
        self.sure(*map(self.take, dst.index_tiles))
        return _spread_out(dst.base, made, places)

    def sent(self, src: Tile) -> Bounded | None:
        """What a tile holds now, for another core; None where the machine's values are exact."""
        held = self.held(src)
        return None if held is None else held.shaped(np.copy)

    def foresee_received(self, opcode: str, dst: Tile, made: Bounded | None) -> None:
        """As :meth:`foresee`, of what another core :meth:`sent`."""
        self._begin(opcode)
        self._pending = [Pending(dst, made)]

    def _begin(self, name: str) -> None:
        self._name = name
        self._chain = NO_CHAIN
        if self.losses is not None:
            self.losses.begin(name)

    def told(self, opcode: str, writes: Sequence[Tile], reads: Sequence[Tile]) -> None:
        """Take over what was foreseen, now that the machine has run the instruction."""
        if opcode == ORDERS:
            return
        pending, self._pending = self._pending, None
        if pending is None:
            self._begin(opcode)
            if any(is_float(tile.dtype) for tile in writes) and opcode not in EXCHANGES:
                self.doubt(f"{opcode} has no error rule", lost=True)
            elif any(tile.storage.exact is not None for tile in reads):
                self.doubt(f"{opcode} takes rounded values elsewhere", lost=True)
            pending = [Pending(tile, None) for tile in writes]
        for one in pending:
            self.put(*one)

    def _unruled(self, what: str, tiles: Sequence[Any], operands: Sequence[Any]) -> None:
        written = [tile for tile in tiles if tile is not None]
        rounds = any(is_float(tile.dtype) for tile in written)
        if rounds or any(isinstance(t, Tile) and t.storage.exact is not None for t in operands):
            self.doubt(f"{what} has no error rule", lost=True)
        self._pending = [Pending(tile, None) for tile in written]

    # -- reading ----------------------------------------------------------------------------------

    def take(self, tile: Tile, *, computed: bool = False) -> Bounded:
        """A tile's numbers as an engine reads them: the partition axis first.

        ``computed`` says that floats come of them, so that wide integers are rounded to float32.
        """
        held = self.held(tile)
        if held is None:
            values = tile.engine_values(unwritten=True)
            return as_bounded(values, tile.dtype, computed=computed)
        if tile.storage.in_hbm or (tile.partition_axis == 0 and len(tile.shape) > 1):
            return held
        shape = tile.tile_shape()
        return held.shaped(lambda array: array.reshape(shape))

    def stored(self, tile: Tile) -> Bounded:
        """A tile's numbers in its own shape, whether or not all were written."""
        held = self.held(tile)
        return as_bounded(raw_values(tile), tile.dtype) if held is None else held

    def held(self, tile: Tile) -> Bounded | None:
        """A tile's numbers in its own shape; None where the machine's values are exact."""
        storage = tile.storage
        if tile.axes is not None:
            tile.check_bounds()
        own = self.owners.own(tile)
        if isinstance(own, str):
            self.doubt(own, lost=True)
            return None
        exact = storage.exact
        if exact is None or (own is not None and not own.any()):
            return None
        if tile.dtype != storage.dtype:
            self.doubt("the bits of rounded values are read as another dtype", lost=True)
            return None
        value = tile.gather(exact.value)
        error: Any = tile.gather(exact.error)
        sums = 0
        if exact.sums is not None:
            sums = int(tile.gather(exact.sums).max())
        if own is not None and not own.all():
            value, error = np.where(own, value, raw_values(tile)), np.where(own, error, 0.0)
        if not error.any():
            error = None
        result = Bounded(value, error, tile.dtype, sums, partial=exact.partial)
        if self.losses is not None:
            self.losses.read(raw_values(tile), result)
        return result

    # -- writing ----------------------------------------------------------------------------------

    def put(self, tile: Tile, made: Bounded | None, where: Array | None) -> None:
        """Note what the machine has just written to a tile, as :class:`Pending` says it."""
        storage = tile.storage
        line = product = None
        if made is not None:
            adds = made.adds
            made = self.written(made, tile.dtype)
            narrow = is_float(tile.dtype) and ROUNDINGS[tile.dtype].unit > UNIT
            product = kernel_location() if narrow and self._chain.multiplies else None
            if made is not None and made.sums:
                line = kernel_location() if adds else next(iter(self._chain.lines), None)
        clean = made is None or (made.error is None and not made.sums)
        shared = self.owners.note(tile, where, rounded=not clean)
        if clean and (shared or storage.exact is None):
            return
        if tile.dtype != storage.dtype:
            self.doubt("the bits of rounded values are written as another dtype", lost=True)
            storage.exact = None
            return
        if clean and where is None and tile.is_whole():
            storage.exact = None
            return
        if made is None:
            made = Bounded(raw_values(tile).astype(np.float64))
        exact = holding(tile, made, where)
        storage.exact = exact._replace(
            line=line or exact.line, product=product, partial=made.partial
        )
        if self.losses is not None:
            self.losses.wrote(tile, raw_values(tile), made, where)

    def written(self, made: Bounded, dtype: DType) -> Bounded | None:
        """Numbers as a tensor of ``dtype`` holds them; None where the machine's are exact."""
        if is_float(dtype):
            return self.contract.into(made, dtype, self._chain, self._name)
        if made.error is None or dtype not in (*INTEGERS, BOOL) or made.dtype == dtype:
            return None if made.error is None or made.dtype != dtype else made
        whole = into_integers(made, dtype)
        if whole is not None:
            self.doubt(f"a rounded value is converted to {name_of(dtype)}", lost=False)
        return whole

    def sure(self, *numbers: Bounded) -> None:
        """Say so where numbers that name elements, or whose bits count, may be others."""
        if any(one.error is not None and one.error.any() for one in numbers):
            self.doubt("a rounded value names elements", lost=True)

    # -- what rules need --------------------------------------------------------------------------

    def doubt(self, reason: str, *, lost: bool) -> None:
        """Say that the exact run has less meaning, or none, from this line on."""
        location = kernel_location()
        self.doubts.setdefault((reason, location), Doubt(reason, location, lost))

    def operand(self, value: Any) -> Bounded:
        """An operand that may be a number."""
        return value if isinstance(value, Bounded) else number(value)

    def gamma(self, n: int, elements: int, *, terms: int = 0) -> float:
        """The relative error of a sum with n roundings, one of ``elements`` such sums.

        ``terms`` is how many numbers are added up or multiplied, if not n.
        """
        if self.losses is not None:
            self.losses.terms = max(self.losses.terms, terms or n)
        return gamma(n, elements, random=self.random, unit=self.contract.sums)


def _skips(call: Call) -> bool:
    """Whether elements out of bounds are not moved."""
    return call.options.get("oob_mode") == "skip"


def _is_plain(call: Call, src: Tile | IndirectTile, dst: Tile | IndirectTile) -> bool:
    """Whether a copy changes no value, and neither side has other exact values."""
    if is_float(dst.dtype):
        wider = dst.dtype == FLOAT32 and is_float(src.dtype)
        rounds = src.dtype == TFLOAT32 and call.engine is not Engine.DMA  # bits of the host's
        if rounds or not (wider or src.dtype == dst.dtype):
            return False
    storages = (src.storage, dst.storage)
    return not any(storage.exact is not None or storage.shared for storage in storages)


def _pending(tile: Tile, made: Any, where: Array | None) -> Pending:
    if type(made) is Masked:
        where = made.chosen if where is None else made.chosen & where
        made = made.values
    return Pending(tile, made, where)


def _spread_out(base: Tile, made: Bounded | None, places: tuple[Any, ...]) -> Pending:
    """The elements of a tile that indices name, among all of them."""
    where = np.zeros(base.shape, BOOL)
    where[places] = True
    if made is None:
        return Pending(base, None, where)

    def among_all(array: Any) -> Any:
        full = np.zeros(base.shape)
        full[places] = array
        return full

    return Pending(base, made.shaped(among_all), where)


def _left_by_mask(call: Call, data: Bounded, inner: Array) -> Bounded:
    """The operand of a reduction which does not notice what a mask leaves out of it."""
    if call["op"].name == "subtract":
        assert call.instruction.reduced is not None
        axes = call.instruction.reduced(call)
        return data.shaped(lambda array: first_to_front(array, inner, axes))
    value = np.where(inner, data.value, float(NEUTRAL[call["op"].name]))
    error = None if data.error is None else np.where(inner, data.error, 0.0)
    return Bounded(value, error, data.dtype, data.sums, data.adds)
