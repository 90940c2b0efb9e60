"""The kernel while it is drawn: it runs as it grows.

Each line runs when it is drawn, in a separate launch. The simulator thus gives the result of each
line, its shape and dtype, and whether a rule allows it; drawn statements need not compute them. The
comparison of modes finds errors of the simulator in these.
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
    """Hypothesis's draws, by their use."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return low if high <= low else int(self.draw(st.integers(low, high)))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.integer(0, 99) >= 100 - percent


class EndedError(Exception):
    """The end of a kernel at a line that was rejected or crashed."""


@dataclass(eq=False)
class Value:
    """A tensor with its name in the kernel."""

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
        """Return whether a value makes sums in float32 unsure.

        That is a NaN, whose bits are unspecified, or a number that is too small or too large.
        """
        missing = None if self.blocks else self.tensor._unwritten()
        elements = self.tensor._elements()
        # which may be anything
        elements = elements if missing is None else elements[~missing]
        if not is_float(self.dtype):
            return self.dtype.kind in "iu" and bool((abs(elements) > LARGE).any())
        numbers = np.asarray(from_bits(elements, self.dtype), np.float32)
        return bool(
            (np.isnan(numbers) | ((np.abs(numbers) < TINY) & (numbers != 0))).any()
        )


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
        """Tiles may have unwritten parts; then a part of each result is returned."""
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
        """Run a line; a line that is rejected or crashes is the last."""
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
        """Return the name of ``nl.mgrid`` over a shape."""
        name = "i" + "_".join(map(str, shape))
        if name not in self.names:
            self.before(
                f"{name} = nl.mgrid[{', '.join(f'0:{size}' for size in shape)}]"
            )
        return name

    def loop(self, kind: str, count: int, body: Callable[[], None]) -> None:
        """Draw a loop's body in its first iteration, run it in the others, and drop its values."""
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
        """Return the value that a line bound to a name."""
        value = Value(name, self.names[name], opcode=opcode, **more)
        self.values.append(value)
        return value

    def argument(
        self, shape: Shape, dtype: str, expression: str, *, mutable: bool
    ) -> Value:
        """Add an argument to the kernel, which may write to it if ``mutable``."""
        given = Input(
            self.fresh("m" if mutable else "a"), shape, dtype, expression, mutable
        )
        space = Space.PRIVATE_HBM if self.dialect == "nki" else Space.SHARED_HBM
        core = current()
        storage = core.adopt(
            given.array(), name=given.name, mutable=mutable, space=space
        )
        self.names[given.name] = core.tile._whole(storage)
        self.inputs.append(given)
        value = self.declare(given.name, "argument", argument=True, writable=mutable)
        self.kept.append(value)
        return value

    def access(self, text: str, value: Value) -> Access:
        """Return a view of a value; end the kernel if the view is empty."""
        tensor = self._run(eval, Line(text, "view"))
        # tensors of the current dialect in HBM: for 2 elements [-1:1] is such a slice
        if 0 in tensor.shape:
            raise EndedError
        return Access(text, value, tensor)

    def spoil(self) -> bool:
        """Return whether to break a rule here; never in a lawful program."""
        return not self.lawful and self.choices.chance(12)

    def is_readable(self, value: Value) -> bool:
        """Return whether a value is readable: written whole, or partly where a kernel allows it."""
        missing = None if value.blocks else value.tensor._unwritten()
        return missing is None or (self.padded and not np.all(missing))

    def suitable(
        self,
        *,
        spaces: tuple[Space, ...] = (Space.SBUF, Space.PSUM),
        dtypes: Sequence[np.dtype[Any]] | None = None,
    ) -> list[Value]:
        """Return the readable values of this kind, the newest first."""
        found = [
            value
            for value in self.values
            if value.space in spaces and (dtypes is None or value.dtype in dtypes)
        ]
        return [value for value in found[::-1] if self.is_readable(value)]

    def mutated(self) -> tuple[Output, ...]:
        """Return the arguments that the kernel may have written to."""
        written = [value for value in self.values if value.argument and value.writable]
        return tuple(Output(value.name, value.opcode) for value in written)

    def outputs(self) -> tuple[Output, ...]:
        """Store every readable tile, and return all tensors of HBM that were created."""
        outputs = []
        for value in list(self.values):
            if value.space.is_hbm:
                if value.space is Space.SHARED_HBM and not value.argument:
                    outputs.append(Output(value.name, value.opcode))
            elif (
                value.opcode != "fill"
                and self.is_readable(value)
                and len(value.shape) > 1
            ):
                name = self.fresh("out")
                lines = _returned if self.dialect == "classic" else _returned_today
                self.bodies[0] += [
                    Line(text, "return") for text in lines(self, value, name)
                ]
                outputs.append(Output(name, value.opcode))
        return tuple(outputs)

    def part(self, value: Value) -> tuple[Shape, str]:
        """Return the part of a tile to give back if tiles may be partly unwritten: mostly a box."""
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
    """Return the lines that store a tile, or each block, into the grid instance's own part."""
    shape, part = scene.part(value)
    made = f"({', '.join(map(str, (*scene.grid, *shape)))})"
    yield f"{name} = nl.ndarray({made}, nl.{named(value.dtype)}, buffer=nl.shared_hbm)"
    for place in itertools.product(*map(range, shape[: value.blocks])):
        block = ", ".join(map(str, place))
        at = ", ".join(
            [*(f"g{k}" for k in range(len(scene.grid))), *filter(None, [block])]
        )
        source = f"{value.name}[{block}]" if block else f"{value.name}{part}"
        yield (
            f"nl.store({name}[{at}], {source})" if at else f"nl.store({name}, {source})"
        )


def _returned_today(scene: Scene, value: Value, name: str) -> Iterator[str]:
    shape, part = scene.part(value)
    yield f"{name} = nl.ndarray({shape}, nl.{named(value.dtype)}, buffer=nl.shared_hbm)"
    held = f"nl.copy({value.name})" if value.space is Space.PSUM else value.name
    yield f"nisa.dma_copy({name}, {held}{part})"


def elements(shape: Shape) -> int:
    return math.prod(shape)
