"""One legal call of an instruction, drawn from what its record promises, and its three runs.

A :class:`DrawnCall` runs alone: straight through the gate with its ``dst`` (``record``), as the
classic dialect spells it (``classic``), and so in the plain mode (``plain``), which states once
more what AWS documents and shares none of the code that computes. The data are exact: multiples of
1/2 of at most 4 in magnitude, so that no order of arithmetic changes a bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from difftest.simulator import TRN2, Engine, LaunchResult, Machine, Space, launch
from difftest.simulator.dtypes import DTYPES, INTEGERS, from_bits, is_float
from difftest.simulator.entry.kernel import as_kernel
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.exact.run import ExactSettings
from difftest.simulator.frontend.nki.isa.arithmetic import TopKWarning
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.record import INSTRUCTIONS, Instruction
from difftest.simulator.instructions.registers import Accumulate
from tests.unit.simulator.instructions.calls import tensors
from tests.unit.simulator.instructions.calls.spelling import spelled
from tests.unit.simulator.instructions.calls.tensors import NAMES, Operand

MODES = ("record", "classic", "plain")
ISSUED = ("record", "judged")
"""The modes of a call that no dialect spells: the oracle follows the second one."""
WIDE_ULPS = 16
"""Units in the last place between two computations of one curved function (activation alone)."""

ADDING = ("activation", "bn_aggr", "bn_stats", "nc_matmul", "tensor_partition_reduce")
ADDING += ("tensor_reduce", "tensor_scalar_reduce")
"""A sum of zeros has the sign that its order gives it; no page states it."""


CLASSIC_COMMANDS = tuple(one for one in Accumulate if isinstance(one.value, int))
"""Commands of the reduction registers in the classic dialect."""


@dataclass(frozen=True)
class DrawnCall:
    """A call: operands and destinations by role, and options in the record's order."""

    record: Instruction
    operands: dict[str, Any]
    options: tuple[Any, ...]
    destinations: dict[str, Operand | None]
    engine: Engine = Engine.UNKNOWN
    close: bool = False
    """For a curved function: equal within some last places instead of bit for bit."""
    beside: dict[str, Operand] = field(default_factory=dict)
    """Tiles that hold indices, and are not operands."""
    machine: Machine = TRN2
    spells: bool = True
    """True if the classic dialect has such a call, if it has the instruction."""

    @property
    def is_classic(self) -> bool:
        """True if a classic kernel can write it."""
        return self.spells and self.record.classic

    def role(self, name: str) -> Any:
        """Return the value of an operand or a destination."""
        return self.operands[name] if name in self.operands else self.destinations[name]

    def __repr__(self) -> str:
        def shown(one: Any) -> Any:
            if not isinstance(one, Operand):
                return one
            return f"{np.shape(one.values)} {one.dtype} {one.space.value}"

        given = {**self.operands, **self.destinations}
        text = ", ".join(f"{name}={shown(one)}" for name, one in given.items())
        return f"{self.record.name}({text}; {self.options}, {self.engine})"

    def run(self, mode: str) -> list[Any]:
        """Return the contents of each destination after the call, in one of the modes."""
        return list(self.launched(mode).outputs)

    def launched(self, mode: str, exact: ExactSettings | None = None) -> LaunchResult:
        """Launch the call alone; with ``exact`` also its exact run."""
        today = mode == "nki"
        place = tensors.place_today if today else tensors.place
        returned = tensors.returned_today if today else tensors.returned
        given = {**self.beside, **self.operands, **self.destinations}
        held = {name: one for name, one in given.items() if isinstance(one, Operand)}

        def kernel(*arrays: Any) -> Any:
            tiles = {**given, **NAMES["nki" if today else "classic"]}
            for array, (name, one) in zip(arrays, held.items(), strict=True):
                tiles[name] = place(array, one)
            is_spelled = mode not in ISSUED
            made = self._spell(mode, tiles) if is_spelled else self._issue(tiles)
            names = [
                name for name in self.destinations if isinstance(given[name], Operand)
            ]
            named = [name for name in names if not held[name].is_newer]
            return tuple(
                returned(made if name == "dst" else tiles[name]) for name in named
            )

        arrays = [one.array for one in held.values()]
        how = {"plain": mode in ("plain", "judged"), "exact": exact or False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TopKWarning)
            decorated = jit(kernel) if today else as_kernel(kernel)
            return launch(decorated, arrays, machine=self.machine, **how)

    def _issue(self, tiles: dict[str, Any]) -> Any:
        """Straight through the gate; what holds the result."""
        stands = {name: one() if callable(one) else one for name, one in tiles.items()}
        for name, one in (*self.operands.items(), *self.destinations.items()):
            if isinstance(one, Operand) and one.at:
                names = {name: name for name in tiles}
                stands[name] = eval(one.at.format(**names), tiles)
        dst, *others = (stands[role.name] for role in self.record.destinations)
        operands = tuple(stands[role.name] for role in self.record.operands)
        how = {"others": tuple(others), "engine": self.engine}
        gate.issue(self.record, operands, self.options, dst=dst, **how)
        return tiles["dst"]

    def _spell(self, mode: str, tiles: dict[str, Any]) -> Any:
        """As a kernel writes it; what holds the result."""
        text = spelled(self, "nki" if mode == "nki" else "classic")
        exec(text if " += " in text else f"made = {text}", tiles)
        # there it says how it is scheduled
        made = None if mode == "nki" else tiles.get("made")
        return tiles["dst"] if made is None else made


