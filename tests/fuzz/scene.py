"""The kernel while it is drawn: what exists so far, and the choices that Hypothesis makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.fuzz.exactness import ROUGH, Quality, either
from tests.fuzz.program import Input, Line, Loop, Output, Statement

T = TypeVar("T")
Shape = tuple[int, ...]


class Choices:
    """Hypothesis's draws, by what they are for. The first option is what shrinking ends in."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return low if high <= low else int(self.draw(st.integers(low, high)))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.integer(0, 99) >= 100 - percent


@dataclass
class Value:
    """A tensor that a name (or an access of one) stands for."""

    name: str
    shape: Shape
    dtype: str
    space: str = "sbuf"
    quality: Quality = ROUGH
    blocks: int = 0
    """Dimensions before the partitions (``nl.par_dim``)."""
    readable: bool = True
    """All of it was written."""
    writable: bool = True
    argument: bool = False
    """It came with the launch."""
    opcode: str = ""
    """The last statement that wrote to it."""


@dataclass(frozen=True)
class Operand:
    """The text of an access or an expression, and what it gives."""

    text: str
    shape: Shape
    dtype: str
    space: str = "sbuf"
    quality: Quality = ROUGH
    base: Value | None = None
    covers: bool = False
    """It reaches each element of its base."""
    masked: bool = False
    """A mask left some of it out."""
    opcode: str = ""


@dataclass
class Scene:
    """The kernel so far: its values, its lines, and the integers that index them."""

    choices: Choices
    lawful: bool = True
    values: list[Value] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    integers: list[tuple[str, int]] = field(default_factory=list)
    """Loop variables and program ids with the number of their values."""
    bodies: list[list[Statement]] = field(default_factory=lambda: [[]])
    grids: set[str] = field(default_factory=set)
    zero_sign: bool = True
    padded: bool = False
    """Tiles of which a part is never written take part: of each result a part is given back."""
    machine: str = "trn2"
    grid: Shape = ()
    names: int = 0
    kept: list[Value] = field(default_factory=list)
    """Tensors of HBM: they are declared at the top, and live on after a loop."""

    # -- lines -------------------------------------------------------------------------------

    def emit(self, text: str, opcode: str) -> None:
        self.bodies[-1].append(Line(text, opcode))

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def grid_index(self, shape: Shape) -> str:
        """The name of ``nl.mgrid`` over a shape; its line is put before the first use."""
        name = "i" + "_".join(map(str, shape))
        if name not in self.grids:
            self.grids.add(name)
            ranges = ", ".join(f"0:{size}" for size in shape)
            self.bodies[0].insert(0, Line(f"{name} = nl.mgrid[{ranges}]", "nl.mgrid"))
        return name

    def loop(self, variable: str, kind: str, count: int, body: Callable[[], None]) -> None:
        """Draw a loop's body; what it declares is gone after it."""
        known = list(self.values)
        self.integers.append((variable, count))
        self.bodies.append([])
        body()
        inside = tuple(self.bodies.pop())
        self.integers.pop()
        self.values = known + [value for value in self.kept if value not in known]
        if inside:
            self.bodies[-1].append(Loop(variable, kind, count, inside))

    # -- values ------------------------------------------------------------------------------

    def declare(self, value: Value) -> Value:
        self.values.append(value)
        return value

    def spoil(self) -> bool:
        """Whether to break a rule here; never in a lawful program."""
        return not self.lawful and self.choices.chance(12)

    def wrote(self, target: Operand, source: Quality, opcode: str) -> None:
        """Note a write to an access of a value."""
        value = target.base
        if value is None:
            return
        written = source.rounded(value.dtype)
        value.opcode = opcode
        if target.covers and not target.masked:
            value.readable = True
            value.quality = written
        else:
            value.quality = either(value.quality, written)

    def suitable(
        self,
        *,
        spaces: tuple[str, ...] = ("sbuf", "psum"),
        dtypes: tuple[str, ...] | None = None,
        exact: bool = False,
        loose: bool = False,
    ) -> list[Value]:
        """The values that an operand of this kind can be, the newest first."""
        found = [
            value
            for value in self.values
            if value.readable
            and value.space in spaces
            and (dtypes is None or value.dtype in dtypes)
            and (loose or not value.quality.loose)
            and (value.quality.exact or not exact)
        ]
        return found[::-1]

    def mutated(self) -> tuple[Output, ...]:
        """The arguments that the kernel may have written to."""
        return tuple(
            Output(value.name, value.quality.loose, value.opcode)
            for value in self.values
            if value.argument and value.writable
        )

    def outputs(self) -> tuple[Output, ...]:
        """Store every readable tile, and return all tensors of HBM that were created."""
        outputs = []
        for value in list(self.values):
            if value.space == "hbm" and value.writable and not value.argument:
                outputs.append(Output(value.name, value.quality.loose, value.opcode))
            if value.space == "hbm" or not value.readable or len(value.shape) < 2:
                continue
            name = self.fresh("out")
            given, part = value.shape, ""
            if self.padded and not value.blocks:
                given, part = self.part(value.shape)
            shape = (*self.grid, *given)
            self.emit(
                f"{name} = nl.ndarray({shape}, nl.{value.dtype}, buffer=nl.shared_hbm)",
                "nl.ndarray",
            )
            instance = ", ".join(f"g{k}" for k in range(len(self.grid)))
            blocks = math.prod(value.shape[: value.blocks])
            for number in range(blocks):
                block = _place(number, value.shape[: value.blocks])
                at = ", ".join(filter(None, (instance, block)))
                target = f"{name}[{at}]" if at else name
                source = f"{value.name}[{block}]" if block else f"{value.name}{part}"
                self.emit(f"nl.store({target}, {source})", "nl.store")
            outputs.append(Output(name, value.quality.loose, value.opcode))
        return tuple(outputs)

    def part(self, shape: Shape) -> tuple[Shape, str]:
        """What is given back of a tile, where some were never written: mostly a box of it."""
        if not self.choices.chance(70):
            return shape, ""
        ends = [self.choices.integer(1, size) for size in shape]
        starts = [self.choices.integer(0, end - 1) for end in ends]
        cut = list(zip(starts, ends, strict=True))
        return tuple(b - a for a, b in cut), f"[{', '.join(f'{a}:{b}' for a, b in cut)}]"


def _place(number: int, shape: Shape) -> str:
    places = []
    for size in reversed(shape):
        places.append(str(number % size))
        number //= size
    return ", ".join(reversed(places))
