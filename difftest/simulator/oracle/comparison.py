"""The oracle of a launch: it follows the instructions and compares their results.

Each instruction is judged alone. The documentation leaves some results open, such as the order of a
product's sum or the last places of a curved function. There the oracle accepts a difference and
continues with the simulator's values. Unwritten elements are not compared.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import BOOL
from difftest.simulator.errors import OracleError
from difftest.simulator.follower import Follower
from difftest.simulator.index import Index
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import require_rules
from difftest.simulator.instructions.record import InstructionUse
from difftest.simulator.oracle import elementwise, moves  # noqa: F401  each fills the table of meanings
from difftest.simulator.oracle.operators import (
    Array,
    epsilon,
    host_dtype,
    poison_element,
    round_literal,
)
from difftest.simulator.oracle.use import (
    MEANINGS,
    Literal,
    LiteralMemory,
    LiteralResult,
    LiteralTensor,
    LiteralUse,
)
from difftest.simulator.oracle.views import indices, literal_view, tracked
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space

TAKEN = dict.fromkeys(("rand", "rand2", "rng"), "the numbers are the launch's own")
"""Records without a literal meaning, and the reasons: the oracle takes over their results."""
require_rules(
    {**MEANINGS, **TAKEN}, "the oracle has neither a meaning nor a reason to have none"
)


class Oracle(Follower):
    """A follower of one launch: it executes each instruction literally."""

    name = "oracle"
    followed = staticmethod(tracked)

    def __init__(self) -> None:
        self._tensors: WeakValueDictionary[int, LiteralTensor] = WeakValueDictionary()
        self._kept: list[LiteralTensor] = []
        """Tensors in HBM, which a kernel may use again after it has dropped their names."""
        self._placed: dict[Any, LiteralMemory] = {}
        self._registers: dict[Any, dict[str, Array]] = {}
        self._where: Array | None = None

    # -- tensors -----------------------------------------------------------------------------

    def tensor(self, storage: Any) -> Literal:
        """Return all of a tensor; copy the launch's data into a new one."""
        number = storage.allocation.id
        held = self._tensors.get(number)
        if held is None:
            held = self._tensors[number] = self._held(storage)
            if storage.in_hbm:
                self._kept.append(held)
            # no line of the kernel allocated it
            if storage.allocation.location is None:
                data = np.ascontiguousarray(storage.data).view(host_dtype(held.dtype))
                held.whole.store(data.reshape(held.shape))
        return held.whole

    def _held(self, storage: Any) -> LiteralTensor:
        allocation = storage.allocation
        on_chip = not storage.in_hbm
        core = current()
        space = allocation.space
        machine = core.machine
        row = pitch = storage.size * storage.dtype.itemsize
        memory = LiteralMemory(row)
        base = 0
        if allocation.address is not None and core.trace.dialect == "nki":
            where = space, None if space is Space.SHARED_HBM else core.seat.program
            memory = self._placed.setdefault(where, LiteralMemory(0))
            first, base = allocation.address
            if on_chip:
                psum = space is Space.PSUM
                pitch = (
                    machine.psum_partition_bytes if psum else machine.sbuf_usable_bytes
                )
                row = row // allocation.shape[0]
                base = first * pitch + base
        return LiteralTensor(memory, base, row, pitch, allocation)

    def wrote(self, tile: Any) -> None:
        """Take over the simulator's values of a tile written without a literal meaning."""
        literal = literal_view(tile)
        literal.store(_elements(tile, literal), _written(tile))

    def beside(self, core: Any) -> Oracle:
        """Return the follower of another core of the launch: same memory, its own registers."""
        other = copy.copy(self)
        other._registers = {}
        return other

    def happened(
        self, opcode: str, writes: Sequence[Any], reads: Sequence[Any]
    ) -> None:
        """Take over the simulator's values from an effect."""
        for tile in writes:
            self.wrote(tile)

    def array(self, tensor: Any) -> Array:
        """Return the values of a tensor as an array of its dtype."""
        return literal_view(tensor).read().view(tensor.dtype)

    def outputs(self, returned: list[Any], outputs: Any) -> Any:
        """Return the returned tensors in the oracle, each with a mask of unwritten elements."""
        arrays = []
        for tensor, (_, missing) in zip(returned, outputs, strict=True):
            gaps = ~literal_view(tensor).touched()
            if missing is not None:
                gaps = np.logical_or(gaps, missing)
            arrays.append((self.array(tensor), gaps if gaps.any() else None))
        return tuple(arrays)

    # -- instructions ------------------------------------------------------------------------

    def before(self, call: Any, issued: InstructionUse) -> None:
        self._where = issued.where  # a meaning may choose some of these elements
        # Afterwards its results may overlap its operands.
        self._complete = all(map(_is_written, (issued.left_of or issued).operands))

    def after(self, call: Any, issued: InstructionUse) -> None:
        """Judge an instruction's results, unless it is part of a larger instruction."""
        if issued.left_of is None:
            self.whole(call, issued, self._where)

    def whole(self, call: Any, issued: InstructionUse, kept: Array | None) -> None:
        """Judge the results of an instruction; ``kept`` are a mask's bools over its iterations."""
        with np.errstate(all="ignore"):
            targets = (issued.dst, *issued.others)
            if call.name in TAKEN:
                for tile in targets:
                    self.wrote(tile)
                return
            complete = self._complete and "reduce_cmd" not in call.options
            complete = complete and (not call.reads_dst or _is_written(issued.dst))
            stored = self._stored(call, issued, kept)
            for target in stored[::-1]:  # where two overlap, the last one holds
                _compare(call.title, target, complete=complete)

    def _stored(
        self, call: Any, issued: InstructionUse, kept: Array | None
    ) -> list[tuple[Any, ...]]:
        """Store the results of the literal meaning; return a row for each destination."""
        record = call.instruction
        targets = (issued.dst, *issued.others)
        literals = [
            None if dst is None else literal_view(dst).settled() for dst in targets
        ]
        use = self._use(call, issued, literals[0], kept)
        results = MEANINGS[record.name](use)
        if type(results) is not tuple:
            results = (results,)
        stored = []
        rows = zip(record.destinations, targets, literals, results, strict=False)
        for role, tile, literal, result in rows:
            if literal is not None and result is not None:
                row = (role.name, tile, literal, *_store(use, literal, result))
                stored.append(row)
        return stored

    def _use(
        self, call: Any, issued: InstructionUse, dst: Any, kept: Array | None
    ) -> LiteralUse:
        """Return the use of an instruction as its literal meaning reads it."""
        record = call.instruction
        pairs = zip(record.operands, issued.operands, strict=False)
        values = {role.name: _operand(operand) for role, operand in pairs}
        registers = self._registers.setdefault(current().seat.program, {})
        use = LiteralUse(call, values, dst, kept, registers)
        if record.name == "dropout":
            use.taken = _elements(issued.dst, dst).reshape(use.shape)
        use.asked = call.options.get("accumulate", False)
        if dict(issued.said).get("inferred", False):
            use.asked = None
        return use