def difference(call: DrawnCall, a: Any, b: Any) -> str:
    """Return the difference of two arrays, or nothing. NaN of any bits is equal to NaN."""
    if a.dtype != b.dtype or a.size != b.size:
        return f"{a.dtype}{a.shape} and {b.dtype}{b.shape}"
    a, b = a.reshape(-1), b.reshape(-1)
    if not is_float(a.dtype):
        return "" if (a == b).all() else f"{a} and {b}"
    x, y = (np.asarray(from_bits(v, v.dtype), np.float32) for v in (a, b))
    same = (x == y) & ((np.signbit(x) == np.signbit(y)) | (call.record.name in ADDING))
    same |= np.isnan(x) & np.isnan(y)
    if call.close:
        epsilon = {1: 2.0**-2, 2: 2.0**-7}.get(a.dtype.itemsize, 2.0**-10)
        exact = a.dtype == np.float32
        bound = WIDE_ULPS * 2.0**-23 + (0 if exact else epsilon)
        finite = np.isfinite(x) & np.isfinite(y)
        sizes = np.maximum(np.abs(x), np.abs(y))[finite]
        distance = np.abs(x[finite] - y[finite])
        same[finite] |= distance <= np.maximum(bound * sizes, 2.0**-18)
    return "" if same.all() else f"{x} and {y}"


# -- drawing ---------------------------------------------------------------------------------------

Choose = Callable[[Sequence[Any]], Any]
"""Picks one value of several: Hypothesis's draw, or a seeded generator."""


