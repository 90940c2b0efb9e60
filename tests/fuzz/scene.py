"""The kernel while it is drawn: it runs as it grows.

Each line runs when it is drawn, in a launch of its own. So what a line makes, which shape and dtype
it has and whether a rule allows it are asked of the simulator, and no drawn statement works them
out once more. What the simulator has wrong there the comparison of modes finds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from difftest.simulator import NkiError, Space
from difftest.simulator.core import current
from difftest.simulator.dtypes import from_bits, is_float
from tests.fuzz.program import Input, Line, Loop, Output, Statement
from tests.unit.simulator.instructions.calls.spelling import named
from tests.unit.simulator.instructions.calls.tensors import NAMES

T = TypeVar("T")
Shape = tuple[int, ...]
TINY, LARGE = 2.0**-40, 2**24
"""Products of smaller numbers, and larger integers, leave what float32 holds in full."""


class Choices:
    """Hypothesis's draws, by what they are for."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return low if high <= low else int(self.draw(st.integers(low, high)))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.integer(0, 99) >= 100 - percent


class EndedError(Exception):
    """The kernel ends with a line that was refused, or that died."""


@dataclass(eq=False)
class Value:
    """A tensor that a name of the kernel stands for."""

    name: str
    tensor: Any
    blocks: int = 0
    """Dimensions before the partitions (``nl.par_dim``)."""
    writable: bool = True
    argument: bool = False
    """It came with the launch."""
    opcode: str = ""
    """The last statement that wrote to it."""

    @property
    def shape(self) -> Shape:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.tensor.dtype)

    @property
    def space(self) -> Space:
        return self.tensor._space

    @property
    def is_odd(self) -> bool:
        """Whether it has a NaN, of whose bits nobody says anything, or numbers too small or too
        large for sums in float32 to be close.
        """
        missing = None if self.blocks else self.tensor._unwritten()
        elements = self.tensor._elements()
        elements = elements if missing is None else elements[~missing]  # which may be anything
        if not is_float(self.dtype):
            return self.dtype.kind in "iu" and bool((abs(elements) > LARGE).any())
        numbers = np.asarray(from_bits(elements, self.dtype), np.float32)
        return bool((np.isnan(numbers) | ((np.abs(numbers) < TINY) & (numbers != 0))).any())


@dataclass(frozen=True)
class Access:
    """A view of a value, as text and as a tensor."""

    text: str
    value: Value
    tensor: Any

    @property
    def shape(self) -> Shape:
        """As instructions see it: on chip at least [P, 1]."""
        if self.tensor._in_hbm:
            return tuple(self.tensor.shape)
        return tuple(self.tensor._tile_shape())

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.tensor.dtype)


