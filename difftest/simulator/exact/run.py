"""The exact run of a launch: next to each tensor, the values that it would have without rounding.

The gate calls a :class:`Shadow` before and after the machine runs each instruction. Before, the
instruction's error rule (:data:`RULES`) computes the exact results and the bounds of their errors.
A tensor has neither until an instruction rounds into it: until then the machine's values are exact.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
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
    dtype_name,
    is_float,
)
from difftest.simulator.errors import Location, Stack, kernel_location
from difftest.simulator.exact.bounded import (
    ROUNDINGS,
    UNIT,
    Bounded,
    Float64,
    added_at,
    added_or_put,
    as_bounded,
    gamma,
    into_integers,
    number,
)
from difftest.simulator.exact.contract import (
    NO_CHAIN,
    Contract,
    Narrowing,
    chain_of,
    finest_of,
    narrowed_of,
)
from difftest.simulator.exact.contract import ExactSettings as ExactSettings
from difftest.simulator.exact.exact_values import (
    ByteOwners,
    RoundingSites,
    holding,
    numbers_of,
    raw_values,
)
from difftest.simulator.exact.losses import Loss, Losses
from difftest.simulator.exact.numbers import (
    RULES,
    Numbers,
    chosen_from,
    doubtful_truth,
    nc_matmul,
    nc_matmul_mx,
    quantize_mx,
)
from difftest.simulator.follower import Follower
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.dma import turned
from difftest.simulator.instructions.irregular_masks import meaning_by_dependence
from difftest.simulator.instructions.record import (
    CheckedCall,
    InstructionUse,
    MaskedValues,
    moved,
)
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine
from difftest.support.file_arrays import float64_copy


class Doubt(NamedTuple):
    """A reason to trust the exact run less, or not at all.

    Attributes
    ----------
    reason : the event, as a clause.
    location : the kernel's line.
    lost : whether the exact run is meaningless from here on. Otherwise it took over a decision of
        the machine, and its values are right for that decision.
    is_open : whether it is lost because a decision is open: other values may be right too.
    """

    reason: str
    location: Location | None
    lost: bool
    is_open: bool = False


Pending = tuple[Any, Bounded | None, Array | None]
"""A pending write: a tile, its new numbers, and bools over the tile that choose elements. None in
place of numbers means that the machine's values are exact; None in place of bools is all elements.
"""


class Plan:
    """Properties of a call that do not depend on its operands' numbers, computed once a call."""

    def __init__(self, call: CheckedCall) -> None:
        options = call.options
        self.title = call.title
        self.rule = RULES.get(call.name)
        self.of_tiles = self.rule is nc_matmul_mx
        products = (
            self.rule in (nc_matmul, nc_matmul_mx) and "product" not in call.operands
        )
        self.feeds_product = products or self.rule is quantize_mx
        """True if a matrix product takes its operands, now or after quantization."""
        self.by_dma = call.engine is Engine.DMA
        self.skips = options.get("oob_mode") == "skip"
        """True if elements out of bounds are not moved."""
        self.copies = call.instruction.moves in (moved, turned) and not call.reads_dst
        """True if the instruction only moves its operand's numbers."""
        self.in_place = call.instruction.in_place
        written = call.destinations.get("dst") or call.result
        self.computed = is_float(written.dtype)
        """True if the results are floats. Then an engine rounds wide integers to float32."""
        self.in_bits = any(type(op) is AluOp and op.bitvec for op in options.values())
        """True if the results are bit patterns, which no machine rounds."""
        op = options.get("op") if call.name == "tensor_tensor" else None
        self.multiplies = getattr(op, "name", None) == "multiply"


