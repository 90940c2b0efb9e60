"""Statements that are drawn calls: an example's legal call, on tiles of the kernel.

The legal calls of each instruction are defined once, in
``tests/unit/simulator/instructions/calls``. Here its operands are views of the kernel's tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from difftest.simulator import Engine, Space
from difftest.simulator.dtypes import DTYPES
from difftest.simulator.instructions.record import INSTRUCTIONS
from difftest.simulator.instructions.registers import Accumulate
from tests.fuzz import masks, sinks
from tests.fuzz.operands import destination, filled, known, operand
from tests.fuzz.scene import Access, Scene, Shape
from tests.unit.simulator.instructions.calls.drawn import Drawing, DrawnCall
from tests.unit.simulator.instructions.calls.examples import EXAMPLES, FORMS
from tests.unit.simulator.instructions.calls.spelling import function, spelled
from tests.unit.simulator.instructions.calls.tensors import NAMES, Operand

WITH_WHOLE = (
    "dma_gather",
    "dma_scatter",
    "tensor_copy_dynamic_src",
    "tensor_copy_dynamic_dst",
)
"""Examples that index one of their operands again."""
OF_PLAIN = ("tensor_partition_reduce",)
"""Instructions without a documented order of additions, which get no odd values."""
MASKED, MASKED_WALKS = 33, 75
"""Percentages of calls with a mask, and of calls that walk their axes in another order."""


@functools.cache
def examples_of(dialect: str) -> tuple[str, ...]:
    """Return the instructions that a dialect issues by a function of their name."""
    names = []
    for example in EXAMPLES:
        name = FORMS.get(example, example)
        has = hasattr(NAMES[dialect]["nisa"], name) or hasattr(
            NAMES[dialect]["nl"], name
        )
        if has and (INSTRUCTIONS[name].classic or dialect == "nki"):
            names.append(example)
    return tuple(
        name for name in names if dialect == "classic" or name not in WITH_WHOLE
    )


class SceneDrawing(Drawing):
    """Draws the parts of a call from a kernel's tensors; ``texts`` are the tiles' by role."""

    def __init__(self, example: str, scene: Scene) -> None:
        record = INSTRUCTIONS[FORMS.get(example, example)]
        self.scene = scene
        self.choices = scene.choices
        self.texts: dict[str, str] = {}
        self.offered: Access | None = None
        self.first: np.dtype[Any] | None = None
        self.whole = example in WITH_WHOLE
        self.plain = record.name in OF_PLAIN
        parameters = function(record.name, scene.dialect)[1]
        self.returns = "dst" not in parameters and (scene.dialect, record.name) != (
            "nki",
            "topk",
        )
        super().__init__(record, scene.choices.pick, {})

    def shape(
        self, ranks: Sequence[int] = (2, 3, 4), partitions: Sequence[int] = ()
    ) -> Shape:
        """Draw a shape, mostly of an existing view, which then becomes the first operand."""
        found = None
        if not self.whole and self.record.operands and self.choices.chance(75):
            role = self.record.operands[0]
            found = known(self.scene, role.buffers, role.dtypes)
        fits = found is not None and len(found.shape) in ranks
        if found is not None and fits and found.shape[0] in (partitions or found.shape):
            self.offered = found
            return found.shape
        return super().shape(ranks, partitions or (1, 2, 3, 8, 32, 128))

    def dtype(self, role: str, among: Sequence[Any] | None = None) -> np.dtype[Any]:
        """Draw a dtype of the role, often the first operand's, which some rules require."""
        allowed = [
            one
            for one in self.roles[role].dtypes or DTYPES
            if not among or one in among
        ]
        if self.first in allowed and self.choices.chance(50):
            return self.first
        return super().dtype(role, among)

    def tile(
        self,
        role: str,
        shape: Any,
        *,
        space: Space | None = None,
        dtype: np.dtype[Any] | None = None,
        values: Any = None,
        written: bool = True,
        **limits: int,
    ) -> Operand:
        """Draw a view of a tensor of the kernel, with new values where they are given."""
        declared = self.roles[role]
        spaces = declared.buffers if space is None else (space,)
        dtypes = declared.dtypes or DTYPES if dtype is None else (dtype,)
        zeros = np.broadcast_to(np.float32(0), shape)
        if role in {one.name for one in self.record.destinations}:
            wanted = self.pick(dtypes)
            if role == "dst" and self.returns and not written:
                return Operand(zeros, wanted, spaces[0])
            made = self._into(shape, wanted, spaces, written=written)
        elif values is not None or (limits and self.choices.chance(60)):
            made = self._new(shape, self.pick(dtypes), spaces, values, limits)
        else:
            made = self.offered
            self.offered = None
            if made is None or not self._fits(made, shape, spaces, dtypes):
                made = self._operand(shape, spaces, dtypes)
        self.texts[role] = made.text
        self.first = made.dtype if self.first is None else self.first
        if self.returns and role == "dst":
            self.texts[role] = sinks.target_text(made.text)
        values = zeros if values is None else values
        return Operand(values, made.dtype, made.value.space)

    def _fits(self, made: Access, shape: Any, spaces: Any, dtypes: Any) -> bool:
        fits = made.shape == tuple(shape) and made.value.space in spaces
        return fits and made.dtype in dtypes and not (self.plain and made.value.is_odd)

    def _operand(self, shape: Any, spaces: Any, dtypes: Any) -> Access:
        if self.whole:
            value = filled(
                self.scene, tuple(shape), self.pick(dtypes), self.pick(spaces)
            )
            return self.scene.access(value.name, value)
        how = {"spaces": _near(spaces), "dtypes": dtypes, "plain": self.plain}
        return operand(self.scene, tuple(shape), **how)

    def _into(self, shape: Any, dtype: Any, spaces: Any, *, written: bool) -> Access:
        if self.whole and written:
            made = self._operand(shape, spaces, (dtype,))
        else:
            made = destination(
                self.scene, tuple(shape), dtype, _near(spaces), fill=written
            )
        made.value.opcode = self.record.name
        return made

    def _new(
        self, shape: Any, dtype: Any, spaces: Any, values: Any, limits: Any
    ) -> Access:
        """Draw a new tensor of these values, or of values within limits."""
        if values is None:
            values = self.values(shape, dtype, **limits)
        text = f"np.array({np.asarray(values).reshape(-1).tolist()})"
        value = filled(self.scene, tuple(shape), dtype, _near(spaces)[0], text)
        return self.scene.access(value.name, value)


