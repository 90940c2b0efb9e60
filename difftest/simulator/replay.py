"""Run a tape again on other arrays, without the kernel's Python.

:func:`replay_tape` turns a tape into a kernel for :func:`~difftest.simulator.launch.launch`. Each
call goes through the ordinary gate. Rules, memory, validity, the exact run, the oracle and the
trace therefore work as in any launch, and report the kernel's own lines. Instructions that depend
on data, such as gathers, offsets in tiles and random numbers, follow the new data. Python's
decisions do not: the value of a register must stay the same.

A tape may come from an untrusted process. Its contents are checked when they are used.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from difftest.simulator.arrays import tree_leaves
from difftest.simulator.core import Core, current
from difftest.simulator.dtypes import Array, dtype_name
from difftest.simulator.errors import Location, NkiError, NotModelledError, OracleError
from difftest.simulator.frontend.classic.memories import FORCES_AUTO_ALLOC, mark
from difftest.simulator.frontend.launchable import (
    MOST_PROGRAMS,
    Launchable,
    NkiLaunchable,
)
from difftest.simulator.frontend.nki.calls import issue, issue_new
from difftest.simulator.instructions import effects, gate
from difftest.simulator.instructions.masked import issue_masked
from difftest.simulator.machine import MACHINES, Machine
from difftest.simulator.memory import Shape, Storage
from difftest.simulator.tape import KINDS, Tape, TapedCall, TapedForm, TileForm
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Iteration

MOST = 2**31
"""The limit on the elements of a pattern or a tensor."""


class ReplayError(NkiError):
    """A tape does not fit the arrays, or no launch can have recorded it."""


def replay_tape(tape: Tape) -> Launchable:
    """Return a tape's launch as a kernel with the same parameters; it uses the arrays alone.

    Raises
    ------
    ReplayError : at the launch, if arrays differ from the tape's in number, shape or dtype, or if a
        call of the tape is invalid.
    NotModelledError : the data would lead the kernel elsewhere.
    """
    machine = MACHINES.get(tape.machine)
    if not (min(tape.grid, default=1) > 0 and math.prod(tape.grid) <= MOST_PROGRAMS):
        raise _no_tape(
            f"a grid {tape.grid!r:.60}", f"a grid of 1 to {MOST_PROGRAMS} programs"
        )
    if machine is None:
        raise _no_tape(
            f"a machine {tape.machine!r:.40}", f"one of {', '.join(MACHINES)}"
        )
    if tape.dialect == "nki":
        return _NkiReplay(_function(tape), machine, tape)
    function = _function(tape)
    by_reference = tape.by_reference
    return Launchable(
        function, grid=tape.grid, machine=machine, by_reference=by_reference
    )


class _NkiReplay(NkiLaunchable):
    """A replay of the current dialect, on the machine of the tape."""

    machine = Launchable.machine

    def __init__(
        self, function: Callable[..., Any], machine: Machine, tape: Tape
    ) -> None:
        super().__init__(function, level=tape.level)
        self.grid = tape.grid
        self._machine = machine


def _no_tape(received: str, rule: str) -> ReplayError:
    return ReplayError(
        f"a tape has {rule}",
        happened="the object to replay is not a tape of a launch",
        received=received,
        remedy="record the kernel again with difftest.simulator.launch_listeners.recording_tapes",
    )


def _function(tape: Tape) -> Callable[..., Any]:
    """Return a function that makes the calls of a tape."""

    def replay(*values: Any, **named: Any) -> list[Tile] | None:
        core = current()
        core.trace.divided = tape.divided
        core.trace.middle_end = tape.middle_end
        program = _Program(core, _inputs(tape, (values, named)))
        mine = [call for call in tape.steps if call.program == core.seat.program]
        if core.loops.order.loop is not None:
            mine = _arranged(mine, core)
        for call in mine:
            program.run(call)
        core.loops.turns = ()
        return program.returned(tape.returned)

    replay.__name__ = replay.__qualname__ = tape.kernel
    replay.__signature__ = _signature(tape)  # type: ignore[attr-defined]
    return mark(replay, FORCES_AUTO_ALLOC) if tape.auto_alloc else replay


def _signature(tape: Tape) -> inspect.Signature:
    """Return the kernel's signature, which launches use."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    empty = inspect.Parameter.empty
    kinds: Any = type(inspect.Parameter.VAR_KEYWORD)
    parameters = []
    try:
        for name, number, mutable, _ in tape.parameters:
            kind = kinds(number)
            default = empty if kind in several else None
            annotation = "mutable_tensor" if mutable else empty
            parameters.append(
                inspect.Parameter(name, kind, default=default, annotation=annotation)
            )
        return inspect.Signature(parameters)
    except ValueError as error:
        raise _no_tape(f"{error}", "the parameters of a function") from None