class Scene:
    """The kernel so far: its values, its lines, and the integers that index them."""

    def __init__(self, choices: Choices, dialect: str, *, lawful: bool) -> None:
        self.choices = choices
        self.dialect = dialect
        self.lawful = lawful
        self.names: dict[str, Any] = dict(NAMES[dialect])
        self.values: list[Value] = []
        self.inputs: list[Input] = []
        self.integers: list[tuple[str, int]] = []
        """Loop variables and program ids with the number of their values."""
        self.top: list[Statement] = []
        """Lines before all others: indices, and tensors of HBM, which live on after a loop."""
        self.bodies: list[list[Statement]] = [[]]
        self.kept: list[Value] = []
        self.grid: Shape = ()
        self.padded = False
        """Tiles of which a part is never written take part: of each result a part is given back."""
        self._numbers = itertools.count(1)

    # -- lines -------------------------------------------------------------------------------

    def emit(self, text: str, opcode: str) -> None:
        """Add a line that runs.

        Raises
        ------
        NkiError : a rule forbids it, and the kernel is to be lawful.
        EndedError : it is the last one.
        """
        line = Line(text, opcode)
        self._run(exec, line)
        self.bodies[-1].append(line)

    def _run(self, run: Callable[[str, dict[str, Any]], Any], line: Line) -> Any:
        """Run a line; one that is refused, or dies, is the last one."""
        try:
            return run(line.text, self.names)
        except Exception as error:
            if self.lawful and isinstance(error, NkiError):
                raise
            self.bodies[-1].append(line)
            raise EndedError from error

    def before(self, text: str) -> None:
        """Add a line at the top."""
        self._run(exec, Line(text, "top"))
        self.top.append(Line(text, "top"))

    def fresh(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    def grid_index(self, shape: Shape) -> str:
        """The name of ``nl.mgrid`` over a shape."""
        name = "i" + "_".join(map(str, shape))
        if name not in self.names:
            self.before(f"{name} = nl.mgrid[{', '.join(f'0:{size}' for size in shape)}]")
        return name

    def loop(self, kind: str, count: int, body: Callable[[], None]) -> None:
        """Draw a loop's body in its first turn, and run it in the others; what it makes is gone."""
        variable = self.fresh("k")
        known = list(self.values)
        self.integers.append((variable, count))
        self.bodies.append([])
        try:
            for turn, index in enumerate(getattr(self.names["nl"], kind)(count)):
                self.names[variable] = index
                if turn == 0:
                    body()
                else:
                    lines = (line for one in self.bodies[-1] for line in one.lines())
                    exec("\n".join(lines), self.names)
        finally:
            inside = tuple(self.bodies.pop())
            self.integers.pop()
            self.values = known + [value for value in self.kept if value not in known]
            if inside:
                self.bodies[-1].append(Loop(variable, kind, count, inside))

    # -- values ------------------------------------------------------------------------------

    def declare(self, name: str, opcode: str = "", **more: Any) -> Value:
        """The value that a line made under a name."""
        value = Value(name, self.names[name], opcode=opcode, **more)
        self.values.append(value)
        return value

    def argument(self, shape: Shape, dtype: str, expression: str, *, mutable: bool) -> Value:
        """A new argument of the kernel, which it may write to if ``mutable``."""
        given = Input(self.fresh("m" if mutable else "a"), shape, dtype, expression, mutable)
        space = Space.PRIVATE_HBM if self.dialect == "nki" else Space.SHARED_HBM
        core = current()
        storage = core.adopt(given.array(), name=given.name, mutable=mutable, space=space)
        self.names[given.name] = core.tile._whole(storage)
        self.inputs.append(given)
        value = self.declare(given.name, "argument", argument=True, writable=mutable)
        self.kept.append(value)
        return value

    def access(self, text: str, value: Value) -> Access:
        """A view of a value; of one without elements nothing is known, and the kernel ends."""
        tensor = self._run(eval, Line(text, "view"))
        if 0 in tensor.shape:  # today's tensors in HBM: of 2 elements [-1:1] is such a slice
            raise EndedError
        return Access(text, value, tensor)

    def spoil(self) -> bool:
        """Whether to break a rule here; never in a lawful program."""
        return not self.lawful and self.choices.chance(12)

    def is_readable(self, value: Value) -> bool:
        """Whether all of it was written, or some of it in a kernel that has such tiles."""
        missing = None if value.blocks else value.tensor._unwritten()
        return missing is None or (self.padded and not np.all(missing))

    def suitable(
        self,
        *,
        spaces: tuple[Space, ...] = (Space.SBUF, Space.PSUM),
        dtypes: Sequence[np.dtype[Any]] | None = None,
    ) -> list[Value]:
        """The values that can be read and are of this kind, the newest first."""
        found = [
            value
            for value in self.values
            if value.space in spaces and (dtypes is None or value.dtype in dtypes)
        ]
        return [value for value in found[::-1] if self.is_readable(value)]

    def mutated(self) -> tuple[Output, ...]:
        """The arguments that the kernel may have written to."""
        written = [value for value in self.values if value.argument and value.writable]
        return tuple(Output(value.name, value.opcode) for value in written)

    def outputs(self) -> tuple[Output, ...]:
        """Store every readable tile, and return all tensors of HBM that were created."""
        outputs = []
        for value in list(self.values):
            if value.space.is_hbm:
                if value.space is Space.SHARED_HBM and not value.argument:
                    outputs.append(Output(value.name, value.opcode))
            elif value.opcode != "fill" and self.is_readable(value) and len(value.shape) > 1:
                name = self.fresh("out")
                lines = _returned if self.dialect == "classic" else _returned_today
                self.bodies[0] += [Line(text, "return") for text in lines(self, value, name)]
                outputs.append(Output(name, value.opcode))
        return tuple(outputs)

    def part(self, value: Value) -> tuple[Shape, str]:
        """What is given back of a tile, where some were never written: mostly a box of it."""
        shape = value.shape
        whole = value.blocks or value.tensor._unwritten() is None
        if not self.padded or value.blocks or (whole and not self.choices.chance(40)):
            return shape, ""
        cuts = []
        for size in shape:
            end = self.choices.integer(1, size)
            cuts.append((self.choices.integer(0, end - 1), end))
        text = f"[{', '.join(f'{a}:{b}' for a, b in cuts)}]"
        missing = eval(f"{value.name}{text}", self.names)._unwritten()
        if missing is not None and self.choices.chance(90):  # it would be refused
            return self.part(value)
        return tuple(b - a for a, b in cuts), text


def _returned(scene: Scene, value: Value, name: str) -> Iterator[str]:
    """The lines that store a tile, or each block of it, where an instance of the grid has room."""
    shape, part = scene.part(value)
    made = f"({', '.join(map(str, (*scene.grid, *shape)))})"
    yield f"{name} = nl.ndarray({made}, nl.{named(value.dtype)}, buffer=nl.shared_hbm)"
    for place in itertools.product(*map(range, shape[: value.blocks])):
        block = ", ".join(map(str, place))
        at = ", ".join([*(f"g{k}" for k in range(len(scene.grid))), *filter(None, [block])])
        source = f"{value.name}[{block}]" if block else f"{value.name}{part}"
        yield f"nl.store({name}[{at}], {source})" if at else f"nl.store({name}, {source})"


def _returned_today(scene: Scene, value: Value, name: str) -> Iterator[str]:
    shape, part = scene.part(value)
    yield f"{name} = nl.ndarray({shape}, nl.{named(value.dtype)}, buffer=nl.shared_hbm)"
    held = f"nl.copy({value.name})" if value.space is Space.PSUM else value.name
    yield f"nisa.dma_copy({name}, {held}{part})"


def elements(shape: Shape) -> int:
    return math.prod(shape)