def _store(
    use: LiteralUse, literal: Literal, result: LiteralResult
) -> tuple[Array, Array | None]:
    """Store a result; return which elements it has, and their accepted difference."""
    shape = literal.places.shape
    kept = use.over(shape) if result.kept is None else _reshape(result.kept, shape)
    kept = kept & (literal.places >= 0)
    elements = _reshape(result.values, shape)
    if not result.is_cast:
        elements = round_literal(elements, literal.dtype)
    product = use.call.name.startswith("nc_matmul")
    literal.store(elements, kept, product=product)
    return kept, None if result.slack is None else _reshape(result.slack, shape)


def _compare(title: str, target: Any, *, complete: bool) -> None:
    """Compare with the simulator; ``complete`` operands leave no result unwritten."""
    role, tile, literal, kept, slack = target
    if isinstance(tile, IndirectTile) or (literal.places < 0).any():
        # The written places are under judgement too, so compare the whole tensor.
        tile = current().tile._whole(getattr(tile, "_base", tile)._storage)
        literal = literal_view(tile)
        slack = None
        complete = False
        kept = np.ones(tile.shape, np.bool_)
    actual = _elements(tile, literal)
    expected = literal.read()
    written = _written(tile)
    if written is not None:
        lost = kept & ~written
        kept = kept & written
        if (
            lost.any()
            and complete
            and np.unique(literal.places).size == literal.places.size
        ):
            raise _mismatch(title, role, actual, expected, lost, "were not written")
        literal.store(np.full(actual.shape, poison_element(literal.dtype)), lost)
        literal.touch(lost, written=False)
    other = kept & ~_same(actual, expected)
    if slack is not None and other.any():
        wrong = other & ~_close(actual, expected, slack, literal)
        literal.store(actual, other & ~wrong, product=title.startswith("nc_matmul"))
        other = wrong
    if other.any():
        raise _mismatch(title, role, actual, expected, other)