def _arranged(calls: list[TapedCall], core: Core) -> list[TapedCall]:
    """Return a program's calls; the iterations of one loop are in the order of the launch."""

    def turn(call: TapedCall) -> Iteration | None:
        """Return the iteration of the loop that a call is in; None outside of the loop."""
        for iteration in call.loops:
            if iteration.loop.location == core.loops.order.loop:
                return iteration
        return None

    def loop_id(call: TapedCall) -> int | None:
        iteration = turn(call)
        return None if iteration is None else iteration.loop.id

    result: list[TapedCall] = []
    for loop, run in itertools.groupby(calls, loop_id):
        turns: dict[Iteration | None, list[TapedCall]] = defaultdict(list)
        for call in run:
            turns[turn(call)].append(call)
        order: Sequence[Iteration | None] = list(turns)
        if loop is not None:
            order = core.loops.order.arranged(order)
        result += [call for iteration in order for call in turns[iteration]]
    return result


def _inputs(tape: Tape, values: Any) -> dict[int, Storage]:
    """Return the arguments' tensors by their numbers on the tape."""
    storages = [leaf._storage for leaf in tree_leaves(values) if isinstance(leaf, Tile)]
    numbers = [number for parameter in tape.parameters for number in parameter.tensors]
    if not tape.inputs.keys() >= set(numbers):
        raise _no_tape("a tensor without a shape", "the shapes of all arguments")
    wanted = [tape.inputs[number] for number in numbers]
    have = [(storage.allocation.shape, storage.dtype) for storage in storages]
    if have != wanted:
        raise ReplayError(
            "a replay takes arrays of the shapes and dtypes of its tape",
            happened="a replay got other arrays than its tape",
            received=_shown(have),
            limit=_shown(wanted),
            remedy="record the kernel again on arrays of these shapes",
        )
    return dict(zip(numbers, storages, strict=True))


def _shown(tensors: Sequence[tuple[Shape, Any]]) -> str:
    return (
        ", ".join(f"{list(shape)} {dtype_name(dtype)}" for shape, dtype in tensors)
        or "no array"
    )


class _Program:
    """A program of the grid during a replay.

    Attributes
    ----------
    tensors : by their numbers on the tape.
    """

    def __init__(self, core: Core, tensors: dict[int, Storage]) -> None:
        self.core = core
        self.tensors = tensors
        self._tiles: dict[TileForm, Tile] = {}
        """The tiles of the running call. One tile of the tape becomes one tile again."""
        self._literals: dict[int, Any] = {}
        """The oracle's tensors. The oracle itself keeps only weak references."""

    def run(self, step: TapedCall) -> None:
        """Repeat a call at its line."""
        core = self.core
        core.loops.turns = step.loops
        if step.loops:
            core.loops.count = max(core.loops.count, step.loops[-1].loop.id + 1)
        try:
            result = self._made(step)
        except (NkiError, OracleError):
            raise
        except Exception as error:  # caused by arguments that no launch can have passed
            received = f"{step.call}: {type(error).__name__}: {error}"
            raise _no_tape(received[:160], "calls that a launch made") from error
        storage = getattr(result, "_storage", result)
        if isinstance(storage, Storage) and step.made is not None:
            self.tensors[step.made] = storage
            if self.core.followers.oracle is not None and isinstance(result, Tile):
                self._literals.setdefault(step.made, result._literal)
        elif isinstance(result, int) and result != step.made:
            raise NotModelledError(
                "a replay runs on data that give registers the values that they had",
                happened="a register was loaded with another value than on the tape",
                received=f"{result}, on the tape {step.made}",
                remedy="launch the kernel itself",
            )

    def _made(self, step: TapedCall) -> Any:
        """Return the result of a call."""
        call = CALLS.get(step.call)
        if call is None:
            raise _no_tape(f"a call {step.call!r:.40}", f"calls of {', '.join(CALLS)}")
        self._tiles.clear()
        args = [self.given(value) for value in step.args]
        how = {name: self.given(value) for name, value in step.kwargs.items()}
        if step.call == "masked":
            chosen = how["mask"]
            how["mask"] = lambda shape: chosen
        if how.pop("leaves_out", False):
            how["dst"]._storage.leave_out()
        return _at(step.stack)(lambda: call(self.core, *args, **how))

    def returned(self, accesses: tuple[TileForm, ...]) -> list[Tile] | None:
        """Return the kernel's outputs; None in a program that lacks some of them."""
        if any(access.tensor not in self.tensors for access in accesses):
            return None
        return [self.tile(access) for access in accesses]

    def given(self, value: Any) -> Any:
        """Return a value of the tape as an argument of a call."""
        if type(value) is TileForm:
            return self.tile(value)
        if type(value) is TapedForm:
            return KINDS[value.kind].make(*map(self.given, value.parts))
        if type(value) is tuple:
            return tuple(map(self.given, value))
        if type(value) is dict:
            return {name: self.given(item) for name, item in value.items()}
        return value

    def tile(self, access: TileForm) -> Tile:
        """Return a tile of the launch's dialect."""
        view: Any = self._tiles.get(access)
        if view is not None:
            return view  # type: ignore[no-any-return]
        storage = self.tensors.get(access.tensor)
        if storage is None:
            raise _no_tape(
                f"tensor {access.tensor!r:.20}", "tensors that a call made before"
            )
        dtype = storage.dtype
        if access.dtype != dtype:
            dtype = access.dtype
            storage.hold_bits()
            storage.allocation.viewed = True
        pattern = access.pattern
        if pattern == storage.whole:
            pattern = storage.whole
        else:
            _check_pattern(access, storage)
        axis = access.partition_axis
        view = self.core.tile(storage, pattern, axis, dtype, access.axes)
        if self.core.followers.oracle is not None:
            places = pattern.elements() * dtype.itemsize
            literals = self._literals
            if access.tensor not in literals:
                literals[access.tensor] = self.core.tile._whole(storage)._literal
            view._literal = literals[access.tensor].viewed(lambda _: places, dtype)
        tile: Tile = view
        self._tiles[access] = tile
        return tile


