"""The strategy that draws whole programs, of both dialects."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from difftest.simulator import MACHINES, NkiError, launch
from difftest.simulator.entry.kernel import as_kernel
from difftest.simulator.entry.nki_kernel import jit
from tests.fuzz import language, statements, today
from tests.fuzz.operands import DTYPES, filled, shape_of
from tests.fuzz.program import Program
from tests.fuzz.scene import Choices, EndedError, Scene

LOOPS = ("affine_range", "sequential_range", "static_range")
SPOILT = {"classic": 20, "nki": 30}
"""In how many of a hundred programs a rule may be broken."""
MACHINES_OF = {"classic": ("trn2", "trn2", "trn2", "trn1"), "nki": ("trn2", "trn3")}
TRIES = 3
"""The number of redraws of a statement that a rule forbids."""


def statement(scene: Scene) -> None:
    """Draw a statement: a call of an instruction, another part of ``nl``, or a loop."""
    choices = scene.choices
    nested = len(scene.integers) - len(scene.grid)
    if nested < (2 if scene.dialect == "classic" else 1) and choices.chance(10):
        count = choices.integer(1, 3)
        length = choices.integer(1, 3)
        scene.loop(choices.pick(LOOPS), count, lambda: several(scene, length))
        return
    if choices.chance(75):
        statements.call(scene, choices.pick(statements.examples_of(scene.dialect)))
    else:
        choices.pick(today.TODAY if scene.dialect == "nki" else language.CLASSIC)(scene)


def several(scene: Scene, count: int) -> None:
    for _ in range(count):
        legal(scene)


def legal(scene: Scene) -> None:
    """Draw a statement, again if a rule forbids it."""
    for _ in range(TRIES):
        try:
            statement(scene)
        except NkiError:
            continue
        return


def draw_lines(scene: Scene, longest: int) -> None:
    """Draw all lines of a kernel; it ends early if a line is rejected."""
    choices = scene.choices
    try:
        if scene.grid:
            scene.before("g0 = nl.program_id(0)")
            scene.integers.append(("g0", 2))
        for _ in range(choices.integer(1, 2)):
            filled(scene, shape_of(scene), choices.pick(DTYPES))
        if choices.chance(15):
            language.padded(scene)
        for _ in range(choices.integer(1, longest)):
            legal(scene)
    except EndedError:
        pass


@st.composite
def programs(
    draw: Callable[[Any], Any], dialect: str = "classic", longest: int = 8
) -> Program:
    """Draw kernels of up to ``longest`` statements, and the statements that these need."""
    return program(Choices(draw), dialect, longest)


def program(choices: Choices, dialect: str, longest: int) -> Program:
    """Draw a kernel while it runs in a separate launch."""
    scene = Scene(choices, dialect, lawful=not choices.chance(SPOILT[dialect]))
    machine = choices.pick(MACHINES_OF[dialect])
    if dialect == "classic" and choices.chance(20):
        scene.grid = (2,)
    made: list[Any] = []
    stopped: list[BaseException] = []

    def kernel() -> None:
        try:
            draw_lines(scene, longest)
            made.append((scene.outputs(), scene.mutated()))
        except BaseException as error:  # of Hypothesis, which no launch knows
            stopped.append(error)

    decorated = jit(kernel) if dialect == "nki" else as_kernel(kernel)
    # of the whole tensor: it lacks room
    with (
        warnings.catch_warnings(),
        contextlib.suppress(NkiError),
    ):
        warnings.simplefilter("ignore")
        launch(
            decorated,
            grid=(1,) * len(scene.grid),
            machine=MACHINES[machine],
            record=False,
        )
    if stopped:
        raise stopped[0]
    if not made:
        made.append(((), ()))
    outputs, mutated = made[0]
    body = (*scene.top, *scene.bodies[0])
    return Program(
        tuple(scene.inputs), body, outputs, mutated, machine, scene.grid, dialect
    )
