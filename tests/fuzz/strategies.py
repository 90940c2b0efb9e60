"""The strategy that draws whole programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.fuzz import bits, elementwise, movement, products, reductions, searches, selections
from tests.fuzz.program import Program
from tests.fuzz.scene import Choices, Operand, Scene
from tests.fuzz.sinks import sink

EXPRESSIONS: tuple[Callable[[Scene], Operand | None], ...] = (
    elementwise.copies,
    elementwise.copies,
    elementwise.language_binary,
    elementwise.language_binary,
    elementwise.tensor_tensor,
    elementwise.tensor_scalar,
    elementwise.scalar_tensor_tensor,
    elementwise.unary,
    elementwise.activation,
    elementwise.functions,
    movement.load,
    movement.load_beyond,
    movement.gather,
    movement.dma_transpose,
    movement.load_transpose,
    movement.shared_constant,
    products.matmul,
    products.transpose,
    reductions.tensor_reduce,
    reductions.language_reduction,
    reductions.partition_reduce,
    reductions.tensor_scalar_reduce,
    reductions.scan,
    reductions.statistics,
    selections.where,
    selections.affine_select,
    selections.range_select,
    searches.max8,
    searches.find_index8,
    searches.match_replace8,
    searches.gather_flattened,
    searches.local_gather,
    searches.copy_from_offset,
    searches.sequence_bounds,
    searches.dropout,
    searches.rand,
    bits.reinterpreted,
    bits.reinterpreted,
)
"""Instructions that return a tile."""

EFFECTS: tuple[Callable[[Scene], None], ...] = (
    movement.store,
    movement.dma_copy,
    movement.scatter,
    movement.atomic_add,
    movement.dense_index,
    products.accumulate,
    selections.select_reduce,
    selections.copy_predicated,
    searches.stream_shuffle,
    searches.copy_to_offset,
    searches.random_seed,
    bits.written_through,
)
"""Instructions that write to a destination which they are given."""

LOOPS = ("affine_range", "sequential_range", "static_range")
DEEPEST = 2


@st.composite
def _statement(draw: Callable[[Any], Any], scene: Scene) -> None:
    """Draw one statement into the scene."""
    choices = scene.choices
    if len(scene.integers) < DEEPEST + len(scene.grid) and choices.chance(10):
        body = draw(st.integers(1, 3))
        scene.loop(
            scene.fresh("k"),
            choices.pick(LOOPS),
            choices.integer(1, 3),
            lambda: [draw(_statement(scene)) for _ in range(body)] and None,
        )
        return
    number = choices.integer(0, len(EXPRESSIONS) + len(EFFECTS) - 1)
    if number < len(EXPRESSIONS):
        result = EXPRESSIONS[number](scene)
        if result is not None:
            sink(scene, result)
    else:
        EFFECTS[number - len(EXPRESSIONS)](scene)


@st.composite
def programs(draw: Callable[[Any], Any], longest: int = 8) -> Program:
    """Whole kernels of up to ``longest`` drawn statements (and those that these need)."""
    choices = Choices(draw)
    scene = Scene(choices, lawful=not choices.chance(20))
    scene.machine = "trn1" if choices.chance(15) else "trn2"
    if choices.chance(20):
        scene.grid = (2,)
        scene.emit("g0 = nl.program_id(0)", "nl.program_id")
        scene.integers.append(("g0", 2))
    if choices.chance(25):
        movement.padded(scene)
    for _ in range(draw(st.integers(1, longest))):
        draw(_statement(scene))
    outputs = scene.outputs()
    return Program(
        tuple(scene.inputs),
        tuple(scene.bodies[0]),
        outputs,
        scene.mutated(),
        scene.machine,
        scene.grid,
        scene.zero_sign,
    )