def _near(spaces: Sequence[Space]) -> tuple[Space, ...]:
    """Buffers, SBUF first."""
    return tuple(sorted(spaces, key=lambda space: space is not Space.SBUF))


def call(scene: Scene, example: str) -> None:
    """Draw one statement: a call of an instruction."""
    drawing = SceneDrawing(example, scene)
    drawn = EXAMPLES[example](drawing)
    if scene.dialect == "classic" and not drawn.is_classic:
        return
    sums = [
        o
        for o in drawn.options
        if isinstance(o, Accumulate) and o is not Accumulate.IDLE
    ]
    if sums and (drawn.close or example == "exponential"):
        return  # the registers would keep values that are only close for others
    for name, tensor in drawn.beside.items():
        text = f"np.array({np.asarray(tensor.values).reshape(-1).tolist()})"
        value = filled(scene, np.shape(tensor.values), tensor.dtype, expression=text)
        drawing.texts[name] = value.name
    _issue(scene, drawn, drawing)


def _issue(scene: Scene, drawn: DrawnCall, drawing: SceneDrawing) -> None:
    """Emit the call, and the use of its result."""
    choices = scene.choices
    name = drawn.record.name
    module, parameters = function(name, scene.dialect)
    more = ""
    share = MASKED_WALKS if drawn.record.walk is not None else MASKED
    if "mask" in parameters and choices.chance(share):
        more = f", mask={_mask(scene, drawn)}"
    unsaid = drawn.record.classic and drawn.engine is Engine.UNKNOWN
    if "engine" in parameters and unsaid and choices.chance(8):
        more += f", engine=nisa.engine.{choices.pick(('vector', 'gpsimd', 'scalar', 'tensor'))}"
    text = spelled(drawn, scene.dialect, drawing.texts, more, dtype=choices.chance(40))
    opcode = f"{module}.{name}"
    if drawing.returns and " += " not in text:
        sinks.sink(scene, text, np.shape(drawn.role("dst").values), opcode)
    else:
        scene.emit(text, opcode)


def _mask(scene: Scene, drawn: DrawnCall) -> str:
    """Draw a mask over the call's result, or over the operand that it reduces."""
    record = drawn.record
    shape = np.shape(drawn.role("dst").values)
    if record.name == "nc_matmul":
        depth, rows = np.shape(drawn.operands["stationary"].values)
        return masks.of_product(scene, depth, rows, shape[1:])
    if record.reduced is not None or record.walk is not None:
        tiles = [one for one in drawn.operands.values() if isinstance(one, Operand)]
        shape = np.shape(tiles[0].values)
    return masks.mask(scene, shape)