def _check_pattern(access: TileForm, storage: Storage) -> None:
    """Reject a pattern that no launch has: without elements, too large, or outside its tensor."""
    pattern = access.pattern
    if pattern.size > MOST or min(pattern.shape, default=1) < 1:
        raise _no_tape(f"{pattern}", f"patterns of 1 to {MOST} elements")
    size = storage.size * storage.dtype.itemsize // access.dtype.itemsize
    if access.axes is None and not pattern.fits(size):
        raise _no_tape(
            f"{pattern} of {storage.allocation}", "patterns inside their tensors"
        )


def _found(core: Core, tile: Tile, values: Array) -> None:
    """Set the contents of a tensor that no instruction wrote."""
    gate.check_destination(tile)
    tile._elements()[...] = values
    tile._mark()
    core.wrote(tile)


def _allocate(core: Core, shape: Shape, *args: Any, **how: Any) -> Storage:
    """Return a new tensor, of a size that a launch can have."""
    if not 0 < math.prod(shape) <= MOST or min(shape, default=1) < 1:
        raise _no_tape(
            f"a tensor of shape {shape!r:.60}", f"tensors of 1 to {MOST} elements"
        )
    return core.allocate(shape, *args, **how)


CALLS: dict[str, Callable[..., Any]] = {
    "note": lambda core, *texts: None,
    "allocate": _allocate,
    "adopt": Core.adopt,
    "amend": Core.amend,
    "seed": Core.seed,
    "found": _found,
    "issue": lambda core, *args, **how: gate.issue(*args, **how),
    "masked": lambda core, *args, **how: issue_masked(*args, **how),
    "into": lambda core, *args, **how: issue(*args, **how),
    "placed": lambda core, *args, **how: issue_new(*args, **how),
    "effect": lambda core, *args, **how: effects.issue_effect(*args, **how),
}
"""The calls that a tape may contain."""


# -- the kernel's lines ----------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _at(stack: tuple[Location, ...]) -> Callable[[Callable[[], Any]], Any]:
    """Return a function that calls another from frames with the kernel's lines."""
    called: Callable[[Callable[[], Any]], Any] = _inside
    for location in stack:
        called = _frame(location, called)
    return called


def _inside(call: Callable[[], Any]) -> Any:
    return call()


def _frame(location: Location, inner: Callable[..., Any]) -> Callable[..., Any]:
    outer = lambda call: inner(call)  # noqa: E731 - its line is the frame's
    outer.__code__ = outer.__code__.replace(
        co_filename=location.file, co_firstlineno=location.line, co_name="replayed"
    )
    return outer