class Shadow(Follower):
    """The state of one launch's exact run."""

    name = "shadow"

    def __init__(self, settings: ExactSettings) -> None:
        self.random = settings.random
        self.contract = Contract(settings)
        self.doubts: dict[tuple[str, Location | None], Doubt] = {}
        self.losses = Losses() if settings.losses else None
        self.owners = ByteOwners()
        self._pending: list[Pending] | None = None
        self._chain = NO_CHAIN
        self._sums = False
        self._next_id = 1
        self._in_registers: frozenset[Stack] = frozenset()
        """The calls that rounded wider values whose results may be in registers."""
        self._name = ""

    def exact_run(
        self, outputs: Sequence[Tile], arguments: Sequence[tuple[Array, Tile]]
    ) -> ExactRun:
        """Return the exact run after the kernel has ended."""
        losses = self.losses.found.values() if self.losses is not None else ()
        return ExactRun(
            tuple(exact_output(self, tile) for tile in outputs),
            tuple((array, exact_output(self, tile)) for array, tile in arguments),
            tuple(self.doubts.values()),
            tuple(self.contract.narrowed.values()),
            tuple(sorted(losses, key=lambda loss: -loss.happened)),
        )

    # -- between the gate and the machine ---------------------------------------------------------

    def before(self, call: CheckedCall, issued: InstructionUse) -> None:
        """Compute an instruction's results before the machine overwrites its operands."""
        dst = issued.dst
        operands = issued.operands
        where = issued.where
        plan = call.cache.exact_plan
        if plan is None:
            plan = call.cache.exact_plan = Plan(call)
        self._begin(plan.title)
        self._pending = []
        if plan.copies and _is_plain(call, operands[0], dst):
            return
        values = [self._read(plan, call, operand, where) for operand in operands]
        results = self._compute(plan, call, values, issued)
        first, *rest = results if type(results) is tuple else (results,)
        if not call.cache.is_simple:
            first, where = self._resolve_indices(plan, call, first, issued)
        if plan.by_dma:
            first = first.shaped(lambda array: array.reshape(dst.shape))
        self._pending.append(_pending(dst, first, where))
        for tile, part in zip_longest(issued.others, rest):
            if tile is not None:
                self._pending.append(_pending(tile, part, None))

    def _note_operands(
        self,
        plan: Plan,
        call: CheckedCall,
        issued: InstructionUse,
        values: list[Any],
    ) -> None:
        """Note the operands for the losses, and the roundings that they depend on."""
        if self.losses is not None and not plan.in_place:
            self.losses.take([value for value in values if isinstance(value, Bounded)])
        if (self._sums or plan.multiplies) and not plan.in_place:
            self._chain = chain_of(issued.operands, plan.multiplies)
        if self.contract.follows:
            self._note_narrowed(plan, call, issued)

    def _compute(
        self, plan: Plan, call: CheckedCall, values: list[Any], issued: InstructionUse
    ) -> Any:
        """Return the results of an instruction; None for bit patterns, which stay the machine's."""
        self._note_operands(plan, call, issued, values)
        results: Any = None
        if plan.in_bits:
            self.sure(*[value for value in values if isinstance(value, Bounded)])
        elif plan.rule is not None:
            results = plan.rule(self, call, *values)
        else:
            results = self._run_meaning(call, values, issued)
        if call.reads_dst and isinstance(issued.dst, Tile):
            return self._add_to_dst(call, results, issued.dst)
        return results

    def _note_narrowed(
        self, plan: Plan, call: CheckedCall, issued: InstructionUse
    ) -> None:
        """Note the roundings of wider values that an instruction's operands depend on.

        Roundings behind the operands of a matrix product are excused: it needs operands of one
        dtype.
        """
        narrowed = narrowed_of(issued.operands)
        if plan.feeds_product:
            self.contract.excused |= narrowed
            self._chain = self._chain._replace(finest=0.0)
            return
        if call.reads_dst:
            narrowed |= narrowed_of([issued.dst])
        if call.reduces:
            narrowed = self._in_registers = self._in_registers | narrowed
        finest = finest_of(issued.operands)
        self._chain = self._chain._replace(narrowed=narrowed, finest=finest)

    def _run_meaning(
        self, call: CheckedCall, values: list[Any], issued: InstructionUse
    ) -> Any:
        """Return the results of the record's own meaning, applied to numbers with bounds."""
        instruction = call.instruction
        inner = issued.inner
        compute = instruction.moves if instruction.in_place else instruction.meaning
        if inner is not None:
            compute = functools.partial(meaning_by_dependence, inner)
        operands = list(map(self._lifted, values))
        if call.reduces:
            with current().registers.exchanged():
                results = compute(call, *operands)
        else:
            results = compute(call, *operands)
        if type(results) is MaskedValues:
            return self._masked(results, issued.dst)
        if type(results) is tuple:
            return tuple(map(_held_numbers, results))
        return _held_numbers(results)

    def _lifted(self, value: Any) -> Any:
        """Return numbers as an array-like on which a meaning runs; other operands unchanged."""
        if type(value) is Bounded:
            return Numbers(self, value)
        if isinstance(value, (int, float, np.generic)):
            return Numbers(self, number(value))
        return value

    def _masked(self, result: MaskedValues, dst: Any) -> MaskedValues:
        """Return a result of chosen elements; where the choice is open, the bound holds both."""
        chosen: Any = result.chosen
        unsure = doubtful_truth(chosen.held) if isinstance(chosen, Numbers) else None
        if unsure is None or not unsure.any() or not isinstance(dst, Tile):
            return _held_numbers(result)  # type: ignore[no-any-return]
        self.doubt("a rounded value decides", lost=False)
        values = _held_numbers(result.values)
        truth = chosen.held.value != 0
        if values is None:
            values = Bounded(result.values.astype(np.float64))
        kept = self.take(dst).shaped(lambda array: array.reshape(values.value.shape))
        made: Any = chosen_from(truth, unsure, values, kept)
        return MaskedValues(made, truth | unsure)

    def _add_to_dst(self, call: CheckedCall, numbers: Bounded, dst: Tile) -> Bounded:
        """Add ``numbers`` to the values of ``dst``; add a product only to an earlier product."""
        missing = dst._fresh() if "product" in call.operands else None
        if call.options.get("accumulate", True) is None and missing is None:
            if dst._storage.products is None:
                return numbers
            missing = ~dst._in_product()
            if missing.all():
                return numbers
        return added_or_put(self.stored(dst, unread=missing), numbers, missing)

    def _read(
        self, plan: Plan, call: CheckedCall, operand: Any, where: Array | None
    ) -> Any:
        """Return an operand as its rule takes it: the numbers of a tile, or the operand itself."""
        if isinstance(operand, Tile):
            if plan.of_tiles:
                return operand
            if plan.by_dma:
                return self.stored(operand, computed=plan.computed)
            return self.take(operand, computed=plan.computed)
        if isinstance(operand, IndirectTile):
            self.name_elements(*map(self.take, operand._index_tiles))
            operand._resolve(
                skip=plan.skips, where=None if call.instruction.walk else where
            )
            return self.stored(operand._base, computed=plan.computed).shaped(
                operand._take
            )
        return operand

    def _resolve_indices(
        self, plan: Plan, call: CheckedCall, numbers: Any, issued: InstructionUse
    ) -> Any:
        """Return the numbers for a destination, and the elements written.

        Indices may be out of bounds, or name a place twice.
        """
        dst: Any = issued.dst
        where: Any = issued.where
        arrays: Any = ()
        if isinstance(dst, IndirectTile):
            self.name_elements(*map(self.take, dst._index_tiles))
            arrays, where = dst._resolve(skip=plan.skips, where=where)
        for source in issued.operands:
            if isinstance(source, IndirectTile) and not source._inside.all():
                there = call.instruction.moves(call, source._inside)
                chosen = there.reshape(dst.shape)  # in the order of the numbers
                where = chosen if where is None else chosen & where.reshape(dst.shape)
        if isinstance(dst, IndirectTile):
            numbers = numbers.shaped(lambda array: array.reshape(dst.shape))
            if call.reads_dst:
                places = tuple(array[where] for array in arrays)
                terms = numbers.shaped(lambda array: array[where])
                numbers = added_at(self.stored(dst._base), terms, places, self.gamma)
                numbers = numbers.shaped(lambda array: _spread_over(where, array))
        return numbers, where

    def sent(self, src: Tile) -> Bounded | None:
        """Return a tile's numbers for another core; None if the machine's values are exact."""
        held = self.held(src)
        self.contract.excused |= narrowed_of([src])  # the other core may multiply them
        if held is None:
            return None
        return held.shaped(np.copy)

    def foresee_effect(self, opcode: str, dst: Tile, numbers: Bounded | None) -> None:
        """Note that an effect will write ``numbers``, which another core :meth:`sent`.

        ``numbers`` is None if the effect rounds nothing.
        """
        self._begin(opcode)
        self._pending = [*(self._pending or ()), (dst, numbers, None)]

    def _begin(self, name: str) -> None:
        self._name = name
        self._chain = NO_CHAIN
        if self.losses is not None:
            self.losses.begin(name)

    def after(self, call: CheckedCall, issued: InstructionUse) -> None:
        """Store the foreseen results, now that the machine has run the instruction."""
        pending = self._pending
        self._pending = None
        for written in pending or ():
            self.put(*written)

    def happened(
        self, opcode: str, writes: Sequence[Tile], reads: Sequence[Tile]
    ) -> None:
        """Store an effect's foreseen results; note a doubt if rounded values leave."""
        if not writes and any(tile._storage.exact is not None for tile in reads):
            self._begin(opcode)
            self.doubt(f"{opcode} takes rounded values elsewhere", lost=True)
        for written in self._pending or ():
            self.put(*written)
        self._pending = None

    # -- reading ----------------------------------------------------------------------------------

    def take(self, tile: Tile, *, computed: bool = False) -> Bounded:
        """Return a tile's numbers as an engine reads them: the partition axis first.

        ``computed`` means that the results are floats, so that wide integers are rounded to
        float32.
        """
        held = self.held(tile)
        if held is None:
            values = tile._engine_values(unwritten=True)
            return as_bounded(values, tile.dtype, computed=computed)
        if tile._storage.in_hbm or (tile._partition_axis == 0 and len(tile.shape) > 1):
            return held
        shape = tile._tile_shape()
        return held.shaped(lambda array: array.reshape(shape))

    def stored(
        self, tile: Tile, *, computed: bool = False, unread: Array | None = None
    ) -> Bounded:
        """Return a tile's numbers in its own shape, whether or not all of them were written.

        ``unread`` is as in :meth:`held`.
        """
        return self.held(tile, unread=unread) or as_bounded(
            raw_values(tile), tile.dtype, computed=computed
        )

    def held(self, tile: Tile, *, unread: Array | None = None) -> Bounded | None:
        """Return a tile's numbers in its own shape; None if the machine's values are exact.

        ``unread`` chooses elements, in that shape, that do not count as losses of the operand.
        """
        storage = tile._storage
        if tile._axes is not None:
            tile._check_bounds()
        own: Array | None = None
        if storage.shared:
            owned = self.owners.own(tile)
            if isinstance(owned, str):
                self.doubt(owned, lost=True)
                return None
            own = owned
            if not own.any():
                return None
        exact = storage.exact
        if exact is None:
            return None
        if tile.dtype != storage.dtype:
            self.doubt(
                "the bits of rounded values are read as another dtype", lost=True
            )
            return None
        result = numbers_of(tile, exact, own)
        if self.losses is not None:
            read = None if unread is None else ~unread
            self.losses.read(raw_values(tile), result, read)
        return result

    # -- writing ----------------------------------------------------------------------------------

    def put(self, tile: Any, numbers: Bounded | None, where: Array | None) -> None:
        """Store one :data:`Pending` write, which the machine has just made."""
        storage = tile._storage
        numbers, sites = self._rounded(numbers, tile.dtype)
        clean = numbers is None or (numbers.error is None and not numbers.sums)
        if storage.shared:
            self.owners.note(tile, where, rounded=not clean)
        if clean and (storage.exact is None or storage.shared):
            return
        if tile.dtype != storage.dtype:
            self.doubt(
                "the bits of rounded values are written as another dtype", lost=True
            )
            storage.exact = None
            return
        if clean and _covers(tile, where):
            storage.exact = None
            return
        self._hold(tile, numbers, where, sites)

    def _hold(
        self,
        tile: Any,
        numbers: Bounded | None,
        where: Array | None,
        sites: RoundingSites,
    ) -> None:
        """Store numbers as the exact values of a tile; None for the machine's values."""
        if numbers is None:
            numbers = Bounded(raw_values(tile).astype(np.float64))
        exact = holding(tile, numbers, where, sites, self._next_id)
        tile._storage.exact = exact
        self._next_id += exact.value.size
        if self.losses is not None:
            self.losses.wrote(tile, raw_values(tile), numbers, where)

    def _rounded(
        self, numbers: Bounded | None, dtype: DType
    ) -> tuple[Bounded | None, RoundingSites]:
        """Return :meth:`written` numbers, and the lines and calls that rounded them."""
        self.contract.rounded = frozenset()
        if numbers is None:
            return None, RoundingSites(narrowed=self._chain.narrowed)
        written = self.written(numbers, dtype)
        narrowed = self._chain.narrowed | self.contract.rounded
        line = product = None
        if self._chain.multiplies and is_float(dtype) and ROUNDINGS[dtype].unit > UNIT:
            product = kernel_location()
        if written is not None and written.sums:
            self._sums = True
            line = next(iter(self._chain.lines), None)
            if numbers.adds:
                line = kernel_location()
        return written, RoundingSites(line, product, narrowed)

    def written(self, numbers: Bounded, dtype: DType) -> Bounded | None:
        """Return numbers as a tensor of ``dtype`` holds them; None if the machine's are exact."""
        if is_float(dtype):
            return self.contract.into(numbers, dtype, self._chain, self._name)
        if numbers.error is None:
            return None
        if numbers.dtype == dtype:
            return numbers
        if dtype not in (*INTEGERS, BOOL):
            return None
        whole = into_integers(numbers, dtype)
        if whole is not None:
            self.doubt(
                f"a rounded value is converted to {dtype_name(dtype)}", lost=False
            )
        return whole

    def sure(self, *numbers: Bounded) -> None:
        """Note a doubt if rounding may change numbers that are used as bits."""
        if _may_differ(numbers):
            self.doubt("the bits of rounded values count", lost=True)

    def name_elements(self, *numbers: Bounded) -> None:
        """Note a doubt if rounding may change numbers that are used as indices."""
        if _may_differ(numbers):
            self.doubt("a rounded value names elements", lost=True, is_open=True)

    # -- services for arithmetic ------------------------------------------------------------------

    def doubt(self, reason: str, *, lost: bool, is_open: bool = False) -> None:
        """Note that the exact run is less certain, or meaningless, from this line on."""
        location = kernel_location()
        self.doubts.setdefault(
            (reason, location), Doubt(reason, location, lost, is_open)
        )

    def gamma(self, n: int, elements: int, *, terms: int = 0) -> float:
        """Return the relative error of a sum with n roundings, one of ``elements`` such sums.

        ``terms`` is the number of terms or factors, if not n.
        """
        if self.losses is not None:
            self.losses.terms = max(self.losses.terms, terms or n)
        return gamma(n, elements, random=self.random, unit=self.contract.sums)


