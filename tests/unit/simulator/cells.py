"""Every cell {record} x {view} x {read, written} x {followed plane}, and its literal statement.

A call on a view is the call on a plain tile that holds the view's elements. Which elements those
are is found with NumPy alone: an array of positions goes through the same steps as the tensor. So
a cell runs a drawn call twice, once with a view at one role and once with the plain tile, and all
that is followed has to be the same: values, what was never written, what a mask left out, and the
exact numbers with their errors. Elements that a view does not name keep what they had, and the
event names those that it does. A call under a mask is the call where the mask is true.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from difftest.simulator import TRN3, Engine, launch, launch_ranks
from difftest.simulator.core import current
from difftest.simulator.dtypes import TFLOAT32, from_bits, is_float, to_bits
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.exact.bounded import Bounded
from difftest.simulator.frontend.classic.calls import issue as issue_classic
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.calls import issue
from difftest.simulator.frontend.nki.tensor import GROUP
from difftest.simulator.instructions import effects, gate
from difftest.simulator.instructions.gate import store
from difftest.simulator.instructions.record import (
    INSTRUCTIONS,
    DependenceClass,
    InstructionUse,
)
from difftest.simulator.memory import FROM_MASKED, MASKED_OUT
from difftest.simulator.trace import Origin
from tests.unit.simulator.effect_calls import (
    CHIP,
    OF_A_CHIP,
    OF_CORES,
    OF_RANDOM_STATES,
)
from tests.unit.simulator.instructions.calls.drawn import DrawnCall, Operand

FOLLOWED = ("values", "never written", "left out")
"""The planes of some operands' elements; the exact numbers are followed next to each."""


@dataclass(frozen=True)
class View:
    """A kind of view.

    Attributes
    ----------
    base : the shape of the tensor behind a view of a shape; None without such a view.
    of : the view of a tensor.
    places : the same, of an array of positions.
    """

    name: str
    base: Callable[[tuple[int, ...]], tuple[int, ...] | None]
    of: Callable[[Any, tuple[int, ...]], Any]
    places: Callable[[Any, tuple[int, ...]], Any]
    written: bool = True
    in_hbm: bool = True
    on_chip: bool = True
    newest: bool = False
    """True if only NeuronCore-v4 has it."""
    bits: bool = False
    """True if the tensor behind it has elements of half the size; ``base`` is in the view's."""

    def fits(self, one: Operand) -> bool:
        """Return whether a tensor can be such a view."""
        there = self.in_hbm if one.space.is_hbm else self.on_chip
        halves = not self.bits or (one.dtype.itemsize in (2, 4) and not one.is_newer)
        return there and halves and self.base(np.shape(one.values)) is not None


def _offset_tile(value: int, shape: tuple[int, int] = (1, 1)) -> Any:
    """Indices in SBUF, as a kernel makes them."""
    tile = nl.ndarray(shape, nl.int32, buffer=nl.sbuf)
    tile[...] = value
    return tile


def _scalar_offset(tensor: Any, shape: tuple[int, ...]) -> Any:
    """One step of the first free dimension further, by ``ap``."""
    strides = list(tensor.strides)
    pattern = [[step, count] for step, count in zip(strides, shape, strict=True)]
    return tensor.ap(pattern, scalar_offset=_offset_tile(1), indirect_dim=1)


def _reversed(tensor: Any, shape: tuple[int, ...]) -> Any:
    """The last dimension backwards, by ``ap`` with a negative step."""
    pattern = [[step, count] for step, count in zip(tensor.strides, shape, strict=True)]
    pattern[-1][0] *= -1
    return tensor.ap(pattern, offset=(shape[-1] - 1) * tensor.strides[-1])