def _operand(operand: Any) -> Any:
    """Return an operand as the oracle reads it: a view, an index's values, or a number."""
    if isinstance(operand, (Tile, IndirectTile)):
        return literal_view(operand).settled()
    if isinstance(operand, Index):
        return indices(operand)
    return operand


def _elements(tile: Any, literal: Literal) -> Array:
    """Return the simulator's elements of a tile in the host's form of the dtype."""
    elements = tile._elements()
    host = host_dtype(literal.dtype)
    if literal.dtype == BOOL:
        return np.asarray(elements.view(np.uint8) != 0)
    if elements.dtype == host:
        return np.asarray(elements)
    bits = elements.dtype.itemsize == host.itemsize and tile._holds_bits
    return np.asarray(
        np.ascontiguousarray(elements).view(host) if bits else elements.astype(host)
    )


def _written(tile: Any) -> Array | None:
    """Return which elements of a tile the simulator counts as written; None for all."""
    missing = tile._unwritten()
    if missing is None:
        return None
    return ~np.asarray(missing, np.bool_)


def _reshape(results: Any, shape: tuple[int, ...]) -> Array:
    """Return results in a destination's shape, reshaped or repeated, partitions first."""
    values = np.asarray(results)
    if values.ndim and values.size == int(np.prod(shape)):
        return values.reshape(shape)
    ones = (1,) * (len(shape) - values.ndim)
    aligned = values.shape[:1] + ones + values.shape[1:]
    return np.broadcast_to(values.reshape(aligned) if values.ndim else values, shape)


def _same(actual: Array, expected: Array) -> Array:
    """Return where elements are equal bit by bit; all NaN are equal."""
    bits = f"u{actual.itemsize}"
    same = np.ascontiguousarray(actual).view(bits) == np.ascontiguousarray(
        expected
    ).view(bits)
    if actual.dtype.kind in "iub":
        return np.asarray(same)
    return np.asarray(same | ((actual != actual) & (expected != expected)))


def _close(actual: Array, expected: Array, slack: Array, literal: Literal) -> Array:
    """Return where another order of additions and one more rounding explain a difference."""
    x = actual.astype(np.float64)
    y = expected.astype(np.float64)
    unit = 1.0
    size = np.ones(())
    if actual.dtype.kind not in "iu":
        unit = epsilon(literal.dtype)
        size = np.maximum(np.abs(x), np.abs(y))
    close = np.abs(x - y) <= slack * (1 + unit) + size * unit
    return np.asarray(close | ~np.isfinite(slack))


def _is_written(operand: Any) -> bool:
    """Return whether all elements of an operand are written and inside its tensor."""
    if not isinstance(operand, Tile):
        return not isinstance(operand, IndirectTile)
    return bool((literal_view(operand).places >= 0).all()) and _written(operand) is None


def _mismatch(
    title: str,
    role: str,
    actual: Array,
    expected: Array,
    wrong: Array,
    how: str = "differ",
) -> OracleError:
    """Return the error of elements that differ from the literal meaning."""
    at = tuple(int(k) for k in np.argwhere(wrong)[0])
    return OracleError(
        f"{title} wrote other values to {role} than it means: {int(wrong.sum())} of {wrong.size} "
        f"elements {how}, the first at {list(at)}",
        f"{actual[at]!s} in the simulator, {expected[at]!s} literally",
    )