def _is_plain(
    call: CheckedCall, src: Tile | IndirectTile, dst: Tile | IndirectTile
) -> bool:
    """Return whether a copy changes no value, and neither side has exact values of its own."""
    if is_float(dst.dtype):
        wider = dst.dtype == FLOAT32 and is_float(src.dtype)
        # the host's bits
        rounds = src.dtype == TFLOAT32 and call.engine is not Engine.DMA
        if rounds or not (wider or src.dtype == dst.dtype):
            return False
    ours = src._storage
    theirs = dst._storage
    return ours.exact is theirs.exact is None and not (ours.shared or theirs.shared)


def _covers(tile: Any, where: Array | None) -> bool:
    """Return whether a write replaces a whole tensor."""
    return where is None and tile._is_whole()


def _may_differ(numbers: Sequence[Bounded]) -> bool:
    return any(value.error is not None and value.error.any() for value in numbers)


def _spread_over(where: Array, chosen: Array) -> Array:
    """Spread the values of the chosen elements over an array of all elements; the rest is 0."""
    full = np.zeros(where.shape)
    full[where] = chosen
    return full


def _held_numbers(result: Any) -> Any:
    """Return the numbers of a meaning's result.

    For a plain array return None: the machine has the same elements.
    """
    if isinstance(result, Numbers):
        return result.held
    if type(result) is not MaskedValues:
        return None
    chosen: Any = result.chosen
    plain = chosen.settled() != 0 if isinstance(chosen, Numbers) else chosen
    return MaskedValues(_held_numbers(result.values), plain)