class Drawing:
    """Draws a call's parts from a record; ``forced`` gives the dtype or value of a role.

    Parameters
    ----------
    forced : role -> a buffer or a dtype, which every call that is drawn has there.
    """

    def __init__(
        self, record: Instruction, choose: Choose, forced: dict[str, Any]
    ) -> None:
        self.record = record
        self.pick = choose
        self.forced = forced
        self.roles = {
            role.name: role for role in (*record.operands, *record.destinations)
        }
        self.seed = choose(range(1000))

    def integer(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return int(self.pick(range(low, high + 1)))

    def flag(self) -> bool:
        return bool(self.pick((False, True)))

    def shape(
        self, ranks: Sequence[int] = (2, 3, 4), partitions: Sequence[int] = ()
    ) -> Any:
        """Partitions, and free axes."""
        first = self.pick(tuple(partitions) or (1, 2, 5, 33, 128))
        return (first, *(self.integer(1, 4) for _ in range(self.pick(ranks) - 1)))

    def space(self, role: str, among: Sequence[Space] | None = None) -> Space:
        """A buffer of the role."""
        wanted = self.forced.get(role)
        if isinstance(wanted, Space):
            return wanted
        return self.pick(
            [one for one in self.roles[role].buffers if among is None or one in among]
        )

    def not_both_in_psum(self, *roles: str) -> dict[str, Space]:
        """Buffers with PSUM at most once."""
        wanted = [role for role in roles if self.forced.get(role) is Space.PSUM]
        chosen = wanted[0] if wanted else self.pick((*roles, ""))
        return {
            role: self.space(role, (Space.PSUM,) if role == chosen else (Space.SBUF,))
            for role in roles
        }

    def dtype(self, role: str, among: Sequence[Any] | None = None) -> np.dtype[Any]:
        """A dtype of the role."""
        wanted = self.forced.get(role)
        if isinstance(wanted, np.dtype):
            return wanted
        allowed = self.roles[role].dtypes or DTYPES
        return self.pick([one for one in allowed if among is None or one in among])

    def values(
        self, shape: Any, dtype: np.dtype[Any], low: int = -4, high: int = 4
    ) -> Any:
        """Exact values that the dtype holds: small integers, halves too for floats."""
        rng = self.seed = self.seed + 1
        generator = np.random.default_rng(rng)
        if dtype == np.bool_:
            return generator.integers(0, 2, shape).astype(bool)
        if not is_float(dtype):
            least = 0 if dtype.kind == "u" else low
            return generator.integers(max(low, least), high + 1, shape)
        return generator.integers(2 * low, 2 * high + 1, shape) / 2

    def tile(
        self,
        role: str,
        shape: Any,
        *,
        space: Space | None = None,
        dtype: np.dtype[Any] | None = None,
        values: Any = None,
        written: bool = True,
        low: int = -4,
        high: int = 4,
    ) -> Operand:
        """A tile at a role."""
        kind = self.dtype(role) if dtype is None else dtype
        given = self.values(shape, kind, low, high) if values is None else values
        return Operand(
            given, kind, self.space(role) if space is None else space, written
        )

    def vector(self, role: str, partitions: int, low: int = -4, high: int = 4) -> Any:
        """A number, or a vector with one element in each partition."""
        if role not in self.forced and self.flag():
            number = self.integer(low, high)
            return number if self.flag() else float(number)
        return self.tile(role, (partitions, 1), low=low, high=high)

    def dst(
        self, shape: Any, *, among: Sequence[Any] | None = None, **given: Any
    ) -> Operand:
        """The first destination; the call writes all of it."""
        return self.tile(
            "dst", shape, dtype=self.dtype("dst", among), written=False, **given
        )

    def other(self, role: str, shape: Any) -> Operand | None:
        """A further destination, or None where it is optional."""
        if role not in self.forced and self.roles[role].optional and self.flag():
            return None
        return self.tile(role, shape, written=False)

    def engine(self, *operands: Any, among: Sequence[Engine] | None = None) -> Engine:
        """No engine, or an engine of the record's that reaches the operands."""
        reach = [one for one in operands if isinstance(one, Operand)]
        in_psum = any(one.space is Space.PSUM for one in reach)
        engines = self.record.engines if among is None else among
        return self.pick(
            [
                Engine.UNKNOWN,
                *(e for e in engines if not (in_psum and e is Engine.GPSIMD)),
            ]
        )


Example = Callable[[Drawing], DrawnCall]
EXAMPLES: dict[str, Example] = {}
"""A function that draws a legal call of each instruction, by name."""
FORMS = {"dma_gather": "dma_copy", "dma_scatter": "dma_copy"}
"""Examples that are another form of a record: its name."""


def draws(name: str) -> Callable[[Example], Example]:
    """Register how to draw a legal call of an instruction."""

    def register(example: Example) -> Example:
        EXAMPLES[name] = example
        return example

    return register


def drawn(name: str, choose: Choose, forced: dict[str, Any] | None = None) -> DrawnCall:
    """A legal call of the instruction."""
    return EXAMPLES[name](
        Drawing(INSTRUCTIONS[FORMS.get(name, name)], choose, forced or {})
    )


def all_integers(*operands: Any) -> bool:
    """Return whether all tiles among the operands hold integers: bitvec operators take these."""
    return all(one.dtype in INTEGERS for one in operands if isinstance(one, Operand))


def index_tile(values: Any, dtype: str = "int32") -> Operand:
    """A tile of indices in SBUF."""
    return Operand(np.asarray(values), np.dtype(dtype), Space.SBUF)