def _indirect(tensor: Any, shape: tuple[int, ...]) -> Any:
    """Each second element of a partition: offset i is ``index[i % 16, i // 16]``."""
    count = shape[1]
    rows, columns = np.ogrid[: tensor.shape[0], : -(-count // GROUP)]
    index = nl.ndarray((tensor.shape[0], columns.size), nl.uint16, buffer=nl.sbuf)
    _hold(index, 2 * np.minimum(columns * GROUP + rows % GROUP, count - 1))
    current().wrote(index)
    return tensor.indirect(index, count)


def _rows(tensor: Any, shape: tuple[int, ...]) -> Any:
    """Each second row, the last one first, by an offset for each."""
    index = nl.ndarray((shape[0], 1), nl.int32, buffer=nl.sbuf)
    nisa.iota(index, [[0, 1]], 2 * (shape[0] - 1), -2)
    return tensor.vector_select(0, index)


TILE = View("tile", lambda s: s, lambda t, s: t, lambda a, s: a)
VIEWS = (
    View(
        "step",
        lambda s: (*s[:-1], 2 * s[-1]),
        lambda t, s: t[..., ::2],
        lambda a, s: a[..., ::2],
    ),
    View(
        "permuted",
        lambda s: (s[0], s[2], s[1], *s[3:]) if len(s) > 2 else None,
        lambda t, s: t.permute([0, 2, 1, *range(3, len(s))]),
        lambda a, s: a.swapaxes(1, 2),
    ),
    View("reversed", lambda s: s, _reversed, lambda a, s: a[..., ::-1]),
    View(
        "broadcast",
        lambda s: (*s[:-1], 1),
        lambda t, s: t.broadcast(len(s) - 1, s[-1]),
        lambda a, s: np.broadcast_to(a, s),
        written=False,
    ),
    View(
        "reshaped",
        lambda s: (s[0], math.prod(s[1:])),
        lambda t, s: t.reshape(s),
        lambda a, s: a.reshape(s),
    ),
    View(
        "dynamic",
        lambda s: (s[0], 3, *s[1:]),
        lambda t, s: t.select(1, _offset_tile(1)),
        lambda a, s: a[:, 1],
    ),
    View(
        "scalar offset",
        lambda s: (s[0], s[1] + 1, *s[2:]),
        _scalar_offset,
        lambda a, s: a[:, 1:],
    ),
    View(
        "indirect",
        lambda s: (
            (s[0], 2 * s[1]) if len(s) == 2 and s[1] <= 16 and s[0] % 16 == 0 else None
        ),
        _indirect,
        lambda a, s: a[:, ::2],
        in_hbm=False,
        newest=True,
    ),
    View(
        "vector offset",
        lambda s: (2 * s[0], *s[1:]) if s[0] <= 128 else None,
        _rows,
        lambda a, s: a[::2][::-1],
        on_chip=False,
    ),
    View("dtype", lambda s: s, lambda t, s: t, lambda a, s: a, bits=True),
)


# -- one run ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plane:
    """The followed planes of a tensor, over all of its elements in its own shape.

    Attributes
    ----------
    values : bits as float64, NaN told apart.
    missing : the unwritten elements.
    left_out : the elements that depend on masked-out ones.
    exact, error : the values of the exact run, and the machine's largest distance from them.
    """

    values: Any
    missing: Any
    left_out: Any
    exact: Any
    error: Any

    @classmethod
    def of(cls, tile: Any) -> Plane:
        held = tile._elements()
        values = from_bits(held, tile.dtype) if tile._holds_bits else held
        codes = tile._codes()
        codes = np.zeros(tile.shape, np.uint8) if codes is None else codes
        missing = codes >= MASKED_OUT
        left_out = (codes == FROM_MASKED) | (codes == MASKED_OUT)
        shadow = current().followers.shadow
        exact = error = np.zeros(tile.shape)
        if shadow is not None:
            held = shadow.stored(tile)
            exact = np.broadcast_to(held.value, tile.shape)
            error = np.broadcast_to(
                0.0 if held.error is None else held.error, tile.shape
            )
        return cls(
            *(np.array(one) for one in (values, missing, left_out, exact, error))
        )

    def part(self, places: Any) -> Plane:
        """These planes at some places."""
        return Plane(*(plane.reshape(-1)[places] for plane in vars(self).values()))

    def changed(self, part: Any, places: Any) -> Plane:
        """Return these planes with the planes of a part at its places."""
        put = []
        for own, new in zip(vars(self).values(), vars(part).values(), strict=True):
            both = own.copy()
            both.reshape(-1)[places] = new
            put.append(both)
        return Plane(*put)

    def difference(self, other: Plane, but: tuple[str, ...] = ()) -> str:
        """Return the differences where both are defined; ``but`` names planes to ignore."""
        unsure = self.missing | self.left_out
        for name, one, two in (
            ("never written", self.missing, other.missing),
            ("left out", self.left_out, other.left_out),
            ("values", self.values, other.values),
            ("exact", self.exact, other.exact),
            ("error", self.error, other.error),
        ):
            same = (one == two) | ((one != one) & (two != two)) | (name in but)
            if name in ("values", "exact", "error"):
                same = same | unsure
            if not same.all():
                place = np.argwhere(~same)[0].tolist()
                return f"{name} at {place}: {one[~same][0]}, {two[~same][0]}"
        return ""


def planted(call: DrawnCall) -> dict[str, Any]:
    """By operand which of its elements are special: some, and never all."""
    generator = np.random.default_rng(1)
    chosen = {}
    for name, one in call.operands.items():
        if isinstance(one, Operand) and np.size(one.values) > 1:
            *outer, last = np.shape(one.values)
            rows = generator.random((*outer, 1)) < 0.3
            rows[0] = False
            chosen[name] = np.repeat(rows, last, axis=-1)  # as a broadcast has them
    return chosen


def _plant(tile: Any, followed: str, mask: Any) -> None:
    """Let some of a tensor's elements be special, and its numbers inexact."""
    storage = tile._storage
    shadow = current().followers.shadow
    if is_float(tile.dtype) and shadow is not None:
        values = np.asarray(Plane.of(tile).values, np.float64)
        error = np.where(mask, 0.5, 0.25)
        shadow.put(tile, Bounded(values + error / 4, error, tile.dtype), None)
    if followed != "values" and mask.any():
        tile._forget_written(
            mask, Origin(storage.allocation, (0,), (1,), "planted", None)
        )
        if followed == "left out":
            storage.leave_out()


def run(
    call: DrawnCall, views: dict[str, View], followed: str, *, judged: bool = False
) -> dict[str, Plane]:
    """The planes of what each destination's view names, after the call.

    Parameters
    ----------
    views : by role, in place of the plain tile.
    judged : whether the oracle follows too, next to the exact run.

    Raises
    ------
    NkiError : the call refuses such a view.
    AssertionError : an element outside the view has changed.
    """
    held = {
        name: one
        for name, one in {**call.beside, **call.operands, **call.destinations}.items()
        if isinstance(one, Operand)
    }
    masks = planted(call)
    planes: dict[str, Plane] = {}

    @jit
    def kernel() -> None:
        tiles = {
            name: one() if callable(one) else one
            for name, one in {**call.operands, **call.destinations}.items()
        }
        bases = {}
        for name, one in held.items():
            view = views.get(name, TILE)
            shape = np.shape(one.values)
            base_shape = view.base(shape)
            assert base_shape is not None
            places = view.places(
                np.arange(np.prod(base_shape)).reshape(base_shape), shape
            )
            base = _made(base_shape, one, bits=view.bits)
            values = np.zeros(base_shape)
            mask = np.zeros(base_shape, np.bool_)
            values.reshape(-1)[places] = one.values
            if name in masks:
                mask.reshape(-1)[places] = masks[name]
            _hold(base, values)
            _plant(base, followed, mask)
            current().wrote(base)
            bases[name], tiles[name] = (base, places), view.of(base, shape)
        names = [part.name for part in call.record.destinations if part.name in bases]
        before = {name: Plane.of(bases[name][0]) for name in names}
        record, options = _by_rows(call, views)
        operands = tuple(tiles[part.name] for part in record.operands)
        targets = tuple(tiles[part.name] for part in record.destinations)
        beside = _do(record, operands, targets, options, call.engine)
        if _is_other_member():
            return
        planes.update(_touched(bases), **beside)
        for name in names:
            base, places = bases[name]
            after = Plane.of(base)
            planes[name] = after.part(places)
            assert not before[name].changed(planes[name], places).difference(after), (
                name
            )

    machine = TRN3 if any(view.newest for view in views.values()) else call.machine
    exchange = call.record.exchange
    if call.record.name in OF_A_CHIP:
        launch_ranks(kernel[2], [()] * len(CHIP), machine=machine)
    elif exchange is not None and call.record.name not in OF_CORES:
        launch_ranks(kernel, [(), ()], machine=machine)
    else:
        grid = () if exchange is None else (2,)
        launch(kernel, (), machine=machine, grid=grid, exact=True, plain=judged)
    return planes


def _do(
    record: Any, operands: Any, targets: Any, options: tuple[Any, ...], engine: Engine
) -> dict[str, Plane]:
    """Issue an instruction or an effect; return its results beyond its tensors, as values."""
    if record.name in INSTRUCTIONS:
        dst, *others = targets
        issue(record, dst, operands, options, others=tuple(others), engine=engine)
        return {}
    if record.name == "sendrecv" and _is_other_member():
        options = (0, 0, *options[2:])
    held = effects.issue_effect(record, [(operands, targets)], options, engine)
    values = np.array([held or 0])
    if record.name in OF_RANDOM_STATES:
        drawn = nl.ndarray((1, 4), nl.uint32)
        nisa.rng(drawn)
        values = Plane.of(drawn).values
    none = np.zeros(values.shape, np.bool_)
    return {"held": Plane(values, none, none, none, none)}


def _is_other_member() -> bool:
    """Return whether this is the second call of an exchange: the first call's view is compared."""
    seat = current().seat
    return bool(seat.program and seat.program[0]) or bool(
        seat.rank and seat.rank.number
    )


def _made(shape: tuple[int, ...], one: Operand, *, bits: bool = False) -> Any:
    """A tensor of the dialect; with ``bits`` it is a view of elements of half the size."""
    core = current()
    if not bits:
        return core.tile._whole(core.allocate(shape, one.dtype, one.space))
    half = np.dtype(f"u{one.dtype.itemsize // 2}")
    return core.tile._whole(
        core.allocate((*shape[:-1], 2 * shape[-1]), half, one.space)
    ).view(one.dtype)


def _hold(tile: Any, values: Any) -> None:
    """Let memory hold values, as it keeps them."""
    kept = tile._elements().dtype
    bits = tile._holds_bits and tile.dtype == TFLOAT32
    store(
        tile,
        to_bits(values.astype(np.float32), tile.dtype) if bits else values.astype(kept),
    )


def _by_rows(call: DrawnCall, views: dict[str, View]) -> tuple[Any, tuple[Any, ...]]:
    """The record and its options; a copy by DMA has others where rows have offsets."""
    (role,) = [
        name for name, view in views.items() if view.name == "vector offset"
    ] or [""]
    if not role or call.record.name != "dma_copy":
        return call.record, call.options
    rmw, _, dge = call.options
    return call.record, (rmw, "error", dge)


def _names_one_of(event: Any, bases: dict[str, tuple[Any, Any]]) -> bool:
    """Return whether an event is about the call; another test checks an effect's results."""
    held = {id(base._storage.allocation) for base, _ in bases.values()}
    return any(id(region.allocation) in held for region in event.writes + event.reads)


def _touched(bases: dict[str, tuple[Any, Any]]) -> dict[str, Plane]:
    """By role which elements of a view the last event names, as values; it names no others."""
    planes: dict[str, Plane] = {}
    event = next(
        one for one in reversed(current().trace.events) if _names_one_of(one, bases)
    )
    for how, regions in (("written", event.writes), ("read", event.reads)):
        for region in regions:
            base, places = bases.get(region.role, (None, None))
            if base is not None and base._storage.allocation is region.allocation:
                known = region.places
                numbers = region.pattern.elements() if known is None else known.elements
                none = np.zeros(places.shape, np.bool_)
                assert np.isin(numbers, places).all(), (
                    f"{event.opcode} names others of its {how}"
                )
                touched = np.isin(places, numbers)
                planes[f"{region.role} {how}"] = Plane(touched, none, none, none, none)
    return planes


# -- masks -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MaskKind:
    """A mask over [partitions, ..., last]: ``of`` the numbers of both and how many there are."""

    name: str
    of: Callable[[Any, Any, int, int], Any]
    reaches: tuple[DependenceClass, ...]
    """The elements of the instructions whose result under the mask is the result elsewhere."""

    def chosen(self, shape: tuple[int, ...]) -> Any:
        """The mask over a shape."""
        first = np.arange(shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
        last = np.arange(shape[-1]) if len(shape) > 1 else np.zeros(1, np.int64)
        return np.broadcast_to(self.of(first, last, shape[0], shape[-1]), shape)


MASKS = (
    MaskKind("rows", lambda p, f, n, m: p < -(-n // 2), tuple(DependenceClass)[:3]),
    MaskKind(
        "box",
        lambda p, f, n, m: (p < -(-n // 2)) & (f < -(-m // 2)),
        (DependenceClass.ELEMENT,),
    ),
    MaskKind(
        "otherwise",
        lambda p, f, n, m: p + f < max(n, m) - 1,
        (DependenceClass.ELEMENT,),
    ),
)


def run_masked(call: DrawnCall, kind: MaskKind, followed: str) -> dict[str, Plane]:
    """By destination the result of a call under a mask; nothing for a call that reaches further."""
    return {
        name: after
        for name, (_, after) in _classic(call, kind, kind.chosen, followed).items()
    }


def where_chosen(call: DrawnCall, kind: MaskKind, followed: str) -> dict[str, Plane]:
    """By destination the old values, and where the mask is true the result without it."""
    planes = {}
    for name, (before, after) in _classic(call, kind, None, followed).items():
        chosen = np.flatnonzero(kind.chosen(before.values.shape))
        planes[name] = before.changed(after.part(chosen), chosen)
    return planes


def _classic(
    call: DrawnCall,
    kind: MaskKind,
    mask: Callable[[tuple[int, ...]], Any] | None,
    followed: str,
) -> dict[str, tuple[Plane, Plane]]:
    """By destination the planes before and after a call of the classic dialect."""
    masks = planted(call)
    planes: dict[str, tuple[Plane, Plane]] = {}

    def kernel() -> None:
        tiles = {}
        for name, one in {**call.beside, **call.operands, **call.destinations}.items():
            tiles[name] = one() if callable(one) else one
            if isinstance(one, Operand):
                tiles[name] = tile = _made(np.shape(one.values), one)
                _hold(tile, np.asarray(one.values))
                _plant(tile, followed, masks.get(name, np.zeros(tile.shape, np.bool_)))
        operands = tuple(tiles[part.name] for part in call.record.operands)
        names = [
            part.name
            for part in call.record.destinations
            if tiles[part.name] is not None
        ]
        before = {name: Plane.of(tiles[name]) for name in names}
        dst, *others = (tiles[part.name] for part in call.record.destinations)
        how = {"others": tuple(others), "engine": call.engine, "chosen": mask}
        given = {"dst": dst, "others": tuple(others), "engine": call.engine}
        issued = InstructionUse(call.record, operands, call.options, **given)
        ready = gate.checked_call(current(), issued)
        if call.record.reach(ready) not in kind.reaches:
            return
        issue_classic(call.record, operands, call.options, dst=dst, **how)
        planes.update((name, (before[name], Plane.of(tiles[name]))) for name in names)

    launch(kernel, (), machine=call.machine, exact=True, record=False)
    return planes