def _pending(tile: Any, result: Any, where: Array | None) -> Pending:
    if type(result) is MaskedValues:
        where = result.chosen if where is None else result.chosen & where
        result = result.values
    return tile, result, where


# -- results ---------------------------------------------------------------------------------------


class ExactOutput(NamedTuple):
    """An output of an exact run.

    Attributes
    ----------
    value : the kernel's result without rounding, float64, of the output's shape.
    error : the largest error of a correct machine, float64, of the output's shape; None if the
        machine's values are exact.
    """

    value: Float64
    error: Float64 | None


class ExactRun(NamedTuple):
    """The exact run of a launch.

    Attributes
    ----------
    outputs : the returned tensors, in the order of the launch's.
    arguments : for each mutable argument, the caller's array and the argument's final values.
    doubts : reasons to trust the run less, or not at all (``Doubt.lost``).
    narrowed : long sums, and roundings into other dtypes than those of arguments and outputs.
        Their errors count as float32's.
    losses : the loss of each instruction, if requested, largest first.
    """

    outputs: tuple[ExactOutput, ...]
    arguments: tuple[tuple[Array, ExactOutput], ...]
    doubts: tuple[Doubt, ...]
    narrowed: tuple[Narrowing, ...]
    losses: tuple[Loss, ...] = ()

    @property
    def has_meaning(self) -> bool:
        """Return whether the values can be compared with anything."""
        return not any(doubt.lost for doubt in self.doubts)

    @property
    def is_open(self) -> bool:
        """Return whether the run is meaningless because of an open decision."""
        return any(doubt.lost and doubt.is_open for doubt in self.doubts)

    def of(self, returned: Sequence[int], arrays: Sequence[Array]) -> ExactRun:
        """Return the run for some of the returned tensors, followed by values left in arguments.

        Parameters
        ----------
        returned : the indices of the returned tensors.
        arrays : the caller's arrays. An array that the kernel may not write to is exact as it is.
        """
        left = {id(array): output for array, output in self.arguments}
        outputs = [self.outputs[number] for number in returned]
        outputs += [
            left.get(id(array)) or ExactOutput(float64_copy(array), None)
            for array in arrays
        ]
        return self._replace(outputs=tuple(outputs))


def exact_output(shadow: Shadow, tile: Tile) -> ExactOutput:
    """Return the exact run's values of a tensor in HBM that has its final value."""
    held = shadow.held(tile)
    if held is None:
        return ExactOutput(float64_copy(raw_values(tile)), None)
    return ExactOutput(held.value, held.error)
