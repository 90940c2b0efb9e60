"""The exact run of a launch: beside each tensor what it would hold if nothing rounded.

The gate tells a :class:`Shadow` of each instruction before the machine runs it, and the launch of
each event after. In between lies the instruction's error rule (:data:`RULES`), which computes the
exact values of what it writes and the bounds of their errors. A tensor has none of both until an
instruction has rounded something in it: then the machine's own values are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import (
    BOOL,
    FLOAT32,
    INTEGERS,
    Array,
    DType,
    from_bits,
    is_float,
    name_of,
)
from difftest.simulator.errors import Location, kernel_location
from difftest.simulator.exact.bounded import (
    ROUNDINGS,
    UNIT,
    Bounded,
    Float64,
    Held,
    add,
    as_bounded,
    ends,
    gamma,
    number,
)
from difftest.simulator.exact.chains import NO_CHAIN, chain_of
from difftest.simulator.exact.contract import Contract
from difftest.simulator.exact.doubts import Doubt
from difftest.simulator.exact.losses import Losses
from difftest.simulator.exact.masks import left_by_mask
from difftest.simulator.exact.owners import Owners
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.record import Call, Masked, Reach, Unboxed
from difftest.simulator.instructions.writing import fit
from difftest.simulator.memory import Storage, pattern_view
from difftest.simulator.tile import Tile

ORDERS = "core_barrier"
"""The event that names a tensor as read and written, and leaves its values."""
COPIES = ("all_gather", "all_to_all", "permute")
"""Events of no instruction that round nothing."""

_FLOAT64 = np.dtype(np.float64)


Settle = Callable[[], None]
Rule = Callable[..., Any]

RULES: dict[str, Rule] = {}
"""By instruction: ``rule(run, call, *operands)``, with a :class:`Bounded` for each tile. It returns
the numbers of ``dst``, or those of all destinations, or None where the machine's are exact."""
MOVES: dict[str, Rule] = {}
"""By instruction that writes by itself: ``move(run, call, dst, *operands, where=where)``, with the
tiles as they are. It returns what is to be done when the machine has written, or None."""


def rule(name: str) -> Callable[[Rule], Rule]:
    """Make a function the error rule of an instruction."""
    return lambda function: RULES.setdefault(name, function)


def move(name: str) -> Callable[[Rule], Rule]:
    """Make a function the error rule of an instruction that writes by itself."""
    return lambda function: MOVES.setdefault(name, function)


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
        self._pending: list[Settle] | None = None
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
        for tile in (dst, *operands):
            if isinstance(tile, Tile):
                tile.check_bounds()
        moves = MOVES.get(call.name)
        if moves is not None:
            settle = moves(self, call, dst, *operands, where=where)
            self._pending = [] if settle is None else [settle]
            return
        computes = RULES.get(call.name)
        reach = Reach.ELEMENT if unboxed is None else call.instruction.reach(call)
        if unboxed is not None and any(one is not None for one in others):
            reach = Reach.ROW
        if computes is None or reach not in (Reach.ELEMENT, Reach.AXES):
            what = call.name if unboxed is None else f"under a mask that is no box, {call.name}"
            self._pending = [lambda: self._unruled(what, (dst, *others), operands)]
            return
        floats = is_float(dst.dtype)
        values = [self.take(op, computed=floats) if isinstance(op, Tile) else op for op in operands]
        if self.losses is not None:
            self.losses.take([one for one in values if isinstance(one, Bounded)])
        if reach is Reach.AXES:
            assert unboxed is not None
            values[0] = left_by_mask(call, values[0], unboxed.inner)
        if call.reads_dst:
            values.append(self.take(dst))
        op = call.options.get("op") if call.name == "tensor_tensor" else None
        multiplies = getattr(op, "name", None) == "multiply"
        self._chain = chain_of((*operands, dst) if call.reads_dst else operands, multiplies)
        made = computes(self, call, *values)
        results = made if type(made) is tuple else (made,)
        self._pending = [
            self._settling(tile, result, where if number == 0 else None)
            for number, (tile, result) in enumerate(zip((dst, *others), results, strict=False))
            if tile is not None
        ]

    def foresee_sum(
        self, dst: Tile, product: Tile, missing: Array | None, where: Array | None
    ) -> None:
        """As :meth:`foresee`, of a product that is added to a tile in PSUM.

        ``missing`` says where that was never written: there the product is put.
        """
        self._begin("nc_matmul")
        added = self.take(product)
        self._pending = [self._settling(dst, self.sum_of(dst, added, missing), where)]

    def sent(self, src: Tile) -> Bounded | None:
        """What a tile holds now, for another core; None where the machine's values are exact."""
        held = self.held(src)
        return None if held is None else held.shaped(np.copy)

    def foresee_received(self, opcode: str, dst: Tile, made: Bounded | None) -> None:
        """As :meth:`foresee`, of what another core :meth:`sent`."""
        self._begin(opcode)
        self._pending = [self._settling(dst, made, None)]

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
            if any(is_float(tile.dtype) for tile in writes) and opcode not in COPIES:
                self.doubt(f"{opcode} has no error rule", lost=True)
            elif any(tile.storage.exact is not None for tile in reads):
                self.doubt(f"{opcode} takes rounded values elsewhere", lost=True)
            pending = [self._settling(tile, None, None) for tile in writes]
        for settle in pending:
            settle()

    def _settling(self, tile: Tile, result: Any, where: Array | None) -> Settle:
        if type(result) is Masked:
            chosen = result.chosen
            where = chosen if where is None else chosen & where
            result = result.values
        return lambda: self.put(tile, result, where)

    def _unruled(self, what: str, tiles: Sequence[Any], operands: Sequence[Any]) -> None:
        bases = [tile.base if isinstance(tile, IndirectTile) else tile for tile in tiles]
        written = [tile for tile in bases if tile is not None]
        read = [op.base if isinstance(op, IndirectTile) else op for op in operands]
        rounds = any(is_float(tile.dtype) for tile in written)
        if rounds or any(isinstance(t, Tile) and t.storage.exact is not None for t in read):
            self.doubt(f"{what} has no error rule", lost=True)
        for tile in written:
            self.put(tile, None, None)

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
        """Note what the machine has just written to a tile; None that its values are exact."""
        storage = tile.storage
        line = product = None
        partial = False
        if made is not None:
            adds = made.adds
            made = self.written(made, tile.dtype)
            partial = made is not None and made.partial
            narrow = is_float(tile.dtype) and ROUNDINGS[tile.dtype].unit > UNIT
            product = kernel_location() if narrow and self._chain.multiplies else None
            if made is not None and made.sums:
                line = kernel_location() if adds else next(iter(self._chain.lines), None)
        clean = made is None or (made.error is None and not made.sums)
        noted = self.owners.note(tile, where, rounded=not clean)
        if noted is False:
            self.doubt("too many tensors share the bytes of an address", lost=True)
        if clean and (noted or storage.exact is None):
            return
        if tile.dtype != storage.dtype:
            self.doubt("the bits of rounded values are written as another dtype", lost=True)
            storage.exact = None
            return
        if made is None:
            made = Bounded(raw_values(tile).astype(np.float64))
        whole = where is None and tile.is_whole()
        if whole and clean:
            storage.exact = None
            return
        value = fit(made.value, tile)
        error = np.zeros(()) if made.error is None else fit(_spread(made), tile)
        if whole:
            shape = storage.allocation.shape
            storage.exact = Held(
                _own(value, tile.shape).reshape(shape),
                _own(error, tile.shape).reshape(shape),
                np.full(shape, made.sums, np.uint8) if made.sums else None,
            )
        else:
            self._put_part(storage, tile, value, error, made.sums, where)
        exact = self._parts(storage)
        storage.exact = exact._replace(line=line or exact.line, product=product, partial=partial)
        if self.losses is not None:
            self.losses.wrote(tile, raw_values(tile), made, where)

    def _parts(self, storage: Storage) -> Held:
        """A tensor's exact values, which so far were the machine's if it has none of its own."""
        if storage.exact is None:
            filled = np.ascontiguousarray(raw_values(Tile.whole(storage)), np.float64)
            storage.exact = Held(filled, np.zeros(filled.shape), None)
        return storage.exact

    def _put_part(
        self,
        storage: Storage,
        tile: Tile,
        value: Float64,
        error: Float64,
        sums: int,
        where: Array | None,
    ) -> None:
        exact = self._parts(storage)
        if sums and exact.sums is None:
            counts = np.zeros(exact.value.shape, np.uint8)
            exact = storage.exact = exact._replace(sums=counts)
        chosen = where
        if where is not None and where.size == tile.size:
            chosen = where.reshape(tile.shape)
        tile.scatter(exact.value, value, chosen)
        tile.scatter(exact.error, error, chosen)
        if exact.sums is not None:
            tile.scatter(exact.sums, sums, chosen)

    def put_at(self, base: Tile, places: tuple[Any, ...], made: Bounded | None) -> None:
        """As :meth:`put`, of the elements that indices name and of numbers :meth:`written` gave."""
        storage = base.storage
        clean = made is None or (made.error is None and not made.sums)
        if storage.shared:
            self.doubt("tensors share the bytes of an address", lost=True)
        if clean and storage.exact is None:
            return
        exact = self._parts(storage)
        value, error = (pattern_view(a, base.pattern, _FLOAT64) for a in (exact.value, exact.error))
        if made is None:
            value[places], error[places] = raw_values(base)[places], 0.0
            return
        value[places] = made.value
        error[places] = 0.0 if made.error is None else made.error
        if made.sums:
            if exact.sums is None:
                exact = storage.exact = exact._replace(sums=np.zeros(exact.value.shape, np.uint8))
            assert exact.sums is not None
            counts = pattern_view(exact.sums, base.pattern, exact.sums.dtype)
            counts[places] = made.sums
        storage.exact = exact._replace(partial=made.partial)

    def written(self, made: Bounded, dtype: DType) -> Bounded | None:
        """Numbers as a tensor of ``dtype`` holds them; None where the machine's are exact."""
        if is_float(dtype):
            return self.contract.into(made, dtype, self._chain, self._name)
        return self._integers(made, dtype)

    def _integers(self, made: Bounded, dtype: DType) -> Bounded | None:
        """A conversion to integers; None where the machine's is sure, else a doubt is noted."""
        if made.error is None or dtype not in (*INTEGERS, BOOL):
            return None
        if made.dtype == dtype:
            return made
        value, low, high = (_whole(end, dtype) for end in (made.value, *ends(made)))
        if dtype == BOOL:
            error = ((np.abs(made.value) <= made.error) & (made.error > 0)).astype(np.float64)
        else:
            error = np.maximum(high - value, value - low)
        if not error.any():
            return None
        self.doubt(f"a rounded value is converted to {name_of(dtype)}", lost=False)
        return Bounded(value, error, dtype)

    def sure(self, *numbers: Bounded) -> None:
        """Say so where numbers that name elements, or whose bits count, may be others."""
        if any(one.error is not None and one.error.any() for one in numbers):
            self.doubt("a rounded value names elements", lost=True)

    def places(self, indirect: IndirectTile) -> None:
        """As :meth:`sure`, of the tiles by which another one is indexed."""
        self.sure(*[self.take(tile) for tile in indirect.index_tiles])

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

    def sum_of(self, dst: Tile, added: Bounded, missing: Array | None = None) -> Bounded:
        """What a tile in PSUM holds once something is added to it, put where it is ``missing``."""
        held = self.stored(dst)
        shape = held.value.shape
        added = added.shaped(lambda array: array.reshape(shape))
        summed = add(held, added)
        if missing is None:
            return summed
        fresh, other = (np.zeros(()) if one.error is None else one.error for one in (added, summed))
        value = np.where(missing, added.value, summed.value)
        error = np.where(missing, fresh, other)
        return Bounded(value, error, FLOAT32, summed.sums, summed.adds, summed.partial)


def _whole(value: Float64, dtype: DType) -> Float64:
    """What a conversion to integers makes of float64."""
    if dtype == BOOL:
        return np.asarray(value != 0, dtype=np.float64)
    info = np.iinfo(dtype)
    whole: Float64 = np.clip(np.rint(value), info.min, info.max)
    return whole


def _spread(made: Bounded) -> Float64:
    assert made.error is not None
    return np.broadcast_to(made.error, made.value.shape)


def _own(array: Float64, shape: tuple[int, ...]) -> Float64:
    """An array of a shape that nobody else has."""
    if array.base is None and array.shape == shape and array.flags.c_contiguous:
        return array
    full = np.empty(shape)
    full[...] = array
    return full


def raw_values(tile: Tile) -> Array:
    """The values of a tensor, whatever was never written."""
    held = tile.elements()
    return from_bits(held, tile.dtype) if tile.holds_bits else held
